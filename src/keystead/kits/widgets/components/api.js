// API requests and their failures.

const TIMEOUT_MS = 15_000;

// The default API base: the server that this module came from.
export const OWN_ORIGIN = new URL(import.meta.url).origin;

// A failed request.
//   kind      "offline", "unreachable", "gone" (no such widget), "cooldown", "limit", "refused", or "noBase" (`api-base`
//             is not a valid URL)
//   sentence  the error message of the API; empty without a response
//   code      the error code of the API; empty without a response
//   waitS     seconds to wait, after a cooldown or a limit
export class Failure extends Error {
  constructor(kind, { sentence = "", code = "", waitS = 0 } = {}) {
    super(sentence || kind);
    Object.assign(this, { kind, sentence, code, waitS });
  }
}

// GET. `base` is null if `api-base` is invalid.
export async function read(base, service, action, fields) {
  const query = new URLSearchParams({ action, ...fields });
  return (await request(`${endpointOf(base, service)}?${query}`, {})).data;
}

// POST. Returns the whole response: a post has an edit token beside `data`.
export async function write(base, service, action, fields) {
  return request(endpointOf(base, service), {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ action, ...fields }),
  });
}

function endpointOf(base, service) {
  if (base === null) throw new Failure("noBase");
  return `${base}/api/${service}`;
}

async function request(url, options) {
  let response;
  let answer;
  try {
    response = await fetch(url, {
      ...options,
      credentials: "omit",
      cache: "no-store",
      signal: AbortSignal.timeout(TIMEOUT_MS),
    });
    answer = await response.json();
  } catch {
    // No response, or not one of the API: perhaps from a proxy.
    throw new Failure(navigator.onLine === false ? "offline" : "unreachable");
  }
  if (response.ok && answer?.success) return answer;
  throw failureOf(answer ?? {});
}

const KINDS = { NOT_FOUND: "gone", COOLDOWN: "cooldown", RATE_LIMITED: "limit" };

function failureOf(answer) {
  if (typeof answer.error !== "string") return new Failure("unreachable");
  const waitS = Math.max(0, Math.ceil(Number(answer.retryAfter) || 0));
  return new Failure(KINDS[answer.code] ?? "refused", { sentence: asSentence(answer.error), code: answer.code, waitS });
}

function asSentence(text) {
  return text && text[0].toUpperCase() + text.slice(1) + (/[.!?。]$/.test(text) ? "" : ".");
}
