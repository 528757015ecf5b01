// The page: polls once a second, passes each response to the part that draws it, and handles clicks.
//
// Requests are sequential, never two of a kind at once, and stop while the page is hidden. The page
// keeps the last response of each kind and a bounded list of decisions, so its memory does not grow.
// After a reconnect it starts as if just opened.

import { Failure, get } from "./api.js";
import { decisionStream } from "./decisions.js";
import { $, say, visible } from "./dom.js";
import { openExplain, openWhatIf } from "./explain.js";
import { showFleet } from "./fleet.js";
import { clock, plural, setServerTime } from "./format.js";
import { announce, drawFresh, drawOverview, drawVerdict, notice } from "./glance.js";
import { openLab } from "./lab.js";
import { openLimit } from "./limit.js";
import { limitsTable } from "./limits.js";
import { showPolicy } from "./policy.js";
import { showQuotas } from "./quotas.js";
import { showRoutes, showTop, showUnobserved } from "./side.js";
import { figures, uncounted } from "./state.js";
import { openSwitch, showChanges, showEverything } from "./switches.js";
import { isSigningIn, signIn } from "./token.js";

const BEAT = 1000;
const SLOWEST_BEAT = 5000;
// Responses about very many limits are long, so they are requested less often.
const MANY = 200;

/** The last response of each kind. */
const data = {
  overview: null,
  figures: null,
  stats: null,
  top: null,
  limits: [],
  policy: null,
  changes: null,
  fleet: null,
  causes: {},
  byName: new Map(),
  statsOf: (name) => data.byName.get(name),
};

const stream = decisionStream({ openExplain: (id) => go(`explain/${encodeURIComponent(id)}`) });
const table = limitsTable({
  openLimit: (name) => go(`limit/${encodeURIComponent(name)}`),
  openSwitch: (name) => askSwitch(name),
  wanted: () => askStats().catch(() => {}),
});

/** The handlers of links in texts. */
const open = {
  key: explainKey,
  limit: (name) => go(`limit/${encodeURIComponent(name)}`),
  switch: (name) => askSwitch(name),
};

// Polling.

let lastData = 0;
let failures = 0;
let failing = null;
let beatTimer = null;
let beating = false;
/** The next due time of each kind. */
const due = { stats: 0, top: 0, changes: 0, fleet: 0, quotas: 0 };
/** The mark of the shown list of limits; "" before the first comparison. */
let understood = "";

async function askOverview() {
  const overview = await get("v1/overview");
  const restarted = data.overview !== null && data.overview.started_at !== overview.started_at;
  if (restarted) {
    stream.forget();
    understood = "old";
    [data.stats, data.top, data.byName] = [null, null, new Map()];
    [due.stats, due.top, due.changes] = [0, 0, 0];
    announce("The server has restarted: its numbers begin anew.");
    notice("note", `The server restarted at ${clock(overview.started_at)}: its numbers begin anew.`);
  }
  const reloaded = !restarted && data.overview !== null && data.overview.policy.loaded_at !== overview.policy.loaded_at;
  if (reloaded && (overview.policy.switched > 0 || overview.mode !== "enforce"))
    notice("note", "The policy file was reloaded. What is switched by hand stays as it is switched, whatever the file says.");
  setServerTime(overview.now);
  data.overview = overview;
  lastData = performance.now();
  table.setRole(overview.role);
  stream.setObserving(overview.observing);
  if (!overview.observing) {
    table.setStats(data.limits.map((it) => ({ ...uncounted, name: it.name })));
    showUnobserved();
  }
  drawAll();
}

/** The time of the last change of everything, in ms; null if unknown. */
function switchedAt() {
  const last = data.changes?.find((it) => it.what === "everything");
  return last ? Date.parse(last.at) : null;
}

function drawAll() {
  data.figures = figures(data.overview, switchedAt());
  data.causes = stream.causes(data.figures.from);
  showEverything(data, () => askSwitch(null));
  drawOverview(data, open);
  drawFoot();
}

