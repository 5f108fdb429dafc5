// Plays the desktop app of a patron: it signs in as one does, with PKCE, and sends what one sends. Tokens are kept for as
// long as this tab is open, so that its way to the provider and back does not lose them.
const by = (id) => document.getElementById(id);
const { publicUrl, authorizeUrl, clientId, scope, path, pledges } = by("app").dataset;
const words = JSON.parse(by("app").dataset.words);
const say = (name, values = {}) => words[name].replace(/\{(\w+)\}/g, (_, value) => values[value]);
const HERE = `${publicUrl}${path}`;
const KEPT = "keystead-membership";
const UNDER_WAY = "keystead-membership-sign-in";
const DEVICES_MOST = 4;
const SHOWN_OF_TOKEN = 8;

// --- what this tab remembers --------------------------------------------------------------------------------------

const kept = { devices: [], count: 0, refreshToken: null, ...read(KEPT) };
const secrets = new Set(kept.devices.map(({ token }) => token));
let isShown = false;
let last = null; // what was asked last, and its answer

function read(name) {
  try {
    return JSON.parse(sessionStorage.getItem(name));
  } catch {
    return null;
  }
}

function keep() {
  sessionStorage.setItem(KEPT, JSON.stringify(kept));
}

const device = () => kept.devices.at(-1);

// --- signing in ---------------------------------------------------------------------------------------------------

const base64url = (bytes) => btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
const random = () => base64url(crypto.getRandomValues(new Uint8Array(32)));

async function signIn(more = {}) {
  const [verifier, state] = [random(), random()];
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(verifier));
  sessionStorage.setItem(UNDER_WAY, JSON.stringify({ verifier, state }));
  const asked = {
    response_type: "code",
    client_id: clientId,
    redirect_uri: HERE,
    scope,
    state,
    code_challenge: base64url(new Uint8Array(digest)),
    code_challenge_method: "S256",
    ...more,
  };
  location.assign(`${authorizeUrl}?${new URLSearchParams(asked)}`);
}

// The browser is back from the provider: the code is exchanged once, and is in the address no more. True: somebody signed in.
async function comeBack() {
  const told = new URLSearchParams(location.search);
  if (!told.has("code") && !told.has("error")) return;
  const begun = read(UNDER_WAY);
  sessionStorage.removeItem(UNDER_WAY);
  history.replaceState(null, "", path);
  if (told.has("error")) {
    const isCancelled = told.get("error") === "access_denied";
    return complain(say(isCancelled ? "cancelled" : "refusedSignIn"));
  }
  if (begun?.state !== told.get("state")) return complain(say("otherTab"));
  const body = { code: told.get("code"), redirect_uri: HERE, code_verifier: begun.verifier };
  secrets.add(body.code).add(body.code_verifier);
  const answer = await send({ method: "POST", path: "/api/auth/callback", body });
  if (!answer.ok) return complain(sentenceOf(answer));
  kept.count += 1;
  kept.refreshToken = null;
  kept.devices = [...kept.devices, { number: kept.count, token: answer.told.session_token, name: answer.told.full_name }].slice(-DEVICES_MOST);
  keep();
  show({ ...answer, sentence: say("isSignedIn", { name: answer.told.full_name, plan: answer.told.plan }) });
  return true;
}

// --- requests -----------------------------------------------------------------------------------------------------

const bearer = (token) => ({ Authorization: `Bearer ${token}` });

// What each button sends, and what a success means.
const ASKS = {
  validate: {
    request: ({ token }) => ({ method: "POST", path: "/api/session/validate", body: { session_token: token } }),
    sentence: ({ plan }) => say("validateDone", { plan }),
  },
  sync: {
    request: ({ token }) => ({ method: "GET", path: "/api/patreon/license-status", headers: bearer(token) }),
    sentence: ({ plan }) => say("syncDone", { plan }),
  },
  tokens: {
    request: ({ token }) => ({ method: "POST", path: "/api/auth/token", headers: bearer(token) }),
    sentence: ({ expiresIn }) => say("tokensDone", { minutes: expiresIn / 60 }),
  },
  refresh: {
    request: () =>
      kept.refreshToken && { method: "POST", path: "/api/auth/refresh", body: { refreshToken: kept.refreshToken } },
    sentence: () => say("refreshDone"),
  },
  logout: {
    request: ({ token }) => ({ method: "POST", path: "/api/auth/logout", headers: bearer(token) }),
    sentence: () => say("logoutDone"),
  },
  "revoke-all": {
    request: ({ token }) => ({ method: "POST", path: "/api/patreon/revoke-all", headers: bearer(token) }),
    sentence: ({ revoked_count: count }) => say("revokeAllDone", { count }),
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
    const told = await answer.json().catch(() => ({}));
    for (const name of ["session_token", "accessToken", "refreshToken"]) if (told[name]) secrets.add(told[name]);
    return { request, ok: answer.ok, status: answer.status, told, took: performance.now() - begun };
  } catch {
    return { request, ok: false, status: 0, told: {}, took: performance.now() - begun };
  }
}

