// Where a widget is made, seen and copied. The owner's token stays in this page: it is sent in bodies, and kept nowhere.
import "/components/widgets.js";
import { Failure, read, write } from "/components/api.js";
import { THEMES } from "/components/themes.js";

const by = (id) => document.getElementById(id);
const workshop = by("workshop");
const { publicUrl, getWrites } = workshop.dataset;
const words = JSON.parse(workshop.dataset.words);

// A phrase in the language of this page, which brings those that are not in English.
const t = (phrase, values = {}) => (words[phrase] ?? phrase).replace(/\{(\w+)\}/g, (_, name) => values[name] ?? "");

const SAMPLE_ID = "example-a1b2c3d4";
const TOKEN_LETTERS = "abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789"; // none that is taken for another

// What each kind is called, which element shows it, how its picture is described, and what it looks like before one is made.
const KINDS = {
  visit: {
    name: t("counter"),
    make: t("Make the counter"),
    made: t("Your counter is made."),
    element: "keystead-counter",
    alt: t("Visits"),
    sample: { id: SAMPLE_ID, total: 12045, today: 38, yesterday: 52, week: 311, month: 1204 },
  },
  like: {
    name: t("like button"),
    make: t("Make the like button"),
    made: t("Your like button is made."),
    element: "keystead-like",
    alt: t("Likes"),
    sample: { id: SAMPLE_ID, total: 41, userLiked: false, icon: "heart" },
  },
  ranking: {
    name: t("ranking"),
    make: t("Make the ranking"),
    made: t("Your ranking is made."),
    element: "keystead-ranking",
    alt: t("Ranking"),
    sample: {
      id: SAMPLE_ID,
      title: t("High scores"),
      entries: [
        { rank: 1, name: "Ada", score: 12800 },
        { rank: 2, name: "Grace", score: 9450 },
        { rank: 3, name: "Katherine", score: 7320 },
        { rank: 4, name: "Radia", score: 5110 },
        { rank: 5, name: "Barbara", score: 4990 },
      ],
      totalEntries: 5,
    },
  },
  bbs: {
    name: t("board"),
    make: t("Make the board"),
    made: t("Your board is made."),
    element: "keystead-bbs",
    alt: t("Board"),
    sample: {
      id: SAMPLE_ID,
      title: t("Guestbook"),
      messages: [
        {
          id: "2",
          author: "Mia",
          message: t("I came by the webring, and stayed for the music. Greetings from Oslo!"),
          timestamp: "2026-03-04T18:20:00Z",
        },
        { id: "1", author: "Theo", message: t("First!"), timestamp: "2026-03-02T09:05:00Z" },
      ],
      totalMessages: 2,
      pagination: { page: 1, totalPages: 1, hasPrev: false, hasNext: false },
      settings: {},
    },
  },
  yokoso: {
    name: t("welcome card"),
    make: t("Make the welcome card"),
    made: t("Your welcome card is made."),
    element: "keystead-yokoso",
    alt: t("Welcome"),
    sample: { id: SAMPLE_ID, message: t("Welcome!"), mode: "badge", updatedAt: "2026-03-04T18:20:00Z" },
  },
};

let kind = "visit";
let made = null; // { id, url } of the widget that is shown; null: a sample is
let shown = null; // the element on the stage

// --- saying what is wrong ----------------------------------------------------------------------------------------

function sentenceOf(failure) {
  if (!(failure instanceof Failure)) throw failure;
  if (failure.kind === "limit" && failure.waitS) return t("That was too often. Try again in {seconds} seconds.", { seconds: failure.waitS });
  if (failure.sentence) return failure.sentence;
  if (failure.kind === "offline") return t("You are offline. Try again when the connection is back.");
  return t("The server cannot be reached. Try again in a moment.");
}

function complain(id, field, sentence) {
  by(id).textContent = sentence ?? "";
  by(id).hidden = !sentence;
  field?.setAttribute("aria-invalid", String(Boolean(sentence)));
  if (sentence) field?.focus();
}

