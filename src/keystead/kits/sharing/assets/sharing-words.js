// Formats sizes and times in the language of the page. Must match kits/sharing/words.py.
const UNITS = ["bytes", "kB", "MB", "GB", "TB"];
const BYTES = { en: "bytes", ja: "バイト", ko: "바이트" };
const LEAST = { en: "less than a minute", ja: "1 分未満", ko: "1분 미만" };
const TIMES = { en: ["day", "hour", "minute"], ja: ["日", "時間", "分"], ko: ["일", "시간", "분"] };
const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const LANGUAGE = document.documentElement.lang in TIMES ? document.documentElement.lang : "en";

export function sizeInWords(size) {
  if (size === 1 && LANGUAGE === "en") return "1 byte";
  let shown = size;
  let unit = 0;
  while (unit < UNITS.length - 1 && (unit ? shown >= 999.5 : shown >= 1000)) {
    shown /= 1000;
    unit += 1;
  }
  return `${shown.toFixed(unit && shown < 99.95 ? 1 : 0).replace(/\.0$/, "")} ${unit ? UNITS[unit] : BYTES[LANGUAGE]}`;
}

export function leftInWords(ms) {
  const minutes = Math.round(ms / MINUTE) * MINUTE;
  if (minutes <= 0) return LEAST[LANGUAGE];
  let rest = minutes < DAY ? minutes : Math.round(ms / HOUR) * HOUR;
  const parts = [];
  for (const [at, size] of [DAY, HOUR, MINUTE].entries()) {
    const count = Math.floor(rest / size);
    rest %= size;
    if (count) parts.push(amount(count, TIMES[LANGUAGE][at]));
  }
  return parts.join(" ");
}

function amount(count, word) {
  if (LANGUAGE === "en") return `${count} ${word}${count === 1 ? "" : "s"}`;
  return LANGUAGE === "ja" ? `${count} ${word}` : `${count}${word}`;
}

// In the reader's time zone, with its name; the server formats times in UTC.
const MOMENT = new Intl.DateTimeFormat({ en: "en-GB", ja: "ja-JP", ko: "ko-KR" }[LANGUAGE], {
  weekday: LANGUAGE === "en" ? "long" : "short", day: "numeric", month: LANGUAGE === "en" ? "long" : "numeric",
  year: "numeric", hour: "2-digit", minute: "2-digit", hourCycle: "h23", timeZoneName: "short",
});

export function momentInWords(ms) {
  const part = Object.fromEntries(MOMENT.formatToParts(ms).map(({ type, value }) => [type, value]));
  const time = `${part.hour}:${part.minute} ${part.timeZoneName}`;
  if (LANGUAGE === "ja") return `${part.year}年${part.month}月${part.day}日(${part.weekday}) ${time}`;
  if (LANGUAGE === "ko") return `${part.year}년 ${part.month}월 ${part.day}일(${part.weekday}) ${time}`;
  return `${part.weekday} ${part.day} ${part.month} ${part.year} at ${time}`;
}
