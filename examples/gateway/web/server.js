// Serves the route and the Worker with Node alone: `npm start`. In production Next.js and Cloudflare do.
import { createServer } from "node:http";
import * as wishes from "./dist/app/api/wishes/route.js";
import worker from "./dist/worker/worker.js";

async function answer(request) {
  if (new URL(request.url).pathname !== "/api/wishes") return worker.fetch(request, process.env);
  const handler = wishes[request.method];
  return handler ? handler(request) : new Response("method not allowed", { status: 405 });
}

const server = createServer(async (incoming, outgoing) => {
  const chunks = [];
  for await (const chunk of incoming) chunks.push(chunk);
  const body = chunks.length > 0 ? Buffer.concat(chunks) : undefined;
  const request = new Request(`http://${incoming.headers.host}${incoming.url}`, { method: incoming.method, body });
  try {
    const response = await answer(request);
    outgoing.writeHead(response.status, Object.fromEntries(response.headers)).end(await response.text());
  } catch (error) {
    outgoing.writeHead(502, { "content-type": "text/plain" }).end(`${error.message}\n`);
  }
});

server.listen(Number(process.env.PORT ?? 3000), "127.0.0.1", () => {
  console.log(`The shop is at http://127.0.0.1:${server.address().port}`);
});
