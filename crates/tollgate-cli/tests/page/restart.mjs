// The server goes away and comes back: the page says so, and goes on by itself.

import assert from "node:assert/strict";
import { end, open, order, says, send, until } from "./browser.mjs";

const acme = { "x-user-id": "acme" };
await until("a refusal", async () => (await send("/api/v1/search", acme)).status === 429);
const visit = await open({
  noise: /ERR_CONNECTION_REFUSED|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE|ERR_SOCKET_NOT_CONNECTED/,
});
const { page } = visit;
await visit.ready();
await says(page.locator("#top-body"), "acme");
await page.getByRole("button", { name: "enforce: change the mode of login" }).click();
await page.getByLabel("Off").check();
await page.getByRole("button", { name: "Switch to off" }).click();
await says(page.locator("#changes"), /login as the file → off/);
await page.evaluate(() => (window.sameAsBefore = true));

await order("stop");
await says(page.locator("#fresh"), /reconnecting, last data/);
await says(page.locator("#announce"), "The connection is lost.");
await order("start");
await page.locator('#fresh[data-state="live"]').waitFor();
await says(page.locator("#notices"), "The server restarted");
await says(page.locator("#verdict"), "No requests.");
await says(page.locator("#top-body"), "No key was refused");
await says(page.locator("#decisions"), "No decision yet.");
// The switch and its story were kept.
await page.getByRole("button", { name: "off: change the mode of login" }).waitFor();
await says(page.locator("#changes"), /login as the file → off/);

// New numbers are counted from nothing.
await until("a refusal", async () => (await send("/api/v1/search", acme)).status === 429);
await says(page.locator("#pills"), /Refusing/);
await says(page.locator("#top-body"), "acme");
await says(page.locator("#decisions"), "/api/v1/search");
assert.equal(await page.evaluate(() => window.sameAsBefore), true, "it was not loaded again");
await visit.close();
await end();
