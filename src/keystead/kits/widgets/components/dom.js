// Elements from data. Text goes in as text: nothing here, and nothing that uses it, reads HTML.

const SVG = "http://www.w3.org/2000/svg";

// h("button", { type: "button", onclick: press }, "Press"): attributes, listeners, and what stands in it.
// An attribute that is false, null or undefined is left out; one that is true stands without a value.
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

// An icon of 24 by 24, filled or in lines, which says nothing to those who listen.
export function icon(path, className = "icon") {
  const drawn = document.createElementNS(SVG, "svg");
  const line = document.createElementNS(SVG, "path");
  drawn.setAttribute("viewBox", "0 0 24 24");
  drawn.setAttribute("aria-hidden", "true");
  drawn.setAttribute("class", className);
  line.setAttribute("d", path);
  drawn.append(line);
  return drawn;
}

// Shows `items` as the children of `list`, each in the element that it has already: what is in use (a focus, a text
// that is being typed) stays in use. `make(item)` gives the element of a new one, `update(element, item)` fills it.
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
