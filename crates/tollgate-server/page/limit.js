// The drawer of one limit.

import { bars, line } from "./chart.js";
import { openDialog } from "./dialog.js";
import { foreign, h, pair, visible } from "./dom.js";
import { clock, count, duration, plural, share } from "./format.js";
import { covers, planQuota, quota } from "./limits.js";
import { idle, refusals, refusedShare, traffic } from "./state.js";

const MISSING = {
  ip: "counted by client address",
  refuse: "refused",
  shared: "share one allowance",
  skip: "not limited",
};
const OUTAGE = { local: "counts its share on this node", allow: "lets everything pass", deny: "refuses everything" };

/** Describes a limit in a sentence. */
export function inWords(limit) {
  const { by, cost, missing, soft } = limit;
  const list = [`${quota(limit)} (${limit.algorithm.replaceAll("-", " ")}), counted by ${by.join(" + ")}.`];
  if (missing && MISSING[missing] && !by.includes("global") && by.join() !== "ip")
    list.push(
      `Requests without one are ${MISSING[missing] === "share one allowance" ? "given one allowance to share" : MISSING[missing]}.`,
    );
  if (cost && cost !== "1") list.push(`A request costs ${cost}.`);
  if (limit.plan_quotas.length > 0)
    list.push(`By plan: ${limit.plan_quotas.map((it) => `${it.plan} ${planQuota(it)}`).join("; ")}.`);
  if (soft)
    list.push(
      `From ${soft.at} % spent on, requests are marked${soft.tarpit_ms > 0 ? ` and held back for ${duration(soft.tarpit_ms)}` : ""}.`,
    );
  if (limit.count_denied) list.push("Refused requests are counted too.");
  if (limit.on_outage) list.push(`Without the store it ${OUTAGE[limit.on_outage] ?? limit.on_outage}.`);
  return list;
}

/** Opens the drawer of a limit; the returned function redraws it with every response. */
export function openLimit(data, name, { closed, openSwitch }) {
  const { dialog, body, heading } = openDialog("drawer", h("span", null, "Limit ", foreign(name, "")), { closed });
  const live = h("div");
  const button = h("button", { class: "button", type: "button", onclick: () => openSwitch(name) }, "Switch …");
  const mode = h("span", { class: "mode big" });
  const hint = h("span", { class: "muted" });
  const still = h("div");
  body.append(h("div", { class: "everything" }, mode, hint, button), live, still);
  heading.focus();
  let known = null;

  function update() {
    if (!dialog.open) return;
    const limit = data.limits.find((it) => it.name === name);
    const stats = data.statsOf(name) ?? idle;
    if (!limit) {
      live.replaceChildren(h("p", { class: "notice" }, "The policy in force has no such limit."));
      button.disabled = true;
      return;
    }
    mode.textContent = limit.mode;
    mode.dataset.mode = limit.mode;
    button.disabled = data.overview?.role !== "admin";
    hint.textContent = button.disabled
      ? "Switching needs the admin token."
      : limit.switched
        ? `switched by hand; the file says ${limit.policy_mode}`
        : "as the file says";
    const [all, no] = [traffic(stats), refusals(stats)];
    if (stats.counted === false || data.overview?.observing === false) {
      const unobserved = data.overview?.observing === false;
      const why = unobserved ? "Nothing is observed" : "There are too many limits to count each on its own";
      live.replaceChildren(h("p", { class: "notice" }, `${why}: how this limit is doing is not known.`));
      return says(limit, stats);
    }
    const series = stats.series ?? { limited: [], remaining: [], allowed: [] };
    live.replaceChildren(
      h(
        "dl",
        { class: "numbers" },
        number(count(all), "requests, 5 min"),
        number(count(no), "refused", no > 0 ? "is-bad" : null),
        number(share(refusedShare(stats)), limit.mode === "shadow" ? "would be refused" : "share refused"),
        number(stats.remaining_min === null ? "–" : share(stats.remaining_min), "least left"),
      ),
      h("h3", null, "Allowed, in steps of 5 s"),
      bars(series.allowed, { width: 480, height: 56, label: "Allowed in the last five minutes", cls: "is-allowed" }),
      h("h3", null, limit.mode === "enforce" ? "Refused" : "Refused, or would have been"),
      bars(series.limited, {
        width: 480,
        height: 56,
        label: "Refused in the last five minutes",
        cls: limit.mode === "enforce" ? "is-refused" : "is-would",
      }),
      h("h3", null, "Least that any key had left"),
      line(series.remaining, { width: 480, height: 56, label: "Least share left in the last five minutes" }),
      agreement(limit, stats) ?? "",
    );
    says(limit, stats);
  }

  function says(limit, stats) {
    if (known === limit) return;
    known = limit;
    const candidate = data.limits.find((it) => it.candidate_of === name);
    still.replaceChildren(
      h("h3", null, "What it says"),
      h("p", null, `Applies to `, foreign(covers(limit), "mono wrap"), "."),
      ...inWords({ ...limit, plan_quotas: [] }).map((it) => h("p", null, visible(it))),
      ...(limit.plan_quotas.length > 0 ? plans(limit.plan_quotas) : []),
      candidate
        ? h(
            "p",
            null,
            "Tried beside it: ",
            h("a", { href: `#limit/${encodeURIComponent(candidate.name)}` }, visible(candidate.name)),
            `, ${quota(candidate)}.`,
          )
        : "",
      limit.candidate_of
        ? h(
            "p",
            null,
            "A candidate, tried beside ",
            h("a", { href: `#limit/${encodeURIComponent(limit.candidate_of)}` }, visible(limit.candidate_of)),
            "; counted, never enforced.",
          )
        : "",
      h(
        "dl",
        { class: "pairs" },
        pair("Since start", totals(stats)),
        stats.exhausted > 0 ? pair("Ran dry", `${plural(stats.exhausted, "time")} in 5 min`) : null,
        stats.soft > 0 ? pair("Over the soft threshold", `${count(stats.soft)} in 5 min`) : null,
        stats.degraded > 0 ? pair("Without the store", `${count(stats.degraded)} in 5 min`) : null,
        pair("Ids in the store", foreign((limit.ids ?? []).join(", "), "mono wrap")),
      ),
    );
  }
  update();
  return update;
}