const sentenceOf = ({ status, told }) => {
  if (!status) return say("noAnswer");
  const said = told.error ?? say("refused");
  return `${said[0].toUpperCase()}${said.slice(1)}${/[.。]$/.test(said) ? "" : "."}`;
};

async function ask(name, of = device()) {
  complain(null);
  hear(null);
  const { request, sentence } = ASKS[name];
  const asked = request(of);
  if (!asked) return show({ ok: false, sentence: say("noRefreshToken") });
  const answer = await send(asked);
  if (answer.told.refreshToken) {
    kept.refreshToken = answer.told.refreshToken;
    keep();
  }
  show({ ...answer, sentence: answer.ok ? sentence(answer.told) : sentenceOf(answer) });
  await look();
}

// --- what is shown ------------------------------------------------------------------------------------------------

const cut = (token) => `${token.slice(0, SHOWN_OF_TOKEN)}…`;

function visible(text) {
  if (isShown) return text;
  return [...secrets].reduce((told, secret) => told.replaceAll(secret, cut(secret)), text);
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
  by("nothing-asked").hidden = true;
  by("answer").hidden = false;
  draw();
}

function draw() {
  by("show").textContent = say(isShown ? "hide" : "show");
  by("show").setAttribute("aria-pressed", String(isShown));
  by("token").textContent = device() ? (isShown ? device().token : cut(device().token)) : "";
  if (!last) return;
  const { request, ok, status, told, took, sentence } = last;
  by("status").textContent = request ? status || say("statusNone") : say("statusNotSent");
  by("status").className = `state ${ok ? "good" : "bad"}`;
  by("sentence").textContent = sentence;
  by("exchanged").hidden = !request;
  if (!request) return;
  by("took").textContent = `${request.method} ${request.path}, ${Math.max(1, Math.round(took))} ms`;
  by("body").textContent = visible(JSON.stringify(told, null, 2));
  by("curl").textContent = visible(curl(request));
}

function complain(sentence) {
  by("problem").textContent = sentence ?? "";
  by("problem").hidden = !sentence;
}

function hear(sentence) {
  by("heard").textContent = sentence ?? "";
  by("heard").hidden = !sentence;
}

const number = new Intl.NumberFormat(document.documentElement.lang);
const day = new Intl.DateTimeFormat(document.documentElement.lang, { dateStyle: "long", timeStyle: "short" });
const monthOf = (yearMonth) =>
  new Intl.DateTimeFormat(document.documentElement.lang, { month: "long", year: "numeric", timeZone: "UTC" }).format(new Date(`${yearMonth}-01T00:00:00Z`));

function usedOf({ year_month: month, tokens_used: used, tokens_limit: limit }) {
  const values = { used: number.format(used), limit: number.format(limit), month: monthOf(month) };
  return say(limit ? "tokensUsed" : "noTokensInPlan", values);
}

// Ask of each device whether it is still signed in. Nothing of this is shown as an answer: it is what the page knows.
async function look() {
  const looking = kept.devices;
  const answers = await Promise.all(looking.map((one) => send(ASKS.validate.request(one))));
  if (looking !== kept.devices) return; // another came meanwhile
  const away = answers.find(({ status }) => !status || status >= 500);
  if (away) return complain(sentenceOf(away));
  looking.forEach((one, at) => {
    const { ok, status, told } = answers[at];
    one.ended = ok ? null : `${status} ${told.error_code ?? told.code ?? ""}`.trim();
    if (ok) one.known = told;
  });
  const current = device();
  const before = current?.plan;
  if (current?.known) current.plan = current.known.plan;
  keep();
  drawDevices();
  if (!current) return;
  if (before && before !== current.plan) hear(say("planNow", { plan: current.plan, before }));
  drawMember(current);
  if (!current.ended) await drawQuota(current);
}

