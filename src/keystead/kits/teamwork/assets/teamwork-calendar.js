// A month of deadlines, as a grid with keyboard navigation. Days are strings such as 2026-03-03.

const DAY_MS = 86_400_000;
const FIRST = "1970-01-01";
const LAST = "9999-12-31";
const SHOWN_MOST = 2;
const NEAR_DAYS = 3;

export function isNear(item) {
  return item.days >= 0 && item.days <= NEAR_DAYS;
}

export function isOverdue(item) {
  return item.days < 0;
}

export function plusDays(day, count) {
  const at = new Date(Date.parse(day) + count * DAY_MS);
  const text = Number.isNaN(at.getTime()) ? day : at.toISOString().slice(0, 10);
  return text < FIRST ? FIRST : text > LAST || text.startsWith("+") ? LAST : text;
}

// The same day of another month, or its last one.
export function plusMonths(day, count) {
  const [year, month, date] = day.split("-").map(Number);
  const first = new Date(Date.UTC(year, month - 1 + count, 1));
  const last = new Date(Date.UTC(first.getUTCFullYear(), first.getUTCMonth() + 1, 0)).getUTCDate();
  first.setUTCDate(Math.min(date, last));
  return plusDays(first.toISOString().slice(0, 10).replace(/^[+-].*/, count < 0 ? FIRST : LAST), 0);
}

export function dayInWords(day, language, style = { weekday: "long", day: "numeric", month: "long", year: "numeric" }) {
  return new Intl.DateTimeFormat(language, { ...style, timeZone: "UTC" }).format(Date.parse(day));
}

function firstDayOfWeek() {
  try {
    const locale = new Intl.Locale(navigator.language);
    return (locale.getWeekInfo?.() ?? locale.weekInfo).firstDay % 7;
  } catch {
    return 1;
  }
}

// `load()` is called for another month: it requests the deadlines in `range`, and calls `show(items, today)`.
// `chosen()` is called when a day is selected, and `entered()` to open its list.
export class Calendar {
  #table;
  #title;
  #words;
  #load;
  #chosen;
  #entered;
  #firstDay = firstDayOfWeek();
  #items = [];
  #from = "";

