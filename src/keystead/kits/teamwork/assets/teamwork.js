// The teamwork page: live notices, a calendar of deadlines, and a dashboard.
import { Calendar, dayInWords, isNear, isOverdue, plusDays, plusMonths } from "./teamwork-calendar.js";
import { Stream } from "./teamwork-stream.js";
import { Team } from "./teamwork-team.js";
import { wordsOf } from "./teamwork-words.js";

const TOKEN = "keystead.teamwork.token"; // in sessionStorage, for an application that signs people in
const SESSION = ""; // instead of a token: the cookie of a session of this server
const SIZE = 20;
const GAP_MS = 1_000; // between two refreshes, even in a burst
const SOON_MS = 150;
const LATER_MS = 2_500;
const DRAW_MS = 40;
const NEAR_DAYS = 3;
const PREFIXES = {
  WORK_REQUEST: "WR", TECH_TASK: "TK", TEST_SCENARIO: "TS", DEFECT: "DF", DEPLOYMENT: "DP", MEETING_NOTE: "MN",
  PROJECT_IDEA: "ID", KNOWLEDGE_BASE: "KB",
};

const by = (id) => document.getElementById(id);
const root = by("teamwork");
const people = JSON.parse(root.dataset.people);

const texts = JSON.parse(root.dataset.words);
const say = (text, values = {}) => (texts[text] ?? text).replace(/\{(\w+)\}/g, (_, name) => values[name]);
const words = wordsOf(say, document.documentElement.lang);
let token = null;
let me = null;
let stream = null;
let windows = null; // the other windows of the same user
let calendar = null;
let zone = "";

const notices = { items: [], total: 0, page: 0, unread: 0, above: 0, isLoaded: false, problem: "", fresh: new Set() };
const connection = { state: "connecting" };
let summary = null;
let pressing = null;
let undone = null;
let about = aboutOf(new URLSearchParams(location.search)); // the work item whose notices are shown; null: all

function aboutOf(query) {
  const [refType, refId] = [query.get("refType"), query.get("refId")];
  return refType && refId && refType !== "TEAM" ? { refType, refId } : null;
}

function stored(storage, name) {
  try {
    return storage().getItem(name);
  } catch {
    return null; // storage is off
  }
}

function store(storage, name, value) {
  try {
    if (value === null) storage().removeItem(name);
    else storage().setItem(name, value);
  } catch {
    // Storage is off: it lasts as long as the page is open.
  }
}

// --- requests ----------------------------------------------------------------------------------------------------

class Refused extends Error {
  constructor(status, sentence) {
    super(sentence);
    this.status = status;
  }
}

async function ask(path, method = "GET", body = undefined) {
  const headers = { accept: "application/json" };
  const used = token;
  if (used) headers.authorization = `Bearer ${used}`;
  if (body !== undefined) headers["content-type"] = "application/json";
  let response;
  let answer = {};
  try {
    response = await fetch(path, { method, headers, cache: "no-store", body: body && JSON.stringify(body) });
    answer = await response.json();
  } catch {
    if (!response || response.ok) throw new Refused(0, words.unreachable); // or a proxy responded
  }
  if (response.status === 401 && used !== null && used === token && me) leave(true);
  if (!response.ok) throw new Refused(response.status, words.refused(answer.error ?? String(response.status)));
  return answer;
}

// An action of the user: shows an error, and returns `null`.
async function act(work) {
  tell("problem", null);
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    if (error.status !== 401) tell("problem", error.message);
    return null;
  }
}

// Background refreshes: one at a time, not too often. A failed one is retried when the connection is back.
function looking(work) {
  let timer = null;
  let isBusy = false;
  let isWanted = false;
  let lastMs = -GAP_MS;
  const run = async () => {
    clearTimeout(timer);
    timer = null;
    if (isBusy) return void (isWanted = true);
    isBusy = true;
    lastMs = performance.now();
    try {
      if (me) await work();
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
    } finally {
      isBusy = false;
      if (isWanted) {
        isWanted = false;
        soon();
      }
    }
  };
  const soon = () => {
    timer ??= setTimeout(run, Math.max(SOON_MS, lastMs + GAP_MS - performance.now()));
  };
  let laterTimer = null;
  const later = () => {
    clearTimeout(laterTimer);
    laterTimer = setTimeout(soon, LATER_MS);
  };
  return { now: run, soon, later };
}

