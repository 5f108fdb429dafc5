// Shows relative times in the reader's time zone. The page works without this script.
const language = document.documentElement.lang;
const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;

const relative = new Intl.RelativeTimeFormat(language, { numeric: "auto" });
const clock = new Intl.DateTimeFormat(language, { hour: "numeric", minute: "2-digit" });
const day = new Intl.DateTimeFormat(language, { day: "numeric", month: "short" });
const dayOfYear = new Intl.DateTimeFormat(language, { day: "numeric", month: "short", year: "numeric" });
const exact = new Intl.DateTimeFormat(language, { dateStyle: "full", timeStyle: "long" });

// The day number in the reader's time zone.
const dayNumber = (date) => Date.UTC(date.getFullYear(), date.getMonth(), date.getDate()) / 86_400_000;

function describe(date, now) {
  const minutes = Math.round((now - date) / 60_000);
  const days = dayNumber(now) - dayNumber(date);
  if (minutes < 1) return relative.format(0, "second"); // "now"
  if (minutes < 60) return relative.format(-minutes, "minute");
  if (days <= 1) return `${relative.format(-days, "day")}, ${clock.format(date)}`;
  return (date.getFullYear() === now.getFullYear() ? day : dayOfYear).format(date);
}

const now = new Date();
for (const time of document.querySelectorAll("time[datetime]")) {
  const date = new Date(time.dateTime);
  time.textContent = describe(date, now);
  time.title = exact.format(date);
}

const zoneNote = document.getElementById("zone");
if (zoneNote && zone) zoneNote.textContent = zoneNote.dataset.say.replace("{zone}", zone);