async function askStats() {
  if (!data.overview?.observing) return;
  const known = new Set(data.limits.map((it) => it.name));
  const names = [...new Set([...table.names(), drawer?.limit])].filter((it) => known.has(it));
  const query = new URLSearchParams(names.map((it) => ["limit", it]));
  const stats = await get(`v1/stats?${query}`);
  data.stats = stats;
  data.byName = new Map(stats.limits.map((it) => [it.name, it]));
  table.setStats(stats.limits);
  drawVerdict(data, open);
  drawer?.update?.();
  // Another operator changed a mode, so the list is reloaded.
  if (stats.limits.some((it, at) => data.limits[at]?.name === it.name && data.limits[at].mode !== it.mode))
    understood = "old";
}

async function askTop() {
  if (!data.overview?.observing) return;
  data.top = await get("v1/top?most=12");
  drawVerdict(data, open);
  showTop(data.top, explainKey);
  showRoutes(data.top.routes.slice(0, 12), (path) => stream.filter(path));
}

async function askPolicy() {
  const [{ limits }, policy] = await Promise.all([get("v1/limits"), get("v1/policy")]);
  [data.limits, data.policy] = [limits, policy];
  const first = data.stats === null;
  table.setLimits(limits);
  if (!data.overview.observing) table.setStats(limits.map((it) => ({ ...uncounted, name: it.name })));
  showPolicy(policy, limits, (name) => go(`limit/${encodeURIComponent(name)}`));
  drawer?.update?.();
  if (first || table.names().some((it) => !data.byName.get(it)?.series)) await askStats();
}

let askingFleet = false;

/** The other nodes. Nothing waits for them, because the store may be slow. */
async function askFleet() {
  if (askingFleet || data.overview.store.kind === "memory") return;
  askingFleet = true;
  try {
    data.fleet = await get("v1/fleet");
  } catch {
    // The overview reports what is wrong; a server of an earlier version knows no fleet.
    data.fleet = null;
  } finally {
    askingFleet = false;
  }
  showFleet(data.fleet);
  drawFoot();
}

/** The limits that are divided over Envoys. A server of an earlier version knows none. */
async function askQuotas() {
  showQuotas(await get("v1/quotas").catch(() => null));
}

async function askChanges() {
  data.changes = (await get("v1/changes")).changes;
  showChanges(data.changes);
  if (data.overview !== null) drawAll();
}

/** Loads everything that is due. Series of limits by name come after the names are known to be current. */
async function ask() {
  const first = data.overview === null;
  // First and alone: one request finds out whether a token is needed and whether observation is on.
  await askOverview();
  if (first) {
    route();
    await all([askPolicy(), askTop(), askChanges(), stream.poll()]);
    drawAll();
    if (understood === "") understood = policyMark();
  }
  if (understood !== policyMark() || understood === "stale") {
    await askPolicy();
    understood = policyMark();
  }
  if (first) return;
  const now = performance.now();
  const list = [stream.poll()];
  const often = (kind, every, asked) => {
    if (now < due[kind]) return;
    due[kind] = now + every - BEAT / 2;
    list.push(asked());
  };
  often("stats", data.limits.length > MANY ? 5000 : 2000, askStats);
  often("top", 2000, askTop);
  often("changes", 10_000, askChanges);
  often("fleet", 2000, () => void askFleet());
  often("quotas", 2000, askQuotas);
  await all(list);
}

/** Waits for all of them, even if one fails. */
async function all(list) {
  const failed = (await Promise.allSettled(list)).find((it) => it.status === "rejected");
  if (failed) throw failed.reason;
}

/** The mark of the list of limits; "stale" if our data is of another policy. */
const policyMark = () => {
  const { started_at, policy, mode } = data.overview;
  if (data.policy?.version !== policy.version) return "stale";
  return `${started_at} ${policy.version} ${policy.loaded_at} ${policy.switched} ${mode}`;
};

async function beat() {
  beatTimer = null;
  if (beating || document.hidden || isSigningIn()) return;
  beating = true;
  try {
    await ask();
    [failures, failing] = [0, null];
  } catch (error) {
    if (error instanceof Failure && error.status === 401) return signIn(begin);
    if (!(error instanceof Failure)) throw error;
    failures += 1;
    failing = error.message;
  } finally {
    beating = false;
    drawFresh(lastData, failing);
    schedule();
  }
}