function tell(id, sentence) {
  by(id).hidden = !sentence;
  by(id).textContent = sentence ?? "";
}

function make(tag, className = "", text = "") {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text) made.textContent = text;
  return made;
}

function button(text, className, work, label = "") {
  const made = make("button", className, text);
  made.type = "button";
  if (label) made.setAttribute("aria-label", label);
  made.addEventListener("click", work);
  return made;
}

const team = new Team({
  ask, act, make, button, words,
  say: (sentence) => (by("heard").textContent = sentence),
  moved: () => {
    stream?.stop();
    windows?.close();
    stream = windows = null;
    return enter(token);
  },
  changed: () => {
    draw();
    lookAtDeadlines.soon();
  },
});

// --- sign-in -----------------------------------------------------------------------------------------------------

async function start() {
  speak();
  root.hidden = false;
  const as = Number(new URLSearchParams(location.search).get("as"));
  if (as && people.some((person) => person.id === as)) {
    history.replaceState(null, "", location.pathname);
    return signInAs(as);
  }
  if ("signedIn" in root.dataset) return enter(SESSION);
  const kept = stored(() => sessionStorage, TOKEN);
  if (kept) return enter(kept);
  show(false);
  team.drawLink();
}

async function signInAs(person) {
  const answer = await act(() => ask("/api/teamwork/demo/sign-in", "POST", { person }));
  if (answer) await enter(answer.token);
  else show(false);
}

async function enter(given) {
  token = given;
  try {
    me = await ask("/api/me");
  } catch (error) {
    if (error.status === 401) {
      token = null;
      store(() => sessionStorage, TOKEN, null);
      show(false);
      if (by("token-problem")) tell("token-problem", words.tokenWrong);
      else by("ended").hidden = false;
      return;
    }
    tell("problem", error.message);
    setTimeout(() => token === given && !me && enter(given), 3_000);
    return;
  }
  tell("problem", null);
  store(() => sessionStorage, TOKEN, given || null);
  Object.assign(notices, { items: [], total: 0, page: 0, unread: 0, above: 0, isLoaded: false, problem: "" });
  notices.fresh.clear();
  by("missed").hidden = true;
  summary = pressing = null;
  calendar?.show([], calendar.today);
  for (const id of ["add-who", "demo-to"]) by(id)?.replaceChildren(); // choices of the previous user
  by("ended").hidden = true;
  const wasAsked = !by("sign-in").hidden;
  show(true);
  const here = team.enter(me);
  if (!me.teamId) {
    by("no-team-title").focus({ preventScroll: true });
    return act(() => here);
  }
  here.catch(() => {}); // a failed preview is retried when the page is reloaded
  if (window.BroadcastChannel) {
    windows = new BroadcastChannel(`keystead-teamwork-${me.id}`);
    windows.onmessage = ({ data }) => heardOf(data);
  }
  listen();
  draw();
  lookAtAll();
  if (wasAsked) by("notices-title").focus({ preventScroll: true });
}

// Titles are in the language of the page: for another one, the stream reconnects after the last event.
function listen() {
  const lastId = stream?.lastId ?? null;
  stream?.stop();
  connection.state = "connecting";
  const url = `/api/notifications/stream?language=${words.tag}`;
  stream = new Stream({ url, token, user: me.id, tell: came, lastId });
}

// The stream or another request may see the revoked token before the sign-out responds.
let isSigningOut = false;

// Signed out: by the user, or because the token is not valid any more.
function leave(hasEnded) {
  stream?.stop();
  windows?.close();
  if (token === SESSION) document.querySelector(".signed-in")?.remove(); // it shows the signed-out user
  stream = windows = me = token = null;
  store(() => sessionStorage, TOKEN, null);
  by("ended").hidden = !hasEnded || isSigningOut;
  connection.state = "connecting";
  drawConnection();
  team.enter(null);
  show(false);
  by("sign-in-title").focus();
}

