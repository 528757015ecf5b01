// Dialogs: modal, stacked, closed with Escape; the browser restores the focus.

import { h } from "./dom.js";

let number = 0;

/**
 * Opens a dialog and returns its parts. `kind` is "box" (centred) or "drawer" (from the side).
 * What is inside is the caller's; a button of class `close` is made here.
 */
export function openDialog(kind, title, { closed, lasting = false } = {}) {
  const id = `dialog-${(number += 1)}`;
  const body = h("div", { class: "dialog-body" });
  const heading = h("h2", { id, tabindex: "-1" }, title);
  const close = lasting
    ? null
    : h("button", { class: "button quiet close", type: "button", onclick: () => dialog.close() }, "Close");
  const dialog = h(
    "dialog",
    { class: kind, "aria-labelledby": id },
    h("header", { class: "dialog-head" }, heading, close),
    body,
  );
  const opener = document.activeElement;
  dialog.addEventListener("close", () => {
    dialog.remove();
    // The browser restores the focus, except to an opener that was redrawn.
    if (opener instanceof HTMLElement && opener.isConnected && document.activeElement === document.body) opener.focus();
    closed?.();
  });
  if (lasting) {
    // Browsers close a dialog on the second Escape, whatever the handler of the first did.
    dialog.addEventListener("keydown", (event) => {
      if (event.key === "Escape") event.preventDefault();
    });
    dialog.addEventListener("cancel", (event) => event.preventDefault());
  } else {
    dialog.addEventListener("pointerdown", (event) => {
      const it = dialog.getBoundingClientRect();
      const inside =
        event.clientX >= it.left && event.clientX <= it.right && event.clientY >= it.top && event.clientY <= it.bottom;
      if (event.target === dialog && !inside) dialog.close();
    });
  }
  document.body.append(dialog);
  dialog.showModal();
  return { dialog, body, heading };
}

let fields = 0;

/** A labeled field: `field("Reason", h("input"))`. */
export function field(label, control, hint) {
  control.id ||= `field-${(fields += 1)}`;
  const told = hint ? h("small", { id: `${control.id}-hint`, class: "muted" }, hint) : null;
  if (told) control.setAttribute("aria-describedby", told.id);
  return h("div", { class: "field" }, h("label", { for: control.id }, label), control, told);
}
