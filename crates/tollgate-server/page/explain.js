// Explanations: a decision with its arithmetic, or a hypothetical request.

import { get, post } from "./api.js";
import { field, openDialog } from "./dialog.js";
import { fate } from "./decisions.js";
import { foreign, h, keyOf, pair, visible } from "./dom.js";
import { ago, clock, count, duration, micros } from "./format.js";

/** Opens the drawer for an id; `closed` is called when it closes. */
export function openExplain(id, closed) {
  const { body, heading } = openDialog("drawer", "Why was this decided?", { closed });
  const place = h("div", { "aria-live": "polite" }, h("p", { class: "muted" }, "Looking it up …"));
  body.append(place);
  heading.focus();
  get(`v1/decisions/${encodeURIComponent(id)}`).then(
    (told) => place.replaceChildren(...explanation(told)),
    (error) => {
      const head = error.status === 404 ? "Nobody remembers this decision." : "It cannot be looked up.";
      place.replaceChildren(
        h("p", { class: "lead" }, head),
        h("p", null, "Asked for ", foreign(id), "."),
        h("p", { class: "notice" }, visible(error.message)),
      );
    },
  );
}

const FIELDS = [
  ["method", "Method", "GET"],
  ["path", "Path", "/api/v1/search"],
  ["ip", "Client address", "203.0.113.9"],
  ["user", "User", ""],
  ["api_key", "API key", ""],
  ["tenant", "Tenant", ""],
  ["plan", "Plan", ""],
  ["host", "Host", ""],
  ["cost", "Cost", ""],
];

/** The typed request, kept while the page is open. */
const typed = { method: "GET" };

/** Opens the drawer for a hypothetical request. Nothing is charged. */
export function openWhatIf(closed) {
  const { body } = openDialog("drawer", "What if this request came now?", { closed });
  const inputs = FIELDS.map(([name, , hint]) =>
    h("input", {
      name,
      type: "text",
      autocomplete: "off",
      spellcheck: "false",
      placeholder: hint,
      required: name === "path",
      inputmode: name === "cost" ? "numeric" : null,
    }),
  );
  const headers = h("textarea", { name: "headers", rows: "3", spellcheck: "false", placeholder: "x-plan: gold" });
  for (const it of [...inputs, headers]) it.value = typed[it.name] ?? "";
  const place = h("div", { "aria-live": "polite" });
  const form = h(
    "form",
    { class: "what-if" },
    h(
      "div",
      { class: "fields" },
      FIELDS.map(([, label], at) => field(label, inputs[at])),
    ),
    field("Headers, one on each line", headers),
    h(
      "div",
      { class: "actions" },
      h("span", { class: "muted" }, "Nothing is charged."),
      h("button", { class: "button strong" }, "Ask"),
    ),
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    for (const it of [...inputs, headers]) typed[it.name] = it.value;
    try {
      place.replaceChildren(...explanation(await post("v1/explain", request(typed))));
    } catch (error) {
      place.replaceChildren(h("p", { class: "notice bad" }, visible(error.message)));
    }
  });
  body.append(form, place);
  inputs[1].focus();
}

/** The body for the API, with only the filled fields. */
function request(from) {
  const body = {};
  for (const [name] of FIELDS) {
    const value = (from[name] ?? "").trim();
    if (value !== "") body[name] = name === "cost" && /^\d+$/.test(value) ? Number(value) : value;
  }
  const lines = (from.headers ?? "")
    .split("\n")
    .map((it) => it.split(/:(.*)/s))
    .filter(([name]) => name.trim() !== "");
  if (lines.length > 0)
    body.headers = Object.fromEntries(lines.map(([name, value = ""]) => [name.trim().toLowerCase(), value.trim()]));
  return body;
}

/** A decision with all details. */
function explanation(told) {
  const [kind, word] = fate(told);
  const { request: asked } = told;
  const what = `${asked.method} ${asked.path}`.trim();
  const notes = [];
  if (!told.policy_is_current) notes.push(`Policy ${told.policy_version} decided; another one is in force now.`);
  if (told.node) notes.push(`Decided by the node ${visible(told.node)}, which explains it.`);
  if (told.degraded) notes.push("The store gave no answer: this was decided by what each limit says for that case.");
  return [
    h(
      "p",
      { class: "lead" },
      h("span", { class: `pill ${kind}` }, told.hypothetical ? `would be ${word}` : word),
      " ",
      h("bdi", { class: "foreign wrap" }, visible(told.summary)),
    ),
    told.reason && told.reason !== told.summary
      ? h("p", null, h("bdi", { class: "foreign wrap" }, visible(told.reason)))
      : null,
    notes.map((it) => h("p", { class: "notice" }, it)),
    h(
      "dl",
      { class: "pairs" },
      pair("Request", foreign(what, "mono wrap"), asked.host ? [" on ", foreign(asked.host, "mono wrap")] : null),
      asked.client ? pair("Client", foreign(asked.client)) : null,
      told.priority ? pair("Priority", foreign(told.priority, "mono")) : null,
      told.at
        ? pair(
            told.hypothetical ? "Asked" : "Decided",
            h(
              "time",
              { datetime: told.at, title: told.at },
              told.hypothetical ? clock(told.at) : `${clock(told.at)}, ${ago(told.at)}`,
            ),
            told.took_us === null || told.took_us === undefined ? null : ` in ${micros(told.took_us)}`,
          )
        : null,
      told.retry_after_ms ? pair("Passes again", `${duration(told.retry_after_ms)} after that`) : null,
      pair("Policy", String(told.policy_version)),
      told.id ? pair("Id", foreign(told.id)) : null,
      told.trace_id ? pair("Trace", foreign(told.trace_id)) : null,
    ),
    told.limits.length > 0
      ? h("h3", null, told.limits.length === 1 ? "The limit" : "The limits")
      : h("p", { class: "muted" }, "No limit was counted."),
    told.limits.map(counted),
    told.hypothetical ? null : forTheCustomer(told),
  ]
    .flat(Infinity)
    .filter(Boolean);
}

