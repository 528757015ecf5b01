// The list of decisions, newest first. Keeps a bounded number, draws fewer.

import { get } from "./api.js";
import { $, clickable, foreign, h, keyOf, nothing, refill, say, visible } from "./dom.js";
import { clock, count, duration, micros } from "./format.js";

const KEPT = 300;
const SHOWN = 24;

const FATES = {
  admitted: ["ok", "passed"],
  refused: ["bad", "refused"],
  allow_listed: ["ok", "allow list"],
  deny_listed: ["bad", "deny list"],
  ambiguous_path: ["bad", "ambiguous"],
  blocked: ["bad", "blocked"],
  uncountable: ["warn", "no store"],
  shed: ["warn", "shed"],
};

/** The fate of a decision: a class and a word. */
export const fate = (it) => FATES[it.fate] ?? [it.allowed ? "ok" : "bad", visible(it.fate)];

export function decisionStream({ openExplain }) {
  let list = [];
  let next = null;
  let missed = 0;
  let paused = false;
  // Whether the server stores decisions; known after the first overview.
  let observing = true;
  // Incremented when pending responses become obsolete.
  let turn = 0;
  let wish = "";
  const only = $("decisions-refused");
  const pause = $("decisions-pause");
  const search = $("decisions-search");
  const body = h("tbody");
  const headings = ["When", "", "Request", "Client", "Limit and key", "Wait"];
  const table = h(
    "table",
    { class: "stream" },
    h("caption", { class: "unseen" }, "Decisions, newest first"),
    h(
      "thead",
      null,
      h(
        "tr",
        null,
        headings.map((it) => (it === "" ? h("td") : h("th", { scope: "col" }, it))),
      ),
    ),
    body,
  );
  const empty = h("div");
  $("decisions-body").append(table, empty);

  pause.addEventListener("click", () => {
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
    say(pause, paused ? "Go on" : "Pause");
    if (!paused) restart();
    else note();
  });
  only.addEventListener("change", restart);
  search.addEventListener("input", () => {
    wish = search.value.trim().toLowerCase();
    draw();
  });

  function restart() {
    turn += 1;
    [list, next, missed] = [[], null, 0];
    draw();
    poll().catch(() => {});
  }

  async function poll() {
    if (paused || !observing) return;
    const mine = turn;
    const query = new URLSearchParams({ most: next === null ? "200" : "100" });
    if (next !== null) query.set("after", String(next));
    if (only.checked) query.set("refused", "true");
    const told = await get(`v1/decisions?${query}`);
    if (mine !== turn || paused) return;
    if (next !== null) missed += told.missed;
    next = told.next;
    if (told.decisions.length > 0) {
      for (const it of told.decisions)
        it.words =
          `${it.id} ${it.method} ${it.path} ${it.client ?? ""} ${it.limit ?? ""} ${it.key ?? ""} #${it.tag ?? ""} ${it.fate}`.toLowerCase();
      list = told.decisions.reverse().concat(list).slice(0, KEPT);
    }
    draw();
  }

  const matching = () => (wish === "" ? list : list.filter((it) => it.words.includes(wish)));

  function draw() {
    const shown = matching().slice(0, SHOWN);
    const wanted = new Set(shown.map((it) => String(it.seq)));
    for (const row of [...body.children]) {
      // A focused row stays in place until it loses the focus.
      if (!wanted.has(row.dataset.seq) && !row.contains(document.activeElement)) row.remove();
    }
    const there = new Map([...body.children].map((row) => [row.dataset.seq, row]));
    let before = body.firstChild;
    for (const it of shown) {
      const known = there.get(String(it.seq));
      if (known && known === before) before = before.nextSibling;
      else body.insertBefore(known ?? row(it), before);
    }
    const none = !observing
      ? "Nothing is observed: decisions are not remembered."
      : list.length > 0
        ? "No decision here matches."
        : only.checked
          ? "Nothing was refused lately."
          : "No decision yet.";
    refill(empty, `${shown.length > 0} ${none}`, () => (shown.length > 0 ? null : nothing(none)));
    note();
  }

  function note() {
    const parts = [];
    if (paused) parts.push("paused");
    if (missed > 0) parts.push(`${count(missed)} went by unseen`);
    say($("decisions-note"), parts.join(", ") || (observing ? "refusals, and a sample of what passed" : ""));
  }

  function row(it) {
    const [kind, word] = fate(it);
    const request = h("span", null, h("span", { class: "method" }, visible(it.method)), " ", foreign(it.path));
    const open = h(
      "button",
      {
        class: "link",
        type: "button",
        title: "Explain",
        onclick: () => openExplain(it.id),
        "aria-label": `Explain: ${word}, ${visible(it.method)} ${visible(it.path)}`,
      },
      request,
    );
    const whom = it.limit === null ? "" : [foreign(it.limit, "limit"), it.key === null ? null : [" ", keyOf(it)]];
    const element = h(
      "tr",
      { "data-seq": it.seq, class: it.allowed ? null : "no" },
      h(
        "td",
        { class: "when" },
        h("time", { datetime: it.at, title: `${it.at}, decided in ${micros(it.took_us)}` }, clock(it.at)),
      ),
      h(
        "td",
        { class: "what" },
        h("span", { class: `pill small ${kind}` }, word),
        it.degraded ? h("span", { class: "pill small warn", title: "Decided without the store" }, "degraded") : null,
      ),
      h("th", { scope: "row", class: "wide" }, open),
      h("td", { class: "client" }, it.client === null ? "" : foreign(it.client)),
      h("td", { class: "whom" }, whom),
      h("td", { class: "number wait" }, it.retry_after_ms === null ? "" : duration(it.retry_after_ms)),
    );
    return clickable(element, () => openExplain(it.id));
  }

  return {
    poll,
        /** Resets after a restart of the server. */
    forget() {
      turn += 1;
      [list, next, missed] = [[], null, 0];
      if (!paused) draw();
    },
    filter(text) {
      search.value = text;
      wish = text.trim().toLowerCase();
      draw();
      $("decisions").scrollIntoView({ block: "start" });
      search.focus({ preventScroll: true });
    },
        /** Whether there is anything to load. */
    setObserving(so) {
      if (observing === so) return;
      observing = so;
      draw();
    },
        /** Counts of the latest refusals by fate, since a time in ms: `{fate: count}`. */
    causes(since) {
      const found = {};
      for (const it of list)
        if (!it.allowed && Date.parse(it.at) >= since) found[it.fate] = (found[it.fate] ?? 0) + 1;
      return found;
    },
        /** The id of the latest stored refusal of a key by a limit. The tag identifies the key, because texts may be equal. */
    async latest({ limit, key, tag }) {
      const is = (it) => !it.allowed && it.limit === limit && it.tag === tag && (it.key === null || it.key === key);
      const here = list.find(is);
      if (here) return here.id;
      const told = await get("v1/decisions?refused=true&most=1000");
      return told.decisions.findLast(is)?.id ?? null;
    },
  };
}
