// The page to create, preview and copy a widget. The owner token is sent in request bodies only, and never stored.
import "/components/widgets.js";
import { Failure, read, write } from "/components/api.js";
import { THEMES } from "/components/themes.js";
import { KINDS, SAMPLE_ID, say } from "./widgets-kinds.js";

const by = (id) => document.getElementById(id);
const workshop = by("workshop");
const { publicUrl, getWrites } = workshop.dataset;
const TOKEN_LETTERS = "abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789"; // without look-alikes

let kind = "visit";
let current = null; // { id, url } of the widget that is shown; null: a sample is shown
let shown = null; // the preview element

// --- errors ------------------------------------------------------------------------------------------------------

function sentenceOf(failure) {
  if (!(failure instanceof Failure)) throw failure;
  if (failure.kind === "limit" && failure.waitS) return say("Too many requests. Try again in {seconds} seconds.", { seconds: failure.waitS });
  if (failure.sentence) return failure.sentence;
  if (failure.kind === "offline") return say("You are offline. Try again when the connection is back.");
  return say("The server cannot be reached. Try again in a moment.");
}

function showProblem(id, field, sentence) {
  by(id).textContent = sentence ?? "";
  by(id).hidden = !sentence;
  field?.setAttribute("aria-invalid", String(Boolean(sentence)));
  if (sentence) field?.focus();
}

function tell(place, sentence, isBad = false) {
  place.textContent = sentence;
  place.classList.toggle("bad", isBad);
}

// --- preview -----------------------------------------------------------------------------------------------------

function readAttributes() {
  const looks = Object.fromEntries(new FormData(by("looks")));
  const theme = document.querySelector("[name=theme]:checked")?.value ?? "light";
  const used = [...by("looks").elements].filter((field) => !field.closest("[hidden]")).map(({ name }) => name);
  return Object.fromEntries([["theme", theme], ...used.map((name) => [name, looks[name]])].filter(([, value]) => value));
}

function show() {
  const { element, sample } = KINDS[kind];
  const id = current?.id ?? "";
  if (!shown || shown.localName !== element || shown.id !== id) {
    shown = document.createElement(element);
    shown.id = id;
    shown.counts = false; // the preview is not a visit
    if (!current) shown.sample = makeSample(sample);
    applyAttributes();
    by("stage").replaceChildren(shown);
  } else {
    if (!current) shown.sample = makeSample(sample);
    applyAttributes();
  }
  by("which").textContent = current ? say("Live: {id}", { id: current.id }) : say("a sample, until you create yours");
  by("which").classList.toggle("live", Boolean(current));
  by("copy-hint").hidden = Boolean(current);
  updateSnippets();
  updateOwnerSettings();
}

