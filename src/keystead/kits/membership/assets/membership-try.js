// Plays a patron's desktop app: it signs in with PKCE and sends an app's requests. Tokens are in the session storage of
// this tab, so that the redirect to the provider and back does not lose them.
const by = (id) => document.getElementById(id);
const { publicUrl, authorizeUrl, clientId, scope, path, pledges } = by("app").dataset;
const words = JSON.parse(by("app").dataset.words);
const say = (name, values = {}) => (words[name] ?? name).replace(/\{(\w+)\}/g, (_, value) => values[value]);
const PATRON = {
  active_patron: say("Active patron"),
  declined_patron: say("Payment declined"),
  former_patron: say("Former patron"),
  not_patron: say("Not a patron"),
};
const REDIRECT_URI = `${publicUrl}${path}`;
const SAVED_KEY = "keystead-membership";
const PENDING_KEY = "keystead-membership-sign-in";
const MAX_DEVICES = 4;
const SHOWN_CHARACTERS = 8;

// --- state of this tab --------------------------------------------------------------------------------------------

const saved = { devices: [], count: 0, refreshToken: null, ...load(SAVED_KEY) };
const secrets = new Set(saved.devices.map(({ token }) => token));
let isShown = false;
let last = null; // the last request and its response

function load(name) {
  try {
    return JSON.parse(sessionStorage.getItem(name));
  } catch {
    return null;
  }
}

function save() {
  sessionStorage.setItem(SAVED_KEY, JSON.stringify(saved));
}

const device = () => saved.devices.at(-1);

// --- signing in ---------------------------------------------------------------------------------------------------

const base64url = (bytes) => btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
const random = () => base64url(crypto.getRandomValues(new Uint8Array(32)));

async function signIn(more = {}) {
  const [verifier, state] = [random(), random()];
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(verifier));
  sessionStorage.setItem(PENDING_KEY, JSON.stringify({ verifier, state }));
  const query = {
    response_type: "code",
    client_id: clientId,
    redirect_uri: REDIRECT_URI,
    scope,
    state,
    code_challenge: base64url(new Uint8Array(digest)),
    code_challenge_method: "S256",
    ...more,
  };
  location.assign(`${authorizeUrl}?${new URLSearchParams(query)}`);
}

// Exchange the code after the redirect from the provider, and remove it from the address. True: a user signed in.
async function finishSignIn() {
  const query = new URLSearchParams(location.search);
  if (!query.has("code") && !query.has("error")) return;
  const pending = load(PENDING_KEY);
  sessionStorage.removeItem(PENDING_KEY);
  history.replaceState(null, "", path);
  if (query.has("error")) {
    const isCancelled = query.get("error") === "access_denied";
    return showProblem(isCancelled ? say("You cancelled the sign-in. Nothing has changed.") : say("The provider refused the sign-in. Try again."));
  }
  if (pending?.state !== query.get("state")) return showProblem(say("This sign-in was not started in this tab. Sign in again."));
  const body = { code: query.get("code"), redirect_uri: REDIRECT_URI, code_verifier: pending.verifier };
  secrets.add(body.code).add(body.code_verifier);
  const answer = await send({ method: "POST", path: "/api/auth/callback", body });
  if (!answer.ok) return showProblem(sentenceOf(answer));
  saved.count += 1;
  saved.refreshToken = null;
  saved.devices = [...saved.devices, { number: saved.count, token: answer.data.session_token, name: answer.data.full_name }].slice(-MAX_DEVICES);
  save();
  show({ ...answer, sentence: say("{name} is signed in with the plan {plan}.", { name: answer.data.full_name, plan: answer.data.plan }) });
  return true;
}

// --- requests -----------------------------------------------------------------------------------------------------

const bearer = (token) => ({ Authorization: `Bearer ${token}` });

// The request of each button, and the sentence for its success.
const REQUESTS = {
  validate: {
    request: ({ token }) => ({ method: "POST", path: "/api/session/validate", body: { session_token: token } }),
    sentence: ({ plan }) => say("The session is valid, and the plan is {plan}.", { plan }),
  },
  sync: {
    request: ({ token }) => ({ method: "GET", path: "/api/patreon/license-status", headers: bearer(token) }),
    sentence: ({ plan }) => say("The provider just reported the plan {plan}.", { plan }),
  },
  tokens: {
    request: ({ token }) => ({ method: "POST", path: "/api/auth/token", headers: bearer(token) }),
    sentence: ({ expiresIn }) => say("An access token for {minutes} minutes, and a refresh token for the next pair.", { minutes: expiresIn / 60 }),
  },
  refresh: {
    request: () =>
      saved.refreshToken && { method: "POST", path: "/api/auth/refresh", body: { refreshToken: saved.refreshToken } },
    sentence: () => say("The next pair. The previous refresh token stops working after 30 seconds."),
  },
  logout: {
    request: ({ token }) => ({ method: "POST", path: "/api/auth/logout", headers: bearer(token) }),
    sentence: () => say("The session has ended, with its tokens."),
  },
  "revoke-all": {
    request: ({ token }) => ({ method: "POST", path: "/api/patreon/revoke-all", headers: bearer(token) }),
    sentence: ({ revoked_count: count }) => say("All sessions of this user have ended: {count}.", { count }),
  },
};

