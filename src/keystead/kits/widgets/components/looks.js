// Style sheets, constructed and adopted, because a content security policy may forbid inline styles.
// Pages override them: keystead-bbs { --keystead-accent: teal }, keystead-like::part(button) { … }.
import { THEMES } from "./themes.js";

const sheets = new Map();

export function sheet(text) {
  if (!sheets.has(text)) {
    const one = new CSSStyleSheet();
    one.replaceSync(text);
    sheets.set(text, one);
  }
  return sheets.get(text);
}

// Without a theme, a widget follows the color-scheme of the page.
export function themeSheet(name) {
  const theme = Object.hasOwn(THEMES, name ?? "") ? THEMES[name] : null;
  if (theme) return sheet(`:host { ${declareTheme(theme)} color-scheme: ${theme.scheme}; }`);
  const { light, dark } = THEMES;
  const both = [...COLOURS].map(([part, of]) => variableOf(part, `light-dark(${of(light)}, ${of(dark)})`)).join(" ");
  return sheet(`:host { ${declareTheme(light)} } @supports (color: light-dark(red, red)) { :host { ${both} } }`);
}

const COLOURS = new Map([
  ["background", (theme) => theme.background],
  ["background-end", (theme) => theme.backgroundEnd ?? theme.background],
  ["surface", (theme) => theme.surface],
  ["text", (theme) => theme.text],
  ["ink", (theme) => theme.ink],
  ["muted", (theme) => theme.muted],
  ["border", (theme) => theme.border],
  ["line", (theme) => theme.line],
  ["field", (theme) => theme.field],
  ["accent", (theme) => theme.accent],
  ["on-accent", (theme) => theme.onAccent],
  ["like", (theme) => theme.like],
  ["bad", (theme) => theme.bad],
]);

const PATTERNS = {
  none: () => "none",
  scanlines: () => "repeating-linear-gradient(#0000 0 2px, #0000004d 2px 4px)",
  dots: () => ["4px", "11px"].map((at) => `radial-gradient(circle at ${at} ${at}, #fff 2px, #fff0 2.6px)`).join(", "),
  gingham: ({ border }) =>
    `linear-gradient(${border}12 50%, ${border}00 50%), linear-gradient(90deg, ${border}12 50%, ${border}00 50%)`,
};
// The background-size of each pattern layer, and of the background below.
const TILES = {
  none: "auto, auto",
  scanlines: "auto, auto",
  dots: "14px 14px, 14px 14px, auto",
  gingham: "16px 16px, 16px 16px, auto",
};

function variableOf(name, value) {
  return `--_${name}: var(--keystead-${name}, ${value});`;
}

function declareTheme(theme) {
  return [
    ...[...COLOURS].map(([name, colour]) => variableOf(name, colour(theme))),
    variableOf("radius", `${theme.radius}px`),
    variableOf("frame", `${theme.frame}px`),
    variableOf("font", theme.font),
    `--_pattern: ${PATTERNS[theme.pattern](theme)};`,
    `--_tiles: ${TILES[theme.pattern]};`,
    `--_outline: ${theme.outlined ? "2px" : "0"};`,
  ].join(" ");
}

