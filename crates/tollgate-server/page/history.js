// The traffic chart over five minutes, hours or days. Hours and days are in the decision log of the server, if it has one.

import { get } from "./api.js";
import { trafficChart } from "./chart.js";
import { $, h } from "./dom.js";

const RANGES = [
  ["5m", "5 min", "Traffic of the last five minutes, second by second"],
  ["1h", "1 h", "Traffic of the last hour"],
  ["6h", "6 h", "Traffic of the last six hours"],
  ["24h", "24 h", "Traffic of the last day"],
  ["7d", "7 d", "Traffic of the last week"],
  ["30d", "30 d", "Traffic of the last thirty days"],
];
const LIVE = "5m";
const SECONDS = { "5m": 300, "1h": 3600, "6h": 21_600, "24h": 86_400, "7d": 604_800, "30d": 2_592_000 };
/** A history changes by the minute, and its last step all the time. */
const EVERY = 10_000;

const chart = trafficChart($("chart"));
const buttons = new Map(
  RANGES.map(([range, text]) => [
    range,
    h("button", { class: "button quiet", type: "button", "aria-pressed": "false", onclick: () => choose(range) }, text),
  ]),
);
$("ranges").append(...buttons.values());

let chosen = LIVE;
let overview = null;
/** The last history, its range and the time of the next request. */
let history = null;
let due = 0;
let asking = false;

function choose(range) {
  [chosen, due] = [range, 0];
  if (overview !== null) drawTraffic(overview);
}

/** Draws the chosen range. */
export function drawTraffic(latest) {
  overview = latest;
  const log = overview.records ?? null;
  $("ranges").hidden = log === null;
  if (log === null) chosen = LIVE;
  for (const [range, button] of buttons) {
    button.hidden = range !== LIVE && SECONDS[range] > (log?.keep_s ?? 0);
    button.setAttribute("aria-pressed", String(range === chosen));
  }
  chart.describe(RANGES.find(([range]) => range === chosen)[2]);
  if (chosen === LIVE) return chart.draw(overview.series);
  if (history?.range === chosen) chart.draw(history.series);
  if (!asking && performance.now() >= due) askHistory(chosen);
}

async function askHistory(range) {
  asking = true;
  try {
    history = { range, series: await get(`v1/history?since=${range}`) };
    due = performance.now() + EVERY;
    if (range === chosen) chart.draw(history.series);
  } catch {
    // The overview reports a lost connection; the last history stays.
    due = performance.now() + EVERY;
  } finally {
    asking = false;
  }
}