async function send(request) {
  const { method, path, headers = {}, body } = request;
  const begun = performance.now();
  try {
    const answer = await fetch(path, {
      method,
      headers: { Accept: "application/json", ...headers, ...(body && { "Content-Type": "application/json" }) },
      ...(body && { body: JSON.stringify(body) }),
      credentials: "omit",
      cache: "no-store",
    });
    const data = await answer.json().catch(() => ({}));
    for (const name of ["session_token", "accessToken", "refreshToken"]) if (data[name]) secrets.add(data[name]);
    return { request, ok: answer.ok, status: answer.status, data, took: performance.now() - begun };
  } catch {
    return { request, ok: false, status: 0, data: {}, took: performance.now() - begun };
  }
}

const sentenceOf = ({ status, data }) => {
  if (!status) return say("The server does not answer. Is it still running?");
  const text = data.error ?? say("The server refused.");
  return `${text[0].toUpperCase()}${text.slice(1)}${/[.。]$/.test(text) ? "" : "."}`;
};

async function sendByName(name, from = device()) {
  showProblem(null);
  showNotice(null);
  const { request, sentence } = REQUESTS[name];
  const toSend = request(from);
  if (!toSend) return show({ ok: false, sentence: say("There is no refresh token yet. Get tokens first.") });
  const answer = await send(toSend);
  if (answer.data.refreshToken) {
    saved.refreshToken = answer.data.refreshToken;
    save();
  }
  show({ ...answer, sentence: answer.ok ? sentence(answer.data) : sentenceOf(answer) });
  await updateDevices();
}

// --- display ------------------------------------------------------------------------------------------------------

const cut = (token) => `${token.slice(0, SHOWN_CHARACTERS)}…`;

function visible(text) {
  if (isShown) return text;
  return [...secrets].reduce((shown, secret) => shown.replaceAll(secret, cut(secret)), text);
}

