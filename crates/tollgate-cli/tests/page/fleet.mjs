// Two servers on one Redis: the page of one shows both, explains decisions of the other, and shows leases.

import assert from "node:assert/strict";
import { API, check, end, fits, open, says, until } from "./browser.mjs";

const OTHER = `http://${process.env.TOLLGATE_OTHER}`;

async function ask(url, body) {
  const answer = await fetch(url, body === undefined ? {} : { method: "POST", body: JSON.stringify(body) });
  return { status: answer.status, told: await answer.json() };
}

const visit = await open();
const { page } = visit;
await visit.ready();
const fleet = page.locator("#fleet");
await says(fleet, "All 2 nodes");
await says(fleet.getByRole("row", { name: /this node/ }), "now");
await says(fleet.locator("tbody tr:nth-child(3)"), "ago");
await page.getByRole("link", { name: "Fleet" }).waitFor();
await says(page.locator("#foot"), "except those of the fleet");

// The other server refuses, and the sum of both says so.
let last;
for (let at = 0; at < 6; at += 1)
  last = (await ask(`${OTHER}/v1/check`, { path: "/api/v1/login", ip: "203.0.113.9" })).told;
assert.equal(last.allowed, false);
await says(fleet.locator("tbody tr:nth-child(1) .is-bad"), "%");
await says(fleet.locator("tbody tr:nth-child(3) .is-bad"), "%");
assert.equal(await fleet.locator("tbody tr:nth-child(2) .is-bad").count(), 0);

// The page explains a decision of the other server. A question may end before its answer on a busy machine.
await until("an explanation", async () => (await ask(`${API}/v1/decisions/${last.id}`)).status === 200);
await page.locator("#find-id").fill(last.id);
await page.getByRole("button", { name: "Explain" }).click();
await says(page.locator("dialog[open]"), /Decided by the node .+:\d+, which explains it/);
await page.keyboard.press("Escape");

// Leases: a key that is asked for often.
const leases = page.locator("#leases");
const hot = Array.from({ length: 50 }, () => ({ path: "/hot", ip: "203.0.113.9" }));
const timer = setInterval(() => check(hot).catch(() => {}), 100);
await says(leases.getByRole("row", { name: /^everybody/ }).first(), "10 s");
await says(page.locator("#leases-note"), /this node holds [1-9].* units? of 1 key/);
clearInterval(timer);

await page.setViewportSize({ width: 390, height: 844 });
await fits(page, "on a telephone");
await visit.close();
await end();
