// A route of Next.js: the wishes of a customer. The types and lifetimes are those of shop/keys.py.
import { Redis } from "@upstash/redis";
import { createShopKeys } from "../../../keys.js";

const keys = createShopKeys(Redis.fromEnv());

function customer(request: Request): number {
  return Number(new URL(request.url).searchParams.get("uid"));
}

export async function GET(request: Request): Promise<Response> {
  const uid = customer(request);
  const [profile, wishes] = await Promise.all([keys.profile(uid).get(), keys.wishes(uid).members()]);
  return Response.json({ name: profile?.name ?? "a guest", wishes: wishes.sort() });
}

export async function POST(request: Request): Promise<Response> {
  const { item } = (await request.json()) as { item: string };
  await keys.wishes(customer(request)).add([item]);
  return GET(request);
}
