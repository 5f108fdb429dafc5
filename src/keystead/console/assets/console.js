// Keyboard shortcuts, the menu of a phone, the progress of a task, and the form of a one-time link.

const byId = (id) => document.getElementById(id);

function enterByLink() {
  const form = byId("enter");
  const secret = location.hash.slice(1);
  if (!form || !secret) return;
  // The secret must not stay in the history of the browser.
  history.replaceState(null, "", location.pathname);
  byId("secret").value = secret;
  form.submit();
}

// The switch in the header of every page: the choice is a cookie, so the page is loaded again.
function switchTheme() {
  const chosen = document.documentElement.dataset.theme;
  const isDark = chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.querySelector(`#display [name=theme][value=${isDark ? "light" : "dark"}]`)?.click();
}

function openMenu(isOpen = byId("menu")?.getAttribute("aria-expanded") !== "true") {
  byId("menu")?.setAttribute("aria-expanded", String(isOpen));
  byId("places")?.classList.toggle("is-open", isOpen);
}

function goToFamilies() {
  openMenu(true);
  const families = byId("families");
  const first = families?.querySelector("details");
  if (first && !families.querySelector("details[open]")) first.open = true;
  families?.querySelector("[aria-current], details[open] a")?.focus();
}

// Rows: links that j and k go through, from the one that has the focus.
function moveRow(step) {
  const inFamilies = document.activeElement?.closest("#families");
  const selector = inFamilies ? "#families details[open] a, #families summary" : "#main [data-row]";
  const rows = [...document.querySelectorAll(selector)].filter((row) => row.checkVisibility());
  if (!rows.length) return;
  const at = rows.indexOf(document.activeElement);
  const next = at < 0 ? (step > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, at + step));
  rows[next].focus();
  rows[next].scrollIntoView({ block: "nearest" });
}

const SHORTCUTS = {
  "/": () => byId("q")?.focus(),
  "?": () => byId("help")?.showModal(),
  f: () => document.querySelector("#main .filters :is(input:not([type=hidden]), select)")?.focus(),
  t: switchTheme,
  j: () => moveRow(1),
  k: () => moveRow(-1),
  Escape: () => document.querySelector("[data-up]")?.click(),
  "g f": goToFamilies,
};
for (const link of document.querySelectorAll("[data-go]")) SHORTCUTS[`g ${link.dataset.go}`] = () => link.click();
for (const button of document.querySelectorAll("[data-key]")) SHORTCUTS[button.dataset.key] = () => button.click();

let before = "";

document.addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input, textarea, select, [contenteditable]");
  if (typing && event.key === "Escape") {
    typing.blur();
    return;
  }
  if (typing && event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    typing.form?.requestSubmit();
    return;
  }
  if (typing || event.ctrlKey || event.metaKey || event.altKey || byId("help")?.open) return;
  const act = SHORTCUTS[before ? `${before} ${event.key}` : event.key];
  before = !before && event.key === "g" ? "g" : "";
  if (act) {
    event.preventDefault();
    act();
  }
});

for (const [id, act] of [["show-help", SHORTCUTS["?"]], ["copy", copyText]]) {
  const button = byId(id);
  if (button) {
    button.hidden = false;
    button.addEventListener("click", act);
  }
}
byId("menu")?.addEventListener("click", () => openMenu());

function copyText() {
  navigator.clipboard?.writeText(byId("text").textContent);
}

// Show how far a task is. At its end, or if the session has ended, the page is loaded again.
async function followTask() {
  const shown = byId("progress");
  const answer = await fetch(location.href).catch(() => null);
  if (answer) {
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const now = page.getElementById("progress");
    if (now?.dataset.state !== "running") {
      location.reload();
      return;
    }
    for (const part of ["progress", "dl"]) shown.querySelector(part).replaceWith(now.querySelector(part));
  }
  setTimeout(followTask, 1000);
}
if (byId("progress")?.dataset.state === "running") setTimeout(followTask, 1000);

enterByLink();
addEventListener("hashchange", enterByLink); // a link that is opened on this very page
