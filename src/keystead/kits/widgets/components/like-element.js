// <keystead-like id theme icon format api-base lang>: a like button.
import { read, write } from "./api.js";
import { h, icon } from "./dom.js";
import { WidgetElement } from "./element.js";
import { INLINE, sheet } from "./looks.js";
import { ICON_PATHS } from "./themes.js";

const TRIES = 5; // another tab may toggle at the same time

export class LikeElement extends WidgetElement {
  static service = "like";
  static observedAttributes = [...WidgetElement.observedAttributes, "icon"];
  static sheets = [
    INLINE,
    sheet(`
      :host { --_high: 40px; }
      .like {
        display: inline-flex;
        align-items: center;
        justify-content: center;
        gap: 10px;
        min-width: 120px;
        height: 40px;
        padding: 0 14px;
        border: var(--_frame) solid var(--_border);
        border-radius: var(--_radius);
        color: var(--_ink);
        font-size: 17px;
        font-weight: 700;
        font-variant-numeric: tabular-nums;
        vertical-align: top;
      }
      .like .icon { color: var(--_like); }
      .like[aria-pressed="true"] .icon, .like.on .icon { fill: currentColor; }
      .count { min-width: 1ch; }
      .count.none { opacity: 0.35; }
      @media (pointer: coarse) { :host { --_high: 44px; } .like { height: 44px; } }
      @media (hover: hover) {
        button.like:hover {
          filter: none;
          box-shadow: inset 0 0 0 100px color-mix(in srgb, var(--_like) 10%, transparent);
        }
      }
      @media (prefers-reduced-motion: no-preference) {
        .like .icon { transition: transform 0.15s ease-out; }
        button.like:active .icon { transform: scale(0.85); }
        .like.pops .icon { animation: pops 0.45s cubic-bezier(0.2, 1.6, 0.4, 1); }
        @keyframes pops { from { transform: scale(0.6); } 60% { transform: scale(1.25); } to { transform: none; } }
      }
      .problem {
        display: block;
        max-width: 20rem;
        margin-top: 4px;
        padding: 4px 8px;
        border-inline-start: 3px solid var(--_bad);
        border-radius: 3px;
        background: var(--_background);
        color: var(--_bad);
        font: 13px/1.35 var(--_font);
      }
    `),
  ];

  #button;
  #count;
  #problem;
  #wanted = null; // the state that the last press asked for, until the API confirms it
  #drawn = null;
  #shown = null; // the data that is shown

  load() {
    return read(this.base, "like", "get", { id: this.id });
  }

  build() {
    const isButton = this.format !== "image";
    this.#count = h("span", { class: "count", part: "count" });
    this.#button = isButton
      ? h("button", { type: "button", class: "frame like", part: "button", onclick: () => this.press() }, this.#count)
      : h("span", { class: "frame like", part: "button", role: "img" }, this.#count);
    this.#problem = h("span", { class: "problem", part: "error", role: "alert", hidden: true });
    this.#drawn = null;
    return h("span", {}, this.#button, this.#problem);
  }

  show(data) {
    if (data !== this.#shown) this.#showProblem(""); // new data clears an old error
    this.#shown = data;
    this.#draw(data);
    const isLiked = this.#wanted ?? data?.userLiked ?? false;
    const total = data ? Math.max(0, data.total + (Number(isLiked) - Number(data.userLiked))) : 0;
    this.#count.textContent = data ? this.number(total) : "0";
    this.#count.classList.toggle("none", !data);
    const isButton = this.#button.localName === "button";
    if (isButton) this.#button.setAttribute("aria-pressed", String(isLiked));
    this.#button.setAttribute("aria-busy", String(!data || this.#wanted !== null));
    this.#button.classList.toggle("on", isLiked);
    const label = data ? this.words.likes(this.number(total)) : this.words.loading;
    this.#button.setAttribute("aria-label", isButton ? `${this.words.like}, ${label}` : label);
  }

  asText(data) {
    return String(data.total);
  }

  // Shows the new state immediately, and corrects it by the response (optimistic update). Presses during a request are
  // not lost: the request is repeated until the state is the one that the last press asked for.
  async press() {
    if (!this.data) return;
    const isBusy = this.#wanted !== null;
    this.#wanted = !(this.#wanted ?? this.data.userLiked);
    this.#showProblem("");
    this.#button.classList.toggle("pops", this.#wanted);
    this.show(this.data);
    if (isBusy || this.sample) return this.sample && this.#settleSample();
    try {
      let { data } = this;
      for (let left = TRIES; left && data.userLiked !== this.#wanted; left -= 1) {
        data = (await write(this.base, "like", "toggle", { id: this.id })).data;
      }
      this.#wanted = null;
      this.take(data, true);
      this.announce(data.userLiked ? this.words.liked : this.words.unliked);
    } catch (failure) {
      this.#wanted = null;
      if (failure.kind === "gone") return this.refresh();
      this.show(this.data);
      this.#showProblem(this.sentenceOf(failure));
    }
  }

  #settleSample() {
    const isLiked = this.#wanted;
    this.#wanted = null;
    this.sample = { ...this.data, total: this.data.total + (isLiked ? 1 : -1), userLiked: isLiked };
  }

  #draw(data) {
    const wanted = this.getAttribute("icon") ?? data?.icon;
    const name = Object.hasOwn(ICON_PATHS, wanted ?? "") ? wanted : "heart";
    if (name === this.#drawn) return;
    this.#button.querySelector("svg")?.remove();
    this.#button.prepend(icon(ICON_PATHS[name]));
    this.#drawn = name;
  }

  #showProblem(sentence) {
    this.#problem.hidden = !sentence;
    this.#problem.textContent = sentence;
  }
}
