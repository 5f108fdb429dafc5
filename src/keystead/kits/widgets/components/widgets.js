// The widgets as custom elements: <keystead-counter id="example-a1b2c3d4" theme="dark"></keystead-counter>.
// Each is also registered under its original name, for existing pages.
import { BoardElement } from "./board-element.js";
import { CounterElement } from "./counter-element.js";
import { LikeElement } from "./like-element.js";
import { RankingElement } from "./ranking-element.js";
import { WelcomeElement } from "./welcome-element.js";

const ELEMENTS = {
  counter: CounterElement,
  like: LikeElement,
  ranking: RankingElement,
  bbs: BoardElement,
  yokoso: WelcomeElement,
};

for (const [name, element] of Object.entries(ELEMENTS)) {
  // A class can have only one name. If a page includes two scripts, the first definition remains.
  for (const full of [`keystead-${name}`, `nostalgic-${name}`]) {
    if (!customElements.get(full)) customElements.define(full, class extends element {});
  }
}

export { BoardElement, CounterElement, LikeElement, RankingElement, WelcomeElement };
