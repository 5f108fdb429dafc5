// <keystead-bbs id page theme format api-base lang>: messages, the newest first, and a form to add one.
import { read, write } from "./api.js";
import { h, setAttribute, showItems } from "./dom.js";
import { dropEditToken, editTokens, saveEditToken, storageKey } from "./edit-tokens.js";
import { countDown, WidgetElement } from "./element.js";
import { BLOCK, sheet } from "./looks.js";

const AUTHOR_MAX = 20;
const MESSAGE_MAX = 200;
const WAITING_MESSAGES = 3;
const WAITING_ICONS = 7; // placeholders: most boards have icons

export class BoardElement extends WidgetElement {
  static service = "bbs";
  static renews = [...WidgetElement.renews, "page"];
  static observedAttributes = [...WidgetElement.observedAttributes, "page"];
  static sheets = [
    BLOCK,
    sheet(`
      form { display: grid; gap: 10px; padding: 14px 16px; }
      .write { border-bottom: 1px solid var(--_line); background: var(--_surface); }
      .fields { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(5rem, 100%), 1fr)); gap: 10px; }
      label, legend { padding: 0; color: var(--_muted); font-size: 14px; font-weight: 600; }
      .label { display: flex; justify-content: space-between; gap: 8px; margin-bottom: 3px; }
      .left { font-weight: 400; font-variant-numeric: tabular-nums; }
      .left.bad { color: var(--_bad); font-weight: 700; }
      input:not([type="radio"]), select, textarea {
        display: block;
        width: 100%;
        min-height: 40px;
        padding: 8px 10px;
        border: 1px solid var(--_field);
        border-radius: min(var(--_radius), 8px);
        background: var(--_background);
        color: var(--_ink);
        font: inherit;
      }
      textarea { min-height: 80px; resize: vertical; }
      ::placeholder { color: var(--_muted); opacity: 1; }
      [aria-invalid="true"] { border-color: var(--_bad); }
      fieldset { min-width: 0; margin: 0; padding: 0; border: 0; }
      .icons { display: flex; flex-wrap: wrap; gap: 6px; margin-top: 3px; }
      .icons label {
        position: relative;
        display: grid;
        place-items: center;
        min-width: 40px;
        height: 40px;
        padding: 0 6px;
        border: 1px solid var(--_field);
        border-radius: min(var(--_radius), 8px);
        background: var(--_background);
        color: var(--_ink);
        font-size: 20px;
        line-height: 1;
        cursor: pointer;
      }
      .icons .place { width: 40px; height: 40px; border-radius: min(var(--_radius), 8px); }
      .icons input {
        position: absolute;
        inset: 0;
        width: 100%;
        height: 100%;
        margin: 0;
        opacity: 0;
        cursor: pointer;
      }
      .icons label:has(:checked) { border-color: var(--_accent); box-shadow: inset 0 0 0 2px var(--_accent); }
      .icons label:has(:focus-visible) { outline: 3px solid var(--_accent); outline-offset: 2px; }
      .send { display: flex; flex-wrap: wrap; align-items: center; gap: 8px 12px; min-height: 40px; }
      .send .said { flex: 1; min-width: min(12rem, 100%); font-size: 14px; }
      .send button { min-height: 40px; margin-inline-start: auto; }
      ol { margin: 0; padding: 0; list-style: none; }
      ol:focus { outline: none; }
      li { padding: 12px 16px; }
      li + li { border-top: 1px solid var(--_line); }
      .by { display: flex; flex-wrap: wrap; align-items: baseline; gap: 2px 8px; margin: 0; }
      .author { font-weight: 700; overflow-wrap: anywhere; }
      time, .mark { color: var(--_muted); font-size: 13px; }
      .emoji { font-size: 20px; line-height: 1; }
      .text { margin: 2px 0 0; white-space: pre-line; overflow-wrap: anywhere; }
      .chips { display: flex; flex-wrap: wrap; gap: 4px 6px; margin: 6px 0 0; padding: 0; }
      .chips span {
        padding: 1px 8px;
        border: 1px solid var(--_line);
        border-radius: 999px;
        color: var(--_muted);
        font-size: 13px;
        overflow-wrap: anywhere;
      }
      .own { display: flex; flex-wrap: wrap; align-items: center; gap: 6px 8px; margin-top: 8px; }
      .own button { min-height: 32px; padding: 3px 12px; font-size: 14px; }
      .own p { margin: 0; font-weight: 600; }
      li form { flex: 1 1 100%; padding: 8px 0 0; }
      .mine { box-shadow: inset 3px 0 0 var(--_accent); }
      .mine:dir(rtl) { box-shadow: inset -3px 0 0 var(--_accent); }
      .text.waits { width: 70%; }
      nav {
        display: flex;
        align-items: center;
        justify-content: space-between;
        gap: 12px;
        padding: 10px 16px;
        border-top: 1px solid var(--_line);
      }
      nav span { color: var(--_muted); font-size: 14px; text-align: center; }
      @media (pointer: coarse) {
        .own button, .send button { min-height: 44px; }
        .icons label { min-width: 44px; height: 44px; }
        .icons .place { width: 44px; height: 44px; }
        input:not([type="radio"]), select { min-height: 44px; }
      }
      @container (max-width: 24rem) { .send button { flex: 1; } .send .said { flex-basis: 100%; } }
    `),
  ];