/** The source of the quota, if it is not the limit itself. */
function grantedBy({ granted_by: by }) {
  if (!by) return "";
  if (by === "call") return ", as the call said";
  if (by.startsWith("priority ")) return [" for priority `", foreign(by.slice("priority ".length), ""), "`"];
  const plan = by.startsWith("plan ") ? by.slice("plan ".length) : null;
  return plan === null ? ` by an ${visible(by)}` : [" by plan `", foreign(plan, ""), "`"];
}

function counted(it) {
  const mode = it.candidate ? "candidate" : it.mode === "enforce" ? null : it.mode;
  const left = it.limit > 0 ? Math.min(1, Math.max(0, it.remaining / it.limit)) : 0;
  const fill = h("span", { class: it.allowed ? "fill" : "fill is-refused" });
  fill.style.inlineSize = `${(left * 100).toFixed(1)}%`;
  return h(
    "article",
    { class: it.decided ? "counted decided" : "counted" },
    h(
      "h4",
      null,
      foreign(it.name, ""),
      it.window ? h("span", { class: "muted" }, ` ${visible(it.window)}`) : null,
      " ",
      h(
        "span",
        { class: `pill small ${it.allowed ? "ok" : mode ? "note" : "bad"}` },
        it.allowed ? "had room" : mode ? "would refuse" : "no room",
      ),
      mode ? h("span", { class: "badge" }, mode) : null,
      it.decided ? h("span", { class: "badge" }, "decided") : null,
    ),
    h(
      "p",
      { class: "muted" },
      visible(it.quota),
      grantedBy(it),
      ", for ",
      it.key ? keyOf(it, "mono wrap") : "everybody",
      it.cost === 1 ? "" : `, at a cost of ${count(it.cost)}`,
    ),
    h(
      "span",
      { class: "meter wide", role: "img", "aria-label": `${count(it.remaining)} of ${count(it.limit)} left` },
      fill,
    ),
    h(
      "ol",
      { class: "arithmetic" },
      it.arithmetic.map((step) => h("li", null, h("bdi", { class: "foreign wrap" }, visible(step)))),
    ),
    it.spenders.length === 0
      ? null
      : [
          h("h5", null, "Who spent from it lately"),
          h(
            "ul",
            { class: "plain spenders" },
            it.spenders.map((by) =>
              h(
                "li",
                null,
                h("span", { class: "units" }, count(by.units)),
                " ",
                by.client ? foreign(by.client) : "unknown",
                h("span", { class: "method" }, ` ${visible(by.method)} `),
                foreign(by.path),
                h("span", { class: "muted" }, ` ${ago(by.last_at)}`),
              ),
            ),
          ),
        ],
  );
}

/** A text for the customer: the request, the limit and the arithmetic, without data of other callers. */
function customerText(told) {
  const { request: asked } = told;
  const decider = told.limits.find((it) => it.decided) ?? null;
  const lines = [
    `Your request ${visible(`${asked.method} ${asked.path}`)} of ${new Date(told.at).toISOString().replace("T", " ").replace("Z", " UTC")} ${told.allowed ? "was admitted" : "was refused"}.`,
    visible(told.summary),
  ];
  if (decider) {
    lines.push(
      "",
      `Limit: ${visible(decider.name)}, ${visible(decider.quota)}${decider.granted_by ? ` (${visible(decider.granted_by)})` : ""}`,
      ...decider.arithmetic.map((it) => `- ${visible(it)}`),
    );
  }
  if (told.retry_after_ms)
    lines.push(
      "",
      `It would have passed ${duration(told.retry_after_ms)} later. The Retry-After header of the answer said so.`,
    );
  if (told.id) lines.push(`Decision: ${visible(told.id)}`);
  return lines.join("\n");
}

function forTheCustomer(told) {
  const text = h("textarea", { rows: "9", readonly: true, spellcheck: "false" });
  text.value = customerText(told);
  const said = h("span", { class: "muted", role: "status" });
  const copy = async () => {
    text.select();
    try {
      // Not available on plain HTTP except on loopback; uses the old API instead.
      if (navigator.clipboard) await navigator.clipboard.writeText(text.value);
      else if (!document.execCommand("copy")) throw new Error("no");
      said.textContent = "Copied.";
    } catch {
      said.textContent = "Press Ctrl+C to copy.";
    }
  };
  return [
    h("h3", null, "For the customer"),
    field("Text without anybody else’s data", text),
    h("div", { class: "actions" }, said, h("button", { class: "button", type: "button", onclick: copy }, "Copy")),
  ];
}
