// The token: requested until one is accepted, and removed.

import { get, hasToken, setToken } from "./api.js";
import { field, openDialog } from "./dialog.js";
import { $, h, visible } from "./dom.js";

let asking = false;

/** Whether the token dialog is open, during which polling stops. */
export const isSigningIn = () => asking;

/** Asks for the token until one is accepted; then calls `done`. */
export function signIn(done) {
  if (asking) return;
  asking = true;
  const stale = hasToken();
  setToken(null);
  const { dialog, body } = openDialog("box", "Sign in", { lasting: true });
  const token = h("input", { type: "password", autocomplete: "current-password", required: true });
  const wrong = h(
    "p",
    { class: "notice bad", role: "alert", hidden: !stale },
    stale ? "The token is not valid any more." : "",
  );
  const form = h(
    "form",
    null,
    h("p", null, "This server asks for a token: the admin token, or the one for reading."),
    field("Token", token, "Kept in this tab until it is closed."),
    wrong,
    h("div", { class: "actions" }, h("button", { class: "button strong" }, "Sign in")),
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    setToken(token.value.trim());
    try {
      await get("v1/overview");
      asking = false;
      $("sign-out").hidden = false;
      dialog.close();
      done();
    } catch (error) {
      setToken(null);
      wrong.textContent = error.status === 401 ? "This token is not accepted." : visible(error.message);
      wrong.hidden = false;
      token.select();
    }
  });
  body.append(form);
  token.focus();
}

$("sign-out").hidden = !hasToken();
$("sign-out").addEventListener("click", () => {
  setToken(null);
  // All shown data is removed with the token.
  location.replace(location.pathname);
});
