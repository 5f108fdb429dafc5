// Workers KV behind the shape of Cloudflare's REST API v4, with the limits that Cloudflare enforces.
//
// The values live in a real KV namespace, whose own rules hold (lifetimes of 60 s or more, 512-byte keys, 25 MiB values).
// This Worker adds what the API adds: tokens, bulk requests with their limits, pages of keys, error bodies. `/control`
// is for tests: it counts requests, injects faults, and makes reads lag behind writes until they are told to catch up.

const MAX_KEY = 512, MAX_METADATA = 1024, MAX_VALUE = 25 << 20, MAX_PAIRS = 10_000, MAX_BODY = 100_000_000;
const MAX_READ_KEYS = 100, MAX_READ_BYTES = 25_000_000, SHORTEST_S = 60;
const WRITE_INTERVAL_MS = 1000;

const fresh = () => ({
  requests: {}, // how many of each kind were answered
  billed: { reads: 0, writes: 0, deletes: 0, lists: 0 }, // each key of a bulk request counts
  written: [], // the keys of each write request
  faults: [], // {kind, after (how many that succeed), times, status, headers, body, delayMs, applies}
  lagging: false, // whether reads show what was there before the first write since
  limitsWrites: false, // whether a key takes one write a second
});
let state = fresh();
let before = new Map(); // key -> its entry before the first write while reads lag
let writtenAt = new Map();
let expirations = new Map(); // of keys written here; the binding only lists them

class Refusal extends Error {
  constructor(status, code, message, headers = {}) {
    super(message);
    Object.assign(this, { status, code, headers });
  }
}

export default {
  async fetch(request, env) {
    const url = new URL(request.url);
    if (url.pathname === "/control") return control(request, env);
    if (url.pathname.startsWith("/worker/")) return env.WORKER.fetch(request);
    try {
      return await answer(request, url, env);
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      const errors = [{ code: error.code, message: error.message }];
      const body = { result: null, success: false, errors, messages: [] };
      return Response.json(body, { status: error.status, headers: error.headers });
    }
  },
};

async function control(request, env) {
  if (request.method === "GET") return Response.json(state);
  const wanted = await request.json();
  if (wanted.empty) {
    state = fresh();
    [before, writtenAt, expirations] = [new Map(), new Map(), new Map()];
    for (const keys of [env.KEYS, env.OTHER_KEYS]) {
      for (let page = { cursor: undefined, list_complete: false }; !page.list_complete; ) {
        page = await keys.list({ cursor: page.cursor });
        await Promise.all(page.keys.map(({ name }) => keys.delete(name)));
      }
    }
  }
  if (wanted.lagging === false) before = new Map();
  if (wanted.put) await env.KEYS.put(wanted.put.key, fromBase64(wanted.put.base64), wanted.put.options);
  const { empty, put, ...settings } = wanted;
  Object.assign(state, settings);
  return Response.json(state);
}

async function answer(request, url, env) {
  const path = /^\/client\/v4\/accounts\/([^/]+)\/storage\/kv\/namespaces\/([^/]+)(\/.*)?$/.exec(url.pathname);
  if (!path) throw new Refusal(404, 7003, "Could not route to the requested path; perhaps your object identifier is invalid?");
  const [, account, namespace, rest = ""] = path;
  const kind = `${request.method} ${rest.replace(/^\/(values|metadata)\/.*/, "/$1")}`;
  state.requests[kind] = (state.requests[kind] ?? 0) + 1;
  const fault = state.faults.find((one) => one.times > 0 && (!one.kind || one.kind === kind) && !(one.after-- > 0));
  if (fault) {
    fault.times -= 1;
    if (fault.applies) await route(request.clone(), url, rest, kind, env.KEYS); // the answer is lost, the write is not
    if (fault.delayMs) await new Promise((resolve) => setTimeout(resolve, fault.delayMs));
    return new Response(fault.body ?? "", { status: fault.status ?? 500, headers: fault.headers ?? {} });
  }
  const token = request.headers.get("authorization");
  const readsOnly = token === `Bearer ${env.READ_TOKEN}`;
  if (token !== `Bearer ${env.TOKEN}` && !readsOnly) throw new Refusal(401, 10000, "Authentication error");
  const keys = account === "account" && { keys: env.KEYS, other: env.OTHER_KEYS }[namespace];
  if (!keys) throw new Refusal(404, 10013, "list keys: 'namespace not found'");
  if (readsOnly && !kind.startsWith("GET") && kind !== "POST /bulk/get") throw new Refusal(403, 10000, "Authentication error");
  return route(request, url, rest, kind, keys);
}