function show(isIn) {
  const isMember = isIn && Boolean(me.teamId);
  by("office").hidden = !isMember;
  by("no-team").hidden = !isIn || isMember;
  by("sign-in").hidden = isIn;
  for (const id of ["who", "connection"]) by(id).hidden = !isMember;
  by("sign-out").hidden = !isIn || token === SESSION; // the header has one
  const header = document.querySelector(".signed-in");
  if (header) header.hidden = isIn && token !== SESSION; // it would ask a user with a token to sign in
  if (!isIn) {
    by("retry").hidden = true;
    document.title = `${words.title} · Keystead`;
  }
}

by("people")?.addEventListener("click", (event) => {
  const chosen = event.target.closest("button");
  if (chosen) signInAs(Number(chosen.value));
});

by("join")?.addEventListener("click", async () => {
  if (await act(() => ask("/api/teamwork/demo/join", "POST"))) await enter(token);
});

by("token-form")?.addEventListener("submit", (event) => {
  event.preventDefault();
  const given = by("token").value.trim().replace(/^bearer\s+/i, "");
  tell("token-problem", given ? null : words.tokenMissing);
  if (!given) return by("token").focus();
  by("token").value = "";
  enter(given);
});

by("sign-out").addEventListener("click", async () => {
  isSigningOut = true;
  const asked = ask("/api/tokens/revoke", "POST");
  const others = windows;
  const answer = await act(() => asked);
  isSigningOut = false;
  if (answer === null && token) return;
  others?.postMessage({ kind: "look" }); // other windows with the same token check it
  if (token) leave(false);
});

// --- live events -------------------------------------------------------------------------------------------------

function came(event) {
  if (!me) return;
  if (event.kind === "ended") return leave(true);
  if (event.kind === "state") {
    connection.state = event.state;
    if (event.state === "busy") lookAtAll();
    return drawConnection();
  }
  if (event.kind === "hello") return lookAtAll(); // the list has what arrived between two connections
  if (event.kind === "missed") {
    by("missed").hidden = false;
    by("heard").textContent = words.missed;
    return lookAtAll();
  }
  if (event.kind === "notice") arrived(event.data);
}

const heardTitles = [];
let heardTimer = null;
let drawTimer = null; // thousands may arrive in a burst

function arrived(notice) {
  const id = notice.notificationId;
  if (notices.fresh.has(id)) return;
  notices.fresh.add(id);
  const listed = notices.items.find((item) => item.id === id); // by a refresh that was faster
  if (listed?.isRead) return;
  const kind = by("kind-filter").value;
  const isShown = about ? about.refType === notice.refType && about.refId === String(notice.refId) : !kind || kind === notice.refType;
  if (!listed) notices.unread += 1;
  if (notices.page > 0) notices.above += 1;
  else if (!listed && isShown) {
    notices.items.unshift({ ...notice, id, message: "", isRead: false });
    notices.items.length = Math.min(notices.items.length, SIZE);
    notices.total += 1;
  }
  drawTimer ??= setTimeout(() => {
    drawTimer = null;
    if (me) drawNotices();
  }, DRAW_MS);
  heardTitles.push(notice.title);
  heardTimer ??= setTimeout(() => {
    heardTimer = null;
    const [first] = heardTitles;
    by("heard").textContent = heardTitles.length === 1 ? words.arrived(first) : words.arrivedMany(heardTitles.length);
    heardTitles.length = 0;
  }, 400);
  lookAtNotices.soon();
  lookAtSummary.soon();
  lookAtSummary.later(); // in a burst the summary is invalidated a moment after the first notice
  if (notice.type === "마감임박") lookAtDeadlines.soon();
}

// From another window of the same user in this browser.
function heardOf(message) {
  if (message.kind === "read") {
    markRead((item) => message.all || message.ids.includes(item.id));
    lookAtNotices.soon();
    lookAtSummary.soon();
  } else if (message.kind === "deadlines") {
    lookAtDeadlines.soon();
    lookAtSummary.soon();
  } else if (message.kind === "preferences") lookAtPreferences.soon();
  else lookAtAll();
}

function lookAtAll() {
  for (const look of [lookAtNotices, lookAtSummary, lookAtDeadlines, lookAtPreferences, lookAtTeam]) look.soon();
}

