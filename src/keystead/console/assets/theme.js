// Runs before the page is painted: the chosen colours, if somebody chose some.
(() => {
  let chosen = null;
  try {
    chosen = localStorage.getItem("keystead-theme");
  } catch {
    // storage may be forbidden; then the colours are those of the system
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
