// Creates DOM elements. Text is always inserted as text, never parsed as HTML.

const SVG = "http://www.w3.org/2000/svg";

// h("button", { type: "button", onclick: press }, "Press"): attributes, listeners and children.
// An attribute that is false, null or undefined is left out; true means no value.
export function h(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else setAttribute(element, key, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export function setAttribute(element, key, value) {
  if (value === false || value === null || value === undefined) element.removeAttribute(key);
  else element.setAttribute(key, value === true ? "" : String(value));
}

// A decorative icon of 24 by 24, hidden from screen readers.
export function icon(path, className = "icon") {
  const svg = document.createElementNS(SVG, "svg");
  const line = document.createElementNS(SVG, "path");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("aria-hidden", "true");
  svg.setAttribute("class", className);
  line.setAttribute("d", path);
  svg.append(line);
  return svg;
}

// Shows `items` as the children of `list`, reusing existing elements, so that focus and typed text are not lost.
// `make(item)` creates a new element, `update(element, item)` fills it.
export function showItems(list, items, keyOf, make, update) {
  const before = new Map([...list.children].map((element) => [element.dataset.key, element]));
  const elements = items.map((item) => {
    const key = String(keyOf(item));
    const element = before.get(key) ?? make(item);
    element.dataset.key = key;
    before.delete(key);
    update(element, item);
    return element;
  });
  for (const gone of before.values()) gone.remove();
  elements.forEach((element, at) => {
    if (list.children[at] !== element) list.insertBefore(element, list.children[at] ?? null);
  });
}
