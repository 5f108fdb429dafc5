// Serves Workers KV under the shape of Cloudflare's REST API, in Cloudflare's own runtime (workerd, by miniflare).
// Usage: node serve.js '{"port": 8700, "token": "…", "readToken": "…", "folder": "…", "worker": "/path/to/worker.js"}'
// `worker`, if given, is a second Worker with the same namespace as its binding MEMBERSHIP; it serves /worker/….
// It exits when its standard input closes, so that it never outlives the tests.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname } from "node:path";

const { Miniflare } = await import(createRequire(`${process.cwd()}/`).resolve("miniflare"));
const settings = JSON.parse(process.argv[2]);
const shared = { modules: true, modulesRules: [{ type: "ESModule", include: ["**/*.js"] }], compatibilityDate: "2026-01-01" };
const api = {
  ...shared,
  name: "api",
  script: readFileSync(new URL("rest_api.js", import.meta.url), "utf8"),
  bindings: { TOKEN: settings.token, READ_TOKEN: settings.readToken },
  kvNamespaces: { KEYS: "keys", OTHER_KEYS: "other" },
  serviceBindings: settings.worker ? { WORKER: "worker" } : {},
};
const worker = settings.worker && {
  ...shared,
  name: "worker",
  scriptPath: settings.worker,
  modulesRoot: dirname(settings.worker),
  kvNamespaces: { MEMBERSHIP: "keys" },
};
const runtime = new Miniflare({
  host: "127.0.0.1",
  port: settings.port,
  cf: false,
  kvPersist: `${settings.folder}/kv`,
  workers: [api, ...(worker ? [worker] : [])],
});
await runtime.ready;
console.log("listening");
process.stdin.resume();
process.stdin.on("end", async () => {
  await runtime.dispose();
  process.exit(0);
});
