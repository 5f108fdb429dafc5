// Loads widgets.js, for a plain <script src> (which finds its URL by its element) and for a module (which knows it).
import(document.currentScript ? new URL("widgets.js", document.currentScript.src).href : "./widgets.js");