function route(request, url, rest, kind, keys) {
  switch (kind) {
    case "GET ": return reply({ id: "keys", title: "keys", supports_url_encoding: true });
    case "GET /keys": return list(url, keys);
    case "GET /metadata": return metadata(decodeURIComponent(rest.slice("/metadata/".length)), keys);
    case "GET /values": return value(decodeURIComponent(rest.slice("/values/".length)), keys);
    case "POST /bulk/get": return bulkGet(request, keys);
    case "PUT /bulk": return bulkPut(request, keys);
    case "POST /bulk/delete": return bulkDelete(request, keys);
    default: throw new Refusal(405, 10000, `Method not allowed: ${kind}`);
  }
}

const reply = (result, more = {}) => Response.json({ result, success: true, errors: [], messages: [], ...more });

async function list(url, keys) {
  const limit = Number(url.searchParams.get("limit") ?? 1000);
  if (!(limit >= 10 && limit <= 1000)) throw new Refusal(400, 10013, `list keys: 'limit must be between 10 and 1000'`);
  state.billed.lists += 1;
  const page = await keys.list({
    prefix: url.searchParams.get("prefix") ?? "",
    cursor: url.searchParams.get("cursor") || undefined,
    limit,
  });
  return reply(page.keys, { result_info: { count: page.keys.length, cursor: page.list_complete ? "" : page.cursor } });
}

async function value(key, keys) {
  state.billed.reads += 1;
  const { bytes, expiration } = (before.has(key) ? before.get(key) : await stored(key, keys)) ?? {};
  if (!bytes) throw new Refusal(404, 10009, "get: 'key not found'");
  const headers = { "content-type": "application/octet-stream" };
  if (expiration) headers.expiration = String(expiration);
  return new Response(bytes, { headers });
}

async function metadata(key, keys) {
  state.billed.reads += 1;
  const entry = before.has(key) ? before.get(key) : await stored(key, keys);
  if (!entry) throw new Refusal(404, 10009, "get: 'key not found'");
  return reply(entry.metadata);
}

async function bulkGet(request, keys) {
  const { keys: names, withMetadata, type = "text" } = await json(request);
  if (!Array.isArray(names) || names.length < 1 || names.length > MAX_READ_KEYS)
    throw new Refusal(400, 10012, `You can request a maximum of ${MAX_READ_KEYS} keys`);
  state.billed.reads += names.length;
  if (type !== "text" || withMetadata !== true) throw new Refusal(400, 10012, "this server knows only text with metadata");
  const found = await keys.getWithMetadata([...new Set(names.map(checked))], { type: "text" }).catch((error) => {
    throw error.message.includes("413") ? new Refusal(413, 10024, error.message) : error;
  });
  const values = {};
  let size = 0;
  for (const [name, entry] of found) {
    const { text, metadata, expiration } = before.has(name) ? before.get(name) ?? {} : await shown(name, entry ?? {}, keys);
    values[name] = text === undefined ? null : { value: text, metadata, ...(expiration ? { expiration } : {}) };
    size += text?.length ?? 0;
  }
  if (size > MAX_READ_BYTES) throw new Refusal(413, 10024, "the total size of the values exceeds 25 MB");
  return reply({ values });
}

