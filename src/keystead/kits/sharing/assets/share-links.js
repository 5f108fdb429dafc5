// The page of one's own links. It works without this script, which copies links and says times in the reader's zone.
import { momentInWords } from "./sharing-words.js";

for (const time of document.querySelectorAll("time[datetime]")) {
  time.textContent = momentInWords(Date.parse(time.dateTime));
}

const copied = document.querySelector("[data-copied]")?.dataset.copied;
for (const button of document.querySelectorAll("[data-copies]")) {
  const field = document.getElementById(button.dataset.copies);
  const word = button.textContent;
  button.hidden = false;
  field.addEventListener("focus", () => field.select());
  button.addEventListener("click", async () => {
    if (!(await copy(field))) return;
    button.textContent = document.getElementById("copied").textContent = copied;
    setTimeout(() => {
      button.textContent = word;
      document.getElementById("copied").textContent = "";
    }, 2500);
  });
}

async function copy(field) {
  try {
    await navigator.clipboard.writeText(field.value); // not there where the page came by http
    return true;
  } catch {
    field.select();
    return document.execCommand("copy");
  }
}
