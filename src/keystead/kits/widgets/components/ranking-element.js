// <keystead-ranking id limit theme format api-base lang>: names and scores, the best first.
// A game submits a score with `element.submit("Ann", 1200)`.
import { read, write } from "./api.js";
import { h, setAttribute, showItems } from "./dom.js";
import { countDown, WidgetElement } from "./element.js";
import { BLOCK, sheet } from "./looks.js";

const LIMIT_MAX = 100;
const WAITING_ROWS = 5;
const SHORT = 14; // characters of a score that must not wrap

export class RankingElement extends WidgetElement {
  static service = "ranking";
  static renews = [...WidgetElement.renews, "limit"];
  static observedAttributes = [...WidgetElement.observedAttributes, "limit"];
  static sheets = [
    BLOCK,
    sheet(`
      :host { max-width: 28rem; }
      table { width: 100%; border-collapse: collapse; }
      td, th { padding: 7px 8px; font-weight: 400; text-align: start; vertical-align: baseline; }
      tbody tr + tr { border-top: 1px solid var(--_line); }
      .rank { width: 52px; padding-inline-start: 16px; text-align: center; }
      .rank span {
        display: inline-block;
        min-width: 28px;
        padding: 0 4px;
        border: 1px solid #0000;
        border-radius: 14px;
        color: var(--_muted);
        font-size: 14px;
        font-weight: 700;
        line-height: 26px;
        font-variant-numeric: tabular-nums;
      }
      [data-rank="1"] .rank span { background: var(--_accent); color: var(--_on-accent); }
      [data-rank="2"] .rank span, [data-rank="3"] .rank span { border-color: var(--_accent); color: var(--_accent); }
      .name { overflow-wrap: anywhere; }
      [data-rank="1"] .name { font-weight: 700; }
      .score {
        padding-inline-end: 16px;
        text-align: end;
        font-weight: 700;
        font-variant-numeric: tabular-nums;
        overflow-wrap: anywhere;
      }
      .score .short { white-space: nowrap; }
      .foot { margin: 0; padding: 8px 16px; border-top: 1px solid var(--_line); }
    `),
  ];

  #title;
  #about;
  #note;
  #rows;
  #table;
  #empty;
  #said;

  get limit() {
    const given = this.getAttribute("limit") ?? "";
    return /^\d+$/.test(given) ? Math.min(Math.max(Number(given), 1), LIMIT_MAX) : 10;
  }

  load() {
    return read(this.base, "ranking", "get", { id: this.id, limit: this.limit });
  }

  build() {
    const { words } = this;
    const column = (name, className) => h("th", { scope: "col", class: className }, name);
    this.#title = h("h2", { part: "title", dir: "auto" });
    this.#note = h("span", { class: "note", part: "note" });
    this.#about = h("p", { class: "about", part: "description", dir: "auto" });
    this.#rows = h("tbody");
    this.#table = h(
      "table",
      { part: "table" },
      h("thead", { class: "unseen" }, h("tr", {}, column(words.rank), column(words.name), column(words.score))),
      this.#rows,
    );
    this.#empty = h("p", { class: "empty", part: "empty" }, words.noEntries);
    this.#said = h("p", { class: "said foot", part: "said", hidden: true });
    return h(
      "section",
      { class: "frame card", part: "card" },
      h("header", { class: "head", part: "head" }, this.#title, this.#note, this.#about),
      this.#table,
      this.#empty,
      this.#said,
    );
  }

  show(data) {
    this.#title.textContent = data?.title || this.words.ranking;
    this.#about.textContent = data?.description ?? "";
    this.#about.hidden = !data?.description;
    const entries = data ? data.entries : waiting(Math.min(this.limit, WAITING_ROWS));
    const isPart = data && data.totalEntries > entries.length;
    this.#note.textContent = isPart ? this.words.entries(this.number(entries.length), this.number(data.totalEntries)) : "";
    this.#empty.hidden = entries.length > 0;
    this.#table.hidden = entries.length === 0;
    setAttribute(this.#table, "aria-label", this.#title.textContent);
    showItems(this.#rows, entries, (entry) => entry.rank, makeRow, (row, entry) => this.#fill(row, entry, Boolean(data)));
  }

  asText(data) {
    return data.entries.map((entry) => `${entry.rank}. ${entry.name} ${this.scoreOf(entry)}`).join("\n");
  }

  scoreOf(entry) {
    return entry.displayScore ?? this.number(entry.score);
  }

  // Submits a score. Returns the data of the API, or throws `Failure`, which is also shown.
  async submit(name, score, displayScore) {
    const extra = displayScore === undefined ? {} : { displayScore };
    try {
      const { data } = await write(this.base, "ranking", "submit", { id: this.id, name, score, ...extra });
      const { improved: _, rank: __, ...shown } = data;
      const isEnough = shown.entries.length >= Math.min(this.limit, shown.totalEntries);
      this.take(isEnough ? { ...shown, entries: shown.entries.slice(0, this.limit) } : await this.load(), true);
      this.#say(this.words.submitted);
      return data;
    } catch (failure) {
      this.#say(this.sentenceOf(failure), true);
      if (failure.kind === "cooldown") countDown(failure.waitS, (left) => this.#showCooldown(left), this.signal);
      throw failure;
    }
  }

  #fill(row, entry, isReady) {
    const [rank, name, score] = row.querySelectorAll("span, bdi");
    row.dataset.rank = isReady ? entry.rank : "";
    setAttribute(row, "aria-hidden", !isReady && "true");
    rank.textContent = entry.rank;
    name.textContent = entry.name;
    score.textContent = isReady ? this.scoreOf(entry) : entry.score;
    score.classList.toggle("short", score.textContent.length <= SHORT);
    for (const element of [rank, name, score]) element.classList.toggle("waits", !isReady);
  }

  // Shown every second, announced to screen readers once.
  #showCooldown(left) {
    this.#said.textContent = left ? this.words.cooldown(left) : this.words.canGoOn;
    this.#said.classList.toggle("bad", left > 0);
  }

  #say(sentence, isBad = false) {
    this.#said.hidden = false;
    this.#said.textContent = sentence;
    this.#said.classList.toggle("bad", isBad);
    this.announce(sentence);
  }
}

function makeRow() {
  return h(
    "tr",
    { part: "entry" },
    h("td", { class: "rank" }, h("span")),
    h("th", { class: "name", scope: "row", part: "name" }, h("bdi")),
    h("td", { class: "score", part: "score" }, h("bdi")),
  );
}

function waiting(count) {
  const names = ["Somebody", "Someone", "Anybody"];
  return Array.from({ length: count }, (_, at) => ({ rank: at + 1, name: names[at % 3], score: "0000" }));
}
