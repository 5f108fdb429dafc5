// Sizes and times as the pages of sharing say them, in the words of kits/sharing/words.py.
const UNITS = ["bytes", "kB", "MB", "GB", "TB"];
const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

export function sizeInWords(size) {
  if (size === 1) return "1 byte";
  let shown = size;
  let unit = 0;
  while (unit < UNITS.length - 1 && (unit ? shown >= 999.5 : shown >= 1000)) {
    shown /= 1000;
    unit += 1;
  }
  return `${shown.toFixed(unit && shown < 99.95 ? 1 : 0).replace(/\.0$/, "")} ${UNITS[unit]}`;
}

export function leftInWords(ms) {
  const minutes = Math.round(ms / MINUTE) * MINUTE;
  if (minutes <= 0) return "less than a minute";
  let rest = minutes < DAY ? minutes : Math.round(ms / HOUR) * HOUR;
  const said = [];
  for (const [word, size] of [["day", DAY], ["hour", HOUR], ["minute", MINUTE]]) {
    const count = Math.floor(rest / size);
    rest %= size;
    if (count) said.push(`${count} ${word}${count === 1 ? "" : "s"}`);
  }
  return said.join(" ");
}

// In the zone of whoever reads, and with its name: the server can only say it in UTC.
const MOMENT = new Intl.DateTimeFormat("en-GB", {
  weekday: "long", day: "numeric", month: "long", year: "numeric", hour: "2-digit", minute: "2-digit", timeZoneName: "short",
});

export function momentInWords(ms) {
  const part = Object.fromEntries(MOMENT.formatToParts(ms).map(({ type, value }) => [type, value]));
  const day = `${part.weekday} ${part.day} ${part.month} ${part.year}`;
  return `${day} at ${part.hour}:${part.minute} ${part.timeZoneName}`;
}