function drawDevices() {
  const isSignedIn = kept.devices.length > 0 && !device().ended;
  by("signed-in").hidden = kept.devices.length === 0;
  by("welcome").hidden = kept.devices.length > 0;
  by("another").textContent = say(isSignedIn ? "anotherDevice" : "signInAgain");
  const focused = [...by("devices").children].findIndex((line) => line.contains(document.activeElement));
  by("devices").replaceChildren(
    ...kept.devices.map((one) => {
      const line = document.createElement("li");
      const [name, state, button] = ["span", "span", "button"].map((tag) => document.createElement(tag));
      name.textContent = say("deviceNamed", one);
      state.className = `state ${one.ended ? "bad" : "good"}`;
      state.textContent = one.ended ?? say("deviceSignedIn");
      Object.assign(button, { type: "button", className: "quiet small", textContent: say("validate") });
      button.setAttribute("aria-label", say("validateDevice", one));
      button.addEventListener("click", () => inLine(() => ask("validate", one)));
      line.append(name, state, button);
      return line;
    }),
  );
  by("devices").children[focused]?.querySelector("button").focus();
}

function drawMember({ name, known, ended }) {
  by("name").textContent = name;
  by("initials").textContent = name.split(/\s+/).slice(0, 2).map((word) => [...word][0] ?? "").join("").toUpperCase();
  by("state").textContent = say(ended ? "signedOut" : "signedIn");
  by("state").className = `state ${ended ? "bad" : "good"}`;
  draw();
  if (!known) return;
  by("email").textContent = known.email;
  by("plan").textContent = known.plan;
  by("plan").dataset.plan = known.plan;
  const charged = known.next_charge_date ? say("nextOn", { date: known.next_charge_date }) : "";
  by("patron").textContent = `${words[known.patron_status] ?? known.patron_status}${charged}`;
  by("ends").textContent = ended ? say("hasEnded") : day.format(known.session_expires_at);
  by("ends").dateTime = new Date(known.session_expires_at).toISOString();
  by("pledges").textContent = say("changePledgeOf", { name });
  by("pledges").href = `${pledges}?${new URLSearchParams({ person: known.patreon_user_id, back: path })}`;
}

async function drawQuota(of) {
  const { ok, told } = await send({ method: "GET", path: "/api/quota/status", headers: bearer(of.token) });
  if (!ok || of !== device()) return;
  const { tokens_used: used, tokens_limit: limit } = told.monthly_usage;
  by("quota").value = limit ? Math.min(1, used / limit) : 0;
  by("quota-text").textContent = usedOf(told.monthly_usage);
}

// --- buttons ------------------------------------------------------------------------------------------------------

// One after the other, in the order in which they were pressed.
let line = Promise.resolve();
let waiting = 0;

function inLine(act) {
  waiting += 1;
  document.body.setAttribute("aria-busy", "true");
  const done = () => {
    waiting -= 1;
    if (!waiting) document.body.removeAttribute("aria-busy");
  };
  line = line.then(act).finally(done);
  return line;
}

by("go-on")?.addEventListener("click", () => inLine(() => signIn({ prompt: "none" })));
by("sign-in").addEventListener("click", () => inLine(() => signIn()));
by("another").addEventListener("click", () => inLine(() => signIn()));
by("show").addEventListener("click", () => {
  isShown = !isShown;
  draw();
});
for (const button of document.querySelectorAll("[data-asks]")) {
  button.addEventListener("click", () => {
    inLine(() => ask(button.dataset.asks));
  });
}

const COPIES = { token: () => device().token, curl: () => curl(last.request) };

for (const button of document.querySelectorAll("[data-copies]")) {
  button.addEventListener("click", async () => {
    const isCopied = await navigator.clipboard.writeText(COPIES[button.dataset.copies]()).then(
      () => true,
      () => false,
    );
    button.textContent = say(isCopied ? "copied" : "copy");
    by("copied").textContent = say(isCopied ? "copied" : "cannotCopy");
    setTimeout(() => {
      button.textContent = say("copy");
      by("copied").textContent = "";
    }, 2500);
  });
}

// Whoever comes back from another tab, or by the button of the browser, sees what is so now.
document.addEventListener("visibilitychange", () => document.hidden || inLine(look));
addEventListener("pageshow", ({ persisted }) => persisted && inLine(look));

by("app").hidden = false;
drawDevices();
inLine(async () => {
  const isBack = await comeBack();
  await look();
  if (isBack) by("name").focus({ preventScroll: true });
});