export const BASE = sheet(`
  *, *::before, *::after { box-sizing: border-box; }
  [hidden] { display: none !important; }
  :host { text-align: start; -webkit-text-size-adjust: 100%; }
  :host([hidden]) { display: none; }
  .frame {
    border: var(--_frame) solid var(--_border);
    border-radius: var(--_radius);
    background: var(--_pattern), linear-gradient(var(--_background), var(--_background-end));
    background-size: var(--_tiles);
    background-color: var(--_background);
    color: var(--_ink);
    font: 16px/1.5 var(--_font);
  }
  .icon {
    width: 1.5em;
    height: 1.5em;
    flex: none;
    fill: none;
    stroke: currentColor;
    stroke-width: 1.8;
    stroke-linecap: round;
    stroke-linejoin: round;
  }
  .unseen {
    position: absolute;
    width: 1px;
    height: 1px;
    margin: -1px;
    overflow: hidden;
    clip-path: inset(50%);
    white-space: nowrap;
  }
  :focus-visible { outline: 3px solid var(--_accent); outline-offset: 2px; }
  button {
    min-height: 36px;
    padding: 6px 14px;
    border: 1px solid var(--_accent);
    border-radius: min(var(--_radius), 10px);
    background: var(--_accent);
    color: var(--_on-accent);
    font: inherit;
    font-weight: 600;
    line-height: 1.3;
    cursor: pointer;
    touch-action: manipulation;
  }
  button.quiet { background: none; color: var(--_accent); }
  button.danger { border-color: var(--_bad); background: none; color: var(--_bad); }
  button[aria-disabled="true"] {
    border-color: var(--_line);
    background: none;
    color: var(--_muted);
    cursor: default;
  }
  .trouble { display: flex; flex-wrap: wrap; align-items: center; gap: 8px 12px; margin: 0; }
  .trouble .icon { color: var(--_bad); }
  .trouble span { flex: 1 1 10rem; min-width: 0; overflow-wrap: anywhere; }
  .trouble button { margin-inline-start: auto; }
  .plain {
    font: inherit;
    white-space: pre-wrap;
    overflow-wrap: anywhere;
    margin: 0;
    font-variant-numeric: tabular-nums;
  }
  .waits { border-radius: 4px; background: var(--_line); color: #0000; }
  @media (hover: hover) {
    button:not([aria-disabled="true"]):hover { filter: brightness(1.08); }
    button.quiet:not([aria-disabled="true"]):hover, button.danger:not([aria-disabled="true"]):hover {
      filter: none;
      background: var(--_surface);
    }
  }
  @media (pointer: coarse) { button { min-height: 44px; min-width: 44px; } }
  @media (prefers-reduced-motion: no-preference) {
    .waits { animation: waits 1.4s ease-in-out infinite alternate; }
    @keyframes waits { from { opacity: 1; } to { opacity: 0.45; } }
  }
  @media (forced-colors: active) {
    .waits { border: 1px solid; }
    button { border-color: ButtonText; }
  }
`);

// Inline widgets.
export const INLINE = sheet(`
  :host { display: inline-block; vertical-align: middle; max-width: 100%; }
  .trouble.frame {
    display: inline-flex;
    flex-wrap: nowrap;
    vertical-align: top;
    min-height: var(--_high);
    padding: 2px 4px 2px 10px;
    font-size: 13px;
    line-height: 1.25;
    gap: 8px;
  }
  .trouble.frame .icon { width: 16px; height: 16px; }
  .trouble.frame span { flex: 0 1 auto; }
  .trouble.frame button { min-height: 24px; min-width: 24px; padding: 2px 8px; font-size: 13px; white-space: nowrap; }
  .trouble.frame:not(:has(button:not([hidden]))) { padding-right: 10px; }
  @media (pointer: coarse) { .trouble.frame button { min-height: 44px; min-width: 44px; } }
`);

// Block widgets. They adapt to their own width (container queries), not to that of the page.
export const BLOCK = sheet(`
  :host { display: block; container-type: inline-size; max-width: 40rem; }
  .card { overflow: hidden; }
  .head {
    display: flex;
    flex-wrap: wrap;
    align-items: baseline;
    gap: 0 12px;
    padding: 12px 16px;
    border-bottom: 1px solid var(--_line);
  }
  .head h2 { margin: 0; font-size: 18px; line-height: 1.3; overflow-wrap: anywhere; }
  .head .note { margin-inline-start: auto; }
  .head .about { flex-basis: 100%; margin: 0; overflow-wrap: anywhere; }
  .note, .about { color: var(--_muted); font-size: 14px; }
  .empty { margin: 0; padding: 20px 16px; color: var(--_muted); text-align: center; }
  .trouble.frame { padding: 12px 16px; }
  .said { margin: 0; overflow-wrap: anywhere; }
  .said.bad { color: var(--_bad); }
`);
