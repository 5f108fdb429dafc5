// <keystead-counter id type theme digits format api-base lang>: a visit counter.
import { read, write } from "./api.js";
import { h } from "./dom.js";
import { WidgetElement } from "./element.js";
import { INLINE, sheet } from "./looks.js";

const TYPES = ["total", "today", "yesterday", "week", "month"];
const DIGITS_MAX = 10;

// One visit per page load and counter, however many elements show it.
const visits = new Map();

export class CounterElement extends WidgetElement {
  static service = "visit";
  static observedAttributes = [...WidgetElement.observedAttributes, "type", "digits"];
  static sheets = [
    INLINE,
    sheet(`
      :host { --_high: 30px; }
      .counter {
        display: inline-block;
        height: 30px;
        padding: 0 calc(10px - var(--_frame));
        overflow: hidden;
        white-space: nowrap;
        vertical-align: top;
      }
      .digits { display: flex; align-items: center; height: 100%; direction: ltr; }
      .digits span {
        width: 12px;
        color: var(--_text);
        font: bold 20px/1 ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
        text-align: center;
        -webkit-text-stroke: var(--_outline) var(--_border);
        paint-order: stroke fill;
      }
      .digits .none { opacity: 0.35; }
    `),
  ];

  // Whether it counts a visit. Set to false before it is inserted into a page to only show the counter.
  counts = true;

  #digits;
  #label;

  get type() {
    const given = this.getAttribute("type");
    return TYPES.includes(given) ? given : "total";
  }

  get padding() {
    const given = this.getAttribute("digits") ?? "";
    return /^\d+$/.test(given) ? Math.min(Math.max(Number(given), 1), DIGITS_MAX) : 1;
  }

  async load(isAgain) {
    const { base, id } = this;
    const key = `${base} ${id}`;
    if (isAgain || !this.counts) return read(base, "visit", "get", { id });
    const isFirst = !visits.has(key);
    if (isFirst) visits.set(key, countVisit(base, id));
    try {
      const data = await visits.get(key);
      if (isFirst && !data.duplicate) this.notifyOtherTabs(); // those on this page waited for the same response
      return data;
    } catch (failure) {
      visits.delete(key); // not counted: a retry may count
      throw failure;
    }
  }

  build() {
    this.#digits = h("span", { class: "digits", part: "digits", "aria-hidden": "true" });
    this.#label = h("span", { class: "unseen" });
    return h("span", { class: "frame counter", part: "counter" }, this.#digits, this.#label);
  }

  show(data) {
    const shown = data ? this.asText(data) : "0".repeat(this.padding);
    this.#digits.replaceChildren(...[...shown].map((digit) => h("span", { class: data ? null : "none" }, digit)));
    this.#label.textContent = data ? `${this.words.visits[this.type]}: ${this.number(data[this.type])}` : this.words.loading;
  }

  asText(data) {
    return String(data[this.type]).padStart(this.padding, "0");
  }
}

async function countVisit(base, id) {
  // A prerendered page is not visited yet.
  if (document.prerendering) await new Promise((go) => document.addEventListener("prerenderingchange", go, { once: true }));
  return (await write(base, "visit", "increment", { id })).data;
}
