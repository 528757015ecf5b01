// The panel about overload: the shedders, learned limits, and queues. Hidden while the policy has none of them.

import { $, foreign, h, pair, refill, say, visible } from "./dom.js";
import { count, duration, micros, share } from "./format.js";
import { bar, table } from "./side.js";

const SIGNALS = { inflight: "In flight", cpu: "CPU", delay: "Event loop delay" };

const amount = (value, unit) =>
  unit === "us" ? micros(value) : unit === "percent" ? `${count(value)} %` : count(value);

/** The state of a shedder in a few words, with a kind. */
function state(shedder, isShedding) {
  if (shedder.switch === "frozen") return ["note", "frozen"];
  if (shedder.mode === "off") return ["warn", "off"];
  if (!isShedding) return ["ok", "nothing shed"];
  return shedder.mode === "shadow" ? ["note", "would shed"] : ["bad", "shedding"];
}

/** The button that shows the mode of a shedder and opens its switch. */
function modeButton(name, shedder, openSwitch) {
  const mode = shedder.switch === "frozen" ? `${shedder.mode}, frozen` : shedder.mode;
  const button = h("button", { type: "button", class: "mode", onclick: () => openSwitch(name) }, mode);
  button.setAttribute("aria-label", `Mode of ${visible(name)}: ${mode}`);
  return button;
}

/** The heading of a shedder, with its state and its switch. */
function heading(title, name, shedder, isShedding, openSwitch) {
  const [kind, text] = state(shedder, isShedding);
  const pill = h("span", { class: `pill ${kind}` }, text);
  return h("h3", null, `${title} `, pill, " ", modeButton(name, shedder, openSwitch));
}

function fleet(it, openSwitch) {
  const what = it.counts_slots ? "at once" : "a window";
  const rows = it.classes.map((of) =>
    h(
      "tr",
      null,
      h("th", { scope: "row" }, foreign(of.name, "")),
      h("td", { class: "number" }, count(of.max)),
      h("td", { class: "c-meter" }, bar(it.amount > 0 ? of.max / it.amount : 0)),
    ),
  );
  return [
    heading("The fleet", "shed.fleet", it, it.shed + it.shadow_shed > 0, openSwitch),
    h(
      "dl",
      { class: "pairs" },
      pair(it.counts_slots ? "Slots" : "Rate", `${count(it.amount)} ${what}`),
      pair("Shed by this node, 5 min", count(it.mode === "shadow" ? it.shadow_shed : it.shed)),
    ),
    rows.length === 0 ? null : table(["Class", "May use", ""], rows),
  ];
}

function throttle(it, openSwitch) {
  const rows = it.upstreams.map((of) =>
    h(
      "tr",
      null,
      h("th", { scope: "row", class: "wide" }, foreign(of.upstream, "")),
      h("td", { class: of.share_percent > 0 ? "number is-bad" : "number" }, share(of.share_percent / 100)),
      h("td", { class: "number" }, count(it.mode === "shadow" ? of.shadow_refused : of.refused)),
      h("td", { class: "c-meter" }, bar(of.share_percent / 100)),
    ),
  );
  const isShedding = it.upstreams.some((of) => of.share_percent > 0);
  return [
    heading("Upstreams that reject", "shed.throttle", it, isShedding, openSwitch),
    table(["Upstream", "Not sent now", "Not sent in all", ""], rows),
  ];
}

function shedder(node, openSwitch) {
  const signals = node.signals.map((it) =>
    pair(SIGNALS[it.name] ?? it.name, `${amount(it.value, it.unit)} of ${amount(it.target, it.unit)}`),
  );
  const classes = node.classes.map((it) =>
    h(
      "tr",
      null,
      h("th", { scope: "row" }, it.name === null ? "every request" : foreign(it.name, "")),
      h("td", { class: it.share_percent > 0 ? "number is-bad" : "number" }, share(it.share_percent / 100)),
      h("td", { class: "number" }, count(it.shed)),
      h("td", { class: "c-meter" }, bar(it.share_percent / 100)),
    ),
  );
  return [
    heading("This node", "shed.node", node, node.level_percent > 0, openSwitch),
    h("dl", { class: "pairs" }, signals),
    table(["Class", "Shed now", "Shed in all", ""], classes),
  ];
}

function learned(list, openSwitch) {
  const row = (it) =>
    h(
      "tr",
      null,
      h("th", { scope: "row", class: "wide" }, foreign(it.limit, ""), it.keys > 1 ? ` (${count(it.keys)} keys)` : null),
      h("td", null, modeButton(it.limit, it, openSwitch)),
      h("td", { class: "number" }, `${count(it.in_flight)} of ${count(it.slots)}`),
      h("td", { class: "number" }, micros(it.latency_us)),
      h("td", { class: "number" }, micros(it.baseline_us)),
      h("td", { class: "number" }, count(it.exceeded.reduce((all, of) => all + of.requests, 0))),
      h("td", { class: "c-meter" }, bar(it.slots > 0 ? it.in_flight / it.slots : 0)),
    );
  return [
    h("h3", null, "Learned limits"),
    table(["Limit", "Mode", "In flight", "Latency", "Without waiting", "Exceeded", ""], list.map(row)),
  ];
}

function queues(list) {
  const row = (it) =>
    h(
      "tr",
      null,
      h("th", { scope: "row", class: "wide" }, foreign(it.limit, "")),
      h("td", { class: "number" }, count(it.waiting)),
      h("td", { class: "number" }, duration(it.wait_p50_ms)),
      h("td", { class: "number" }, duration(it.wait_p99_ms)),
    );
  return [h("h3", null, "Queues"), table(["Limit", "Waiting now", "Median wait", "p99"], list.map(row))];
}

/** Draws the panel, or hides it. */
export function showOverload({ shed, adaptive = [], queues: lines = [] }, openSwitch) {
  const [node, all, upstreams] = [shed?.node ?? null, shed?.fleet ?? null, shed?.throttle ?? null];
  const isUsed = [node, all, upstreams].some((it) => it !== null) || adaptive.length > 0 || lines.length > 0;
  for (const it of [$("overload"), $("overload-link")]) it.hidden = !isUsed;
  if (!isUsed) return;
  say($("overload-note"), lines.length > 0 ? "waits of the last 5 minutes" : "");
  refill($("overload-body"), JSON.stringify([node, all, upstreams, adaptive, lines]), () => [
    node === null ? null : h("div", null, shedder(node, openSwitch)),
    all === null ? null : h("div", null, fleet(all, openSwitch)),
    upstreams === null ? null : h("div", null, throttle(upstreams, openSwitch)),
    adaptive.length === 0 ? null : h("div", null, learned(adaptive, openSwitch)),
    lines.length === 0 ? null : h("div", null, queues(lines)),
  ]);
}
