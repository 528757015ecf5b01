// The deny list refuses whatever is switched: the page says that it is us, and why.

import assert from "node:assert/strict";
import { check, end, open, says } from "./browser.mjs";

const visit = await open();
const { page } = visit;
await visit.ready();
const box = page.locator("dialog.box");
await page.locator("#switch-everything").click();
await box.getByLabel("Off").check();
await says(box, "The deny list is no limit and stays in force (1 entry): whoever is on it is refused all the same.");
await box.getByRole("button", { name: "Switch to off" }).click();
await says(page.locator("#verdict"), "Everything is switched off: nothing is limited.");
await says(page.locator("#notices"), "no limit is checked. The deny list stays in force.");
await says(page.locator("#everything"), "The deny list stays in force.");

const timer = setInterval(() => check([{ path: "/", ip: "192.0.2.66" }]).catch(() => {}), 100);
await says(page.locator("#verdict"), /^100 % of requests are refused, since .*, by the deny list\.$/);
await says(page.locator("#verdict-more"), "Everything is off, but lists and blocks stay in force.");
await says(page.locator("#pills"), "Refusing 100 %");
clearInterval(timer);
assert.equal(await page.locator("#pills .ok").count(), 0);
await visit.close();
await end();