function say(place, sentence, isBad = false) {
  place.textContent = sentence;
  place.classList.toggle("bad", isBad);
}

// --- the widget on the stage -------------------------------------------------------------------------------------

function attributes() {
  const looks = Object.fromEntries(new FormData(by("looks")));
  const theme = document.querySelector("[name=theme]:checked")?.value ?? "light";
  const used = [...by("looks").elements].filter((field) => !field.closest("[hidden]")).map(({ name }) => name);
  return Object.fromEntries([["theme", theme], ...used.map((name) => [name, looks[name]])].filter(([, value]) => value));
}

function show() {
  const { element, sample } = KINDS[kind];
  const id = made?.id ?? "";
  if (!shown || shown.localName !== element || shown.id !== id) {
    shown = document.createElement(element);
    shown.id = id;
    shown.counts = false; // whoever makes a counter, or looks at it here, does not visit its page
    if (!made) shown.sample = sampled(sample);
    dress();
    by("stage").replaceChildren(shown);
  } else {
    if (!made) shown.sample = sampled(sample);
    dress();
  }
  by("which").textContent = made ? t("Live: {id}", { id: made.id }) : t("a sample, until you make yours");
  by("which").classList.toggle("live", Boolean(made));
  by("copy-hint").hidden = Boolean(made);
  copyable();
  own();
}

// The sample follows what is filled in.
function sampled(sample) {
  if (kind === "like") return { ...sample, icon: by("icon").value };
  if (kind === "ranking") return { ...sample, title: by("widget-title").value.trim() || sample.title };
  if (kind === "yokoso") {
    const said = Object.fromEntries(["message", "name"].map((name) => [name, by("make").elements[name].value.trim()]));
    return { ...sample, mode: by("mode").value, message: said.message || sample.message, name: said.name || undefined };
  }
  if (kind !== "bbs") return sample;
  const has = (name) => by("make").elements[name].checked;
  const settings = {
    ...(has("enableIcons") && { icons: ["😀", "😎", "😍", "🤔", "😴", "🎉"] }),
    ...(has("enableSelects") && {
      selects: ["region", "weather", "mood"].map((label) => ({ label, options: [] })),
    }),
  };
  return { ...sample, title: by("widget-title").value.trim() || sample.title, settings };
}

function dress() {
  const wanted = attributes();
  for (const name of ["theme", "type", "digits", "limit", "lang"]) {
    if (wanted[name]) shown.setAttribute(name, wanted[name]);
    else shown.removeAttribute(name);
  }
}

function offerThemes() {
  by("themes").replaceChildren(
    ...Object.values(THEMES).map((theme, at) => {
      const label = document.createElement("label");
      const radio = document.createElement("input");
      label.className = "swatch";
      Object.assign(radio, { type: "radio", name: "theme", value: theme.name, checked: at === 0, autocomplete: "off" });
      Object.assign(label.style, {
        backgroundColor: theme.background,
        backgroundImage: theme.backgroundEnd ? `linear-gradient(${theme.background}, ${theme.backgroundEnd})` : "none",
        borderColor: theme.border,
        borderRadius: `${theme.radius}px`,
        color: theme.ink,
        fontFamily: theme.font,
      });
      label.append(radio, theme.title);
      return label;
    }),
  );
}

function choose(service) {
  kind = service;
  document.querySelector(`[name=kind][value=${service}]`).checked = true;
  for (const part of workshop.querySelectorAll("[data-kinds]")) {
    part.hidden = !part.dataset.kinds.split(" ").includes(service);
  }
  by("make-button").textContent = KINDS[service].make;
  complain("make-problem", null, null);
}

// --- what is copied ----------------------------------------------------------------------------------------------