addEventListener("online", () => stream?.now());
addEventListener("offline", () => stream?.cut());
document.addEventListener("visibilitychange", () => {
  if (document.hidden || !me) return;
  stream?.now();
  lookAtAll();
});
by("retry").addEventListener("click", () => stream?.now());

function drawConnection() {
  const { state } = connection;
  by("connection").dataset.state = state;
  if (by("connection-text").textContent !== words.states[state]) by("connection-text").textContent = words.states[state];
  const isAway = state === "lost" || state === "offline";
  const hadFocus = document.activeElement === by("retry");
  by("retry").hidden = !isAway;
  if (hadFocus && !isAway) by("notices-title").focus({ preventScroll: true });
}

// --- notices -----------------------------------------------------------------------------------------------------

const lookAtNotices = looking(async () => {
  const asked = new URLSearchParams({ page: String(notices.page), size: String(SIZE), language: words.tag });
  if (by("only-unread").checked) asked.set("read", "false");
  if (about) for (const [name, value] of Object.entries(about)) asked.set(name, value);
  else if (by("kind-filter").value) asked.set("refType", by("kind-filter").value);
  try {
    const [list, counts] = await Promise.all([
      ask(`/api/notifications?${asked}`),
      ask("/api/notifications/unread-counts"),
    ]);
    if (!me) return;
    const known = new Map(notices.items.map((item) => [item.id, item]));
    // A notice that was just marked as read stays so, even if an older response says otherwise.
    const items = list.items.map((item) => ({ ...item, isRead: item.isRead || Boolean(known.get(item.id)?.isRead) }));
    Object.assign(notices, { items, total: list.total, unread: counts.total, isLoaded: true, problem: "" });
    if (notices.page > 0 && !items.length) {
      notices.page = Math.max(0, Math.ceil(list.total / SIZE) - 1);
      lookAtNotices.soon();
    }
  } catch (error) {
    if (!notices.isLoaded) notices.problem = error.message;
    throw error;
  } finally {
    if (me) drawNotices();
  }
});

function drawNotices() {
  const list = by("entries");
  const active = document.activeElement;
  const focused = list.contains(active) ? active.closest("li").dataset.id : null;
  let next = list.firstElementChild;
  for (const item of notices.items) {
    const entry = sameEntry(item);
    if (entry === next) next = next.nextElementSibling;
    else list.insertBefore(entry, next);
  }
  while (next) {
    const gone = next;
    next = gone.nextElementSibling;
    gone.remove();
  }
  if (focused) list.querySelector(`li[data-id="${focused}"] button`)?.focus({ preventScroll: true });
  by("about").hidden = !about;
  by("kind-filter").disabled = Boolean(about);
  if (about) by("about-text").textContent = words.aboutOne(`${words.kinds[about.refType] ?? about.refType} ${about.refId}`);
  by("unread").textContent = words.unread(notices.unread);
  by("unread").classList.toggle("some", notices.unread > 0);
  by("read-all").disabled = notices.unread === 0;
  document.title = `${notices.unread ? `(${notices.unread}) ` : ""}${words.title} · Keystead`;
  by("unreadNotifications").textContent = summary || notices.isLoaded ? String(notices.unread) : "–";
  const pages = Math.max(1, Math.ceil(notices.total / SIZE));
  by("pages").hidden = pages === 1 && notices.page === 0;
  by("page").textContent = words.page(notices.page + 1, pages);
  by("newer").disabled = notices.page === 0;
  by("older").disabled = notices.page >= pages - 1;
  by("above").hidden = notices.above === 0;
  by("above").textContent = words.above(notices.above);
  const isEmpty = notices.items.length === 0;
  const nothing = by("only-unread").checked ? words.noUnread : by("kind-filter").value ? words.noSuch : words.noNotices;
  tell("no-notices", isEmpty ? notices.problem || (notices.isLoaded ? nothing : words.loading) : null);
}