// The sample with the values of the form.
function makeSample(sample) {
  if (kind === "like") return { ...sample, icon: by("icon").value };
  if (kind === "ranking") return { ...sample, title: by("widget-title").value.trim() || sample.title };
  if (kind === "yokoso") {
    const values = Object.fromEntries(["message", "name"].map((name) => [name, by("make").elements[name].value.trim()]));
    return { ...sample, mode: by("mode").value, message: values.message || sample.message, name: values.name || undefined };
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

function applyAttributes() {
  const wanted = readAttributes();
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
  showProblem("make-problem", null, null);
}

// --- snippets ----------------------------------------------------------------------------------------------------

const escapeHtml = (text) => text.replaceAll("&", "&amp;").replaceAll('"', "&quot;").replaceAll("<", "&lt;");
const quoteShell = (text) => `'${text.replaceAll("'", `'\\''`)}'`;

function makeSnippets() {
  const { element, alt } = KINDS[kind];
  const id = current?.id ?? SAMPLE_ID;
  const page = (current?.url ?? "https://example.com/").replaceAll("(", "%28").replaceAll(")", "%29");
  const { lang, ...looks } = readAttributes();
  const written = Object.entries({ id, ...looks, ...(lang && { lang }) }).map(([name, value]) => `${name}="${escapeHtml(value)}"`);
  const script = `<script type="module" src="${escapeHtml(publicUrl)}/components/widgets.js"></script>`;
  const badge = { theme: kind === "visit" ? "github" : looks.theme };
  return {
    component: `${script}\n<${element} ${written.join(" ")}></${element}>`,
    picture: `<img src="${escapeHtml(pictureOf(id, looks))}" alt="${alt}">`,
    markdown: `[![${alt}](${pictureOf(id, badge)})](${page})`,
    shell: [...commands(id)].join("\n\n"),
  };
}

// The picture of a counter counts visits if GET may write.
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
  yield `curl ${quoteShell(`${publicUrl}/api/${kind}?${new URLSearchParams({ action: "get", id })}`)}`;
  const body = quoteShell(JSON.stringify(acts[kind]));
  yield `curl -H 'Content-Type: application/json' \\\n  -d ${body} \\\n  ${publicUrl}/api/${kind}`;
}

function updateSnippets() {
  const all = makeSnippets();
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
    button.textContent = isCopied ? say("Copied") : say("Copy");
    by("copied").textContent = isCopied ? say("Copied") : say("Selected: copy it with the keyboard");
    setTimeout(() => {
      button.textContent = say("Copy");
      by("copied").textContent = "";
    }, 2500);
  });
}

async function copy(code) {
  try {
    await navigator.clipboard.writeText(code.textContent); // unavailable over http
    return true;
  } catch {
    getSelection().selectAllChildren(code);
    return document.execCommand("copy");
  }
}

// --- create and open ---------------------------------------------------------------------------------------------

function urlProblem(text) {
  if (!text) return say("Enter the URL of your page, such as https://example.com/.");
  const isAddress = URL.canParse(text) && new URL(text).protocol === "https:";
  return isAddress ? null : say("The URL must start with https://, as in https://example.com/.");
}

by("make-token").addEventListener("click", () => {
  const random = crypto.getRandomValues(new Uint32Array(16));
  by("token").value = [...random].map((number) => TOKEN_LETTERS[number % TOKEN_LETTERS.length]).join("");
  showProblem("token-problem", by("token"), null);
  by("token").focus();
  by("token").select();
});

by("make").addEventListener("submit", async (event) => {
  event.preventDefault();
  const [url, token] = [by("url").value.trim(), by("token").value];
  const length = [...token].length;
  showProblem("make-problem", null, null);
  by("done").hidden = true;
  const badUrl = urlProblem(url);
  const isTokenWrong = length < 8 || length > 16;
  const badToken = isTokenWrong ? say("The token must have 8 to 16 characters. Choose one, or generate one.") : null;
  showProblem("token-problem", by("token"), badToken);
  showProblem("url-problem", by("url"), badUrl);
  if (badUrl || badToken) return;
  const button = by("make-button");
  if (button.getAttribute("aria-busy") === "true") return;
  button.setAttribute("aria-busy", "true");
  try {
    const { data } = await write("", kind, "create", { url, token, ...options() });
    by("owner-token").value = token;
    open(kind, { id: data.id, url: data.url ?? url });
    confirmCreated(data.id, token);
  } catch (failure) {
    showProblem("make-problem", null, createProblem(failure));
  } finally {
    button.removeAttribute("aria-busy");
  }
});

function createProblem(failure) {
  const isTaken = failure instanceof Failure && failure.code === "UNAUTHORIZED";
  if (!isTaken) return sentenceOf(failure);
  return say("This page already has a {kind}, with another token. Enter the token that it was created with.", {
    kind: KINDS[kind].name,
  });
}

// Shows the confirmation with the snippet, scrolls to it and focuses it.
function confirmCreated(id, token) {
  by("done-title").textContent = KINDS[kind].ready;
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

// The form fields of this kind, as API parameters.
function options() {
  const fields = {};
  for (const field of by("make").elements) {
    if (!field.name || field.name === "url" || field.name === "token" || field.closest("[hidden]")) continue;
    if (field.type === "checkbox") fields[field.name] = field.checked;
    else if (field.name === "messagesPerPage") fields[field.name] = Number(field.value);
    else if (field.value.trim()) fields[field.name] = field.value.trim();
  }
  return fields;
}

by("open").addEventListener("submit", async (event) => {
  event.preventDefault();
  const id = by("existing").value.trim();
  showProblem("open-problem", by("existing"), id ? null : say("Enter the id, such as example-a1b2c3d4."));
  if (id) await find(kind, id);
});

async function find(service, id) {
  try {
    const data = await read("", service, "get", { id });
    showProblem("open-problem", by("existing"), null);
    open(service, { id: data.id, url: data.url });
  } catch (failure) {
    const isGone = failure instanceof Failure && failure.kind === "gone";
    const gone = say("There is no {kind} with this id. Check the id, and the kind above.", {
      kind: KINDS[service].name,
    });
    by("open").closest("details").open = true;
    showProblem("open-problem", by("existing"), isGone ? gone : sentenceOf(failure));
  }
}

// The URL fragment names the open widget, so that it can be bookmarked.
function open(service, widget) {
  current = widget;
  by("done").hidden = true;
  choose(service);
  history.replaceState(null, "", `#${service}/${encodeURIComponent(widget.id)}`);
  show();
}

function close() {
  current = null;
  by("done").hidden = true;
  history.replaceState(null, "", location.pathname);
  show();
}

// --- owner settings ----------------------------------------------------------------------------------------------

function updateOwnerSettings() {
  by("owning").hidden = !current;
  by("owner-id").textContent = current?.id ?? "";
  for (const place of by("owning").querySelectorAll(".outcome")) tell(place, "");
  askToConfirm(null);
  listMessages();
}

// The messages on the current page can be removed.
function listMessages() {
  const messages = kind === "bbs" && current ? (shown?.data?.messages ?? []) : [];
  const shorten = (message) => [...message].slice(0, 40).join("");
  const options = messages.map(({ id, author, message }) => new Option(`${author}: ${shorten(message)}`, id));
  by("remove-message").replaceChildren(...(options.length ? options : [new Option(say("no messages on this page"), "")]));
}

by("stage").addEventListener("keystead-change", listMessages);

async function act(place, action, fields) {
  const token = by("owner-token").value;
  if (!token) {
    tell(place, say("Enter your token above first."), true);
    by("owner-token").focus();
    return null;
  }
  try {
    const { data } = await write("", kind, action, { id: current.id, token, ...fields });
    const secret = data.webhookSecret;
    tell(place, secret ? say("Done. Events are signed with {secret}, which is shown only now.", { secret }) : say("Done."));
    return data;
  } catch (failure) {
    tell(place, sentenceOf(failure), true);
    return null;
  }
}

for (const form of document.querySelectorAll(".act")) {
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const place = form.querySelector(".outcome");
    const invalid = [...form.elements].find((field) => field.name && !field.validity.valid);
    if (invalid) {
      const isFilled = invalid.value || invalid.validity.badInput;
      tell(place, isFilled ? say("This value is not valid here.") : say("Fill this in first."), true);
      return invalid.focus();
    }
    const fields = [...form.elements].filter(({ name }) => name);
    const valueOf = ({ type, value }) => (type === "number" ? Number(value) : value.trim());
    const values = Object.fromEntries(fields.map((field) => [field.name, valueOf(field)]));
    if (await act(place, form.dataset.action, values)) {
      shown.refresh();
      if (form.dataset.action !== "set") form.reset();
    }
  });
}