function schedule() {
  if (beatTimer !== null || document.hidden || isSigningIn()) return;
  // Aligned to the second, to match the seconds of the server.
  const wait = failures > 0 ? Math.min(SLOWEST_BEAT, BEAT * failures) : BEAT - (Date.now() % BEAT) || BEAT;
  beatTimer = setTimeout(beat, Math.max(wait, BEAT / 4));
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    clearTimeout(beatTimer);
    beatTimer = null;
  } else if (beatTimer === null) {
    beat();
  }
});

// Drawers.

/** The open drawer, if any. */
let drawer = null;
/** The number of opened drawers: an older one that closes late has no effect. */
let opened = 0;

function go(hash) {
  if (location.hash === `#${hash}`) route();
  else location.hash = hash;
}

/** The fragment of the URL says what is open, so that it can be linked. Opened once access is known. */
function route() {
  if (data.overview === null) return;
  const asked = location.hash;
  for (const it of document.querySelectorAll("dialog.drawer[open]")) it.close();
  drawer = null;
  const [, kind, text] = /^#(explain|limit|what-if|lab)\/?(.*)$/s.exec(asked) ?? [];
  if (kind === undefined) return;
  if (kind === "lab") return showLab(text);
  let name;
  try {
    name = decodeURIComponent(text);
  } catch {
    return;
  }
  if (kind !== "limit" && !data.overview.observing) {
    notice("note", "Nothing is observed (`observe: off`): no decision can be explained.");
    history.replaceState(null, "", location.pathname + location.search);
    return;
  }
  const mine = (opened += 1);
  const closed = () => {
    if (opened !== mine || location.hash !== asked) return;
    drawer = null;
    history.replaceState(null, "", location.pathname + location.search);
  };
  if (kind === "what-if") openWhatIf(closed);
  else if (name === "") return;
  else if (kind === "explain") openExplain(name, closed);
  else {
    drawer = { limit: name };
    drawer.update = openLimit(data, name, { closed, openSwitch: askSwitch });
    if (!data.byName.get(name)?.series) askStats().catch(() => {});
  }
}

/** The parameters of the Lab update the URL while it is open. */
function showLab(address) {
  const mine = (opened += 1);
  openLab(address, () => {
    if (opened === mine && location.hash.startsWith("#lab"))
      history.replaceState(null, "", location.pathname + location.search);
  });
}

function askSwitch(name) {
  if (data.overview === null) return;
  openSwitch(data, name, (told, warning) => {
    notice("ok", told);
    if (warning) notice("warn", visible(warning));
    announce(told);
    due.stats = 0;
    understood = "old";
    askChanges().catch(() => {});
    askPolicy().catch(() => {});
  });
}

/** Explains the latest refusal of a key, or shows the key's decisions if no refusal is stored. */
async function explainKey(key) {
  try {
    const id = await stream.latest(key);
    if (id !== null) return go(`explain/${encodeURIComponent(id)}`);
    notice("note", "No refusal of this key is remembered any more.");
    stream.filter(key.tag);
  } catch (error) {
    notice("bad", visible(error.message));
  }
}

$("find").addEventListener("submit", (event) => {
  event.preventDefault();
  const id = $("find-id").value.trim();
  if (id !== "") go(`explain/${encodeURIComponent(id)}`);
});
$("what-if").addEventListener("click", () => go("what-if"));
$("lab").addEventListener("click", () => go("lab"));

const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;

function drawFoot() {
  const left = data.overview?.log?.suppressed ?? 0;
  const log = left > 0 ? ` The log takes only so many lines a second: ${plural(left, "refusal")} left out.` : "";
  const kept = data.overview?.records;
  const disk = kept?.since ? ` The decision log has ${plural(kept.decisions, "decision")} since ${clock(kept.since)}.` : "";
  say($("foot"), `Times are your local time${zone ? ` (${zone})` : ""}. Numbers are of this node${
      data.fleet?.nodes.length > 1 ? ", except those of the fleet" : ""
    }.${log}${disk}`);
}
drawFoot();

function begin() {
  route();
  beat();
}

setInterval(() => {
  if (!document.hidden) drawFresh(lastData, failing);
}, BEAT);
addEventListener("hashchange", route);
begin();
