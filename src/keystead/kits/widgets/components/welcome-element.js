// <keystead-yokoso id theme format api-base lang>: a welcome message of the page owner, as a badge or a card.
import { read } from "./api.js";
import { h, icon } from "./dom.js";
import { WidgetElement } from "./element.js";
import { INLINE, sheet } from "./looks.js";
import { CAT_PATH } from "./themes.js";

export class WelcomeElement extends WidgetElement {
  static service = "yokoso";
  static sheets = [
    INLINE,
    sheet(`
      :host { --_high: 30px; }
      .welcome { display: inline-flex; align-items: center; gap: 8px; max-width: 100%; vertical-align: top; }
      .welcome .icon { color: var(--_accent); }
      .badge { min-height: 30px; padding: 0 12px 0 8px; font-size: 14px; font-weight: 700; }
      .card { display: inline-grid; grid-template-columns: 36px minmax(0, 1fr); gap: 0 10px; width: 350px; padding: 12px 14px; }
      .card .face { grid-row: span 2; width: 36px; height: 36px; border-radius: 50%; object-fit: cover; }
      .card .name { font-weight: 700; line-height: 1.3; overflow-wrap: anywhere; color: var(--_accent); }
      .card .date { color: var(--_muted); font-size: 12px; line-height: 1.3; }
      .card .message { grid-column: 1 / -1; margin: 8px 0 0; font-size: 14px; white-space: pre-line; overflow-wrap: anywhere; }
      .badge .message { overflow-wrap: anywhere; }
    `),
  ];

  #place;

  load() {
    return read(this.base, "yokoso", "get", { id: this.id });
  }

  build() {
    this.#place = h("span");
    return this.#place;
  }

  show(data) {
    if (!data) {
      this.#place.replaceChildren(h("span", { class: "frame welcome badge", part: "welcome" }, cat(), this.words.loading));
      return;
    }
    this.#place.replaceChildren(data.mode === "card" ? this.#card(data) : this.#badge(data));
  }

  asText(data) {
    return data.message;
  }

  #badge({ message }) {
    const text = h("span", { class: "message", part: "message", dir: "auto" }, message);
    return h("span", { class: "frame welcome badge", part: "welcome" }, cat(), text);
  }

  #card({ name, avatar, message, updatedAt }) {
    const date = new Intl.DateTimeFormat(this.words.tag, { dateStyle: "medium" }).format(new Date(updatedAt));
    return h(
      "span",
      { class: "frame welcome card", part: "welcome" },
      avatar ? face(avatar) : cat("icon face"),
      h("span", { class: "name", part: "name", dir: "auto" }, name ?? this.words.welcome),
      h("time", { class: "date", part: "date", datetime: updatedAt }, date),
      h("span", { class: "message", part: "message", dir: "auto" }, message),
    );
  }
}

function cat(className) {
  return icon(CAT_PATH, className);
}

// An avatar from another site, loaded without a referrer. If it fails to load, the cat replaces it.
function face(src) {
  const shown = h("img", { class: "face", part: "avatar", alt: "", referrerpolicy: "no-referrer", loading: "lazy" });
  shown.addEventListener("error", () => shown.replaceWith(cat("icon face")), { once: true });
  shown.src = src;
  return shown;
}
