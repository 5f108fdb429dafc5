// The page for sharing a file. The issue key, password and owner key stay in this page.
import { copy } from "./sharing-copy.js";
import { leftInWords, momentInWords, sizeInWords } from "./sharing-words.js";

const by = (id) => document.getElementById(id);
const form = by("choose");
const maxBytes = Number(form.dataset.maxBytes);
const words = JSON.parse(form.dataset.words);
const say = (what, values = {}) => (words[what] ?? what).replace(/\{(\w+)\}/g, (_, name) => values[name]);
const loaded = Date.now();
const NAME_MAX = 128;

let chosen = null; // the file
let upload = null; // the request, while it runs
let issued = null; // the last response

// --- steps ------------------------------------------------------------------------------------------------

const STEPS = ["choose", "uploading", "done", "ended"];

function show(step) {
  for (const id of STEPS) by(id).hidden = id !== step;
  by("sheet").classList.toggle("busy", step !== "choose");
  by("about").hidden = step !== "choose";
  by("earlier").hidden = step !== "choose";
  // Screen readers announce the heading that gets the focus.
  if (step !== "choose") by(`${step}-title`).focus();
}

function showText(id, sentence) {
  const place = by(id);
  place.hidden = !sentence;
  place.textContent = sentence ?? "";
}

function showProblem(id, field, sentence) {
  showText(id, sentence);
  field?.setAttribute("aria-invalid", String(Boolean(sentence)));
  if (sentence) (field ?? by(id)).focus();
}

// --- the file -------------------------------------------------------------------------------------------------------

function choose(file) {
  chosen = file;
  by("file-name").textContent = file ? file.name : say("Choose a file");
  by("file-hint").textContent = file ? say("{size}. Choose another, or drop it here.", { size: sizeInWords(file.size) }) : say("or drop it here");
  by("drop").classList.toggle("full", Boolean(file));
  showText("file-problem", file ? fileProblem(file) : null);
  by("file").setAttribute("aria-invalid", String(Boolean(file && fileProblem(file))));
}

function fileProblem(file) {
  if (file.size === 0) return say("This file is empty. Choose another.");
  if (file.size > maxBytes) return say("This file has {size}; the limit is {most}.", { size: sizeInWords(file.size), most: sizeInWords(maxBytes) });
  return null;
}

by("file").addEventListener("change", (event) => {
  // A canceled file dialog keeps the previous choice.
  if (event.target.files.length) choose(event.target.files[0]);
});

// A file dropped next to the target must not replace this page.
for (const name of ["dragover", "drop"]) {
  addEventListener(name, (event) => {
    if ([...event.dataTransfer.types].includes("Files")) event.preventDefault();
  });
}
let inside = 0; // dragenter and dragleave also fire for child elements
const mark = (change) => {
  inside = change === 0 ? 0 : inside + change;
  by("drop").classList.toggle("over", inside > 0);
};
by("drop").addEventListener("dragenter", () => mark(1));
by("drop").addEventListener("dragleave", () => mark(-1));
by("drop").addEventListener("drop", (event) => {
  mark(0);
  const { items, files } = event.dataTransfer;
  if (!files.length) return;
  const isFolder = items[0]?.webkitGetAsEntry?.()?.isDirectory;
  if (isFolder || files.length > 1) {
    showText("file-problem", isFolder ? say("That is a folder, and a link is for one file. Share it as a ZIP file.") : say("A link is for one file. Share several files as a ZIP file."));
    return;
  }
  choose(files[0]);
  by("file").focus();
});