/** The quotas of each plan. */
const plans = (list) => [
  h("h3", null, "By plan"),
  h(
    "dl",
    { class: "pairs plans" },
    list.map((it) => pair(foreign(it.plan, "wrap"), visible(planQuota(it)))),
  ),
];

const number = (value, label, cls) => h("div", null, h("dt", null, label), h("dd", { class: cls }, value));

const totals = ({ total }) =>
  total
    ? `${count(total.allowed)} allowed, ${count(total.limited)} refused, ${count(total.shadow_limited)} in shadow`
    : "–";

/** The agreement of a candidate and its live limit. */
function agreement(limit, { agreement: told }) {
  if (!told) return null;
  const all = told.both_allow + told.both_refuse + told.only_candidate_allows + told.only_live_allows;
  const differ = told.only_candidate_allows + told.only_live_allows;
  const row = (label, ...cells) =>
    h(
      "tr",
      null,
      h("th", { scope: "row" }, label),
      cells.map((it) => h("td", { class: "number" }, count(it))),
    );
  const live = visible(limit.candidate_of ?? "live");
  return h(
    "div",
    null,
    h("h3", null, "Agreement with the live limit"),
    told.since
      ? h(
          "p",
          { class: "muted" },
          "Compared since ",
          h("time", { datetime: told.since, title: told.since }, clock(told.since)),
          ", when both first had the rules that they have.",
        )
      : null,
    h(
      "p",
      null,
      all === 0
        ? "Nothing was compared yet."
        : differ === 0
          ? `They agreed on all ${count(all)}.`
          : `They differ on ${count(differ)} of ${count(all)} (${share(differ / all)}): it would ${[
              [told.only_live_allows, "refuse"],
              [told.only_candidate_allows, "let pass"],
            ]
              .filter(([n]) => n > 0)
              .map(([n, word]) => `${word} ${count(n)} more`)
              .join(" and ")}.`,
    ),
    h(
      "table",
      { class: "agreement" },
      h(
        "thead",
        null,
        h(
          "tr",
          null,
          h("td"),
          h("th", { scope: "col" }, `${live} allows`),
          h("th", { scope: "col" }, `${live} refuses`),
        ),
      ),
      h(
        "tbody",
        null,
        row("candidate allows", told.both_allow, told.only_candidate_allows),
        row("candidate refuses", told.only_live_allows, told.both_refuse),
      ),
    ),
  );
}
