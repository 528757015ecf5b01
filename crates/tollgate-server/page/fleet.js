// The nodes that share the store, with their sums, and the leases of this node. Hidden while there are none.

import { $, foreign, h, keyOf, refill, say } from "./dom.js";
import { ago, count, duration, plural, rate, share } from "./format.js";
import { table } from "./side.js";

// A report that is older than this is marked: nodes report once a second.
const LATE = 4000;

const part = (of, all) => (all > 0 ? share(of / all) : "–");

/** The cells of counts, which nodes and sums have in common. */
const counts = (it, seconds, observing = true) => {
  const known = (text) => (observing ? text : "–");
  const all = it.window.allowed + it.window.refused;
  return [
    h("td", { class: "number" }, known(rate((it.lately.allowed + it.lately.refused) / seconds))),
    h("td", { class: it.lately.refused > 0 ? "number is-bad" : "number" }, known(rate(it.lately.refused / seconds))),
    h("td", { class: it.window.refused > 0 ? "number is-bad" : "number" }, known(part(it.window.refused, all))),
    h("td", { class: it.window.degraded > 0 ? "number is-bad" : "number" }, known(count(it.window.degraded))),
  ];
};

/** The units that a node holds, with the limits and their expiry in the tooltip. */
function leased(leases) {
  const limits = leases.limits.map((it) => `${it.limit}: ${count(it.units)}, for ${duration(it.expires_in_ms)}`);
  return h("td", { class: "number", title: limits.join("; ") || null }, count(leases.units));
}

function node(it) {
  const late = !it.this && it.age_ms > LATE;
  return h(
    "tr",
    null,
    h(
      "th",
      { scope: "row", class: "wide" },
      foreign(it.name),
      it.this ? h("span", { class: "badge" }, "this node") : null,
      it.region === null ? null : h("span", { class: "badge", title: "Region" }, foreign(it.region, "")),
      it.mode === "enforce" ? null : h("span", { class: "badge warn" }, foreign(it.mode, "")),
      it.store_degraded ? h("span", { class: "badge warn" }, "store degraded") : null,
      it.observing ? null : h("span", { class: "badge" }, "not observed"),
    ),
    h("td", { class: late ? "number is-bad" : "number" }, it.this ? "now" : `${duration(it.age_ms)} ago`),
    h("td", { class: "number dim" }, foreign(it.version, "")),
    h("td", { class: "number dim" }, ago(it.started_at)),
    counts(it, 10, it.observing),
    leased(it.leases),
  );
}

function everyNode(totals) {
  return h(
    "tr",
    { class: "all-nodes" },
    h("th", { scope: "row" }, `All ${plural(totals.nodes, "node")}`),
    h("td", { class: totals.oldest_ms > LATE ? "number is-bad" : "number" }, `≤ ${duration(totals.oldest_ms)} ago`),
    h("td", null),
    h("td", null),
    counts(totals, 10),
    h("td", { class: "number" }, count(totals.leased_units)),
  );
}

const HEADINGS = [
  "Node",
  "Reported",
  "Version",
  "Started",
  "Requests / s",
  "Refused / s",
  "Refused, 5 min",
  "Without the store",
  "Leased units",
];

/** Draws the nodes, or hides the panel if this node is alone. */
export function showFleet(fleet) {
  const isUsed = fleet !== null && fleet.shared && (fleet.nodes.length > 1 || fleet.silent > 0 || fleet.error !== null);
  for (const it of [$("fleet"), $("fleet-link")]) it.hidden = !isUsed;
  if (!isUsed) return;
  const notes = [];
  if (fleet.silent > 0) notes.push(`${plural(fleet.silent, "more node")} without a report, not in the sums`);
  if (fleet.ignored > 0) notes.push(`${plural(fleet.ignored, "entry", "entries")} in the store ignored`);
  say($("fleet-note"), notes.join(", "));
  refill($("fleet-body"), JSON.stringify(fleet), () => [
    fleet.error === null
      ? null
      : h("p", { class: "notice bad" }, "The reports of other nodes cannot be read: ", foreign(fleet.error, "")),
    table(HEADINGS, [everyNode(fleet.totals), ...fleet.nodes.map(node)]),
  ]);
}

function leasedLimit(it) {
  return h(
    "tr",
    null,
    h("th", { scope: "row", class: "wide" }, foreign(it.limit, "")),
    h("td", { class: "number" }, duration(it.lease_ms)),
    h("td", { class: "number" }, count(it.keys)),
    h("td", { class: "number" }, count(it.units)),
    h("td", { class: "number" }, duration(it.expires_in_ms)),
  );
}

function held(it) {
  return h(
    "tr",
    null,
    h("th", { scope: "row", class: "wide" }, keyOf(it)),
    h("td", { class: "dim text" }, foreign(it.window === null ? it.limit : `${it.limit}/${it.window}`, "")),
    h("td", { class: "number" }, count(it.units)),
    h("td", { class: "number" }, duration(it.expires_in_ms)),
  );
}

/** Draws the leases of this node, or hides the panel if no limit is leased. */
export function showLeases(leases) {
  const isUsed = (leases?.limits ?? []).length > 0;
  for (const it of [$("leases"), $("leases-link")]) it.hidden = !isUsed;
  if (!isUsed) return;
  say($("leases-note"), `this node holds ${plural(leases.units, "unit")} of ${plural(leases.keys, "key")}`);
  refill($("leases-body"), JSON.stringify(leases), () => [
    h("div", null, table(["Limit", "Lease", "Keys", "Units held", "Expire in"], leases.limits.map(leasedLimit))),
    leases.held.length === 0
      ? null
      : h("div", null, table(["Key", "Limit", "Units held", "Expire in"], leases.held.map(held))),
  ]);
}