// Replaces characters that the server refuses in file names.
// Not all of \p{C}: that includes emoji newer than this browser, and zero-width joiners.
function cleanName(name) {
  const clean = name
    .normalize("NFC")
    .trim()
    .replace(/(?![\u200c\u200d\u{e0030}-\u{e007f}])[\p{Cc}\p{Cf}\p{Co}\p{Cs}\p{Zl}\p{Zp}/\\:*?"<>|]/gu, "_")
    .replace(/^\./, "_");
  const letters = [...clean];
  if (letters.length <= NAME_MAX) return clean;
  const ending = clean.match(/\.[^.]{1,16}$/)?.[0] ?? "";
  return letters.slice(0, NAME_MAX - [...ending].length).join("") + ending;
}

// --- uploading ------------------------------------------------------------------------------------------------------

form.addEventListener("submit", (event) => {
  event.preventDefault();
  if (upload) return;
  showText("problem", null);
  if (by("key")) showProblem("key-problem", by("key"), null);
  const wrong = chosen ? fileProblem(chosen) : say("Choose a file first.");
  if (wrong) return showProblem("file-problem", by("file"), wrong);
  if (by("key") && !by("key").value.trim()) return showProblem("key-problem", by("key"), say("Enter the issue key."));
  send();
});

function uploadUrl() {
  const query = new URLSearchParams({ name: cleanName(chosen.name), ownerOnly: "true" });
  // By the server's clock when the page was rendered: this machine's clock may be wrong.
  const now = Number(form.dataset.now) + (Date.now() - loaded);
  query.set("validUntil", String(now + Number(by("lifetime").value)));
  if (by("single").checked) query.set("maxDownloads", "1");
  const message = by("message").value.trim();
  if (message) query.set("message", message);
  const receiver = by("receiver").value.trim();
  if (receiver) query.set("receiverName", receiver);
  return `/api/receive/upload?${query}`;
}

function send() {
  const request = new XMLHttpRequest();
  const file = chosen;
  upload = request;
  request.open("POST", uploadUrl());
  request.setRequestHeader("accept", "application/json");
  request.setRequestHeader("content-type", "application/octet-stream");
  if (by("password").value) request.setRequestHeader("x-link-password", encodeURIComponent(by("password").value));
  if (by("key")) request.setRequestHeader("x-issue-key", by("key").value.trim());
  const follow = progress(file.size);
  request.upload.addEventListener("progress", (event) => follow(event.loaded));
  request.upload.addEventListener("load", () => follow(file.size));
  request.addEventListener("load", () => handleResponse(request, file));
  request.addEventListener("error", () => returnToForm(say("The connection broke, or the file has changed. Nothing was shared; try again.")));
  request.addEventListener("abort", () => returnToForm(null));
  request.addEventListener("loadend", () => (upload = null));
  by("uploading-name").textContent = file.name;
  follow(0);
  show("uploading");
  request.send(file);
}

// Shows the progress of an upload, and announces each quarter to screen readers.
function progress(size) {
  const began = performance.now();
  let heard = 0;
  by("heard").textContent = "";
  return (sent) => {
    const part = Math.min(sent / size, 1);
    by("bar").value = part;
    const seconds = (performance.now() - began) / 1000;
    const rest = part > 0.02 && seconds > 2 ? (seconds / part) * (1 - part) : 0;
    const left = rest < 55 ? say("{count} seconds", { count: Math.ceil(rest) }) : leftInWords(rest * 1000);
    const soon = rest > 1 ? say(", {left} left", { left }) : "";
    by("amount").textContent = part === 1
      ? say("Upload complete. Creating the link…")
      : say("{percent} %: {sent} of {size}", { percent: Math.floor(part * 100), sent: sizeInWords(sent), size: sizeInWords(size) }) + soon;
    const quarter = Math.floor(part * 4);
    if (quarter > heard && quarter < 4) by("heard").textContent = say("{percent} per cent uploaded", { percent: quarter * 25 });
    heard = quarter;
  };
}

by("cancel").addEventListener("click", () => upload?.abort());

addEventListener("beforeunload", (event) => {
  if (upload) event.preventDefault();
});

function returnToForm(sentence) {
  upload = null;
  show("choose");
  if (sentence) showProblem("problem", null, sentence);
  else form.querySelector("button.main").focus();
}

function handleResponse(request, file) {
  const answer = parse(request.responseText);
  if (request.status === 200 && answer.ok) return showLink(answer, file);
  returnToForm(null);
  if (answer.code === "UNAUTHORIZED" && by("key")) return showProblem("key-problem", by("key"), say("Wrong issue key."));
  showProblem("problem", null, errorText(request.status, answer));
}

function parse(text) {
  try {
    return JSON.parse(text) ?? {};
  } catch {
    return {}; // a proxy has responded
  }
}

function errorText(status, answer) {
  if (answer.code === "RATE_LIMITED") {
    return say("Too many uploads from your network. Try again in {seconds} seconds.", { seconds: answer.retryAfter ?? 60 });
  }
  if (answer.code === "QUOTA_EXCEEDED") {
    return say("You are using {used} of {quota}. End a link that you no longer need, or wait until one expires.", { used: sizeInWords(answer.used), quota: sizeInWords(answer.quota) });
  }
  if (answer.code === "STORAGE_FULL") return say("There is not enough storage for this file. Try again when other files have expired.");
  if (status === 413) return say("This file is too large; the limit is {most}.", { most: sizeInWords(maxBytes) });
  if (answer.code === "CSRF") return say("The address of this page has changed. Reload it and try again.");
  if (!answer.error) return say("The server responded with {status}. Nothing was shared; try again in a moment.", { status });
  return answer.error[0].toUpperCase() + answer.error.slice(1) + (answer.error.endsWith(".") ? "" : ".");
}

// --- the link -------------------------------------------------------------------------------------------------------

function showLink(answer, file) {
  issued = answer;
  by("done-name").textContent = cleanName(file.name);
  by("done-size").textContent = sizeInWords(answer.size);
  by("done-expires").textContent = momentInWords(answer.exp);
  by("done-expires").dateTime = new Date(answer.exp).toISOString();
  by("link").value = by("open").href = answer.shareUrl;
  by("owner-key").value = answer.ownerKey;
  by("note-single").hidden = !by("single").checked;
  by("note-password").hidden = !by("password").value;
  by("after").hidden = false;
  by("sure").hidden = true;
  showText("end-problem", null);
  show("done");
}

for (const button of document.querySelectorAll("[data-copies]")) {
  const field = by(button.dataset.copies);
  const what = field.labels[0].textContent;
  field.addEventListener("focus", () => field.select());
  button.addEventListener("click", async () => {
    const isCopied = await copy(field);
    button.textContent = isCopied ? say("Copied") : say("Copy");
    by("copied").textContent = isCopied ? say("{what} copied", { what }) : say("{what} is selected: copy it with the keyboard", { what });
    setTimeout(() => {
      button.textContent = say("Copy");
      by("copied").textContent = "";
    }, 2500);
  });
}

async function end(body) {
  try {
    const response = await fetch("/api/receive/delete", {
      method: "POST",
      headers: { accept: "application/json", "content-type": "application/json" },
      body: JSON.stringify(body),
    });
    const answer = parse(await response.text());
    return response.ok && answer.ok ? null : endErrorText(response.status, answer);
  } catch {
    return say("The server cannot be reached. The link is unchanged; try again.");
  }
}

function endErrorText(status, answer) {
  if (answer.code === "RATE_LIMITED") return say("Too many requests. Try again in {seconds} seconds.", { seconds: answer.retryAfter ?? 60 });
  if (answer.code === "TOKEN_NOT_FOUND") return say("This link does not exist: it has expired or was already ended.");
  return errorText(status, answer);
}

function confirmEnd(isSure) {
  by("sure").hidden = !isSure;
  by("after").hidden = isSure;
  by(isSure ? "end-no" : "end").focus();
}

by("end").addEventListener("click", () => confirmEnd(true));
by("end-no").addEventListener("click", () => confirmEnd(false));
by("end-yes").addEventListener("click", async () => {
  by("end-yes").disabled = true;
  const problem = await end({ id: issued.id, ownerKey: issued.ownerKey });
  by("end-yes").disabled = false;
  if (!problem) return show("ended");
  confirmEnd(false);
  showText("end-problem", problem);
});

for (const button of document.querySelectorAll("[data-another]")) {
  button.addEventListener("click", () => {
    const key = by("key")?.value;
    form.reset();
    if (by("key")) by("key").value = key;
    choose(null);
    issued = null;
    by("owner-key").value = by("link").value = "";
    show("choose");
    by("file").focus();
  });
}

by("end-earlier").addEventListener("submit", async (event) => {
  event.preventDefault();
  const link = by("earlier-link");
  const key = by("earlier-key");
  showText("earlier-done", null);
  showProblem("earlier-problem", null, null);
  if (!link.value.trim()) return showProblem("earlier-problem", link, say("Paste the link that you shared."));
  if (!key.value.trim()) return showProblem("earlier-problem", key, say("Paste the owner key that came with the link."));
  const button = event.submitter ?? by("end-earlier").querySelector("button");
  button.disabled = true;
  const problem = await end({ token: tokenIn(link.value.trim()), ownerKey: key.value.trim() });
  button.disabled = false;
  if (problem) return showProblem("earlier-problem", null, problem);
  by("end-earlier").reset();
  showText("earlier-done", say("The link has ended, and its file is deleted."));
});

function tokenIn(text) {
  try {
    const query = new URL(text).searchParams;
    return query.get("t") ?? query.get("key") ?? text;
  } catch {
    return text; // only the token
  }
}

show("choose");
