// The part of the Lab that compares protections of a service against overload.
//
// The parameters are in the URL, after `#lab/overload=`.

import { field } from "./dialog.js";
import { h, say, visible } from "./dom.js";
import { count, duration, share } from "./format.js";
import { controls, keepAddress, labActions, labResults, labRunner, labTable } from "./lab-form.js";

const SHAPES = {
  step: "Step",
  square: "Square wave",
  "retry-storm": "Retry storm",
  "retry-storm-budget": "Retry storm with a budget",
  "slow-upstream": "Slow upstream",
  "slow-dependency": "One slow dependency",
};
/** The position determines the line style. */
const PROTECTIONS = ["none", "rate", "slots", "adaptive", "adaptive-classes"];
const PICTURES = {
  goodput: "Calls answered within a second",
  latency: "Latency, 99th percentile",
  critical: "Critical calls that succeeded",
};
// The defaults of the server, which are not put into the URL.
const USUAL = { overload: "step", workers: "16", service_time: "50ms", load: "4", duration: "36s", seed: "1", chart: "goodput" };
const NUMBERS = ["workers", "load", "seed"];
/** Latencies above this are drawn at the edge. */
const MAX_LATENCY = 1500;

function fromAddress(text) {
  const query = new URLSearchParams(text);
  const wanted = { ...USUAL };
  for (const name of Object.keys(USUAL)) wanted[name] = query.get(name)?.slice(0, 64) ?? USUAL[name];
  if (!(wanted.chart in PICTURES)) wanted.chart = USUAL.chart;
  const named = query.get("protections")?.split(",") ?? PROTECTIONS;
  wanted.protections = PROTECTIONS.filter((it) => named.includes(it));
  return wanted;
}

function toAddress(wanted) {
  const query = new URLSearchParams({ overload: wanted.overload });
  for (const [name, usual] of Object.entries(USUAL)) if (wanted[name] !== usual) query.set(name, wanted[name]);
  if (wanted.protections.length < PROTECTIONS.length) query.set("protections", wanted.protections.join(","));
  return `#lab/${query.toString().replaceAll("%2C", ",")}`;
}

/** The body for the API. */
function question(wanted) {
  const body = { protections: wanted.protections };
  for (const name of Object.keys(USUAL)) {
    const value = wanted[name];
    if (name === "chart" || value === "") continue;
    // An invalid number is sent as typed, and the server reports the mistake.
    body[name] = NUMBERS.includes(name) && Number.isFinite(Number(value)) ? Number(value) : value;
  }
  return body;
}

/** The command for a terminal, whose defaults are those of a larger service. */
function command(wanted) {
  const words = ["tollgate simulate", `--overload ${wanted.overload}`];
  const flags = { workers: "workers", service_time: "service-time", load: "load", duration: "duration", seed: "seed" };
  for (const [name, flag] of Object.entries(flags)) if (wanted[name] !== "") words.push(`--${flag} ${wanted[name]}`);
  if (wanted.protections.length < PROTECTIONS.length) words.push(`--protection ${wanted.protections.join(",")}`);
  if (wanted.chart !== USUAL.chart) words.push(`--chart ${wanted.chart}`);
  return words.join(" ");
}

