// The table of limits: searched, sorted and paged in the browser, so that a thousand limits cost no
// more than one page.
//
// Rows keep their elements between responses. While the user is about to click in the table, the order
// is kept too, so that rows do not move.

import { bars, line } from "./chart.js";
import { $, clickable, foreign, h, holder, nothing, pager, say, visible } from "./dom.js";
import { count, plural, share } from "./format.js";
import { idle, refusals, refusedShare, traffic } from "./state.js";

const SIZE = 25;

// Heading, what to sort by (numbers fall, names rise), class.
const COLUMNS = [
  ["name", "Limit", (it) => it.limit.name],
  ["covers", "Covers", (it) => covers(it.limit)],
  ["quota", "Quota", null],
  ["mode", "Mode", (it) => it.limit.mode],
  ["traffic", "Traffic", (it) => traffic(it.stats), "number"],
  ["refused", "Refused", (it) => refusals(it.stats) + it.stats.shadow_limited / 1e6, "number"],
  ["share", "Share", (it) => refusedShare(it.stats), "number"],
  ["refusals", "Refusals, 5 min", null],
  ["left", "Least left", (it) => 1 - (it.stats.remaining_min ?? 1), "number"],
];

/** What a limit applies to, in a few words. */
export function covers(limit) {
  if (limit.descriptor.length > 0) {
    const domains = limit.domains.length > 0 ? ` in ${limit.domains.join(", ")}` : "";
    return `descriptor ${limit.descriptor.join(", ")}${domains}`;
  }
  if (limit.endpoints.length === 0) return limit.by.includes("descriptor") ? "descriptors of Envoy's files" : "what names it";
  const where = limit.endpoints[0] !== "/**" ? limit.endpoints.join(", ") : "every path";
  const how = limit.methods.length > 0 ? `${limit.methods.join(", ")} ` : "";
  const host = limit.hosts.length > 0 ? ` on ${limit.hosts.join(", ")}` : "";
  const except = limit.except?.length > 0 ? ` except ${limit.except.join(", ")}` : "";
  return `${how}${where}${except}${host}`;
}

const joined = (quotas) => quotas.join(", and ");
export const quota = (limit) => joined(limit.quotas);

/** The quota of a limit for a plan, in words. */
export const planQuota = ({ grants, quotas }) => (grants === "limited" ? joined(quotas) : grants);

