// Store, alerts, most refused keys and hot routes.

import { $, clickable, foreign, h, holder, keyOf, nothing, pair, refill, say, visible } from "./dom.js";
import { ago, clock, count, duration, plural, serverNow, share } from "./format.js";

const [topHeld, routesHeld] = [holder($("top-body")), holder($("routes-body"))];
const OUTAGES = 5;
const ALERTS = 8;
const UNSEEN = "Nothing is observed: the file says `observe: off`.";

/** The content without observation. */
export function showUnobserved() {
  for (const it of [$("top-body"), $("routes-body")]) refill(it, UNSEEN, () => nothing(UNSEEN));
}

const seconds = (ms) => duration(Math.floor(ms / 1000) * 1000);
const span = (from, to) => seconds((to === null ? serverNow() : Date.parse(to)) - Date.parse(from));

/** Health of the store. */
export function showStore(store) {
  const bad = store.state !== "ok";
  refill($("store-state"), store.state, () =>
    h("span", { class: `pill ${bad ? "warn" : "ok"}` }, bad ? "degraded" : "ok"),
  );
  const where = store.address
    ? store.address.includes("://")
      ? ""
      : `${store.kind} at `
    : store.kind === "memory"
      ? "memory of this node"
      : store.kind;
  const rows = [
    ["Kept in", where, store.address],
    ["Breaker", store.breaker],
    bad && store.since ? ["Degraded", `since ${clock(store.since)}, ${span(store.since, null)}`] : null,
    store.error ? ["Last error", "", store.error] : null,
    ["Failures", count(store.failures)],
    ["Without the store", plural(store.degraded_decisions, "decision")],
    store.keys === null ? null : ["Keys", count(store.keys)],
    store.evictions ? ["Keys given up", count(store.evictions)] : null,
    store.kind === "memory" ? null : ["Nodes", count(store.nodes)],
    store.ledger_keys > 0 ? ["To be charged later", plural(store.ledger_keys, "key")] : null,
  ].filter(Boolean);
  refill($("store-body"), JSON.stringify(rows), () =>
    rows.map(([name, value, theirs]) => pair(name, value, theirs ? foreign(theirs) : null)),
  );
  const outages = store.outages.slice(-OUTAGES).reverse();
  refill($("outages"), `${JSON.stringify(outages)} ${outages[0]?.to === null ? serverNow() >> 12 : ""}`, () =>
    outages.length === 0
      ? null
      : [
          h("h3", null, "Outages"),
          h(
            "ul",
            { class: "plain" },
            outages.map((it) =>
              h(
                "li",
                null,
                `${clock(it.from)}–${it.to === null ? "now" : clock(it.to)} `,
                h("span", { class: "muted" }, span(it.from, it.to)),
              ),
            ),
          ),
        ],
  );
}

/** Keys that have had nothing left for at least `alerts.at_zero_for`. */
export function showAlerts({ alerts, at_zero_for_s: after, observing }, openKey) {
  const long = duration((after ?? 0) * 1000);
  say($("alerts-count"), alerts.length > 0 ? `${plural(alerts.length, "key")}, for ${long} or longer` : "");
  const shown = alerts.slice(0, ALERTS);
  const mark = shown.map((it) => [it.tag, it.key, it.since, it.refused]);
  refill(
    $("alerts-body"),
    `${alerts.length} ${long} ${observing} ${JSON.stringify(mark)}`,
    () => {
      if (!observing) return nothing(UNSEEN);
      if (alerts.length === 0) return nothing(`No key has been at zero for ${long}.`);
      const item = (it) =>
        clickable(
          h(
            "li",
            null,
            h("button", { class: "link row", type: "button", onclick: () => openKey(it) }, keyOf(it)),
            h(
              "span",
              { class: "muted" },
              ` ${visible(it.limit)}, since ${clock(it.since)} (${duration(it.for_s * 1000)}), ${count(it.refused)} refused`,
            ),
          ),
          () => openKey(it),
        );
      const rest = alerts.length - shown.length;
      return [
        h("ul", { class: "plain alerts" }, shown.map(item)),
        rest > 0 ? h("p", { class: "muted" }, `and ${count(rest)} more`) : null,
      ];
    },
  );
}