const CONFIRMATIONS = {
  clear: {
    text: () => say("Delete all entries of this {kind}? This cannot be undone.", { kind: KINDS[kind].name }),
    yes: say("Yes, clear it"),
  },
  delete: {
    text: () => say("Delete this {kind} and all its data? This cannot be undone.", { kind: KINDS[kind].name }),
    yes: say("Yes, delete it"),
  },
};
let asking = null; // the button whose confirmation is open

function askToConfirm(button) {
  const before = asking;
  asking = button;
  by("sure").hidden = !button;
  by("owning").querySelector(".ends").hidden = Boolean(button);
  if (!button) return before?.focus();
  by("sure-text").textContent = CONFIRMATIONS[button.dataset.sure].text();
  by("sure-yes").textContent = CONFIRMATIONS[button.dataset.sure].yes;
  by("sure-no").focus();
}

for (const button of document.querySelectorAll("[data-sure]")) button.addEventListener("click", () => askToConfirm(button));
by("sure-no").addEventListener("click", () => askToConfirm(null));
by("sure-yes").addEventListener("click", async () => {
  const action = asking.dataset.sure;
  askToConfirm(null);
  if (!(await act(by("end-outcome"), action, {}))) return;
  if (action === "clear") return shown.refresh();
  const gone = current.id;
  by("owner-token").value = "";
  close();
  by("which").textContent = say("{id} is deleted. This is a sample.", { id: gone });
  by("seeing").focus();
});

// --- start -------------------------------------------------------------------------------------------------------

for (const radio of document.querySelectorAll("[name=kind]")) {
  radio.addEventListener("change", () => {
    choose(radio.value);
    close();
  });
}
by("looks").addEventListener("change", show);
by("looks").addEventListener("submit", (event) => event.preventDefault());
by("themes").addEventListener("change", show);
by("make").addEventListener("input", () => current || show());

offerThemes();
workshop.hidden = false;
const [, service, id] = location.hash.match(/^#(\w+)\/(.+)$/) ?? [];
choose(Object.hasOwn(KINDS, service ?? "") ? service : "visit");
show();
if (Object.hasOwn(KINDS, service ?? "")) find(service, decode(id));

// A truncated URL may not be decodable.
function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