// Unchanged entries keep their element: a button that is replaced while it is pressed does nothing.
function sameEntry(item) {
  const says = JSON.stringify([item, notices.fresh.has(item.id), momentInWords(item.createdAt), document.documentElement.lang]);
  const before = by("entries").querySelector(`li[data-id="${CSS.escape(item.id)}"]`);
  if (before?.says === says) return before;
  const entry = entryOf(item);
  entry.says = says;
  return entry;
}

function entryOf(item) {
  const entry = make("li", item.isRead ? "entry" : "entry unread");
  entry.dataset.id = item.id;
  entry.dataset.type = item.type;
  const text = make("div", "text");
  const head = make("p", "kinds");
  head.append(make("span", "type", words.types[item.type] ?? item.type));
  if (!item.isRead) head.append(make("span", "badge some", notices.fresh.has(item.id) ? words.isNew : words.isUnread));
  const foot = make("p", "about", `${words.kinds[item.refType] ?? item.refType} · `);
  const time = make("time", "", momentInWords(item.createdAt));
  time.dateTime = item.createdAt;
  foot.append(time);
  const title = make("p", "title");
  const shown = make("bdi", "", item.title);
  if (item.link) {
    const link = make("a");
    link.href = item.link;
    link.append(shown);
    title.append(link);
  } else title.append(shown);
  text.append(head, title);
  if (item.message) text.append(make("p", "message", item.message));
  text.append(foot);
  const tools = make("div", "buttons");
  if (!item.isRead) {
    const read = button(words.read, "small quiet", () => readOne(item), words.readOf(item.title));
    read.dataset.does = "read";
    tools.append(read);
  }
  tools.append(button(words.remove, "small quiet", () => removeOne(item), words.removeOf(item.title)));
  entry.append(text, tools);
  return entry;
}

async function removeOne(item) {
  const entries = [...by("entries").children];
  const at = entries.findIndex((entry) => entry.dataset.id === String(item.id));
  const next = (entries[at + 1] ?? entries[at - 1])?.dataset.id;
  if (!(await act(() => ask(`/api/notifications/${item.id}`, "DELETE")))) return void lookAtNotices.soon();
  if (!item.isRead) notices.unread = Math.max(0, notices.unread - 1);
  notices.items = notices.items.filter((one) => one.id !== item.id);
  notices.total = Math.max(0, notices.total - 1);
  drawNotices();
  const focus = next && by("entries").querySelector(`li[data-id="${next}"] button`);
  (focus || by("notices-title")).focus({ preventScroll: true });
  by("heard").textContent = words.removed;
  afterRead({ ids: [item.id] });
}

function momentInWords(text) {
  return new Intl.DateTimeFormat(words.tag, { dateStyle: "medium", timeStyle: "short" }).format(Date.parse(text));
}

function markRead(isMeant) {
  const isShownUnread = by("only-unread").checked;
  for (const item of notices.items) {
    if (item.isRead || !isMeant(item)) continue;
    item.isRead = true;
    notices.fresh.delete(item.id);
    notices.unread = Math.max(0, notices.unread - 1);
  }
  if (isShownUnread) notices.items = notices.items.filter((item) => !item.isRead);
  drawNotices();
}

async function readOne(item) {
  const entries = [...by("entries").children];
  const at = entries.findIndex((entry) => entry.dataset.id === String(item.id));
  const next = entries.slice(at + 1).find((entry) => entry.querySelector('[data-does="read"]'))?.dataset.id;
  if (!(await act(() => ask(`/api/notifications/${item.id}/read`, "PATCH")))) return;
  markRead((one) => one.id === item.id);
  const focus = next && by("entries").querySelector(`li[data-id="${next}"] button`);
  (focus || by("notices-title")).focus({ preventScroll: true });
  by("heard").textContent = words.readNow;
  afterRead({ ids: [item.id] });
}

by("read-all").addEventListener("click", async () => {
  if (!(await act(() => ask("/api/notifications/read-all", "PATCH")))) return;
  notices.fresh.clear();
  markRead(() => true);
  notices.unread = 0;
  drawNotices();
  by("notices-title").focus({ preventScroll: true });
  by("heard").textContent = words.readAllNow;
  afterRead({ all: true });
});

function afterRead(what) {
  by("missed").hidden = true;
  windows?.postMessage({ kind: "read", ...what });
  lookAtNotices.soon();
  lookAtSummary.soon();
}