/** Replaces rows and keeps the focus. */
function rows(body, mark, make) {
  const at = [...body.querySelectorAll("button")].indexOf(document.activeElement);
  if (refill(body, mark, make) && at >= 0) [...body.querySelectorAll("button")].at(at)?.focus();
}

/** A bar whose length is a share. */
export const bar = (value) => {
  const fill = h("span", { class: "fill" });
  fill.style.inlineSize = `${Math.min(100, Math.max(0, value * 100)).toFixed(1)}%`;
  return h("span", { class: "meter", "aria-hidden": "true" }, fill);
};

/** The keys refused most. */
export function showTop(top, openKey) {
  const unsure = top.error_at_most > 0 ? `each at most ${count(top.error_at_most)} too high` : "";
  say($("top-note"), `last 5 minutes${top.keys.length > 0 && unsure ? `, ${unsure}` : ""}`);
  const body = $("top-body");
  if (topHeld() && body.querySelector("table") && top.keys.length > 0) return;
  rows(body, JSON.stringify(top.keys), () => {
    if (top.keys.length === 0) return nothing("No key was refused in the last 5 minutes.");
    const most = Math.max(...top.keys.map((it) => it.refused));
    const row = (it) => {
      const open = () => openKey(it);
      const cells = [
        h(
          "th",
          { scope: "row", class: "wide" },
          h("button", { class: "link", type: "button", title: "Explain its latest refusal", onclick: open }, keyOf(it)),
        ),
        h("td", { class: "dim text" }, foreign(it.limit, "")),
        h("td", { class: "number", title: `at least ${count(it.refused_at_least)}` }, count(it.refused)),
        h("td", { class: "number" }, share(it.share)),
        h("td", { class: "c-meter" }, bar(it.refused / most)),
      ];
      return clickable(h("tr", null, cells), open);
    };
    return table(["Key", "Limit", "Refused", "Of all", ""], top.keys.map(row));
  });
}

/** The routes requested most. */
export function showRoutes(routes, filter) {
  const body = $("routes-body");
  if (routesHeld() && body.querySelector("table") && routes.length > 0) return;
  rows(body, JSON.stringify(routes), () => {
    if (routes.length === 0) return nothing("No requests in the last 5 minutes.");
    const most = Math.max(...routes.map((it) => it.requests_at_least), 1);
    const row = (it) => {
      const open = () => filter(it.path);
      const cells = [
        h(
          "th",
          { scope: "row", class: "wide" },
          h(
            "button",
            { class: "link", type: "button", title: "Show its decisions", onclick: open },
            h("span", { class: "method" }, visible(it.method)),
            " ",
            foreign(it.path),
          ),
        ),
        h(
          "td",
          { class: "number", title: `${count(it.requests_at_least)} to ${count(it.requests)}` },
          `${it.requests_at_least < it.requests ? "~" : ""}${count(it.requests_at_least)}`,
        ),
        h("td", { class: it.refused > 0 ? "number is-bad" : "number" }, count(it.refused)),
        h("td", { class: "number" }, it.requests_at_least > 0 ? share(it.refused / it.requests_at_least) : "–"),
        h("td", { class: "c-meter" }, bar(it.requests_at_least / most)),
      ];
      return clickable(h("tr", null, cells), open);
    };
    return table(["Route", "Requests", "Refused", "Share", ""], routes.map(row));
  });
}

/** A table of figures; the last heading is empty above bars. */
export function table(headings, list) {
  const cell = (it, at) =>
    it === ""
      ? h("td", { class: "c-meter" })
      : h("th", { scope: "col", class: at === 0 || it === "Limit" ? null : "number" }, it);
  return h("table", { class: "top" }, h("thead", null, h("tr", null, headings.map(cell))), h("tbody", null, list));
}

/** The line of facts in the header. */
export function showFacts(overview) {
  const { policy } = overview;
  refill(
    $("facts"),
    `${policy.version} ${ago(policy.loaded_at)} ${ago(overview.started_at)} ${overview.role} ${overview.version}`,
    () =>
      [
        [`policy ${policy.version}`, `loaded ${ago(policy.loaded_at)}`],
        [`up ${seconds(serverNow() - Date.parse(overview.started_at))}`],
        [`Tollgate ${overview.version}`],
        [overview.role],
      ].map((it) => h("span", null, it.join(", "))),
  );
}
