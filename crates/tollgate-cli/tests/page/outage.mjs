// The store goes away and comes back.

import { end, open, order, says, traffic } from "./browser.mjs";

const stop = traffic("/api/v1/search", { "x-user-id": "acme" });
const visit = await open();
const { page } = visit;
await visit.ready();
await says(page.locator("#store"), /redis:.*closed/);
await says(page.locator("#store-state"), "ok");

await order("break");
await says(page.locator("#pills"), "Store degraded");
await says(page.locator("#store"), /Degradedsince \d\d:\d\d:\d\d/);
await says(page.locator("#store"), /Breaker(open|half-open)/);
await says(page.locator("#outages"), /–now/);
await says(page.locator("#verdict-more"), "The store gives no answers");
await says(page.locator("#announce"), "Store degraded");

await order("mend");
await says(page.locator("#store-state"), "ok");
await says(page.locator("#store"), /Breakerclosed/);
await says(page.locator("#outages"), /\d\d:\d\d:\d\d–\d\d:\d\d:\d\d/);
await page.locator("#pills").filter({ hasNotText: "Store degraded" }).waitFor();
stop();
await visit.close();
await end();
