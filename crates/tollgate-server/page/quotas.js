// The limits that are divided over Envoys (RLQS): by limit, by bucket, and by Envoy. Hidden while there are none.

import { $, foreign, h, refill, say } from "./dom.js";
import { count, duration, plural, rate } from "./format.js";
import { bar, table } from "./side.js";

const perSecond = (n) => (n === null ? "–" : `${rate(n)}/s`);

/** The share of an amount in another, for a bar. */
const part = (of, all) => (all > 0 ? of / all : 0);

function limit(it) {
  return h(
    "tr",
    null,
    h(
      "th",
      { scope: "row", class: "wide" },
      foreign(it.limit, ""),
      it.mode === "enforce" ? null : h("span", { class: "badge warn" }, foreign(it.mode, "")),
    ),
    h("td", { class: "number" }, count(it.buckets)),
    h("td", { class: "number" }, count(it.streams)),
    h("td", { class: "number" }, perSecond(it.rate)),
    h("td", { class: "number" }, perSecond(it.assigned)),
    h("td", { class: it.demanded > it.assigned ? "number is-bad" : "number" }, perSecond(it.demanded)),
    h("td", { class: "number" }, count(it.allowed)),
    h("td", { class: it.denied > 0 ? "number is-bad" : "number" }, count(it.denied)),
    h("td", { class: it.overshoot > 0 ? "number is-bad" : "number" }, count(it.overshoot)),
  );
}

function envoy(it, bucket) {
  return h(
    "tr",
    null,
    h("th", { scope: "row", class: "wide" }, `Envoy ${it.stream}, for ${duration(it.age_seconds * 1000)}`),
    h("td", { class: "number" }, perSecond(it.assigned)),
    h("td", { class: it.demanded > it.assigned ? "number is-bad" : "number" }, perSecond(it.demanded)),
    h("td", { class: "number" }, count(it.allowed)),
    h("td", { class: it.denied > 0 ? "number is-bad" : "number" }, count(it.denied)),
    h("td", { class: "c-meter" }, bar(part(it.assigned, bucket.budget))),
  );
}

const ENVOY_HEADINGS = ["Envoy", "Assigned", "Demanded", "Allowed", "Denied", ""];

/** The Envoys of one bucket, with a sentence about their sum. */
function bucket(it) {
  return h(
    "div",
    null,
    h("h3", null, foreign(it.bucket), " ", it.limit === null ? h("span", { class: "badge" }, "no limit") : null),
    h("p", { class: "muted" }, foreign(it.summary, "")),
    h("div", { class: "scrolled" }, table(ENVOY_HEADINGS, it.streams.map((of) => envoy(of, it)))),
  );
}

const HEADINGS = ["Limit", "Buckets", "Envoys", "Rate", "Assigned", "Demanded", "Allowed", "Denied", "Overshoot"];

/** Draws the quotas, or hides the panel if no Envoy has reported a bucket. */
export function showQuotas(quotas) {
  const isUsed = quotas !== null && (quotas.quotas.length > 0 || quotas.buckets > 0);
  for (const it of [$("quotas"), $("quotas-link")]) it.hidden = !isUsed;
  if (!isUsed) return;
  const notes = [`${plural(quotas.streams, "stream")} of Envoys, ${plural(quotas.buckets, "bucket")}`];
  if (quotas.degraded) notes.push("the store gives no answer: assignments stay as they are");
  say($("quotas-note"), notes.join("; "));
  refill($("quotas-body"), JSON.stringify(quotas), () => [
    h("div", { class: "scrolled" }, table(HEADINGS, quotas.quotas.map(limit))),
    ...quotas.top.slice(0, 5).map(bucket),
  ]);
}
