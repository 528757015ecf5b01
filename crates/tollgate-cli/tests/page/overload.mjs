// The panel about overload: the shedder of the node, learned limits and queues, while the policy has them.

import assert from "node:assert/strict";
import { GATEWAY, end, open, order, says } from "./browser.mjs";

// The queue starts ten a second, so that most of these wait.
const answers = await Promise.all(Array.from({ length: 6 }, () => fetch(`${GATEWAY}/reports/daily`)));
assert.deepEqual(new Set(answers.map((it) => it.status)), new Set([200]));

const visit = await open();
const { page } = visit;
await visit.ready();
const panel = page.locator("#overload");
await says(panel, "nothing shed");
await says(panel, "In flight");
await says(panel, "bulk");
await says(panel.getByRole("row", { name: /^upstream/ }), "of");
await says(panel.getByRole("row", { name: /^reports/ }), "ms");
await page.getByRole("link", { name: "Overload" }).waitFor();

await order("amend");
await panel.waitFor({ state: "hidden" });
assert.equal(await page.getByRole("link", { name: "Overload" }).count(), 0);
await visit.close();
await end();
