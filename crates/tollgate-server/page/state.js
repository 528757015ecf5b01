// What the numbers mean: is it us, since when, which limit, who. No drawing here.

import { clock, count, duration, plural, serverNow, share, sum } from "./format.js";

const QUIET_S = 60;

/** What the last five minutes and the last ten seconds say. */
export function figures(overview) {
  const { allowed, refused, shadow_limited, degraded, until } = overview.series;
  const last = (list, seconds) => sum(list.slice(-seconds));
  const seconds = Math.max(1, Math.min(10, (serverNow() - Date.parse(overview.started_at)) / 1000));
  const lately = last(refused, QUIET_S);
  const [all, no] = [sum(allowed) + sum(refused), sum(refused)];
  return {
    all,
    refused: no,
    share: all > 0 ? no / all : 0,
    shadow: sum(shadow_limited),
    degraded: sum(degraded),
    perSecond: (last(allowed, 10) + last(refused, 10)) / seconds,
    refusedPerSecond: last(refused, 10) / seconds,
    lately,
    latelyShare: lately > 0 ? lately / (lately + last(allowed, QUIET_S)) : 0,
    since: beginning(refused, until),
  };
}

/** When the present run of refusals began: before it, nothing was refused for a minute. Seconds since 1970. */
function beginning(refused, until) {
  const n = refused.length;
  let first = null;
  let quiet = 0;
  for (let i = n - 1; i >= 0; i -= 1) {
    if (refused[i] > 0) {
      first = i;
      quiet = 0;
    } else if ((quiet += 1) >= QUIET_S) break;
  }
  if (first === null) return null;
  return { at: until - (n - 1 - first), whole: first < 3 };
}

/** Short labels with a kind: ok, bad, warn, note. The first one is the state of all. */
export function pills(overview, now) {
  const list = [];
  const { mode, store, alerts, policy } = overview;
  if (mode === "off") list.push(["warn", "Everything is off"]);
  if (mode === "shadow") list.push(["note", "Everything in shadow"]);
  if (store.state === "degraded") list.push(["warn", "Store degraded"]);
  if (now.lately > 0) list.push(["bad", `Refusing ${share(now.latelyShare)}`]);
  if (alerts.length > 0) list.push(["bad", `${plural(alerts.length, "key")} at zero`]);
  if (policy.reload_error) list.push(["bad", "Policy file is broken"]);
  if (policy.switched > 0) list.push(["note", `${plural(policy.switched, "limit")} switched`]);
  if (!overview.observing) list.push(["note", "Not observing"]);
  if (list.every(([kind]) => kind === "note") && mode === "enforce") list.unshift(["ok", "Nothing refused"]);
  return list;
}

/** The answer to "is it us?", in a headline and a line of detail. */
export function verdict(overview, now, stats, top) {
  const { mode, store } = overview;
  if (!overview.observing)
    return ["Nothing is counted: the file says `observe: off`.", "Switches, store and policy are shown all the same."];
  const detail = [];
  if (now.all === 0) {
    detail.push("No request has come in the last 5 minutes.");
  } else {
    detail.push(`${count(now.refused)} of ${plural(now.all, "request")} in the last 5 minutes were refused.`);
  }
  const worst = [...(stats?.limits ?? [])].sort((a, b) => b.limited + b.blocked - a.limited - a.blocked)[0];
  const who = top?.keys?.find((it) => it.limit === worst?.name) ?? null;
  let head;
  if (mode === "off") head = "Not us: everything is switched off, nothing is limited.";
  else if (mode === "shadow") head = "Not us: everything is in shadow mode, nothing is refused by a limit.";
  else if (now.refused === 0) head = now.all === 0 ? "Quiet: no requests." : "Not us: every request passed.";
  else if (now.lately === 0)
    head = `Not us any more: nothing was refused for ${duration((serverNow() / 1000 - lastRefusal(overview)) * 1000)}.`;
  else {
    const since = now.since.whole ? "for 5 minutes or longer" : `since ${clock(now.since.at * 1000)}`;
    head = `Yes: ${share(now.latelyShare)} of requests are refused, ${since}.`;
  }
  if (now.refused > 0 && worst && worst.limited + worst.blocked > 0) {
    detail.push({ limit: worst.name, refused: worst.limited + worst.blocked, key: who });
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

/** What a limit did in the window, beside what it is. */
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
export const traffic = (it) => it.allowed + it.limited + it.shadow_limited + it.blocked;
export const refusals = (it) => it.limited + it.blocked;
/** Of what reached it, what it refused or would have. */
export const refusedShare = (it) => (traffic(it) > 0 ? (refusals(it) + it.shadow_limited) / traffic(it) : 0);
