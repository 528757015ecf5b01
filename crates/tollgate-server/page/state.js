// Derives the state from the numbers: condition, start, limit and key. Does not draw.

import { clock, count, duration, plural, serverNow, share, sum } from "./format.js";

const QUIET_S = 60;

/**
 * What the last five minutes and the last ten seconds say. `switched`: when everything was, in ms. Sums of five minutes
 * are the server's, which counts limits, keys and routes over the same stretch of time.
 */
export function figures(overview, switched) {
  const { allowed, refused, until } = overview.series;
  const window = overview.window;
  const last = (list, seconds) => (seconds > 0 ? sum(list.slice(-seconds)) : 0);
  // The current second is in progress, and would lower every rate.
  const whole = (list) => last(list.slice(0, -1), 10);
  const seconds = Math.max(1, Math.min(10, (serverNow() - Date.parse(overview.started_at)) / 1000));
  // Refusals by limits before they were switched off do not count.
  const weakened = overview.mode === "enforce" || switched === null ? Infinity : until - Math.ceil(switched / 1000) + 1;
  const recent = Math.max(0, Math.min(QUIET_S, weakened));
  const lately = last(refused, recent);
  const [all, no] = [window.allowed + window.refused, window.refused];
  return {
    all,
    refused: no,
    share: all > 0 ? no / all : 0,
    shadow: window.shadow_limited,
    degraded: window.degraded,
    perSecond: (whole(allowed) + whole(refused)) / seconds,
    refusedPerSecond: whole(refused) / seconds,
    lately,
    latelyShare: lately > 0 ? lately / (lately + last(allowed, recent)) : 0,
    from: serverNow() - recent * 1000,
    since: beginning(refused, until, Math.min(refused.length, Math.max(1, weakened))),
  };
}

/**
 * When the present run of refusals began: before it, nothing was refused for a minute. Seconds since 1970. Only the
 * last `seconds` are looked at.
 */
function beginning(refused, until, seconds) {
  const n = refused.length;
  let first = null;
  let quiet = 0;
  for (let i = n - 1; i >= n - seconds; i -= 1) {
    if (refused[i] > 0) {
      first = i;
      quiet = 0;
    } else if ((quiet += 1) >= QUIET_S) break;
  }
  if (first === null) return null;
  return { at: until - (n - 1 - first), whole: first < 3 };
}

/** Short labels with a kind: ok, bad, warn, note. The first one is the overall state. */
export function pills(overview, now) {
  const list = [];
  const { mode, store, alerts, policy, observing } = overview;
  if (!observing) list.push(["note", "Nothing is observed"]);
  if (mode === "off") list.push(["warn", "Everything is off"]);
  if (mode === "shadow") list.push(["note", "Everything in shadow"]);
  if (store.state === "degraded") list.push(["warn", "Store degraded"]);
  if (now.lately > 0) list.push(["bad", `Refusing ${share(now.latelyShare)}`]);
  if (alerts.length > 0) list.push(["bad", `${plural(alerts.length, "key")} at zero`]);
  if (policy.reload_error) list.push(["bad", "Policy file is broken"]);
  if (policy.switched > 0) list.push(["note", `${plural(policy.switched, "limit")} switched`]);
  if (observing && mode === "enforce" && list.every(([kind]) => kind === "note"))
    list.unshift(["ok", "Nothing refused"]);
  return list;
}

const CAUSES = {
  refused: "limits",
  deny_listed: "the deny list",
  ambiguous_path: "ambiguous paths",
  blocked: "blocks",
  uncountable: "limits that deny without the store",
  shed: "overload",
};

/** The causes of refusals in words, by fate. Limits are named elsewhere. */
function causeOf(causes, mode) {
  const words = Object.keys(CAUSES).filter((it) => causes[it] > 0);
  const isLimits = words.length === 1 && words[0] === "refused" && mode === "enforce";
  if (words.length === 0 && mode !== "enforce") return ", by the deny list or blocks";
  return words.length === 0 || isLimits ? "" : `, by ${words.map((it) => CAUSES[it]).join(" and ")}`;
}

/** The headline with a line of detail. `causes`: the fates of the last refusals. */
export function verdict(overview, now, stats, top, causes) {
  const { mode, store } = overview;
  if (!overview.observing)
    return [
      "Nothing is observed: the file says `observe: off`.",
      "Whether requests are refused is not known here. Switches, store and policy are shown all the same.",
    ];
  const detail = [];
  if (now.all === 0) {
    detail.push("No request has come in the last 5 minutes.");
  } else {
    detail.push(`${count(now.refused)} of ${plural(now.all, "request")} in the last 5 minutes were refused.`);
  }
  const worst = [...(stats?.limits ?? [])].sort((a, b) => b.limited + b.blocked - a.limited - a.blocked)[0];
  const who = top?.keys?.find((it) => it.limit === worst?.name) ?? null;
  let head;
  if (now.lately > 0) {
    const since = now.since.whole ? "for 5 minutes or longer" : `since ${clock(now.since.at * 1000)}`;
    head = `${share(now.latelyShare)} of requests are refused, ${since}${causeOf(causes, mode)}.`;
    if (mode !== "enforce")
      detail.unshift(`Everything is ${mode === "off" ? "off" : "in shadow mode"}, but lists and blocks stay in force.`);
  } else if (mode === "off") head = "Everything is switched off: nothing is limited.";
  else if (mode === "shadow") head = "Everything is in shadow mode: no limit refuses.";
  else if (now.refused === 0) head = now.all === 0 ? "No requests." : "Every request passed.";
  else
    head = `Nothing was refused for ${duration(Math.round(serverNow() / 1000 - lastRefusal(overview)) * 1000)}.`;
  if (now.refused > 0 && worst && worst.limited + worst.blocked > 0) {
    const others = Object.keys(causes).some((it) => it !== "refused");
    detail.push({ limit: worst.name, refused: worst.limited + worst.blocked, key: who, others });
  }
  if (store.state === "degraded") {
    const since = store.since ? ` since ${clock(store.since)}` : "";
    detail.push(
      `The store gives no answers${since}: ${plural(now.degraded, "decision")} went by each limit's \`on_outage\`.`,
    );
  }
  return [head, ...detail];
}

function lastRefusal(overview) {
  const { refused, until } = overview.series;
  for (let i = refused.length - 1; i >= 0; i -= 1) if (refused[i] > 0) return until - (refused.length - 1 - i);
  return until;
}

/** The counts of a limit in the window. */
export const idle = {
  allowed: 0,
  limited: 0,
  shadow_limited: 0,
  blocked: 0,
  exhausted: 0,
  soft: 0,
  degraded: 0,
  remaining_min: null,
  series: null,
  agreement: null,
};
/** The counts of a limit that is not counted separately. */
export const uncounted = { ...idle, counted: false };
export const traffic = (it) => it.allowed + it.limited + it.shadow_limited + it.blocked;
export const refusals = (it) => it.limited + it.blocked;
/** The share that a limit refused or would have refused. */
export const refusedShare = (it) => (traffic(it) > 0 ? (refusals(it) + it.shadow_limited) / traffic(it) : 0);