  #page = null; // the page that the visitor turned to
  #parts;
  #form;
  #cooling = false;

  get page() {
    const given = this.getAttribute("page") ?? "";
    return this.#page ?? (/^\d+$/.test(given) ? Math.max(Number(given), 1) : 1);
  }

  async load() {
    const data = await read(this.base, "bbs", "get", { id: this.id, page: this.page });
    const { page, totalPages } = data.pagination;
    if (page <= totalPages) return data;
    this.#page = totalPages; // messages were deleted, and this page no longer exists
    return read(this.base, "bbs", "get", { id: this.id, page: totalPages });
  }

  connectedCallback() {
    super.connectedCallback();
    // The edit token of a message from another tab may arrive after the message.
    addEventListener("storage", ({ key }) => key === storageKey(this.id) && this.paint(), { signal: this.signal });
  }

  attributeChangedCallback(name, before, after) {
    if (name === "page" || name === "id") this.#page = null;
    super.attributeChangedCallback(name, before, after);
  }

  // --- rendering -----------------------------------------------------------------------------------------------

  build() {
    const { words } = this;
    const turn = (by) => () => this.#turn(by);
    this.#form = this.#makeForm();
    this.#parts = {
      title: h("h2", { part: "title", dir: "auto", id: "title" }),
      count: h("span", { class: "note", part: "note" }),
      list: h("ol", { role: "list", part: "messages", tabindex: "-1", "aria-labelledby": "title" }),
      empty: h("p", { class: "empty", part: "empty" }, words.noMessages),
      newer: h("button", { type: "button", class: "quiet", onclick: turn(-1) }, words.newer),
      older: h("button", { type: "button", class: "quiet", onclick: turn(1) }, words.older),
      where: h("span", { part: "note" }),
    };
    const { title, count, list, empty, newer, older, where } = this.#parts;
    this.#parts.pager = h("nav", { part: "pages", "aria-label": words.pages }, newer, where, older);
    return h(
      "section",
      { class: "frame card", part: "card", "aria-labelledby": "title" },
      h("header", { class: "head", part: "head" }, title, count),
      this.#form.element,
      list,
      empty,
      this.#parts.pager,
    );
  }

  show(data) {
    const { words } = this;
    const { title, count, list, empty, pager, newer, older, where } = this.#parts;
    title.textContent = data?.title || words.board;
    count.textContent = data ? words.messages(this.number(data.totalMessages)) : "";
    this.#form.offer(data?.settings);
    const messages = data ? data.messages : waiting();
    const tokens = data ? editTokens(this.id) : {};
    const fill = (item, message) => this.#fill(item, message, tokens, Boolean(data));
    showItems(list, messages, ({ id }) => id, makeMessage, fill);
    empty.hidden = messages.length > 0;
    const at = data?.pagination;
    pager.hidden = !at || at.totalPages < 2;
    where.textContent = at ? words.page(this.number(at.page), this.number(at.totalPages)) : "";
    newer.setAttribute("aria-disabled", String(!at?.hasPrev));
    older.setAttribute("aria-disabled", String(!at?.hasNext));
  }

  asText(data) {
    return data.messages.map(({ author, message }) => `${author}: ${message}`).join("\n");
  }

  #fill(item, message, tokens, isReady) {
    const part = (name) => item.querySelector(`.${name}`);
    part("author").textContent = message.author;
    part("text").textContent = message.message;
    for (const name of ["author", "text"]) part(name).classList.toggle("waits", !isReady);
    part("emoji").textContent = message.icon ?? "";
    part("emoji").hidden = !message.icon;
    part("mark").textContent = message.edited ? this.words.edited : "";
    const written = part("written");
    written.hidden = !isReady;
    if (isReady) {
      written.dateTime = message.timestamp;
      written.textContent = this.#moment(message.timestamp);
    }
    const chosen = Object.entries(message.selects ?? {}).filter(([, value]) => value);
    part("chips").hidden = chosen.length === 0;
    const chips = chosen.map(([label, value]) => h("span", { title: label, dir: "auto" }, String(value)));
    part("chips").replaceChildren(...chips);
    const isMine = Object.hasOwn(tokens, message.id);
    item.classList.toggle("mine", isMine);
    setAttribute(item, "aria-hidden", !isReady && "true");
    this.#offerOwn(item, message, isMine);
  }

  #moment(timestamp) {
    const at = new Date(timestamp);
    if (Number.isNaN(at.getTime())) return timestamp;
    return new Intl.DateTimeFormat(this.words.tag, { dateStyle: "medium", timeStyle: "short" }).format(at);
  }

  // --- posting -------------------------------------------------------------------------------------------------

  #makeForm() {
    const { words } = this;
    const both = { dir: "auto", part: "field" };
    const author = h("input", { id: "author", autocomplete: "nickname", placeholder: words.anonymous, ...both });
    const message = h("textarea", { id: "message", rows: "3", ...both });
    const icons = h("fieldset", { hidden: true }, h("legend", {}, words.icon), h("div", { class: "icons" }));
    const selects = h("div", { class: "fields", hidden: true });
    const said = h("p", { class: "said" });
    const send = h("button", { part: "button" }, words.post);
    const authorLeft = makeCharacterCount(author, AUTHOR_MAX, words, AUTHOR_MAX / 2);
    const messageLeft = makeCharacterCount(message, MESSAGE_MAX, words);
    const element = h(
      "form",
      { class: "write", part: "form", novalidate: true, onsubmit: (event) => this.#post(event) },
      h("div", {}, h("label", { for: "author", class: "label" }, words.name, authorLeft.element), author),
      icons,
      selects,
      h("div", {}, h("label", { for: "message", class: "label" }, words.message, messageLeft.element), message),
      h("div", { class: "send" }, said, send),
    );
    let offered = null;
    // Rebuilt only if the owner has changed the options, so that a selection is not lost.
    const offer = (settings) => {
      const now = JSON.stringify([Boolean(settings), settings?.icons, settings?.selects]);
      if (now === offered) return;
      offered = now;
      icons.hidden = Boolean(settings) && !settings.icons?.length;
      const choices = settings ? ["", ...(settings.icons ?? [])].map((one) => choice(one, words)) : places();
      icons.querySelector("div").replaceChildren(...choices);
      selects.hidden = !settings?.selects?.length;
      selects.replaceChildren(...(settings?.selects ?? []).map(selection(words)));
    };
    const values = () => {
      const chosen = [...selects.querySelectorAll("select")].map(({ id, value }) => [id, value]);
      const all = [
        ["author", author.value.trim()],
        ["message", message.value.trim()],
        ["icon", icons.querySelector(":checked")?.value],
        ...chosen,
      ];
      return Object.fromEntries(all.filter(([, value]) => value));
    };
    const clear = () => {
      message.value = "";
      messageLeft.count();
    };
    return { element, author, message, said, send, authorLeft, messageLeft, offer, values, clear };
  }

  async #post(event) {
    event.preventDefault();
    const { author, message, send, authorLeft, messageLeft, values, clear } = this.#form;
    if (this.#cooling || send.getAttribute("aria-disabled") === "true" || this.sample) return;
    this.#say("");
    if (!message.value.trim()) return this.#mark(message, this.words.writeFirst);
    if (messageLeft.isOver()) return this.#mark(message, this.words.tooLong);
    if (authorLeft.isOver()) return this.#mark(author, this.words.tooLong);
    send.setAttribute("aria-disabled", "true");
    try {
      const answer = await write(this.base, "bbs", "post", { id: this.id, ...values() });
      saveEditToken(this.id, answer.messageId, answer.editToken);
      clear();
      this.#page = 1;
      this.take(answer.data, true);
      this.#say(this.words.posted);
    } catch (failure) {
      if (failure.kind === "gone") return this.refresh();
      this.#say(this.sentenceOf(failure), true);
      if (failure.waitS) this.#cool(failure);
    } finally {
      if (!this.#cooling) send.removeAttribute("aria-disabled");
    }
  }

  #mark(field, sentence) {
    this.#say(sentence, true);
    field.setAttribute("aria-invalid", "true");
    field.focus();
    field.addEventListener("input", () => field.removeAttribute("aria-invalid"), { once: true });
  }

  // Shown every second, announced to screen readers at the start and at the end.
  #cool(failure) {
    this.#cooling = true;
    const sentence = failure.kind === "limit" ? this.words.limit : this.words.cooldown;
    countDown(
      failure.waitS,
      (left) => {
        this.#cooling = left > 0;
        setAttribute(this.#form.send, "aria-disabled", left > 0 && "true");
        this.#form.said.textContent = left ? sentence(left) : this.words.canGoOn;
        this.#form.said.classList.toggle("bad", left > 0);
        if (!left) this.announce(this.words.canGoOn);
      },
      this.signal,
    );
  }

  #say(sentence, isBad = false) {
    this.#form.said.textContent = sentence;
    this.#form.said.classList.toggle("bad", isBad);
    this.announce(sentence);
  }

  async #turn(by) {
    const at = this.data?.pagination;
    if (!at || (by < 0 ? !at.hasPrev : !at.hasNext)) return;
    this.#page = at.page + by;
    await this.refresh();
    const { title, where } = this.#parts;
    this.announce(where.textContent);
    title.scrollIntoView({ block: "nearest" });
  }

  // --- own messages --------------------------------------------------------------------------------------------

  #offerOwn(item, message, isMine) {
    const { words } = this;
    const own = item.querySelector(".own");
    own.hidden = !isMine;
    if (!isMine) return own.replaceChildren();
    if (own.children.length) return; // a form or a question may be open
    const edit = h("button", { type: "button", class: "quiet", onclick: () => this.#edit(item) }, words.edit);
    const remove = h("button", { type: "button", class: "danger", onclick: () => this.#askRemove(item) }, words.remove);
    own.replaceChildren(edit, remove);
  }

  #current(item) {
    return this.data?.messages.find(({ id }) => id === item.dataset.key);
  }

  #close(item, focused) {
    const message = this.#current(item);
    item.querySelector(".text").hidden = false;
    item.querySelector(".own").replaceChildren();
    if (message) this.#offerOwn(item, message, Object.hasOwn(editTokens(this.id), message.id));
    item.querySelectorAll(".own button")[focused]?.focus();
  }

  #edit(item) {
    const { words } = this;
    const id = `edit-${item.dataset.key}`;
    const field = h("textarea", { id, rows: "3", dir: "auto" });
    field.value = this.#current(item)?.message ?? "";
    const left = makeCharacterCount(field, MESSAGE_MAX, words);
    const said = h("p", { class: "said", role: "alert" });
    const form = h(
      "form",
      { novalidate: true, onkeydown: (event) => event.key === "Escape" && this.#close(item, 0) },
      h("div", {}, h("label", { for: id, class: "label" }, words.message, left.element), field),
      said,
      h(
        "div",
        { class: "own" },
        h("button", {}, words.save),
        h("button", { type: "button", class: "quiet", onclick: () => this.#close(item, 0) }, words.cancel),
      ),
    );
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      const message = field.value.trim();
      said.classList.add("bad");
      said.textContent = !message ? words.writeFirst : left.isOver() ? words.tooLong : "";
      if (said.textContent) return field.focus();
      const failure = await this.#change(item, "editMessageById", { message });
      if (failure) said.textContent = this.sentenceOf(failure);
      else this.#done(item, words.saved);
    });
    item.querySelector(".text").hidden = true;
    item.querySelector(".own").replaceChildren(form);
    field.focus();
  }

  #askRemove(item) {
    const { words } = this;
    const said = h("p", { class: "said bad", role: "alert" });
    const remove = async () => {
      const failure = await this.#change(item, "deleteMessageById", {});
      if (failure) return (said.textContent = this.sentenceOf(failure));
      dropEditToken(this.id, item.dataset.key);
      this.#parts.list.focus();
      this.announce(words.removed);
    };
    const question = `sure-${item.dataset.key}`;
    const keep = h("button", { type: "button", class: "quiet", onclick: () => this.#close(item, 1) }, words.keep);
    item.querySelector(".own").replaceChildren(
      h("p", { id: question }, words.sure),
      h("button", { type: "button", class: "danger", "aria-describedby": question, onclick: remove }, words.remove),
      keep,
      said,
    );
    keep.focus();
  }

  #done(item, sentence) {
    this.#close(item, 0);
    this.announce(sentence);
  }

  // Returns null, or the failure.
  async #change(item, action, fields) {
    const messageId = item.dataset.key;
    const editToken = editTokens(this.id)[messageId];
    try {
      await write(this.base, "bbs", action, { id: this.id, messageId, editToken, ...fields });
      this.take(await this.load(), true);
      return null;
    } catch (failure) {
      return failure;
    }
  }
}