const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll('"', "&quot;").replaceAll("<", "&lt;");
const quoted = (text) => `'${text.replaceAll("'", `'\\''`)}'`;

function snippets() {
  const { element, alt } = KINDS[kind];
  const id = made?.id ?? SAMPLE_ID;
  const page = (made?.url ?? "https://example.com/").replaceAll("(", "%28").replaceAll(")", "%29");
  const { lang, ...looks } = attributes();
  const told = Object.entries({ id, ...looks, ...(lang && { lang }) }).map(([name, value]) => `${name}="${escaped(value)}"`);
  const script = `<script type="module" src="${escaped(publicUrl)}/components/widgets.js"></script>`;
  const badge = { theme: kind === "visit" ? "github" : looks.theme };
  return {
    component: `${script}\n<${element} ${told.join(" ")}></${element}>`,
    picture: `<img src="${escaped(pictureOf(id, looks))}" alt="${alt}">`,
    markdown: `[![${alt}](${pictureOf(id, badge)})](${page})`,
    shell: [...commands(id)].join("\n\n"),
  };
}

// A picture of a counter counts whoever loads it, where that may be done by GET.
function pictureOf(id, looks) {
  const action = kind !== "visit" ? "get" : getWrites === "none" ? "display" : "increment";
  return `${publicUrl}/api/${kind}?${new URLSearchParams({ action, id, format: "image", ...looks })}`;
}

function* commands(id) {
  const acts = {
    visit: { action: "increment", id },
    like: { action: "toggle", id },
    ranking: { action: "submit", id, name: "Ada", score: 12800 },
    bbs: { action: "post", id, author: "Mia", message: "Hello!" },
    yokoso: { action: "update", id, token: "…", message: "Hello!" },
  };
  yield `curl ${quoted(`${publicUrl}/api/${kind}?${new URLSearchParams({ action: "get", id })}`)}`;
  const body = quoted(JSON.stringify(acts[kind]));
  yield `curl -H 'Content-Type: application/json' \\\n  -d ${body} \\\n  ${publicUrl}/api/${kind}`;
}

function copyable() {
  const all = snippets();
  for (const [name, text] of Object.entries(all)) by(`snippet-${name}`).querySelector("code").textContent = text;
  by("done-snippet").querySelector("code").textContent = all.component;
}

const tabs = [...document.querySelectorAll("[role=tab]")];

function select(tab) {
  for (const one of tabs) {
    const isIt = one === tab;
    one.setAttribute("aria-selected", String(isIt));
    one.tabIndex = isIt ? 0 : -1;
    by(one.getAttribute("aria-controls")).hidden = !isIt;
  }
}

for (const tab of tabs) {
  tab.addEventListener("click", () => select(tab));
  tab.addEventListener("keydown", (event) => {
    const at = tabs.indexOf(tab);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: tabs.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const next = tabs.at(to % tabs.length);
    select(next);
    next.focus();
  });
}

for (const button of document.querySelectorAll("[data-copies]")) {
  button.addEventListener("click", async () => {
    const code = by(button.dataset.copies).querySelector("code");
    const isCopied = await copy(code);
    button.textContent = isCopied ? t("Copied") : t("Copy");
    by("copied").textContent = isCopied ? t("Copied") : t("It is selected: copy it with the keyboard");
    setTimeout(() => {
      button.textContent = t("Copy");
      by("copied").textContent = "";
    }, 2500);
  });
}

async function copy(code) {
  try {
    await navigator.clipboard.writeText(code.textContent); // not there where the page came by http
    return true;
  } catch {
    getSelection().selectAllChildren(code);
    return document.execCommand("copy");
  }
}

// --- making one, and opening one ---------------------------------------------------------------------------------

function whyNotUrl(text) {
  if (!text) return t("Which page is it for? Write its address, such as https://example.com/.");
  const isAddress = URL.canParse(text) && new URL(text).protocol === "https:";
  return isAddress ? null : t("The address begins with https://, as in https://example.com/.");
}

by("make-token").addEventListener("click", () => {
  const random = crypto.getRandomValues(new Uint32Array(16));
  by("token").value = [...random].map((number) => TOKEN_LETTERS[number % TOKEN_LETTERS.length]).join("");
  complain("token-problem", by("token"), null);
  by("token").focus();
  by("token").select();
});

by("make").addEventListener("submit", async (event) => {
  event.preventDefault();
  const [url, token] = [by("url").value.trim(), by("token").value];
  const length = [...token].length;
  complain("make-problem", null, null);
  by("done").hidden = true;
  const wrongUrl = whyNotUrl(url);
  const isTokenWrong = length < 8 || length > 16;
  const wrongToken = isTokenWrong ? t("The token has 8 to 16 characters. Choose one, or have one made.") : null;
  complain("token-problem", by("token"), wrongToken);
  complain("url-problem", by("url"), wrongUrl);
  if (wrongUrl || wrongToken) return;
  const button = by("make-button");
  if (button.getAttribute("aria-busy") === "true") return;
  button.setAttribute("aria-busy", "true");
  try {
    const { data } = await write("", kind, "create", { url, token, ...options() });
    by("owner-token").value = token;
    open(kind, { id: data.id, url: data.url ?? url });
    tellMade(data.id, token);
  } catch (failure) {
    complain("make-problem", null, whyNotMade(failure));
  } finally {
    button.removeAttribute("aria-busy");
  }
});

function whyNotMade(failure) {
  const isTaken = failure instanceof Failure && failure.code === "UNAUTHORIZED";
  if (!isTaken) return sentenceOf(failure);
  return t("This page has a {kind} already, and this is not its token. Write the token that it was made with.", {
    kind: KINDS[kind].name,
  });
}

// That it is made, and what is to be copied: in sight, and where whoever listens goes on.
function tellMade(id, token) {
  by("done-title").textContent = KINDS[kind].made;
  by("done-id").textContent = id;
  by("done-token").textContent = token;
  by("done").hidden = false;
  by("done-title").focus({ preventScroll: true });
  by("done").scrollIntoView({ block: "start" });
}

by("done-more").addEventListener("click", () => {
  by("make").reset();
  choose(kind);
  close();
  by("url").focus();
});

// What was filled in for this kind, as the API reads it.
function options() {
  const told = {};
  for (const field of by("make").elements) {
    if (!field.name || field.name === "url" || field.name === "token" || field.closest("[hidden]")) continue;
    if (field.type === "checkbox") told[field.name] = field.checked;
    else if (field.name === "messagesPerPage") told[field.name] = Number(field.value);
    else if (field.value.trim()) told[field.name] = field.value.trim();
  }
  return told;
}

by("open").addEventListener("submit", async (event) => {
  event.preventDefault();
  const id = by("existing").value.trim();
  complain("open-problem", by("existing"), id ? null : t("Write the id, such as example-a1b2c3d4."));
  if (id) await find(kind, id);
});

async function find(service, id) {
  try {
    const data = await read("", service, "get", { id });
    complain("open-problem", by("existing"), null);
    open(service, { id: data.id, url: data.url });
  } catch (failure) {
    const isGone = failure instanceof Failure && failure.kind === "gone";
    const gone = t("There is no {kind} with this id. Look at the id again, and at the kind above.", {
      kind: KINDS[service].name,
    });
    by("open").closest("details").open = true;
    complain("open-problem", by("existing"), isGone ? gone : sentenceOf(failure));
  }
}

// The address of this page says which widget is open, so that it can be kept and opened again.
function open(service, widget) {
  made = widget;
  by("done").hidden = true;
  choose(service);
  history.replaceState(null, "", `#${service}/${encodeURIComponent(widget.id)}`);
  show();
}

