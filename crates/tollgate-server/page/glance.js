// The overview: the state in the header and at the top, and transient messages.

import { $, h, keyOf, refill, say, visible, visibleLines } from "./dom.js";
import { count, duration, micros, rate, share } from "./format.js";
import { showLeases } from "./fleet.js";
import { drawTraffic } from "./history.js";
import { showOverload } from "./overload.js";
import { showAlerts, showFacts, showStore } from "./side.js";
import { pills, verdict } from "./state.js";

const PASSES_AFTER = 15_000;
const LATE = 4000;

/** Announces text to screen readers. */
export function announce(text) {
  say($("announce"), text);
}

let announced = "";

/** Draws an overview. `open` has the handlers for limits and keys. */
export function drawOverview(data, open) {
  const { overview, figures: now } = data;
  const list = pills(overview, now);
  refill($("pills"), JSON.stringify(list), () => list.map(([kind, text]) => h("li", { class: `pill ${kind}` }, text)));
  // Announced when the kind of state changes, not with every digit.
  const kinds = list.map(([, text]) => text.replace(/[\d.<>,]+\s*%?/g, "").trim()).join(", ");
  if (kinds !== announced) {
    announced = kinds;
    announce(list.map(([, text]) => text).join(", "));
  }
  document.title = `${list[0]?.[1] ?? "Tollgate"} · Tollgate`;
  document.documentElement.dataset.state = list[0]?.[0] ?? "ok";

  drawVerdict(data, open);
  const known = (text) => (overview.observing ? text : "–");
  const cells = [
    [known(rate(now.perSecond)), "requests / s"],
    [known(rate(now.refusedPerSecond)), "refused / s", now.refusedPerSecond > 0 ? "is-bad" : null],
    [known(share(now.share)), "refused, 5 min", now.refused > 0 ? "is-bad" : null],
    [known(count(now.shadow)), "in shadow, 5 min", now.shadow > 0 ? "is-would" : null],
    [overview.latency_us ? micros(overview.latency_us.p99) : "–", "deciding, p99"],
  ];
  if (overview.tarpit.waiting > 0)
    cells.push([`${count(overview.tarpit.waiting)} of ${count(overview.tarpit.most)}`, "held back now"]);
  refill($("numbers"), JSON.stringify(cells), () =>
    cells.map(([value, label, cls]) => h("div", null, h("dt", null, label), h("dd", { class: cls ?? null }, value))),
  );

  drawTraffic(overview);
  showFacts(overview);
  showStore(overview.store);
  showAlerts(overview, open.key);
  showLeases(overview.leases);
  showOverload(overview, open.switch);
  drawNotices(overview, data.policy);
}

/** The headline, redrawn when the limit and the key become known. */
export function drawVerdict(data, open) {
  if (data.overview === null) return;
  const [head, ...details] = verdict(data.overview, data.figures, data.stats, data.top, data.causes);
  say($("verdict"), head);
  refill($("verdict-more"), JSON.stringify(details), () => details.map((it) => detail(it, open)));
}

function detail(it, open) {
  if (typeof it === "string") return h("span", null, `${it} `);
  const who = it.key
    ? [
        ", most of them to ",
        h("button", { class: "link", type: "button", onclick: () => open.key(it.key) }, keyOf(it.key)),
        ` (${count(it.key.refused)})`,
      ]
    : null;
  return h(
    "span",
    null,
    it.others ? "Of the limits, most by " : "Most by ",
    h("button", { class: "link strong", type: "button", onclick: () => open.limit(it.limit) }, visible(it.limit)),
    ` (${count(it.refused)})`,
    who,
    ". ",
  );
}

/** Transient messages: `{kind, text, until}`. */
let passing = [];

let overview = null;
/** The number of entries of the deny list. */
let denied = 0;

/** Shows a message for some time. */
export function notice(kind, text) {
  passing = [...passing.slice(-3), { kind, text, until: performance.now() + PASSES_AFTER }];
  drawNotices();
}

function drawNotices(latest = overview, policy = null) {
  overview = latest;
  denied = policy?.deny ?? denied;
  const lists = denied > 0 ? " The deny list stays in force." : "";
  passing = passing.filter((it) => it.until > performance.now());
  const list = passing.map((it) => [it.kind, it.text]);
  if (overview?.policy.reload_error) {
    list.push([
      "bad",
      "The policy file was changed and is not valid. The old policy stays in force.",
      overview.policy.reload_error,
    ]);
  }
  if (overview?.records?.error) list.push(["warn", "Decisions are not written to the decision log.", overview.records.error]);
  if (overview?.mode === "off") list.push(["warn", `Everything is switched off: no limit is checked.${lists}`]);
  if (overview?.mode === "shadow") list.push(["note", `Everything is in shadow mode: no limit refuses.${lists}`]);
  refill($("notices"), JSON.stringify(list), () =>
    list.map(([kind, text, more]) =>
      h("div", { class: `notice ${kind}` }, h("p", null, text), more ? h("pre", null, visibleLines(more)) : null),
    ),
  );
}

/** Shows the age of the data. `lastData` 0: no data yet; `failing`: the current error. */
export function drawFresh(lastData, failing) {
  const fresh = $("fresh");
  const age = performance.now() - lastData;
  const state = failing !== null ? "lost" : lastData === 0 ? "waiting" : age > LATE ? "late" : "live";
  if (fresh.dataset.state !== state) {
    if (state === "lost") announce("The connection is lost. Trying again.");
    else if (fresh.dataset.state === "lost" && state === "live") announce("Connected again.");
    fresh.dataset.state = state;
    document.documentElement.dataset.link = state;
  }
  const when = lastData === 0 ? "" : age < 1500 ? "1 s ago" : `${duration(Math.round(age / 1000) * 1000)} ago`;
  say(
    fresh,
    {
      live: `live, ${when}`,
      late: `last data ${when}`,
      waiting: "connecting …",
      lost: `reconnecting${when ? `, last data ${when}` : ""}`,
    }[state],
  );
  fresh.title = failing ?? "";
  if (state === "lost" && lastData === 0) say($("verdict"), `No data: ${failing}.`);
  if (passing.length > 0) drawNotices();
}