const quoted = (text) => `'${text.replaceAll("'", `'\\''`)}'`;

function curl({ method, path, headers = {}, body }) {
  const parts = Object.entries(headers).map(([name, value]) => `-H ${quoted(`${name}: ${value}`)}`);
  if (body) parts.push("-H 'Content-Type: application/json'", `-d ${quoted(JSON.stringify(body))}`);
  else if (method !== "GET") parts.push(`-X ${method}`);
  return ["curl", ...parts, `${publicUrl}${path}`].join(" \\\n  ");
}

function show(answer) {
  last = answer;
  by("no-response").hidden = true;
  by("answer").hidden = false;
  draw();
}

function draw() {
  by("show").textContent = isShown ? say("Hide") : say("Show");
  by("show").setAttribute("aria-pressed", String(isShown));
  by("token").textContent = device() ? (isShown ? device().token : cut(device().token)) : "";
  if (!last) return;
  const { request, ok, status, data, took, sentence } = last;
  by("status").textContent = request ? status || say("no answer") : say("not sent");
  by("status").className = `state ${ok ? "good" : "bad"}`;
  by("sentence").textContent = sentence;
  by("exchanged").hidden = !request;
  if (!request) return;
  by("took").textContent = `${request.method} ${request.path}, ${Math.max(1, Math.round(took))} ms`;
  by("body").textContent = visible(JSON.stringify(data, null, 2));
  by("curl").textContent = visible(curl(request));
}

function showProblem(sentence) {
  by("problem").textContent = sentence ?? "";
  by("problem").hidden = !sentence;
}

function showNotice(sentence) {
  by("heard").textContent = sentence ?? "";
  by("heard").hidden = !sentence;
}

const number = new Intl.NumberFormat(document.documentElement.lang);
const day = new Intl.DateTimeFormat(document.documentElement.lang, { dateStyle: "long", timeStyle: "short" });
const monthOf = (yearMonth) =>
  new Intl.DateTimeFormat(document.documentElement.lang, { month: "long", year: "numeric", timeZone: "UTC" }).format(new Date(`${yearMonth}-01T00:00:00Z`));

function usedOf({ year_month: month, tokens_used: used, tokens_limit: limit }) {
  const values = { used: number.format(used), limit: number.format(limit), month: monthOf(month) };
  return limit ? say("{used} of {limit} tokens used in {month}.", values) : say("This plan has no tokens; {used} were used in {month}.", values);
}

// Validate the session of each device in the background, and redraw.
async function updateDevices() {
  const devices = saved.devices;
  const answers = await Promise.all(devices.map((one) => send(REQUESTS.validate.request(one))));
  if (devices !== saved.devices) return; // a sign-in changed the list meanwhile
  const failure = answers.find(({ status }) => !status || status >= 500);
  if (failure) return showProblem(sentenceOf(failure));
  devices.forEach((one, at) => {
    const { ok, status, data } = answers[at];
    one.ended = ok ? null : `${status} ${data.error_code ?? data.code ?? ""}`.trim();
    if (ok) one.known = data;
  });
  const current = device();
  const before = current?.plan;
  if (current?.known) current.plan = current.known.plan;
  save();
  drawDevices();
  if (!current) return;
  if (before && before !== current.plan) showNotice(say("The plan is now {plan}. It was {before}.", { plan: current.plan, before }));
  drawMember(current);
  if (!current.ended) await drawQuota(current);
}

function drawDevices() {
  const isSignedIn = saved.devices.length > 0 && !device().ended;
  by("signed-in").hidden = saved.devices.length === 0;
  by("welcome").hidden = saved.devices.length > 0;
  by("another").textContent = isSignedIn ? say("Sign in on another device") : say("Sign in again");
  const focused = [...by("devices").children].findIndex((line) => line.contains(document.activeElement));
  by("devices").replaceChildren(
    ...saved.devices.map((one) => {
      const line = document.createElement("li");
      const [name, state, button] = ["span", "span", "button"].map((tag) => document.createElement(tag));
      name.textContent = say("Device {number}: {name}", one);
      state.className = `state ${one.ended ? "bad" : "good"}`;
      state.textContent = one.ended ?? say("200 signed in");
      Object.assign(button, { type: "button", className: "quiet small", textContent: say("Validate") });
      button.setAttribute("aria-label", say("Validate device {number}", one));
      button.addEventListener("click", () => enqueue(() => sendByName("validate", one)));
      line.append(name, state, button);
      return line;
    }),
  );
  by("devices").children[focused]?.querySelector("button").focus();
}

function drawMember({ name, known, ended }) {
  by("name").textContent = name;
  by("initials").textContent = name.split(/\s+/).slice(0, 2).map((word) => [...word][0] ?? "").join("").toUpperCase();
  by("state").textContent = ended ? say("signed out") : say("signed in");
  by("state").className = `state ${ended ? "bad" : "good"}`;
  draw();
  if (!known) return;
  by("email").textContent = known.email;
  by("plan").textContent = known.plan;
  by("plan").dataset.plan = known.plan;
  const charged = known.next_charge_date ? say(", next charge on {date}", { date: known.next_charge_date }) : "";
  by("patron").textContent = `${PATRON[known.patron_status] ?? known.patron_status}${charged}`;
  by("ends").textContent = ended ? say("ended") : day.format(known.session_expires_at);
  by("ends").dateTime = new Date(known.session_expires_at).toISOString();
  by("pledges").textContent = say("Change what {name} pays", { name });
  by("pledges").href = `${pledges}?${new URLSearchParams({ person: known.patreon_user_id, back: path })}`;
}

async function drawQuota(of) {
  const { ok, data } = await send({ method: "GET", path: "/api/quota/status", headers: bearer(of.token) });
  if (!ok || of !== device()) return;
  const { tokens_used: used, tokens_limit: limit } = data.monthly_usage;
  by("quota").value = limit ? Math.min(1, used / limit) : 0;
  by("quota-text").textContent = usedOf(data.monthly_usage);
}

// --- buttons ------------------------------------------------------------------------------------------------------

// Actions run one at a time, in order.
let queue = Promise.resolve();
let waiting = 0;

function enqueue(act) {
  waiting += 1;
  document.body.setAttribute("aria-busy", "true");
  const done = () => {
    waiting -= 1;
    if (!waiting) document.body.removeAttribute("aria-busy");
  };
  queue = queue.then(act).finally(done);
  return queue;
}

by("go-on")?.addEventListener("click", () => enqueue(() => signIn({ prompt: "none" })));
by("sign-in").addEventListener("click", () => enqueue(() => signIn()));
by("another").addEventListener("click", () => enqueue(() => signIn()));
by("show").addEventListener("click", () => {
  isShown = !isShown;
  draw();
});
for (const button of document.querySelectorAll("[data-request]")) {
  button.addEventListener("click", () => {
    enqueue(() => sendByName(button.dataset.request));
  });
}

const COPIES = { token: () => device().token, curl: () => curl(last.request) };

for (const button of document.querySelectorAll("[data-copies]")) {
  button.addEventListener("click", async () => {
    const isCopied = await navigator.clipboard.writeText(COPIES[button.dataset.copies]()).then(
      () => true,
      () => false,
    );
    button.textContent = isCopied ? say("Copied") : say("Copy");
    by("copied").textContent = isCopied ? say("Copied") : say("This browser does not allow the page to copy. Show the token and select it.");
    setTimeout(() => {
      button.textContent = say("Copy");
      by("copied").textContent = "";
    }, 2500);
  });
}

// Update after a return from another tab or from the browser's history.
document.addEventListener("visibilitychange", () => document.hidden || enqueue(updateDevices));
addEventListener("pageshow", ({ persisted }) => persisted && enqueue(updateDevices));

by("app").hidden = false;
drawDevices();
enqueue(async () => {
  const isSignedIn = await finishSignIn();
  await updateDevices();
  if (isSignedIn) by("name").focus({ preventScroll: true });
});
