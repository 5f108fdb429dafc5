// The page "My links": copies links and shows times in the reader's time zone. The page works without it.
import { copy } from "./sharing-copy.js";
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
