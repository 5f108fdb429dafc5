// What all widgets have in common: where they ask, what they show while they wait or fail, and when they ask again.
import { Failure, OWN_ORIGIN } from "./api.js";
import { h, icon } from "./dom.js";
import { BASE, themeSheet } from "./looks.js";
import { listen, tell, tellOtherTabs } from "./news.js";
import { wordsOf } from "./words.js";

const STALE_MS = 10_000; // a tab that is looked at again asks again, unless it just has
const HOPELESS = ["noId", "noBase"]; // what trying again does not change: the page has to be written otherwise
const WARNING = "M12 3.5 22 20.5H2ZM12 10v5M12 17.8v.2";

// A subclass has
//   static service       its name in the API
//   static sheets        its style sheets, made by `sheet`
//   static renews        attributes that make it ask again; others only change how it looks
//   build()              -> the element that shows it, made anew for each language and format
//   show(data)           fills that element; null: nothing has come yet
//   load(isAgain)        -> a promise of its data; `isAgain`: some is shown already
//   asText(data)         what format="text" shows
export class WidgetElement extends HTMLElement {
  static sheets = [];
  static renews = ["id", "api-base"];
  static observedAttributes = ["id", "api-base", "theme", "lang", "format"];

  #root = this.attachShadow({ mode: "open" });
  #turn = 0; // answers to what was asked for earlier are of no interest any more
  #changed = null; // the attributes that changed since it was last shown
  #asked_at = 0;
  #failure = null;
  #sample = null;
  #place = null;
  #ending = null; // ends its listeners
  #heard = (news) => {
    if (Object.entries(this.#name).every(([key, value]) => news[key] === value)) this.refresh();
  };

  data = null;

  // --- for pages -----------------------------------------------------------------------------------------------

  // Where the API is; null where `api-base` is no address.
  get base() {
    const given = this.getAttribute("api-base");
    if (!given) return OWN_ORIGIN;
    try {
      return new URL(given, document.baseURI).href.replace(/\/+$/, "");
    } catch {
      return null;
    }
  }

  // Shows this in the place of what the API would say, and asks nothing: for pages that show what a widget looks like.
  set sample(data) {
    this.#sample = data;
    if (this.isConnected) this.#begin();
  }

  get sample() {
    return this.#sample;
  }

  // Asks again, without a word unless the widget is gone. What is shown stays until the answer comes.
  async refresh() {
    if (this.#failure || !this.data) return this.#begin();
    if (!this.#sample) await this.#ask(true);
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

  // What has come, from whichever question; the others of this widget are told where `isNews`.
  take(data, isNews = false) {
    this.#turn += 1; // what is on its way was asked for before
    this.#settle(data);
    if (isNews) tell(this.#name, this.#heard);
  }

  tellOtherTabs() {
    tellOtherTabs(this.#name);
  }

  get #name() {
    return { base: this.base, service: this.constructor.service, id: this.id };
  }

  // A failure in this language: of the widget as a whole, or of something that somebody did with it. What the API says
  // is shown as it is where we have no words of our own for it.
  sentenceOf(failure, isWidget = false) {
    if (!(failure instanceof Failure)) return this.words.unreachable;
    if (failure.kind === "offline" && !isWidget) return this.words.notSent;
    if (failure.kind === "gone" && isWidget) return this.words.gone[this.constructor.service];
    if (failure.kind === "cooldown" && failure.waitS) return this.words.cooldown(failure.waitS);
    if (failure.kind === "limit" && failure.waitS) return this.words.limit(failure.waitS);
    return failure.sentence || this.words[failure.kind] || this.words.unreachable;
  }

  // Says it to those who listen.
  announce(sentence) {
    this.#root.querySelector("#live")?.replaceChildren(sentence);
  }

  // Shows once more what is known.
  paint() {
    if (this.#place) this.#paint();
  }

  get signal() {
    return this.#ending?.signal;
  }

  // --- when something changes ----------------------------------------------------------------------------------

  connectedCallback() {
    this.#ending = new AbortController();
    const { signal } = this.#ending;
    signal.addEventListener("abort", listen(this.#heard));
    addEventListener("online", () => this.refresh(), { signal });
    document.addEventListener("visibilitychange", () => this.#looked(), { signal });
    addEventListener("pageshow", (event) => event.persisted && this.refresh(), { signal });
    this.#build();
    this.#begin();
  }

  disconnectedCallback() {
    this.#ending?.abort();
    this.#ending = null;
    this.#turn += 1;
  }

  attributeChangedCallback(name, before, after) {
    if (before === after || !this.isConnected || !this.#ending) return;
    if (!this.#changed) queueMicrotask(() => this.#follow()); // several attributes that change together count once
    (this.#changed ??= new Set()).add(name);
  }

  #follow() {
    const changed = this.#changed;
    this.#changed = null;
    if (!this.#ending) return;
    if (changed.has("lang") || changed.has("format")) this.#build();
    else this.#dress();
    if (this.constructor.renews.some((name) => changed.has(name))) this.#begin();
    else this.#paint();
  }

  #looked() {
    if (document.visibilityState === "visible" && Date.now() - this.#asked_at > STALE_MS) this.refresh();
  }

  // --- asking --------------------------------------------------------------------------------------------------

  async #begin() {
    this.data = null;
    this.#failure = null;
    if (this.#sample) return this.take(this.#sample);
    if (!this.id) return this.#fail(new Failure("noId"));
    this.#paint();
    return this.#ask(false);
  }

  async #ask(isAgain) {
    const turn = ++this.#turn;
    this.#asked_at = Date.now();
    try {
      const data = await this.load(isAgain);
      if (turn === this.#turn) this.#settle(data);
    } catch (failure) {
      // What is shown was true a moment ago, and is more than nothing; that it is gone has to be said.
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

  // --- showing -------------------------------------------------------------------------------------------------

  #dress() {
    this.#root.adoptedStyleSheets = [themeSheet(this.getAttribute("theme")), BASE, ...this.constructor.sheets];
  }

  #build() {
    this.#dress();
    const plain = { text: "span", json: "pre" }[this.format];
    this.#place = plain ? h(plain, { class: "plain", part: "text", dir: "auto" }) : this.build();
    this.#root.replaceChildren(
      h("div", { lang: this.words.tag, id: "widget", "aria-busy": "true" }, this.#place, this.#trouble()),
      h("div", { id: "live", class: "unseen", role: "status" }),
    );
  }

  #trouble() {
    const retry = { type: "button", class: "quiet", part: "retry", onclick: () => this.#retry() };
    return h(
      "p",
      { id: "trouble", class: "trouble frame", part: "error", role: "alert", hidden: true },
      icon(WARNING),
      h("span"),
      h("button", retry, this.words.retry),
    );
  }

  // The button that is pressed goes while it is tried: whoever pressed it finds the focus on what came of it.
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
    trouble.querySelector("button").hidden = HOPELESS.includes(this.#failure?.kind);
    if (this.#failure) return;
    if (this.format === "text") this.#place.textContent = this.data ? this.asText(this.data) : "…";
    else if (this.format === "json") this.#place.textContent = this.data ? JSON.stringify(this.data, null, 2) : "…";
    else this.show(this.data);
  }
}

// Calls `each(seconds)` now and once a second until none are left; ends with `signal`.
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