function close() {
  made = null;
  by("done").hidden = true;
  history.replaceState(null, "", location.pathname);
  show();
}

// --- the owner's corner ------------------------------------------------------------------------------------------

function own() {
  by("owning").hidden = !made;
  by("owner-id").textContent = made?.id ?? "";
  for (const place of by("owning").querySelectorAll(".outcome")) say(place, "");
  ask(null);
  listMessages();
}

// What a board shows now is what can be taken down.
function listMessages() {
  const messages = kind === "bbs" && made ? (shown?.data?.messages ?? []) : [];
  const begun = (message) => [...message].slice(0, 40).join("");
  const options = messages.map(({ id, author, message }) => new Option(`${author}: ${begun(message)}`, id));
  by("remove-message").replaceChildren(...(options.length ? options : [new Option(t("no messages on this page"), "")]));
}

by("stage").addEventListener("keystead-change", listMessages);

async function act(place, action, fields) {
  const token = by("owner-token").value;
  if (!token) {
    say(place, t("Write your token above first."), true);
    by("owner-token").focus();
    return null;
  }
  try {
    const { data } = await write("", kind, action, { id: made.id, token, ...fields });
    const secret = data.webhookSecret;
    say(place, secret ? t("Done. Events are signed with {secret}, which is told only now.", { secret }) : t("Done."));
    return data;
  } catch (failure) {
    say(place, sentenceOf(failure), true);
    return null;
  }
}