/** An entry of the binding, with its expiration, which the binding only lists. */
async function shown(name, { value: text, metadata }, keys) {
  if (text === undefined || text === null) return {};
  if (!expirations.has(name)) expirations.set(name, (await keys.list({ prefix: name, limit: 1 })).keys[0]?.expiration);
  return { text, metadata, expiration: expirations.get(name) };
}

async function bulkPut(request, keys) {
  const pairs = await json(request);
  if (!Array.isArray(pairs) || pairs.length > MAX_PAIRS) throw new Refusal(400, 10012, "at most 10000 pairs");
  for (const pair of pairs) {
    checked(pair.key);
    if (new TextEncoder().encode(JSON.stringify(pair.metadata ?? null)).length > MAX_METADATA)
      throw new Refusal(413, 10025, "metadata exceeds 1024 bytes");
    if (pair.expiration_ttl !== undefined && !(pair.expiration_ttl >= SHORTEST_S))
      throw new Refusal(400, 10033, `Invalid expiration_ttl of ${pair.expiration_ttl}. Expiration TTL must be at least 60.`);
    pair.bytes = pair.base64 ? fromBase64(pair.value) : new TextEncoder().encode(pair.value);
    if (pair.bytes.byteLength > MAX_VALUE) throw new Refusal(413, 10033, "value exceeds 25 MiB");
  }
  const names = pairs.map(({ key }) => key);
  state.billed.writes += names.length;
  limitWrites(names);
  await Promise.all([...new Set(names)].map((name) => remember(name, keys)));
  await inTurn(pairs, async ({ key, bytes, expiration_ttl, metadata }) => {
    await keys.put(key, bytes, { expirationTtl: expiration_ttl, metadata });
    expirations.set(key, expiration_ttl ? Math.floor(Date.now() / 1000) + expiration_ttl : null);
  });
  return reply({ successful_key_count: pairs.length, unsuccessful_keys: [] });
}

async function bulkDelete(request, keys) {
  const names = await json(request);
  if (!Array.isArray(names) || names.length > MAX_PAIRS) throw new Refusal(400, 10012, "at most 10000 keys");
  names.forEach(checked);
  state.billed.deletes += names.length;
  limitWrites(names);
  await Promise.all(names.map((name) => remember(name, keys)));
  await inTurn(names, async (name) => {
    await keys.delete(name);
    expirations.delete(name);
  });
  return reply({ successful_key_count: names.length, unsuccessful_keys: [] });
}

/** Runs many at once, but those of one request that name the same key one after the other. */
async function inTurn(items, run) {
  const chains = new Map();
  for (const item of items) {
    const name = item.key ?? item;
    chains.set(name, (chains.get(name) ?? Promise.resolve()).then(() => run(item)));
  }
  await Promise.all(chains.values());
}

async function json(request) {
  const text = await request.text();
  if (text.length > MAX_BODY) throw new Refusal(413, 10024, "the request exceeds 100 MB");
  try {
    return JSON.parse(text);
  } catch {
    throw new Refusal(400, 10012, "could not parse the body");
  }
}

function checked(name) {
  const size = typeof name === "string" ? new TextEncoder().encode(name).length : 0;
  if (size < 1 || size > MAX_KEY || name === "." || name === "..")
    throw new Refusal(414, 10030, `key length of ${size} is not valid, or it is . or ..`);
  return name;
}

function limitWrites(names) {
  const now = Date.now();
  state.written.push(names);
  if (!state.limitsWrites) return;
  if (names.some((name) => now - (writtenAt.get(name) ?? 0) < WRITE_INTERVAL_MS))
    throw new Refusal(429, 10048, "Too many writes to the same key", { "retry-after": "1" });
  for (const name of names) writtenAt.set(name, now);
}

async function stored(name, keys) {
  const { value: bytes, metadata } = await keys.getWithMetadata(name, "arrayBuffer");
  if (bytes === null) return null;
  return { bytes, ...(await shown(name, { value: new TextDecoder().decode(bytes), metadata }, keys)) };
}

async function remember(name, keys) {
  if (state.lagging && !before.has(name)) before.set(name, await stored(name, keys));
}

function fromBase64(text) {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}
