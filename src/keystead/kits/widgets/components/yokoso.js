// For pages that include it with a plain <script src>. A plain script from another site does not know where it comes
// from except by its own element; as a module it has no element, and knows.
import(document.currentScript ? new URL("widgets.js", document.currentScript.src).href : "./widgets.js");
