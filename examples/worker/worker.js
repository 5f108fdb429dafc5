// A Worker that answers with the plan of a user, which a Python program wrote with Keystead: GET /worker/plan/ann
//
// `MEMBERSHIP` is the binding of the namespace that Python has as cloudflare-kv://account/namespace. The types of the
// values come from the key document: keystead export membership_keys:AppKeys --format typescript --out keys.ts

/** @typedef {import("./keys").Membership} Membership */

/**
 * The value of a key, or null if there is none.
 *
 * Keystead puts the exact deadline of a key into its metadata, because KV counts in seconds and keeps every key for a
 * minute at least.
 */
async function read(namespace, key) {
  const { value, metadata } = await namespace.getWithMetadata(key, "json");
  const expiresAtMs = metadata?.keystead?.expires_at_ms;
  return expiresAtMs !== undefined && expiresAtMs <= Date.now() ? null : value;
}

export default {
  async fetch(request, env) {
    const user = decodeURIComponent(new URL(request.url).pathname.split("/").pop());
    /** @type {Membership | null} */
    const membership = await read(env.MEMBERSHIP, `membership:${user}`);
    if (membership === null) return Response.json({ plan: "free", seats: 0 }, { status: 404 });
    return Response.json({ plan: membership.plan, seats: membership.seats });
  },
};