function turnTo(page) {
  notices.page = page;
  notices.above = 0;
  lookAtNotices.now();
  by("notices-title").focus();
}

by("about-all").addEventListener("click", () => {
  about = null;
  history.replaceState(null, "", location.pathname);
  turnTo(0);
});
by("newer").addEventListener("click", () => turnTo(notices.page - 1));
by("older").addEventListener("click", () => turnTo(notices.page + 1));
by("above").addEventListener("click", () => turnTo(0));
for (const id of ["kind-filter", "only-unread"]) {
  by(id).addEventListener("change", () => {
    notices.page = notices.above = 0;
    lookAtNotices.now();
  });
}

const lookAtPreferences = looking(async () => {
  showPreferences(await ask("/api/notifications/preferences"));
});

function showPreferences(wanted) {
  for (const box of by("preferences").querySelectorAll("input")) {
    box.checked = wanted[box.value];
    box.disabled = false;
  }
}

by("preferences").addEventListener("change", async ({ target }) => {
  by("preferences-said").textContent = "";
  const wanted = { [target.value]: target.checked };
  const answer = await act(() => ask("/api/notifications/preferences", "PUT", wanted));
  if (!answer) return void (target.checked = !target.checked);
  showPreferences(answer);
  by("preferences-said").textContent = words.saved;
  windows?.postMessage({ kind: "preferences" });
});

const lookAtTeam = looking(() => team.look());

// --- the summary -------------------------------------------------------------------------------------------------

const lookAtSummary = looking(async () => {
  try {
    summary = await ask("/api/dashboard/summary");
  } catch (error) {
    if (error.status === 503) by("counted").textContent = words.notCounted;
    throw error;
  }
  drawSummary();
});

function drawSummary() {
  for (const name of Object.keys(words.counts)) by(name).textContent = summary ? String(summary[name]) : "–";
  if (notices.isLoaded) by("unreadNotifications").textContent = String(notices.unread); // it is newer than the summary
  const time = summary && new Intl.DateTimeFormat(words.tag, { timeStyle: "medium" }).format(Date.parse(summary.computedAt));
  by("counted").textContent = summary ? words.countedAt(time) : "";
}

// --- deadlines ---------------------------------------------------------------------------------------------------

const lookAtDeadlines = looking(async () => {
  if (!calendar) {
    const first = await ask("/api/deadlines?from=1970-01-01&to=1970-01-01"); // to get the current day of the team
    zone = first.zone;
    calendar ??= new Calendar({
      table: by("calendar"), title: by("month"), words, today: first.today,
      load: () => lookAtDeadlines.now(), chosen: drawDay, entered: () => by("day").focus(),
    });
    calendar.go(first.today);
    if (about) await goToItem(about);
  }
  const [from, to] = calendar.range;
  const until = plusDays(calendar.today, NEAR_DAYS);
  const [month, near] = await Promise.all([
    ask(`/api/deadlines?from=${from}&to=${to}`),
    ask(`/api/deadlines?to=${until}`),
  ]);
  if (!me) return;
  zone = month.zone;
  pressing = near.items;
  if (calendar.range[0] !== from) return lookAtDeadlines.soon(); // another month was selected meanwhile
  calendar.show(month.items, month.today);
  drawPressing();
});

// The link of a notice opens the day on which its item is due.
async function goToItem({ refType, refId }) {
  const { items } = await ask("/api/deadlines");
  const found = items.find((item) => item.refType === refType && String(item.refId) === refId);
  if (found) calendar.go(found.due);
}

function itemNamed(item) {
  return item.docNo || `${words.kinds[item.refType] ?? item.refType} ${item.refId}`;
}

function whom(item) {
  if (item.assigneeId === null) return words.forNobody;
  if (item.assigneeId === me?.id) return words.forMe;
  return words.forSomebody(team.nameOf(item.assigneeId));
}

function markOf(item) {
  return make("span", `mark ${isOverdue(item) ? "overdue" : isNear(item) ? "near" : ""}`, words.days(item.days));
}