/** Fills the dialog of the Lab. */
export function showOverload(dialog, body, address) {
  const wanted = fromAddress(address);
  let report = null;
  const { change, typed, chosen, ticked } = controls(wanted, (after) => runner.ask(after));
  const protections = h(
    "fieldset",
    { class: "lab-row" },
    h("legend", null, "Protections"),
    PROTECTIONS.map((name) =>
      ticked(name, wanted.protections.includes(name), (on) =>
        change(
          "protections",
          PROTECTIONS.filter((it) => (it === name ? on : wanted.protections.includes(it))),
        ),
      ),
    ),
  );
  const form = h(
    "form",
    { class: "lab-form", onsubmit: (event) => (event.preventDefault(), runner.ask(0)) },
    h(
      "div",
      { class: "lab-fields" },
      field("Overload", chosen("overload", SHAPES)),
      field("Load", typed("load", "4", "decimal"), "a multiple of the capacity"),
      field("Workers", typed("workers", "16", "numeric"), "of the service"),
      field("Service time", typed("service_time", "50ms"), "the mean, up to 500ms"),
      field("Duration", typed("duration", "36s"), "10s to 1h"),
    ),
    protections,
    labActions(
      "The engine decides in virtual time; the service and its callers are a model. Callers give up after a second.",
      () => change("seed", String((Number(wanted.seed) || 0) + 1)),
    ),
  );
  const pictures = h(
    "div",
    { class: "lab-row", role: "radiogroup", "aria-label": "Picture" },
    Object.entries(PICTURES).map(([value, word]) => {
      const radio = h("input", {
        type: "radio",
        name: "lab-picture",
        value,
        onchange: () => {
          wanted.chart = value;
          keepAddress(toAddress(wanted));
          say(terminal, visible(command(wanted)));
          draw();
        },
      });
      radio.checked = value === wanted.chart;
      return h("label", { class: "check" }, radio, word);
    }),
  );
  const { lead, wrong, chart, numbers, terminal, results } = labResults(pictures);
  body.append(form, wrong, results);

  const runner = labRunner({
    path: "v1/lab/overload",
    dialog,
    wrong,
    results,
    before: () => {
      keepAddress(toAddress(wanted));
      say(terminal, visible(command(wanted)));
      if (wanted.protections.length === 0) throw new Error("Tick at least one protection.");
    },
    question: () => question(wanted),
    show: (told) => {
      report = told;
      say(lead, verdict(report));
      draw();
      const notes = report.notes.map((it) => h("p", { class: "notice" }, visible(it)));
      numbers.replaceChildren(table(report), ...report.protections.map(policy), ...notes);
    },
  });

  function draw() {
    const values = {
      goodput: (it) => it.series.good.map((n) => Math.round(n / report.step_s)),
      latency: (it) => it.series.p99_ms.map((ms) => Math.min(ms, MAX_LATENCY)),
      critical: (it) => it.series.critical.map((part) => Math.round((part ?? 1) * 1000) / 10),
    }[wanted.chart];
    const lines = report.protections.map((it) => ({
      name: it.protection,
      cls: `line-${PROTECTIONS.indexOf(it.protection)}`,
      values: values(it),
    }));
    const frame = { step: report.step_s, borders: report.overloads.flat() };
    if (wanted.chart === "goodput") lines.unshift({ name: "possible", cls: "line-asked", values: report.possible.map(Math.round) });
    if (wanted.chart === "latency") Object.assign(frame, { level: report.timeout_ms, levelWords: "callers give up (ms)" });
    if (wanted.chart === "critical") Object.assign(frame, { level: 100, levelWords: "all (%)" });
    chart.drawLines(lines, frame);
  }

  runner.ask(0);
}

/** The conclusion: the best and the worst goodput. */
function verdict(report) {
  const sorted = [...report.protections].sort((a, b) => b.goodput - a.goodput);
  const [best, worst] = [sorted[0], sorted.at(-1)];
  const words = (it) => `${it.protection} answered ${share(it.goodput)} of what was possible in time`;
  const stuck = report.protections.filter((it) => it.recovered_after_s === null).map((it) => it.protection);
  const rest = stuck.length > 0 ? ` Not recovered at the end: ${stuck.join(", ")}.` : "";
  return best === worst ? `In the overload, ${words(best)}.${rest}` : `In the overload, ${words(best)}; ${words(worst)}.${rest}`;
}

/** The policy of a protection. */
const policy = (it) =>
  h("details", null, h("summary", null, `Policy of ${it.protection}: `, visible(it.words)), h("pre", { class: "wrap" }, visible(it.policy)));

function table(report) {
  const success = (group) => (group === undefined ? "–" : `${share(group.success)}, ${count(group.p99_ms)} ms`);
  const columns = [
    ["Attempts", (it) => count(it.attempts)],
    ["Goodput", (it) => share(it.goodput)],
    ["p50", (it) => `${count(it.p50_ms)} ms`],
    ["p99", (it) => `${count(it.p99_ms)} ms`],
    ...report.mix.map(({ name }, place) => [`${name}: success, p99`, (it) => success(it.classes[place])]),
    report.protections.some((it) => it.routes !== null) ? ["Other routes: success, p99", (it) => success(it.routes?.[1])] : null,
    ["Success after", (it) => share(it.success_after)],
    [
      "Recovered after",
      (it) => (it.recovered_after_s === null ? "not at the end" : it.recovered_after_s > 0 ? duration(it.recovered_after_s * 1000) : "at once"),
    ],
  ];
  return labTable("Numbers of each protection", "Protection", report.protections, (it) => it.protection, columns);
}
