// A thousand limits, ten thousand keys: right, and no more on the page than a screen needs.

import assert from "node:assert/strict";
import { API, check, end, fits, open, says, until } from "./browser.mjs";

const KEYS = 10_000;
const batch = (from) =>
  check(Array.from({ length: 1000 }, (_, i) => ({ path: `/limit-${(from + i) % 1000}`, user: `user-${from + i}` })));
for (let from = 0; from < KEYS; from += 1000) await batch(from);
// The first thousand come again, and are refused.
await batch(0);
const loud = await check(Array.from({ length: 400 }, () => ({ path: "/limit-777", user: "the-loud-one" })));
const refused = loud.filter((it) => !it.allowed).length;
assert.equal(refused, 399);

const visit = await open();
const { page } = visit;
console.log(`first data with 1,000 limits after ${await visit.ready()} ms`);
await says(page.locator("#limits-count"), "1,000 limits");
const names = () => page.locator("table.limits .name").allTextContents();
await until("the worst limit is first", async () => (await names())[0] === "limit-777");
assert.equal((await names()).length, 25);
await says(page.locator("table.limits tbody tr").first(), /400/); // and one of user-777
await until("sparklines of what is shown", async () => (await page.locator("table.limits svg.spark").count()) === 50);

// The numbers are the server's own.
const overview = await (await fetch(`${API}/v1/overview`)).json();
assert.ok(overview.store.keys >= KEYS, `${overview.store.keys} keys`);
await says(page.locator("#store"), new RegExp(`Keys${overview.store.keys.toLocaleString("en")}`));
await says(page.locator("#top-body tbody tr").first(), "the-loud-one");
const top = await page.locator("#top-body tbody tr").first().locator("td.number").first().textContent();
assert.ok(Math.abs(Number(top) - refused) <= 20, `${top} of ${refused}`);

// Searching and leafing are quick.
const start = performance.now();
await page.getByLabel("Search limits").fill("limit-99");
await until("found", async () => (await names()).length === 11);
await page.getByLabel("Search limits").fill("");
await page.locator("#limits").getByRole("button", { name: "Next" }).click();
await says(page.locator("#limits .pager"), "26–50 of 1,000");
await until("another page", async () => (await names()).length === 25 && !(await names()).includes("limit-777"));
await page.getByRole("button", { name: "Limit", exact: true }).click();
await until("sorted", async () => (await names())[0] === "limit-0" && (await names())[1] === "limit-1");
console.log(`searched, leafed and sorted in ${Math.round(performance.now() - start)} ms`);
await page.locator("#policy").getByRole("button", { name: "Next" }).click();
await says(page.locator("#policy"), "limit-12");
const nodes = await page.evaluate(() => document.querySelectorAll("*").length);
assert.ok(nodes < 4000, `${nodes} elements`);
console.log(`${nodes} elements`);
await page.setViewportSize({ width: 360, height: 800 });
await fits(page, "360 px");
await visit.close();
await end();