function drawPressing() {
  tell("zone", zone ? words.zone(zone) : null);
  const items = pressing ?? [];
  by("no-pressing").hidden = !pressing || items.length > 0;
  by("pressing").replaceChildren(
    ...items.map((item) => {
      const row = make("li");
      const go = button("", "link", () => {
        calendar.go(item.due);
        by("day").focus();
      });
      go.append(make("span", "strong", itemNamed(item)), " ", make("bdi", "", item.title));
      row.append(go, markOf(item));
      return row;
    }),
  );
}

function drawDay() {
  if (!calendar) return;
  const { day, items } = calendar;
  by("day").textContent = words.dueOn(dayInWords(day, words.tag));
  by("no-due").hidden = items.length > 0;
  if (!by("add").open) by("add-due").value = day;
  const active = document.activeElement;
  const focused = by("due").contains(active) ? [active.closest("li").dataset.ref, active.dataset.does] : null;
  // Keep a date input that is being edited.
  const chosen = new Map([...by("due").querySelectorAll("input")].map((input) => [input.closest("li").dataset.ref, input.value]));
  by("due").replaceChildren(...items.map((item) => dueOf(item, chosen.get(refOf(item)))));
  if (focused) {
    const row = [...by("due").children].find((one) => one.dataset.ref === focused[0]);
    (row?.querySelector(`[data-does="${focused[1]}"]`) ?? by("day")).focus({ preventScroll: true });
  }
}

function refOf(item) {
  return `${item.refType}:${item.refId}`;
}

function dueOf(item, chosen) {
  const row = make("li", "item");
  row.dataset.ref = refOf(item);
  const name = itemNamed(item);
  const text = make("div", "text");
  const title = make("p", "title");
  title.append(make("span", "number", name), " ", make("bdi", "", item.title));
  text.append(title, make("p", "about", `${words.kinds[item.refType] ?? item.refType} · ${whom(item)} · `));
  text.lastChild.append(markOf(item));
  const tools = make("div", "buttons");
  const day = make("input");
  Object.assign(day, { type: "date", min: "1970-01-01", max: "9999-12-31", value: chosen ?? item.due });
  day.dataset.does = "day";
  day.setAttribute("aria-label", words.moveTo(name));
  const move = button(words.move, "small quiet", () => {
    if (day.value && day.value !== item.due) moveItem(item, day.value);
    else day.focus();
  });
  move.dataset.does = "move";
  const done = button(words.done, "small quiet", () => complete(item), words.doneOf(name));
  done.dataset.does = "done";
  tools.append(day, move, done);
  row.append(text, tools);
  return row;
}

function put(item, due = item.due) {
  const { title, docNo, assigneeId } = item;
  return ask(pathOf(item), "PUT", { due, title, docNo, assigneeId });
}

function pathOf(item) {
  return `/api/deadlines/${item.refType}/${encodeURIComponent(item.refId)}`;
}

async function changed(sentence, undo = null) {
  undone = undo;
  by("deadlines-said").hidden = false;
  by("deadlines-text").textContent = by("heard").textContent = sentence;
  by("undo").hidden = !undo;
  windows?.postMessage({ kind: "deadlines" });
  lookAtSummary.soon();
  await lookAtDeadlines.now();
}

async function moveItem(item, due) {
  if (!(await act(() => put(item, due)))) return;
  calendar.go(due);
  await changed(words.moved(itemNamed(item), dayInWords(due, words.tag)));
  by("day").focus({ preventScroll: true });
}

async function complete(item) {
  if (!(await act(() => ask(pathOf(item), "DELETE")))) return void lookAtDeadlines.soon();
  await changed(words.isDone(itemNamed(item)), item);
  by("undo").focus();
}

by("undo").addEventListener("click", async () => {
  const item = undone;
  if (!item || !(await act(() => put(item)))) return;
  calendar.go(item.due);
  await changed(words.isBack(itemNamed(item)));
  by("day").focus();
});

by("previous").addEventListener("click", () => calendar?.go(plusMonths(calendar.day, -1)));
by("next").addEventListener("click", () => calendar?.go(plusMonths(calendar.day, 1)));
by("today").addEventListener("click", () => calendar?.go(calendar.today, true));
by("add").addEventListener("toggle", () => {
  if (by("add").open && calendar) by("add-due").value = calendar.day;
});

