// The Lab: compares algorithms on generated traffic, or protections against overload (lab-overload.js). The
// server simulates in virtual time; nothing is charged.
//
// The parameters are in the URL, after `#lab/`, so that a chart can be shared.

import { field, openDialog } from "./dialog.js";
import { h, say, visible } from "./dom.js";
import { count, duration, share } from "./format.js";
import { ORDER } from "./lab-chart.js";
import { controls, keepAddress, labActions, labResults, labRunner, labTable } from "./lab-form.js";
import { showOverload } from "./lab-overload.js";

const SHAPES = {
  edge: "Bursts at the edge of a window",
  steady: "Steady",
  "on-off": "On and off",
  poisson: "Poisson",
  "flash-crowd": "Flash crowd",
  "retry-storm": "Retry storm",
  ramp: "Slow ramp",
};
// The defaults of the server, which are neither sent nor put into the URL.
const USUAL = {
  traffic: "edge",
  rate: "10/minute",
  load: "",
  clients: "",
  by: "",
  burst: "",
  duration: "",
  nodes: "1",
  store: "memory",
  seed: "1",
  jitter: true,
  honours_retry_after: true,
  chart: "",
};
const NUMBERS = ["load", "clients", "burst", "nodes", "seed"];

/** The parameters of a URL; unknown ones are ignored. */
function fromAddress(text) {
  const query = new URLSearchParams(text);
  const wanted = { ...USUAL, algorithms: [...ORDER] };
  for (const name of Object.keys(USUAL)) {
    const value = query.get(name);
    if (value === null) continue;
    wanted[name] = typeof USUAL[name] === "boolean" ? value !== "false" : value.slice(0, 64);
  }
  const named = query.get("algorithms")?.split(",") ?? ORDER;
  wanted.algorithms = ORDER.filter((it) => named.includes(it));
  return wanted;
}

function toAddress(wanted) {
  const query = new URLSearchParams();
  for (const [name, usual] of Object.entries(USUAL)) if (wanted[name] !== usual) query.set(name, wanted[name]);
  if (wanted.algorithms.length < ORDER.length) query.set("algorithms", wanted.algorithms.join(","));
  // Legible: slashes and commas need no escape in a fragment.
  const text = query.toString().replaceAll("%2F", "/").replaceAll("%2C", ",");
  return text === "" ? "#lab" : `#lab/${text}`;
}

/** The body for the API, with only the changed parameters. */
function question(wanted) {
  const body = { algorithms: wanted.algorithms };
  for (const [name, value] of Object.entries(wanted)) {
    if (name === "algorithms" || name === "chart" || value === "" || value === USUAL[name]) continue;
    // An invalid number is sent as typed, and the server reports the mistake.
    body[name] = NUMBERS.includes(name) && Number.isFinite(Number(value)) ? Number(value) : value;
  }
  return body;
}

/** The command for a terminal. */
function command(wanted) {
  const words = ["tollgate simulate", `--traffic ${wanted.traffic}`, `--rate '${wanted.rate}'`];
  for (const name of ["load", "clients", "by", "burst", "duration", "nodes", "store", "seed"])
    if (wanted[name] !== "" && wanted[name] !== USUAL[name]) words.push(`--${name} ${wanted[name]}`);
  if (wanted.traffic === "retry-storm" && !wanted.jitter) words.push("--no-jitter");
  if (wanted.traffic === "retry-storm" && !wanted.honours_retry_after) words.push("--ignore-retry-after");
  if (wanted.algorithms.length < ORDER.length) words.push(`--algorithm ${wanted.algorithms.join(",")}`);
  return words.join(" ");
}

/** Opens the Lab with the parameters of a URL. */
export function openLab(address, closed) {
  const { dialog, body, heading } = openDialog("drawer wide", "", { closed });
  const show = (text) => {
    const isOverload = new URLSearchParams(text).has("overload");
    say(heading, isOverload ? "Lab: protections against overload" : "Lab: algorithms side by side");
    const other = h(
      "button",
      {
        class: "button",
        type: "button",
        onclick: () => {
          show(isOverload ? "" : "overload=step");
          heading.focus();
        },
      },
      isOverload ? "Compare algorithms" : "Compare protections against overload",
    );
    body.replaceChildren(h("p", { class: "actions" }, other));
    if (isOverload) showOverload(dialog, body, text);
    else showAlgorithms(dialog, body, text);
  };
  show(address);
}

