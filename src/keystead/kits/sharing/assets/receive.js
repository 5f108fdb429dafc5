// The page of a link. It works without this script, which says times in the reader's zone, keeps saying how long is left,
// and says that a download has begun.
import { leftInWords, momentInWords } from "./sharing-words.js";

for (const time of document.querySelectorAll("time[datetime]")) {
  time.textContent = momentInWords(Date.parse(time.dateTime));
}

// The server's clock counts, as it was when the page was made; this machine's may be wrong.
const left = document.getElementById("left");
if (left) {
  const loaded = Date.now();
  const atLoad = Number(left.dataset.expires) - Number(left.dataset.now);
  const say = () => {
    const ms = atLoad - (Date.now() - loaded);
    if (ms < 0) location.replace(left.dataset.again);
    else setTimeout(say, ms > 120_000 ? 20_000 : Math.min(ms + 500, 1000));
    const words = leftInWords(Math.max(ms, 0));
    if (words !== left.textContent) left.textContent = words;
  };
  say();
}

// A download leaves the page as it is; anything else that can come of the form is a page of its own.
const form = document.getElementById("download");
const started = document.getElementById("started");
if (form) {
  const isSingle = "single" in started.dataset;
  form.addEventListener("submit", () => {
    started.hidden = false;
    started.textContent = started.dataset.say;
    // After the form was sent: what is hidden is still sent, but a button that goes while it is pressed may not be.
    setTimeout(() => {
      form.hidden = isSingle;
      if (isSingle) started.focus();
    });
  });
  addEventListener("pageshow", (event) => {
    if (event.persisted) form.hidden = !(started.hidden = true);
  });
}