for (const form of document.querySelectorAll(".act")) {
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const place = form.querySelector(".outcome");
    const wrong = [...form.elements].find((field) => field.name && !field.validity.valid);
    if (wrong) {
      const isFilled = wrong.value || wrong.validity.badInput;
      say(place, isFilled ? t("That is not a value that fits here.") : t("Fill this in first."), true);
      return wrong.focus();
    }
    const fields = [...form.elements].filter(({ name }) => name);
    const valueOf = ({ type, value }) => (type === "number" ? Number(value) : value.trim());
    const told = Object.fromEntries(fields.map((field) => [field.name, valueOf(field)]));
    if (await act(place, form.dataset.action, told)) {
      shown.refresh();
      if (form.dataset.action !== "set") form.reset();
    }
  });
}

const ENDS = {
  clear: {
    text: () => t("Take all entries of this {kind} away? They cannot be brought back.", { kind: KINDS[kind].name }),
    yes: t("Yes, clear it"),
  },
  delete: {
    text: () => t("Delete this {kind}, with all that it holds? It cannot be brought back.", { kind: KINDS[kind].name }),
    yes: t("Yes, delete it"),
  },
};
let asked = null; // the button that asked

function ask(button) {
  const back = asked;
  asked = button;
  by("sure").hidden = !button;
  by("owning").querySelector(".ends").hidden = Boolean(button);
  if (!button) return back?.focus();
  by("sure-text").textContent = ENDS[button.dataset.sure].text();
  by("sure-yes").textContent = ENDS[button.dataset.sure].yes;
  by("sure-no").focus();
}

for (const button of document.querySelectorAll("[data-sure]")) button.addEventListener("click", () => ask(button));
by("sure-no").addEventListener("click", () => ask(null));
by("sure-yes").addEventListener("click", async () => {
  const action = asked.dataset.sure;
  ask(null);
  if (!(await act(by("end-outcome"), action, {}))) return;
  if (action === "clear") return shown.refresh();
  const gone = made.id;
  by("owner-token").value = "";
  close();
  by("which").textContent = t("{id} is deleted. This is a sample again.", { id: gone });
  by("seeing").focus();
});

// --- the start ---------------------------------------------------------------------------------------------------

for (const radio of document.querySelectorAll("[name=kind]")) {
  radio.addEventListener("change", () => {
    choose(radio.value);
    close();
  });
}
by("looks").addEventListener("change", show);
by("looks").addEventListener("submit", (event) => event.preventDefault());
by("themes").addEventListener("change", show);
by("make").addEventListener("input", () => made || show());

offerThemes();
workshop.hidden = false;
const [, service, id] = location.hash.match(/^#(\w+)\/(.+)$/) ?? [];
choose(Object.hasOwn(KINDS, service ?? "") ? service : "visit");
show();
if (Object.hasOwn(KINDS, service ?? "")) find(service, decoded(id));

// An address that was cut off may end within a letter: it is looked for as it stands.
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
