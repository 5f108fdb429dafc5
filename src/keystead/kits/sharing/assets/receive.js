// The page of a link: shows times in the reader's time zone, a countdown, and a note when a download has started. The
// page works without it.
import { leftInWords, momentInWords } from "./sharing-words.js";

for (const time of document.querySelectorAll("time[datetime]")) {
  time.textContent = momentInWords(Date.parse(time.dateTime));
}

// Count down by the server's clock when the page was rendered: this machine's clock may be wrong.
const left = document.getElementById("left");
if (left) {
  const loaded = Date.now();
  const atLoad = Number(left.dataset.expires) - Number(left.dataset.now);
  const update = () => {
    const ms = atLoad - (Date.now() - loaded);
    if (ms < 0) location.replace(left.dataset.again);
    else setTimeout(update, ms > 120_000 ? 20_000 : Math.min(ms + 500, 1000));
    const words = leftInWords(Math.max(ms, 0));
    if (words !== left.textContent) left.textContent = words;
  };
  update();
}

// A download keeps this page open; any other response replaces it.
const form = document.getElementById("download");
const started = document.getElementById("started");
if (form) {
  const isSingle = "single" in started.dataset;
  form.addEventListener("submit", () => {
    started.hidden = false;
    started.textContent = started.dataset.say;
    // Hide the form only after it was submitted: hiding a pressed button may cancel the submission.
    setTimeout(() => {
      form.hidden = isSingle;
      if (isSingle) started.focus();
    });
  });
  addEventListener("pageshow", (event) => {
    if (event.persisted) form.hidden = !(started.hidden = true);
  });
}
