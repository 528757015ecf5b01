// `observe: off`: nothing is claimed that nobody knows, nothing is asked that nobody answers, switches work.

import assert from "node:assert/strict";
import { API, end, open, says } from "./browser.mjs";

const visit = await open();
const { page } = visit;
const asked = [];
page.on("request", (it) => asked.push(new URL(it.url()).pathname));
await visit.ready();
await says(page.locator("#pills"), "Nothing is observed");
await says(page.locator("#verdict"), "Nothing is observed: the file says `observe: off`.");
assert.equal(await page.locator("#pills .ok").count(), 0, "nobody knows whether all is well");
for (const panel of ["#alerts", "#top-body", "#routes-body", "#decisions"])
  await says(page.locator(panel), "Nothing is observed");

// Somebody else switches a limit.
const answer = await fetch(`${API}/v1/limits/login/mode`, {
  method: "PUT",
  headers: { "content-type": "application/json" },
  body: JSON.stringify({ mode: "shadow" }),
});
assert.equal(answer.status, 200);
const mode = page.getByRole("button", { name: "shadow: change the mode of login" });
await mode.waitFor();
await mode.click();
await page.locator("dialog.box").getByLabel("Off").check();
await page.getByRole("button", { name: "Switch to off" }).click();
await page.getByRole("button", { name: "off: change the mode of login" }).waitFor();
await page.getByRole("button", { name: "login", exact: true }).first().click();
await says(page.locator("dialog.drawer"), "how this limit is doing is not known");
await says(page.locator("dialog.drawer"), "3 per minute");
await page.keyboard.press("Escape");
await page.getByRole("button", { name: "What if …" }).click();
await says(page.locator("#notices"), "no decision can be explained");

await page.waitForResponse((it) => it.url().endsWith("/v1/overview"));
await page.waitForResponse((it) => it.url().endsWith("/v1/overview"));
assert.equal(await page.locator("#fresh").getAttribute("data-state"), "live");
const idle = asked.filter((it) => /stats|top|decisions/.test(it) && it.startsWith("/v1/"));
assert.deepEqual(idle, []);
await visit.close();
await end();
