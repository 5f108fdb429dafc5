// npm's @humanwhocodes/upstash-redis-server: it has no base64, path form or subscriptions.
import { serve } from "@hono/node-server";
import { createApp } from "@humanwhocodes/upstash-redis-server";

const [token, redisUrl, port] = process.argv.slice(-3);
serve({ fetch: createApp({ token, redisUrl }).fetch, port: Number(port), hostname: "127.0.0.1" });