  constructor({ table, title, words, today, load, chosen, entered }) {
    this.#table = table;
    this.#title = title;
    this.#words = words;
    this.#load = load;
    this.#chosen = chosen;
    this.#entered = entered;
    this.today = today;
    this.day = today;
    table.addEventListener("keydown", (event) => this.#key(event));
    table.addEventListener("click", (event) => {
      const cell = event.target.closest("td[data-day]");
      if (cell) this.go(cell.dataset.day, true);
    });
  }

  set words(words) {
    this.#words = words;
    this.#draw();
  }

  get items() {
    return this.#items.filter((item) => item.due === this.day);
  }

  go(day, isFocused = false) {
    this.day = day;
    const from = this.#gridStart();
    const isOther = from !== this.#from;
    this.#from = from;
    if (isOther) this.#items = [];
    this.#draw();
    if (isFocused) this.focus();
    this.#chosen();
    if (isOther) this.#load();
  }

  // The first and last visible day.
  get range() {
    return [this.#from, plusDays(this.#from, 41)];
  }

  show(items, today) {
    this.#items = items;
    this.today = today;
    this.#draw();
    this.#chosen();
  }

  focus() {
    this.#table.querySelector('td[tabindex="0"]')?.focus();
  }

  #gridStart() {
    const first = `${this.day.slice(0, 8)}01`;
    const weekday = new Date(Date.parse(first)).getUTCDay();
    return plusDays(first, -((weekday - this.#firstDay + 7) % 7));
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const weekday = (new Date(Date.parse(this.day)).getUTCDay() - this.#firstDay + 7) % 7;
    const months = event.shiftKey ? 12 : 1;
    const to = {
      ArrowLeft: () => plusDays(this.day, -1),
      ArrowRight: () => plusDays(this.day, 1),
      ArrowUp: () => plusDays(this.day, -7),
      ArrowDown: () => plusDays(this.day, 7),
      Home: () => plusDays(this.day, -weekday),
      End: () => plusDays(this.day, 6 - weekday),
      PageUp: () => plusMonths(this.day, -months),
      PageDown: () => plusMonths(this.day, months),
      t: () => this.today,
      T: () => this.today,
    }[event.key];
    if (to) this.go(to(), true);
    else if (event.key === "Enter" || event.key === " ") this.#entered();
    else return;
    event.preventDefault();
  }

  // Keeps the focus if it is in the table, whoever asks for the drawing.
  #draw() {
    const hasFocus = this.#table.contains(document.activeElement);
    const language = this.#words.tag;
    const month = this.day.slice(0, 7);
    const title = dayInWords(`${month}-01`, language, { month: "long", year: "numeric" });
    if (this.#title.textContent !== title) this.#title.textContent = title;
    const start = this.#gridStart();
    const head = document.createElement("tr");
    for (let at = 0; at < 7; at += 1) {
      const cell = document.createElement("th");
      const day = plusDays("2024-01-07", this.#firstDay + at); // a Sunday
      cell.scope = "col";
      cell.abbr = dayInWords(day, language, { weekday: "long" });
      cell.textContent = dayInWords(day, language, { weekday: "short" });
      head.append(cell);
    }
    this.#table.tHead.replaceChildren(head);
    const byDay = Map.groupBy ? Map.groupBy(this.#items, (item) => item.due) : grouped(this.#items);
    const rows = [];
    for (let week = 0; week < 6; week += 1) {
      const from = plusDays(start, 7 * week);
      if (week > 0 && from.slice(0, 7) > month) break;
      const row = document.createElement("tr");
      for (let at = 0; at < 7; at += 1) {
        const day = plusDays(from, at);
        row.append(this.#cell(day, day.startsWith(month), byDay.get(day) ?? []));
      }
      rows.push(row);
    }
    this.#table.tBodies[0].replaceChildren(...rows);
    if (hasFocus) this.focus();
  }

  #cell(day, isOfMonth, items) {
    const words = this.#words;
    const overdue = items.filter(isOverdue).length;
    const near = items.some(isNear);
    const cell = document.createElement("td");
    cell.dataset.day = day;
    cell.tabIndex = day === this.day ? 0 : -1;
    cell.setAttribute("role", "gridcell");
    cell.setAttribute("aria-selected", String(day === this.day));
    cell.classList.toggle("other", !isOfMonth);
    const said = [words.cell(dayInWords(day, words.tag), items.length)];
    if (overdue) said.push(words.cellOverdue(overdue));
    if (near) said.push(words.cellNear);
    if (day === this.today) {
      said.push(words.isToday);
      cell.setAttribute("aria-current", "date");
    }
    cell.setAttribute("aria-label", said.join(", "));
    const number = document.createElement("span");
    number.className = "number";
    number.textContent = String(Number(day.slice(8)));
    cell.append(number);
    if (items.length) cell.append(marksOf(items, words));
    return cell;
  }
}

function marksOf(items, words) {
  const list = document.createElement("span");
  list.className = "marks";
  for (const item of items.slice(0, items.length > SHOWN_MOST + 1 ? SHOWN_MOST : SHOWN_MOST + 1)) {
    const mark = document.createElement("span");
    mark.className = `mark ${isOverdue(item) ? "overdue" : isNear(item) ? "near" : ""}`;
    mark.textContent = item.docNo || `${item.refId}`;
    list.append(mark);
  }
  const left = items.length - list.children.length;
  if (left > 0) {
    const more = document.createElement("span");
    more.className = "left";
    more.textContent = words.more(left);
    list.append(more);
  }
  const count = document.createElement("span");
  count.className = `tally ${items.some(isOverdue) ? "overdue" : items.some(isNear) ? "near" : ""}`;
  count.textContent = String(items.length);
  const both = document.createDocumentFragment();
  both.append(list, count);
  return both;
}

function grouped(items) {
  const found = new Map();
  for (const item of items) found.set(item.due, [...(found.get(item.due) ?? []), item]);
  return found;
}
