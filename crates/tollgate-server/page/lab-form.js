// The form of the Lab: its controls, and the request that each change makes.

import { post } from "./api.js";
import { h, say, visible } from "./dom.js";
import { labChart } from "./lab-chart.js";

// Debounces typing.
const PAUSE = 250;

/** Controls that change `wanted` and then call `ask` with the milliseconds to wait. */
export function controls(wanted, ask) {
  const change = (name, value, after = 0) => {
    wanted[name] = value;
    ask(after);
  };
  const typed = (name, hint, mode = "text") => {
    const input = h("input", {
      type: "text",
      autocomplete: "off",
      spellcheck: "false",
      placeholder: hint,
      inputmode: mode,
      maxlength: "64",
      oninput: () => change(name, input.value.trim(), PAUSE),
    });
    input.value = wanted[name];
    return input;
  };
  const chosen = (name, choices) => {
    const select = h(
      "select",
      { onchange: () => change(name, select.value) },
      Object.entries(choices).map(([value, word]) => h("option", { value }, word)),
    );
    select.value = wanted[name] in choices ? wanted[name] : Object.keys(choices)[0];
    wanted[name] = select.value;
    return select;
  };
  const ticked = (label, isOn, toggled, mark = null) => {
    const box = h("input", { type: "checkbox", onchange: () => toggled(box.checked) });
    box.checked = isOn;
    return h("label", { class: "check" }, box, mark, label);
  };
  return { change, typed, chosen, ticked };
}

/** Puts the parameters into the URL, so that a chart can be shared. */
export function keepAddress(hash) {
  history.replaceState(null, "", location.pathname + location.search + hash);
}

/**
 * Sends `question()` to `path` and passes the answer to `show`. `before` is called first, and its error is shown like one of
 * the server. Only the answer to the latest request counts.
 */
export function labRunner({ path, dialog, wrong, results, before, question, show }) {
  let timer = null;
  let asked = 0;

  async function run() {
    if (!dialog.open || !results.isConnected) return;
    const mine = (asked += 1);
    const isLate = () => mine !== asked || !dialog.open || !results.isConnected;
    let told;
    try {
      before();
      told = await post(path, question());
    } catch (error) {
      if (isLate()) return;
      say(wrong, visible(error.message));
      wrong.hidden = false;
      results.classList.add("stale");
      return;
    }
    if (isLate()) return;
    wrong.hidden = true;
    results.hidden = false;
    results.classList.remove("stale");
    show(told);
  }

  return {
    ask(after) {
      clearTimeout(timer);
      timer = setTimeout(run, after);
    },
  };
}

/** The buttons below a form. `roll` takes another seed. */
export const labActions = (words, roll) =>
  h(
    "div",
    { class: "actions" },
    h("span", { class: "muted" }, words),
    h("button", { class: "button", type: "button", onclick: roll }, "Roll the dice again"),
    h("button", { class: "button strong" }, "Run"),
  );

/** The results below a form: a sentence, the choice of pictures, the chart, numbers, and the command for a terminal. */
export function labResults(pictures) {
  const lead = h("p", { class: "lead", role: "status" });
  const wrong = h("p", { class: "notice bad", role: "alert", hidden: true });
  const picture = h("div", { class: "chart" });
  const chart = labChart(picture);
  const numbers = h("div", { class: "lab-numbers" });
  const terminal = h("code", { class: "wrap" });
  const results = h(
    "div",
    { hidden: true },
    lead,
    pictures,
    picture,
    numbers,
    h("p", { class: "muted hint" }, "The address above holds what is chosen. The same in a terminal: ", terminal),
  );
  return { lead, wrong, chart, numbers, terminal, results };
}

/** A table with a row for each result. Columns are pairs of a heading and a function; `null` is left out. */
export function labTable(caption, heading, rows, name, columns, isOver = () => false) {
  const shown = columns.filter(Boolean);
  return h(
    "table",
    { class: "lab-table" },
    h("caption", { class: "unseen" }, caption),
    h(
      "thead",
      null,
      h("tr", null, h("th", { scope: "col" }, heading), shown.map(([word]) => h("th", { scope: "col", class: "number" }, word))),
    ),
    h(
      "tbody",
      null,
      rows.map((it) =>
        h(
          "tr",
          { class: isOver(it) ? "is-over" : null, title: visible(it.words) },
          h("th", { scope: "row" }, name(it)),
          shown.map(([word, tell]) => h("td", { class: "number", "data-label": word }, tell(it))),
        ),
      ),
    ),
  );
}
