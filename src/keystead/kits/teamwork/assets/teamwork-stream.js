// The notice stream: server-sent events, read with `fetch` because EventSource cannot send a token.

const FIRST_MS = 1_000;
const LONGEST_MS = 30_000;
const SILENT_MS = 45_000; // the server sends a heartbeat every 10 seconds
const DOUBTFUL_MS = 20_000;
const ENDED = Symbol("ended");

// One connection that reconnects after the last event.
//
// tell(event) gets { kind: "state", state, retryMs }, { kind: "hello" | "notice" | "missed", data }, and
// { kind: "ended" } if the token is not valid any more.
class Connection {
  #url;
  #token;
  #tell;
  #abort = null;
  #wake = null;
  #isStopped = false;
  #retryMs = FIRST_MS;
  #heardMs = 0;

  constructor(url, token, lastId, tell) {
    this.#url = url;
    this.#token = token;
    this.lastId = lastId;
    this.#tell = tell;
    this.#run();
  }

  stop() {
    this.#isStopped = true;
    this.#abort?.abort();
    this.#wake?.();
  }

  // Retry now, when the network is back. A connection that was silent for longer than a heartbeat was lost while the
  // machine slept.
  now() {
    if (this.#wake) {
      this.#report("connecting");
      this.#wake();
    } else if (Date.now() - this.#heardMs > DOUBTFUL_MS) this.cut();
  }

  // Close the connection: the network is gone, and the socket does not know.
  cut() {
    this.#abort?.abort();
  }

  async #run() {
    let failures = 0;
    this.#report("connecting");
    // Failed retries do not change the state: a screen reader would read each of them.
    while (!this.#isStopped) {
      let outcome = {};
      try {
        outcome = await this.#once(() => (failures = 0));
      } catch {
        // The connection was lost, or there was none.
      }
      if (this.#isStopped) return;
      if (outcome === ENDED) return this.#tell({ kind: "ended" });
      const backoff = Math.min(LONGEST_MS, this.#retryMs * 2 ** Math.min(failures, 10));
      failures += 1;
      // Jitter: clients that were cut off together do not reconnect together.
      const waitMs = Math.max(backoff * (0.5 + Math.random() / 2), outcome.retryMs ?? 0);
      this.#report(outcome.state ?? (navigator.onLine ? "lost" : "offline"), waitMs);
      await this.#pause(waitMs);
    }
  }

  async #once(connected) {
    this.#abort = new AbortController();
    const { signal } = this.#abort;
    const abort = this.#abort;
    let watchdog;
    const heard = () => {
      this.#heardMs = Date.now();
      clearTimeout(watchdog);
      watchdog = setTimeout(() => abort.abort(), SILENT_MS);
    };
    heard();
    try {
      const headers = { accept: "text/event-stream" };
      if (this.#token) headers.authorization = `Bearer ${this.#token}`; // otherwise the cookie is used
      if (this.lastId !== null) headers["last-event-id"] = this.lastId;
      const response = await fetch(this.#url, { headers, signal, cache: "no-store" });
      if (response.status === 401) return ENDED;
      if (!response.ok || !response.body) {
        const retryMs = 1000 * (Number(response.headers.get("retry-after")) || 0);
        return { retryMs, state: response.status === 429 ? "busy" : undefined };
      }
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return {};
        heard();
        const blocks = (rest + value).split("\n\n");
        rest = blocks.pop();
        for (const block of blocks) {
          const event = this.#read(block);
          if (event.kind === "bye") return ENDED;
          if (event.kind === "hello") {
            connected();
            this.#report("live");
          }
          if (event.kind) this.#tell(event);
        }
      }
    } finally {
      clearTimeout(watchdog);
      abort.abort();
    }
  }

  #read(block) {
    const event = { kind: "", data: "" };
    for (const line of block.split("\n")) {
      const [, name, value] = /^([^:]*):? ?(.*)$/.exec(line);
      if (name === "event") event.kind = value;
      else if (name === "data") event.data += value;
      else if (name === "id") this.lastId = value;
      else if (name === "retry" && /^\d+$/.test(value)) this.#retryMs = Math.max(FIRST_MS, Number(value));
    }
    event.data = event.data ? JSON.parse(event.data) : {};
    event.lastId = this.lastId;
    return event;
  }

  #report(state, retryMs) {
    this.#tell({ kind: "state", state, retryMs });
  }

  #pause(ms) {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms);
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    }).finally(() => (this.#wake = null));
  }
}

// The stream of a user, shared by all windows of one browser: one holds the connection and forwards events. Browsers
// limit the connections to a server, and each stream would use one.
export class Stream {
  #open;
  #tell;
  #channel = null;
  #connection = null;
  #lastId = null;
  #state = { kind: "state", state: "connecting" };
  #leave = new AbortController();
  #release = null;

  // lastId: the last event of the previous stream; null: start now.
  constructor({ url, token, user, tell, lastId = null }) {
    this.#tell = tell;
    this.#lastId = lastId;
    this.#open = () => {
      this.#connection = new Connection(url, token, this.#lastId, (event) => this.#happened(event));
    };
    if (navigator.locks && window.BroadcastChannel) this.#share(`keystead-teamwork-stream-${user}`);
    else this.#open();
  }

  get lastId() {
    return this.#lastId;
  }

  stop() {
    this.#connection?.stop();
    this.#leave.abort();
    this.#release?.();
    this.#channel?.close();
    this.#channel = null;
  }

  now() {
    this.#connection?.now();
    if (!this.#connection) this.#channel?.postMessage({ kind: "now" });
  }

  cut() {
    this.#connection?.cut();
  }

  #share(name) {
    this.#channel = new BroadcastChannel(name);
    this.#channel.onmessage = ({ data }) => this.#heard(data);
    const held = () =>
      new Promise((resolve) => {
        this.#release = resolve;
        this.#open();
      });
    navigator.locks.request(name, { signal: this.#leave.signal }, held).catch(() => {
      // It was closed before its turn; or the browser has no locks, and each window has its own connection.
      if (!this.#leave.signal.aborted && !this.#connection) this.#open();
    });
    this.#channel.postMessage({ kind: "ask" });
  }

  // From the window that holds the connection, or to it.
  #heard(message) {
    if (message.kind === "ask" || message.kind === "now") {
      if (!this.#connection) return;
      if (message.kind === "now") this.#connection.now();
      else this.#channel.postMessage({ ...this.#state, lastId: this.#lastId });
    } else if (!this.#connection) this.#took(message);
  }

  #happened(event) {
    this.#lastId = this.#connection?.lastId ?? this.#lastId;
    if (event.kind === "ended") {
      // Only this window's token has ended: another window continues with its own.
      this.stop();
      return this.#tell(event);
    }
    this.#channel?.postMessage({ ...event, lastId: this.#lastId });
    this.#took(event);
  }

  #took(event) {
    this.#lastId = event.lastId ?? this.#lastId;
    if (event.kind === "state") this.#state = event;
    this.#tell(event);
  }
}
