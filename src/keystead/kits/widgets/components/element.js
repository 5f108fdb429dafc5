// The base class of all widgets: loading, refreshing, errors and themes.
import { Failure, OWN_ORIGIN } from "./api.js";
import { h, icon } from "./dom.js";
import { BASE, themeSheet } from "./looks.js";
import { listen, notify, notifyOtherTabs } from "./news.js";
import { wordsOf } from "./words.js";

const STALE_MS = 10_000; // a tab that becomes visible again refreshes if its data is older
const PERMANENT = ["noId", "noBase"]; // errors in the page, which a retry does not fix
const WARNING = "M12 3.5 22 20.5H2ZM12 10v5M12 17.8v.2";

// A subclass has
//   static service       its name in the API
//   static sheets        its style sheets, made by `sheet`
//   static renews        attributes that reload the data; others only change the look
//   build()              -> its content element, built again for each language and format
//   show(data)           fills that element; null: still loading
//   load(isAgain)        -> a promise of its data; `isAgain`: a refresh
//   asText(data)         the content for format="text"
export class WidgetElement extends HTMLElement {
  static sheets = [];
  static renews = ["id", "api-base"];
  static observedAttributes = ["id", "api-base", "theme", "lang", "format"];

  #root = this.attachShadow({ mode: "open" });
  #turn = 0; // the number of the last request: earlier responses are ignored
  #changed = null; // attributes that changed since the last paint
  #requestedAt = 0;
  #failure = null;
  #sample = null;
  #place = null;
  #listening = null; // aborts its listeners
  #listener = (change) => {
    if (Object.entries(this.#identity).every(([key, value]) => change[key] === value)) this.refresh();
  };

  data = null;

  // --- for pages -----------------------------------------------------------------------------------------------

  // The API base; null if `api-base` is not a valid URL.
  get base() {
    const given = this.getAttribute("api-base");
    if (!given) return OWN_ORIGIN;
    try {
      return new URL(given, document.baseURI).href.replace(/\/+$/, "");
    } catch {
      return null;
    }
  }

  // Shows this data without asking the API, for previews.
  set sample(data) {
    this.#sample = data;
    if (this.isConnected) this.#reload();
  }

  get sample() {
    return this.#sample;
  }

  // Loads the data again. Failures are not shown, unless the widget is gone.
  async refresh() {
    if (this.#failure || !this.data) return this.#reload();
    if (!this.#sample) await this.#load(true);
  }

  // --- for subclasses ------------------------------------------------------------------------------------------

  get words() {
    return wordsOf(this.getAttribute("lang"));
  }

  get format() {
    return this.getAttribute("format");
  }

  number(value) {
    return new Intl.NumberFormat(this.words.tag).format(value);
  }

  // Shows new data. `isNews`: also notifies other elements of this widget.
  take(data, isNews = false) {
    this.#turn += 1; // ignores requests in flight
    this.#settle(data);
    if (isNews) notify(this.#identity, this.#listener);
  }

  notifyOtherTabs() {
    notifyOtherTabs(this.#identity);
  }

  get #identity() {
    return { base: this.base, service: this.constructor.service, id: this.id };
  }

  // The message for a failure: of the whole widget, or of one action. Without a translation, the message of the API.
  sentenceOf(failure, isWidget = false) {
    if (!(failure instanceof Failure)) return this.words.unreachable;
    if (failure.kind === "offline" && !isWidget) return this.words.notSent;
    if (failure.kind === "gone" && isWidget) return this.words.gone[this.constructor.service];
    if (failure.kind === "cooldown" && failure.waitS) return this.words.cooldown(failure.waitS);
    if (failure.kind === "limit" && failure.waitS) return this.words.limit(failure.waitS);
    return failure.sentence || this.words[failure.kind] || this.words.unreachable;
  }

  // For screen readers.
  announce(sentence) {
    this.#root.querySelector("#live")?.replaceChildren(sentence);
  }

  paint() {
    if (this.#place) this.#paint();
  }

  get signal() {
    return this.#listening?.signal;
  }

  // --- lifecycle ------------------------------------------------------------------------------------------------

  connectedCallback() {
    this.#listening = new AbortController();
    const { signal } = this.#listening;
    signal.addEventListener("abort", listen(this.#listener));
    addEventListener("online", () => this.refresh(), { signal });
    document.addEventListener("visibilitychange", () => this.#refreshIfStale(), { signal });
    addEventListener("pageshow", (event) => event.persisted && this.refresh(), { signal });
    this.#build();
    this.#reload();
  }

  disconnectedCallback() {
    this.#listening?.abort();
    this.#listening = null;
    this.#turn += 1;
  }

  attributeChangedCallback(name, before, after) {
    if (before === after || !this.isConnected || !this.#listening) return;
    if (!this.#changed) queueMicrotask(() => this.#applyChanges()); // once for several attributes that change together
    (this.#changed ??= new Set()).add(name);
  }

  #applyChanges() {
    const changed = this.#changed;
    this.#changed = null;
    if (!this.#listening) return;
    if (changed.has("lang") || changed.has("format")) this.#build();
    else this.#applyTheme();
    if (this.constructor.renews.some((name) => changed.has(name))) this.#reload();
    else this.#paint();
  }

  #refreshIfStale() {
    if (document.visibilityState === "visible" && Date.now() - this.#requestedAt > STALE_MS) this.refresh();
  }

  // --- loading --------------------------------------------------------------------------------------------------

  async #reload() {
    this.data = null;
    this.#failure = null;
    if (this.#sample) return this.take(this.#sample);
    if (!this.id) return this.#fail(new Failure("noId"));
    this.#paint();
    return this.#load(false);
  }

  async #load(isAgain) {
    const turn = ++this.#turn;
    this.#requestedAt = Date.now();
    try {
      const data = await this.load(isAgain);
      if (turn === this.#turn) this.#settle(data);
    } catch (failure) {
      // A failed refresh keeps the old data, unless the widget is gone.
      if (turn === this.#turn && (!isAgain || failure.kind === "gone")) this.#fail(failure);
    }
  }

  #settle(data) {
    const isNew = JSON.stringify(data) !== JSON.stringify(this.data);
    this.data = data;
    this.#failure = null;
    this.#paint();
    if (isNew) this.dispatchEvent(new CustomEvent("keystead-change", { detail: data, bubbles: true }));
  }

  #fail(failure) {
    this.data = null;
    this.#failure = failure;
    this.#paint();
  }

  // --- rendering ------------------------------------------------------------------------------------------------

  #applyTheme() {
    this.#root.adoptedStyleSheets = [themeSheet(this.getAttribute("theme")), BASE, ...this.constructor.sheets];
  }

  #build() {
    this.#applyTheme();
    const plain = { text: "span", json: "pre" }[this.format];
    this.#place = plain ? h(plain, { class: "plain", part: "text", dir: "auto" }) : this.build();
    this.#root.replaceChildren(
      h("div", { lang: this.words.tag, id: "widget", "aria-busy": "true" }, this.#place, this.#makeError()),
      h("div", { id: "live", class: "unseen", role: "status" }),
    );
  }

  #makeError() {
    const retry = { type: "button", class: "quiet", part: "retry", onclick: () => this.#retry() };
    return h(
      "p",
      { id: "trouble", class: "trouble frame", part: "error", role: "alert", hidden: true },
      icon(WARNING),
      h("span"),
      h("button", retry, this.words.retry),
    );
  }

  // The retry button disappears, so the focus moves to the result.
  async #retry() {
    const hadFocus = this.#root.activeElement !== null;
    await this.refresh();
    if (hadFocus) this.#root.querySelector("#widget :is(button, a, input, textarea):not([hidden], [hidden] *)")?.focus();
  }

  #paint() {
    const widget = this.#root.querySelector("#widget");
    const trouble = this.#root.querySelector("#trouble");
    widget.setAttribute("aria-busy", String(!this.data && !this.#failure));
    this.#place.hidden = Boolean(this.#failure);
    trouble.hidden = !this.#failure;
    const sentence = this.#failure ? this.sentenceOf(this.#failure, true) : "";
    if (trouble.querySelector("span").textContent !== sentence) trouble.querySelector("span").textContent = sentence;
    trouble.querySelector("button").hidden = PERMANENT.includes(this.#failure?.kind);
    if (this.#failure) return;
    if (this.format === "text") this.#place.textContent = this.data ? this.asText(this.data) : "…";
    else if (this.format === "json") this.#place.textContent = this.data ? JSON.stringify(this.data, null, 2) : "…";
    else this.show(this.data);
  }
}

// Calls `each(seconds)` now and every second until zero, or until `signal` aborts.
export function countDown(seconds, each, signal) {
  const end = Date.now() + seconds * 1000;
  const step = () => {
    const left = Math.max(0, Math.ceil((end - Date.now()) / 1000));
    if (!left) clearInterval(timer);
    each(left);
  };
  const timer = setInterval(step, 1000);
  signal?.addEventListener("abort", () => clearInterval(timer));
  step();
}
