// Keys that are shown alike: a click explains the right one, and what is shown tells them apart.

import assert from "node:assert/strict";
import { check, end, open, says, until } from "./browser.mjs";

const asked = (api_key, path, times) => Array.from({ length: times }, () => ({ path, api_key }));
await check(asked("sk-live-first-customer", "/first", 8));
const visit = await open();
const { page } = visit;
await visit.ready();
const rows = page.locator("#top-body tbody tr");
await until("one key", async () => (await rows.count()) === 1);
assert.equal(await rows.locator(".tag").count(), 1, "what is shortened has its tag");

// The other customer is refused more often, and later.
await check(asked("sk-live-second-customer", "/second", 12));
await until("two keys", async () => (await rows.count()) === 2);
const [second, first] = await rows.locator("th button").allTextContents();
assert.match(first, /^sk-l… #[0-9a-f]{8}$/);
assert.match(second, /^sk-l… #[0-9a-f]{8}$/);
assert.notEqual(first, second);

const drawer = page.locator("dialog.drawer");
for (const [name, path] of [
  [first, "GET /first"],
  [second, "GET /second"],
]) {
  await page.locator("#top-body").getByRole("button", { name, exact: true }).click();
  await says(drawer, path);
  await says(drawer.locator("article"), name);
  await page.keyboard.press("Escape");
  await drawer.waitFor({ state: "detached" });
}
const stream = page.locator("table.stream tbody tr").filter({ hasText: "/first" }).first();
await says(stream, first);

// Whose numbers they are.
await page.getByRole("button", { name: "What if …" }).click();
await drawer.getByLabel("Path").fill("/first");
await drawer.getByLabel("API key").fill("sk-live-third-customer");
await drawer.getByLabel("Plan").fill("pro");
await drawer.getByRole("button", { name: "Ask" }).click();
await says(drawer, "by plan `pro`");
await page.keyboard.press("Escape");
await visit.close();
await end();