// --- parts -----------------------------------------------------------------------------------------------------------

function makeMessage() {
  return h(
    "li",
    { part: "message" },
    h(
      "p",
      { class: "by" },
      h("span", { class: "emoji" }),
      h("bdi", { class: "author", part: "author" }),
      h("time", { class: "written" }),
      h("span", { class: "mark" }),
    ),
    h("p", { class: "text", part: "text", dir: "auto", lang: "" }),
    h("p", { class: "chips" }),
    h("div", { class: "own" }),
  );
}

function waiting() {
  return Array.from({ length: WAITING_MESSAGES }, (_, at) => ({ id: `waiting-${at}`, author: "Somebody", message: "–" }));
}

function choice(one, words) {
  const radio = h("input", { type: "radio", name: "icon", value: one, "aria-label": one || words.noIcon });
  radio.checked = one === "";
  return h("label", {}, radio, h("span", { "aria-hidden": "true" }, one || words.none));
}

function places() {
  return Array.from({ length: WAITING_ICONS }, () => h("span", { class: "place waits" }));
}

function selection(words) {
  return ({ label, options }, at) => {
    const id = `select${at + 1}`;
    const all = ["", ...options].map((one) => h("option", { value: one }, one || words.none));
    return h("div", {}, h("label", { for: id, class: "label" }, label), h("select", { id }, ...all));
  };
}

// The number of characters left, counted by code point as in the API. It is shown only when at most `from` are left.
function makeCharacterCount(field, most, words, from = most) {
  const element = h("span", { class: "left", "aria-hidden": "true" });
  const left = () => most - [...field.value.trim().normalize("NFC")].length;
  const count = () => {
    const now = left();
    element.textContent = now < 0 ? words.over(-now) : now <= from ? words.left(now) : "";
    element.classList.toggle("bad", now < 0);
  };
  field.addEventListener("input", count);
  count();
  return { element, count, isOver: () => left() < 0 };
}
