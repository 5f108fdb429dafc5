// The sessions of a user. The page works without this script, which says times roughly and in the reader's own time zone.
const language = document.documentElement.lang;
const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;

const roughly = new Intl.RelativeTimeFormat(language, { numeric: "auto" });
const clock = new Intl.DateTimeFormat(language, { hour: "numeric", minute: "2-digit" });
const day = new Intl.DateTimeFormat(language, { day: "numeric", month: "short" });
const dayOfYear = new Intl.DateTimeFormat(language, { day: "numeric", month: "short", year: "numeric" });
const exactly = new Intl.DateTimeFormat(language, { dateStyle: "full", timeStyle: "long" });

// Midnight of a day in the reader's zone, as a number that grows by one a day.
const dayNumber = (date) => Date.UTC(date.getFullYear(), date.getMonth(), date.getDate()) / 86_400_000;

function inWords(date, now) {
  const minutes = Math.round((now - date) / 60_000);
  const days = dayNumber(now) - dayNumber(date);
  if (minutes < 1) return roughly.format(0, "second"); // "now"
  if (minutes < 60) return roughly.format(-minutes, "minute");
  if (days <= 1) return `${roughly.format(-days, "day")}, ${clock.format(date)}`;
  return (date.getFullYear() === now.getFullYear() ? day : dayOfYear).format(date);
}

const now = new Date();
for (const time of document.querySelectorAll("time[datetime]")) {
  const date = new Date(time.dateTime);
  time.textContent = inWords(date, now);
  time.title = exactly.format(date);
}

const said = document.getElementById("zone");
if (said && zone) said.textContent = said.dataset.say.replace("{zone}", zone);