function showAlgorithms(dialog, body, address) {
  const wanted = fromAddress(address);
  const ask = (after) => {
    retries.hidden = wanted.traffic !== "retry-storm";
    runner.ask(after);
  };
  const { change, typed, chosen, ticked } = controls(wanted, (after) => ask(after));

  const retries = h(
    "fieldset",
    { class: "lab-row" },
    h("legend", null, "Refused clients come back"),
    ticked("after Retry-After", wanted.honours_retry_after, (on) => change("honours_retry_after", on)),
    ticked("with jitter", wanted.jitter, (on) => change("jitter", on)),
  );
  const algorithms = h(
    "fieldset",
    { class: "lab-row" },
    h("legend", null, "Algorithms"),
    ORDER.map((name) =>
      ticked(name, wanted.algorithms.includes(name), (on) =>
        change(
          "algorithms",
          ORDER.filter((it) => (it === name ? on : wanted.algorithms.includes(it))),
        ),
      ),
    ),
  );
  const pictures = h("div", { class: "lab-row", role: "radiogroup", "aria-label": "Picture" });
  const form = h(
    "form",
    { class: "lab-form", onsubmit: (event) => (event.preventDefault(), ask(0)) },
    h(
      "div",
      { class: "lab-fields" },
      field("Traffic", chosen("traffic", SHAPES)),
      field("Rate", typed("rate", "10/minute"), "as in a policy"),
      field("Load", typed("load", "usual", "decimal"), "a multiple of the rate"),
      field("Clients", typed("clients", "usual", "numeric")),
      field(
        "The limit counts",
        chosen("by", { "": "as is usual", ip: "each client", global: "all together" }),
      ),
      field("Burst", typed("burst", "none", "numeric"), "of buckets"),
      field("Duration", typed("duration", "ten windows"), "30s, 10m"),
      field("Nodes", typed("nodes", "1", "numeric")),
      field("They count", chosen("store", { memory: "each for itself", shared: "in one store" })),
    ),
    algorithms,
    retries,
    labActions("Worked out in virtual time: nothing is charged, no store is asked.", () =>
      change("seed", String((Number(wanted.seed) || 0) + 1)),
    ),
  );
  const { lead, wrong, chart, numbers, terminal, results } = labResults(pictures);
  body.append(form, wrong, results);

  let round = null;
  const runner = labRunner({
    path: "v1/lab/simulate",
    dialog,
    wrong,
    results,
    before: () => {
      keepAddress(toAddress(wanted));
      say(terminal, visible(command(wanted)));
      if (wanted.algorithms.length === 0) throw new Error("Tick at least one algorithm.");
    },
    question: () => question(wanted),
    show: (told) => {
      round = told;
      show();
    },
  });

  const kind = () => wanted.chart || (round.traffic.retry === null ? "window" : "arrivals");

  function show() {
    say(lead, verdict(round));
    drawChoice();
    chart.draw(round, kind());
    numbers.replaceChildren(table(round), ...round.notes.map((it) => h("p", { class: "notice" }, visible(it))));
  }

  function drawChoice() {
    const words = {
      window: `Let through in the last ${duration(round.window_s * 1000)}`,
      arrivals: round.traffic.retry === null ? "What comes, and what passes" : "What comes, and comes back",
    };
    const had = pictures.contains(document.activeElement);
    pictures.replaceChildren(
      ...Object.entries(words).map(([value, word]) => {
        const radio = h("input", {
          type: "radio",
          name: "lab-picture",
          value,
          onchange: () => {
            wanted.chart = value;
            keepAddress(toAddress(wanted));
            chart.draw(round, kind());
          },
        });
        radio.checked = value === kind();
        return h("label", { class: "check" }, radio, word);
      }),
    );
    if (had) pictures.querySelector("input:checked")?.focus();
  }

  ask(0);
}

/** The conclusion: which algorithms exceeded the limit most, and which never did. */
function verdict(round) {
  const per = (it) => `${it.algorithm} let ${count(it.most_in_a_window)} through where ${count(round.limit)} may pass`;
  const times = (it) =>
    Math.abs(it.times_the_limit - 2) < 0.005 ? "twice the limit" : `${it.times_the_limit.toFixed(it.times_the_limit < 1.1 ? 2 : 1)} times the limit`;
  const over = round.algorithms.filter((it) => it.most_in_a_window > round.limit);
  const kept = round.algorithms.filter((it) => it.most_in_a_window <= round.limit).map((it) => it.algorithm);
  if (over.length === 0) return `None let more than ${count(round.limit)} through in any ${duration(round.window_s * 1000)}.`;
  over.sort((a, b) => b.most_in_a_window - a.most_in_a_window);
  const rest = kept.length > 0 ? ` Within the limit: ${kept.join(", ")}.` : "";
  return `In ${duration(round.window_s * 1000)}, ${per(over[0])}: ${times(over[0])}.${rest}`;
}

function table(round) {
  const comesBack = round.traffic.retry !== null;
  const several = round.algorithms.some((it) => it.least_served !== null);
  const differs = (it) => (it === null ? "–" : share((it.too_lax + it.too_strict) / Math.max(it.requests, 1)));
  const seconds = (it) => (it > 0 ? duration(it * 1000) : "–");
  const columns = [
    ["Asked", (it) => count(it.offered)],
    ["Admitted", (it) => count(it.admitted)],
    ["Refused", (it) => count(it.refused)],
    ["Most in a window", (it) => `${count(it.most_in_a_window)} (${it.times_the_limit.toFixed(2).replace(/0$/, "")} ×)`],
    ["Longest wait told", (it) => seconds(it.longest_wait_told_s)],
    comesBack ? ["Waited", (it) => seconds(it.longest_wait_s)] : null,
    comesBack ? ["Wasted retries", (it) => count(it.wasted_retries)] : null,
    comesBack ? ["Gave up", (it) => count(it.given_up)] : null,
    several
      ? ["Served, worst to best", (it) => (it.least_served === null ? "–" : `${share(it.least_served)} to ${share(it.most_served)}`)]
      : null,
    ["Not as an exact log", (it) => differs(it.closed_loop)],
    ["Bytes a key", (it) => count(it.state_bytes)],
  ];
  const isOver = (it) => it.most_in_a_window > round.limit;
  return labTable("Numbers of each algorithm", "Algorithm", round.algorithms, (it) => it.algorithm, columns, isOver);
}