export function limitsTable({ openLimit, openSwitch, wanted }) {
  const body = h("tbody");
  const headings = new Map();
  let sort = { by: "refused", down: true };
  let page = 0;
  let [limits, stats, canSwitch] = [[], new Map(), false];
  let order = [];
  let visibleNames = "";
  const rows = new Map();

  const select = $("limits-sort");
  const head = h("tr");
  for (const [key, label, value, cls] of COLUMNS) {
    const inside = value ? h("button", { type: "button", class: "sort", onclick: () => resort(key) }, label) : label;
    const cell = h("th", { scope: "col", class: `c-${key} ${cls ?? ""}` }, inside);
    headings.set(key, cell);
    head.append(cell);
    if (value) select.append(h("option", { value: key }, label));
  }
  select.addEventListener("change", () => resort(select.value, true));
  const table = h(
    "table",
    { class: "limits" },
    h("caption", { class: "unseen" }, "Limits, with the last five minutes"),
    h("thead", null, head),
    body,
  );
  const foot = h("div");
  const empty = h("div");
  $("limits-body").append(table, empty, foot);
  const search = $("limits-search");
  search.addEventListener("input", () => {
    page = 0;
    arrange(true);
  });

  function resort(key, chosen = false) {
    const text = key === "name" || key === "covers" || key === "mode";
    const same = sort.by === key && !chosen;
    sort = { by: key, down: same ? !sort.down : !text };
    page = 0;
    arrange(true);
  }

  const held = holder(body);

    /** Selects and sorts the rows to show. */
  function arrange(asked) {
    const wish = search.value.trim().toLowerCase();
    const all = limits.map((limit, place) => ({ limit, place, stats: stats.get(limit.name) ?? idle }));
    const found = wish === "" ? all : all.filter((it) => it.limit.words.includes(wish));
    if (asked || !held() || order.length === 0) {
      const value = COLUMNS.find(([key]) => key === sort.by)[2];
      const compare = (a, b) => {
        const [x, y] = [value(a), value(b)];
        const by = typeof x === "string" ? x.localeCompare(y, "en", { numeric: true }) : x - y;
        return (sort.down ? -by : by) || traffic(b.stats) - traffic(a.stats) || a.place - b.place;
      };
      found.sort(compare);
      page = Math.min(page, Math.max(0, Math.ceil(found.length / SIZE) - 1));
      order = found.slice(page * SIZE, (page + 1) * SIZE).map((it) => it.limit.name);
    }
    for (const [key, cell] of headings) {
      if (key === sort.by) cell.setAttribute("aria-sort", sort.down ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    }
    if (select.value !== sort.by) select.value = sort.by;
    const byName = new Map(all.map((it) => [it.limit.name, it]));
    show(order.map((name) => byName.get(name)).filter(Boolean));
    say(
      $("limits-count"),
      wish === "" ? plural(all.length, "limit") : `${count(found.length)} of ${plural(all.length, "limit")}`,
    );
    empty.replaceChildren(
      ...(found.length > 0 ? [] : [nothing(limits.length === 0 ? "The policy has no limits." : "No limit matches.")]),
    );
    const mark = `${page}/${found.length}`;
    if (foot.mark !== mark) {
      foot.mark = mark;
      const turned = pager(page, SIZE, found.length, (to) => {
        page = to;
        arrange(true);
        foot.querySelector("button:not([disabled])")?.focus();
      });
      foot.replaceChildren(...(turned ? [turned] : []));
    }
    const names = order.join("\n");
    if (names !== visibleNames) {
      visibleNames = names;
      if (asked) wanted();
    }
  }

  function show(list) {
    const names = new Set(list.map((it) => it.limit.name));
    for (const [name, row] of rows) {
      if (names.has(name)) continue;
      row.element.remove();
      rows.delete(name);
    }
    list.forEach((it, at) => {
      let row = rows.get(it.limit.name);
      if (!row) rows.set(it.limit.name, (row = newRow(it.limit)));
      row.update(it);
      if (body.children[at] !== row.element) body.insertBefore(row.element, body.children[at] ?? null);
    });
  }

  function newRow(limit) {
    const cells = Object.fromEntries(
      COLUMNS.map(([key, label, , cls]) => [key, h("td", { class: `c-${key} ${cls ?? ""}`, "data-label": label })]),
    );
    const name = h(
      "button",
      { type: "button", class: "link name", onclick: () => openLimit(limit.name) },
      visible(limit.name),
    );
    const badges = h("span", { class: "badges" });
    cells.name = h("th", { scope: "row", class: "c-name" }, name, badges);
    const mode = h("button", { type: "button", class: "mode", onclick: () => openSwitch(limit.name) });
    cells.mode.append(mode);
    const element = clickable(h("tr", null, Object.values(cells)), () => openLimit(limit.name));
    let known = null;
    let drawn = null;

    function update({ limit: it, stats: of }) {
      if (known !== it) {
        known = it;
        cells.covers.replaceChildren(
          foreign(covers(it), "mono"),
          h("small", { class: "muted by" }, `by ${it.by.join(" + ")}`),
        );
        say(cells.quota, quota(it));
        const list = [];
        if (it.candidate_of)
          list.push(
            h("span", { class: "badge", title: `Tried beside ${it.candidate_of}; never enforced` }, "candidate"),
          );
        if (it.soft)
          list.push(
            h(
              "span",
              { class: "badge", title: `Marks requests from ${it.soft.at} % spent on` },
              `soft ${it.soft.at} %`,
            ),
          );
        if (it.switched)
          list.push(h("span", { class: "badge warn", title: `The file says ${it.policy_mode}` }, "switched"));
        badges.replaceChildren(...list);
      }
      say(mode, it.mode);
      mode.dataset.mode = it.mode;
      mode.disabled = !canSwitch;
      mode.title = canSwitch ? "Change the mode" : "Needs the admin token";
      mode.setAttribute("aria-label", `${it.mode}: change the mode of ${it.name}`);
      const [reached, no] = [traffic(of), refusals(of)];
      const unknown = of.counted === false;
      say(cells.traffic, unknown ? "–" : count(reached));
      cells.traffic.title = unknown ? "Not counted on its own" : "";
      if (unknown) say(cells.refused, "–");
      else say(cells.refused, of.shadow_limited > 0 && no === 0 ? `(${count(of.shadow_limited)})` : count(no));
      cells.refused.classList.toggle("is-bad", no > 0);
      cells.refused.classList.toggle("is-would", no === 0 && of.shadow_limited > 0);
      cells.refused.title = of.shadow_limited > 0 ? `${count(of.shadow_limited)} would have been refused` : "";
      say(cells.share, reached > 0 && no + of.shadow_limited > 0 ? share(refusedShare(of)) : "–");
      if (of.series && drawn !== of.series) {
        drawn = of.series;
        const most = Math.max(...of.series.limited, 0);
        cells.refusals.replaceChildren(
          bars(of.series.limited, {
            label: `Refusals: at most ${count(most)} in 5 seconds`,
            cls: it.mode === "enforce" ? "is-refused" : "is-would",
          }),
        );
        const least = of.remaining_min;
        const told = least === null ? "–" : share(least);
        cells.left.replaceChildren(
          h(
            "span",
            { class: "left" },
            line(of.series.remaining, { width: 72, label: `Least left of any key: ${told}` }),
            h("span", { class: least === 0 ? "is-bad" : null }, told),
          ),
        );
      }
    }
    return { element, update };
  }

  return {
        /** Applies the policy; keeps the counts. */
    setLimits(list) {
      limits = list.map((it) => ({
        ...it,
        words: `${it.name} ${covers(it)} ${it.by.join(" ")} ${it.mode} ${quota(it)}`.toLowerCase(),
      }));
      arrange(false);
    },
    setRole(role) {
      if (canSwitch === (role === "admin")) return;
      canSwitch = role === "admin";
      arrange(false);
    },
    setStats(list) {
      stats = new Map(list.map((it) => [it.name, it]));
      arrange(false);
    },
        /** The names of the shown rows, whose series are loaded. */
    names: () => order,
  };
}
