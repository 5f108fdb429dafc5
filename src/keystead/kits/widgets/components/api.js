// Asking the API, and why it did not do what was asked.

const PATIENCE_MS = 15_000;

// Where this module came from is where the API is, unless an element says another place.
export const OWN_ORIGIN = new URL(import.meta.url).origin;

// Why something failed.
//   kind      "offline", "unreachable", "gone" (no such widget), "cooldown", "limit", "refused", or "noBase" (nobody can
//             be asked: what the page says of where the API is, is no address)
//   sentence  what the API says, for people; empty where it has said nothing
//   code      the API's own word for it; empty where it has said nothing
//   waitS     seconds, of a cooldown or a limit
export class Failure extends Error {
  constructor(kind, { sentence = "", code = "", waitS = 0 } = {}) {
    super(sentence || kind);
    Object.assign(this, { kind, sentence, code, waitS });
  }
}

// What can be read: GET. `base` is null where the page names none that can be asked.
export async function read(base, service, action, fields) {
  const query = new URLSearchParams({ action, ...fields });
  return (await answered(`${addressOf(base, service)}?${query}`, {})).data;
}

// What changes something: POST. The whole answer: beside `data` a message has its edit token.
export async function write(base, service, action, fields) {
  return answered(addressOf(base, service), {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ action, ...fields }),
  });
}

function addressOf(base, service) {
  if (base === null) throw new Failure("noBase");
  return `${base}/api/${service}`;
}

async function answered(url, options) {
  let response;
  let answer;
  try {
    response = await fetch(url, {
      ...options,
      credentials: "omit",
      cache: "no-store",
      signal: AbortSignal.timeout(PATIENCE_MS),
    });
    answer = await response.json();
  } catch {
    // No answer, or none of ours: something between here and the server has spoken.
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
