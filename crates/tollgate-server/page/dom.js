// Builds elements. Data of the server is inserted as text, never as markup: innerHTML is not used
// anywhere.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.setAttribute("class", value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((it) => it !== null && it !== undefined && it !== false));
  return element;
}

/** An element: `h("p", {class: "muted"}, "text", other)`. */
export const h = (tag, props, ...children) => fill(document.createElement(tag), props, children);

/** The same, of SVG. */
export const s = (tag, props, ...children) => fill(document.createElementNS(SVG, tag), props, children);

export const $ = (id) => document.getElementById(id);

/** Sets text only if it differs, so that an unchanged node is neither laid out nor announced again. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Replaces the content of an element, unless `mark` is the same as last time. */
export function refill(element, mark, children) {
  if (mark !== null && element.filledWith === mark) return false;
  element.filledWith = mark;
  element.replaceChildren(
    ...[children()].flat(Infinity).filter((it) => it !== null && it !== undefined && it !== false),
  );
  return true;
}

// Invisible characters and those that change the direction: controls, zero width, directions, tags.
const UNSEEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}\p{Co}]/gu;
const LONGEST = 400;

/** Untrusted text with every character visible. */
export function visible(text) {
  const whole = String(text ?? "");
  const cut = whole.length > LONGEST ? `${whole.slice(0, LONGEST)}…` : whole;
  return cut.replace(UNSEEN, (it) => `‹U+${it.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}›`);
}

/** Untrusted text, isolated so that its direction does not affect its surroundings. */
export function foreign(text, cls = "mono") {
  const shown = visible(text);
  return h("bdi", { class: `foreign ${cls}`, title: shown.length > 24 ? shown : null }, shown);
}

/** Untrusted text on several lines, with every character visible. */
export const visibleLines = (text) =>
  String(text ?? "")
    .split(/\r?\n/)
    .filter((it) => it !== "")
    .slice(0, 20)
    .map(visible)
    .join("\n");

/** The first digits of a tag, which identifies the hidden part of a key and is the same under every limit. */
export const tagged = (tag) =>
  h("small", { class: "tag", title: `Tag ${tag}: the same wherever this key appears` }, `#${tag.slice(0, 8)}`);

/** A key as `privacy` shows it, with its tag if it is shortened. */
export function keyOf({ key, tag }, cls = "mono") {
  const text = foreign(key, cls);
  return tag && String(key).includes("…") ? h("span", { class: "key" }, text, " ", tagged(tag)) : text;
}

/** Opens by a click anywhere in a row, except on controls and while selecting text. */
export function clickable(row, open) {
  row.classList.add("clickable");
  row.addEventListener("click", (event) => {
    if (!(event.target instanceof Element) || event.target.closest("button, a, input")) return;
    if (String(getSelection()) === "") open();
  });
  return row;
}

/** A row of name and value for a description list. */
export const pair = (name, ...value) => [h("dt", null, name), h("dd", null, ...value)];

const HOLD = 4000;

/** Whether the user is about to click here: pointer or focus is inside, and moved a moment ago. */
export function holder(element) {
  let last = -HOLD;
  const note = () => {
    last = performance.now();
  };
  for (const kind of ["pointermove", "pointerdown", "keydown", "focusin"]) element.addEventListener(kind, note);
  return () =>
    performance.now() - last < HOLD && (element.matches(":hover") || element.contains(document.activeElement));
}

/** The content of an empty list. */
export const nothing = (text) => h("p", { class: "nothing" }, text);

/** Buttons to page through `total` rows. */
export function pager(page, size, total, turn) {
  if (total <= size) return null;
  const pages = Math.ceil(total / size);
  const button = (label, to, off) =>
    h("button", { class: "button quiet", type: "button", disabled: off, onclick: () => turn(to) }, label);
  return h(
    "div",
    { class: "pager" },
    button("Back", page - 1, page === 0),
    h(
      "span",
      { class: "muted" },
      `${page * size + 1}–${Math.min(total, (page + 1) * size)} of ${total.toLocaleString("en")}`,
    ),
    button("Next", page + 1, page >= pages - 1),
  );
}
