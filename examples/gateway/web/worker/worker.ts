// A Worker of Cloudflare: counts the views of a page.
import { Redis } from "@upstash/redis/cloudflare";
import { createShopKeys } from "../keys.js";

interface Env {
  UPSTASH_REDIS_REST_URL: string;
  UPSTASH_REDIS_REST_TOKEN: string;
}

export default {
  async fetch(request: Request, env: Env): Promise<Response> {
    const keys = createShopKeys(Redis.fromEnv(env));
    const page = new URL(request.url).pathname.slice(1) || "home";
    return Response.json({ page, views: await keys.views(page).increment() });
  },
};
