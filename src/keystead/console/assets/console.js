// Keyboard shortcuts, the switch between light and dark, and the form of a one-time link.

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

function switchTheme() {
  const root = document.documentElement;
  const isDark = root.dataset.theme
    ? root.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = isDark ? "light" : "dark";
  try {
    localStorage.setItem("keystead-theme", root.dataset.theme);
  } catch {
    // it lasts until the next page
  }
}

function goToFamily() {
  const families = byId("families");
  if (!families) return;
  families.open = true;
  families.querySelector("a")?.focus();
}

const SHORTCUTS = {
  "/": () => byId("q")?.focus(),
  "?": () => byId("help")?.showModal(),
  "g f": goToFamily,
  "g o": () => location.assign("/console"),
};

let before = "";

document.addEventListener("keydown", (event) => {
  const isTyping = event.target.closest?.("input, textarea, select, [contenteditable]");
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey || byId("help")?.open) return;
  const act = SHORTCUTS[before ? `${before} ${event.key}` : event.key];
  before = !before && event.key === "g" ? "g" : "";
  if (act) {
    event.preventDefault();
    act();
  }
});

for (const [id, act] of [["theme", switchTheme], ["show-help", SHORTCUTS["?"]]]) {
  const button = byId(id);
  if (button) {
    button.hidden = false;
    button.addEventListener("click", act);
  }
}

// On a wide screen the families are always visible.
const families = byId("families");
if (families && matchMedia("(min-width: 60rem)").matches) families.open = true;

enterByLink();
