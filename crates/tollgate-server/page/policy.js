// The policy file, as parsed.

import { $, foreign, h, nothing, pager, pair, refill, say, visible } from "./dom.js";
import { ago, count, plural } from "./format.js";
import { inWords } from "./limit.js";
import { covers } from "./limits.js";

const SIZE = 12;
let page = 0;
let marked = "";

const PRIVACY = {
  plain: "shown, but for API keys, which are cut short",
  hashed: "shown hashed",
  truncated: "shown cut short",
};
const list = (items, none) =>
  items && items.length > 0
    ? foreign(items.map((it) => (typeof it === "string" ? it : JSON.stringify(it))).join(", "), "mono wrap")
    : h("span", { class: "muted" }, none);
const yes = (it) =>
  it === true
    ? "yes"
    : it === false || it === null
      ? "no"
      : visible(Array.isArray(it) ? it.join(", ") || "none" : typeof it === "object" ? JSON.stringify(it) : it);

/** Redraws only if the policy has changed. */
export function showPolicy(policy, limits, openLimit) {
  say($("policy-note"), `version ${policy.version}, loaded ${ago(policy.loaded_at)}`);
  const mark = `${policy.version} ${limits.length} ${limits.map((it) => it.mode).join()}`;
  if (mark !== marked) {
    marked = mark;
    page = Math.min(page, Math.max(0, Math.ceil(limits.length / SIZE) - 1));
  }
  const { client, identify, headers } = policy;
  refill($("policy-body"), `${mark} ${page}`, () => [
    h(
      "dl",
      { class: "pairs settings" },
      pair(
        "Client address",
        client.trusted_proxies.length > 0
          ? ["from ", foreign(client.header), ", as told by ", list(client.trusted_proxies, "")]
          : "the peer; no proxy is trusted",
      ),
      pair("Counted by", `IPv4 /${client.ipv4_prefix}, IPv6 /${client.ipv6_prefix}`),
      pair("User", list(identify.user, "not identified")),
      pair("API key", list(identify.api_key, "not identified")),
      pair("Tenant", list(identify.tenant, "not identified")),
      pair("Lists", `${plural(policy.allow, "entry", "entries")} allow, ${count(policy.deny)} deny`),
      pair(
        "Headers",
        `x-ratelimit: ${yes(headers.x_ratelimit)}; IETF: ${yes(headers.ietf)}; dialects: ${yes(headers.dialects)}; describe: ${yes(headers.describe)}; jitter of Retry-After: ${yes(headers.retry_after_jitter || false)}`,
      ),
      pair("Keys", PRIVACY[policy.privacy] ?? visible(policy.privacy)),
      pair("Most keys", count(policy.max_keys)),
    ),
    limits.length === 0
      ? nothing("It has no limits: every request passes.")
      : h(
          "ol",
          { class: "sentences", start: String(page * SIZE + 1) },
          limits
            .slice(page * SIZE, (page + 1) * SIZE)
            .map((it) =>
              h(
                "li",
                null,
                h(
                  "p",
                  null,
                  h(
                    "button",
                    { class: "link strong", type: "button", onclick: () => openLimit(it.name) },
                    visible(it.name),
                  ),
                  " ",
                  h("span", { class: "mode", "data-mode": it.mode }, it.mode),
                  " ",
                  foreign(covers(it), "mono wrap"),
                ),
                h("p", { class: "muted" }, visible(inWords(it).join(" "))),
              ),
            ),
        ),
    pager(page, SIZE, limits.length, (to) => {
      page = to;
      showPolicy(policy, limits, openLimit);
      $("policy-body").querySelector(".pager button:not([disabled])")?.focus();
    }),
  ]);
}