by("add-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const [kind, number, title, due] = ["add-kind", "add-number", "add-title", "add-due"].map((id) => by(id).value.trim());
  const empty = ["add-number", "add-title", "add-due"].find((id) => !by(id).value.trim());
  tell("add-problem", empty ? words.fillIn : null);
  if (empty) return by(empty).focus();
  const docNo = /^\d{1,12}$/.test(number) ? `${PREFIXES[kind]}-${number.padStart(3, "0")}` : "";
  const assigneeId = by("add-who").value ? Number(by("add-who").value) : null;
  const item = { refType: kind, refId: number, title, docNo, assigneeId, due };
  if (!(await act(() => put(item)))) return;
  by("add-number").value = by("add-title").value = "";
  calendar?.go(due);
  await changed(words.added(itemNamed(item), dayInWords(due, words.tag)));
  by("add-number").focus({ preventScroll: true });
});

// --- the demo team -----------------------------------------------------------------------------------------------

by("demo")?.addEventListener("click", async ({ target }) => {
  const what = target.dataset?.happens;
  if (!what && target !== by("fill")) return;
  const language = words.tag;
  by("demo-told").textContent = "";
  const answer = await act(() =>
    what
      ? ask("/api/teamwork/demo/events", "POST", { what, to: Number(by("demo-to").value), language })
      : ask("/api/teamwork/demo/deadlines", "POST", { language }),
  );
  if (!answer) return;
  by("demo-told").textContent = what ? words.told(answer.notices) : words.filled;
  if (!what) {
    windows?.postMessage({ kind: "deadlines" });
    lookAtDeadlines.soon();
    lookAtSummary.soon();
  }
});

// --- language ----------------------------------------------------------------------------------------------------

function options(select, choices) {
  const kept = select.options.length ? select.value : null;
  select.replaceChildren(...choices.map(([value, text]) => new Option(text, value)));
  if (choices.some(([value]) => value === kept)) select.value = kept;
}

// Draw all texts of the page.
function speak() {
  team.words = words;
  for (const each of document.querySelectorAll("[data-word]")) each.textContent = words[each.dataset.word];
  for (const each of document.querySelectorAll("[data-role]")) each.textContent = roleIn(each.dataset.role);
  for (const each of document.querySelectorAll("[data-count]")) each.textContent = words.counts[each.dataset.count];
  for (const each of document.querySelectorAll("[data-hears]")) each.textContent = words.hears[each.dataset.hears];
  for (const each of document.querySelectorAll("[data-happens]")) {
    each.textContent = words.happenings[each.dataset.happens];
  }
  by("pages").setAttribute("aria-label", words.pages);
  by("jump").setAttribute("aria-label", words.onThisPage);
  by("preferences-said").textContent = "";
  by("deadlines-said").hidden = true;
  const kinds = Object.entries(words.kinds);
  options(by("kind-filter"), [["", words.allKinds], ...kinds]);
  options(by("add-kind"), kinds);
  document.title = `${words.title} · Keystead`;
  draw();
}

function roleIn(role) {
  return words.roles[role] ?? role;
}

function draw() {
  if (!me) return;
  by("who").textContent = words.signedInAs(me.name, roleIn(me.role));
  const others = team.members.filter((one) => one.id !== me.id).map((one) => [String(one.id), one.name]);
  options(by("add-who"), [[String(me.id), words.me], ["", words.nobody], ...others]);
  if (by("demo")) {
    const known = people.filter((one) => one.id !== me.id).map((one) => [String(one.id), one.name]);
    options(by("demo-to"), [[String(me.id), words.me], ...known]);
    by("windows").replaceChildren(
      ...people.map((person) => {
        const link = make("a", "", words.openAs(person.name));
        link.href = `/teamwork?as=${person.id}`;
        link.target = "_blank";
        link.rel = "noopener";
        const row = make("li");
        row.append(link);
        return row;
      }),
    );
  }
  drawConnection();
  drawNotices();
  drawSummary();
  drawPressing();
  team.draw();
  if (calendar) {
    calendar.words = words;
    drawDay();
  }
}

start();
