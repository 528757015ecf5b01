// What happens on the server is told as it comes: a key at zero, a file with a mistake, another policy.

import assert from "node:assert/strict";
import { end, open, order, says, traffic, until } from "./browser.mjs";

const stop = traffic("/api/v1/search", { "x-user-id": "acme" });
const visit = await open();
const { page } = visit;
await visit.ready();
await says(page.locator("#alerts"), /acme search, since \d\d:\d\d:\d\d .* refused/);
await says(page.locator("#alerts"), "1 key, for 1 s or longer");
await says(page.locator("#pills"), "1 key at zero");
await page.locator("#alerts").getByRole("button", { name: "acme" }).click();
await says(page.locator("dialog.drawer"), /Refused by `search`/);
await page.keyboard.press("Escape");

await order("spoil");
await says(page.locator("#pills"), "Policy file is broken");
await says(page.locator("#notices"), /The old policy stays in force\..*did you mean `minute`\?/s);
await says(page.locator("#facts"), "policy 1");

await order("amend");
await says(page.locator("#facts"), "policy 2");
await until(
  "the new limit alone",
  async () => (await page.locator("table.limits .name").allTextContents()).join() === "afresh",
);
await says(page.locator("#policy"), /afresh.*9 per minute/);
assert.equal(await page.locator("#notices .bad").count(), 0);
stop();
await visit.close();
await end();
