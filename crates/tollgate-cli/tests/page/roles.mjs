// Tokens: asked for, wrong, for reading, for everything; kept in the tab and given up.

import assert from "node:assert/strict";
import { API, end, open, says, until } from "./browser.mjs";

// One question finds out that a token is needed, and a link opens nothing before there is one.
const linked = await open({ noise: /status of 401/, hash: "#explain/0123456789abcdef" });
await says(linked.page.locator("dialog.box"), "This server asks for a token");
const refused = await linked.page.evaluate(() =>
  performance
    .getEntriesByType("resource")
    .filter((it) => it.responseStatus === 401)
    .map((it) => new URL(it.name).pathname),
);
assert.deepEqual(refused, ["/v1/overview"]);
assert.equal(await linked.page.locator("dialog.drawer").count(), 0);
await linked.close();

const visit = await open({ noise: /status of 401/ });
const { page } = visit;
const box = page.locator("dialog.box");
await says(box, "This server asks for a token");
await page.keyboard.press("Escape");
await says(box, "This server asks for a token");
const enter = async (token) => {
  await box.getByLabel("Token").fill(token);
  await page.keyboard.press("Enter");
};
await enter("guessed");
await says(box, "This token is not accepted.");

await enter("token-for-reading-only");
await visit.ready();
await box.waitFor({ state: "detached" });
await says(page.locator("#facts"), /reader/);
await says(page.locator("#everything"), "Signed in as a reader: switches need the admin token.");
const mode = page.getByRole("button", { name: "enforce: change the mode of search" });
await mode.waitFor();
await until(
  "switches are off",
  async () => (await mode.isDisabled()) && (await page.locator("#switch-everything").isDisabled()),
);
await page.getByRole("button", { name: "search", exact: true }).first().click();
await says(page.locator("dialog.drawer"), "Switching needs the admin token.");
await page.keyboard.press("Escape");
await page.getByRole("button", { name: "What if …" }).click();
await page.getByLabel("Path").fill("/api/v1/search");
await page.getByRole("button", { name: "Ask" }).click();
await says(page.locator("dialog.drawer"), "would be passed");
await page.keyboard.press("Escape");
await until("nothing is open", () => new URL(page.url()).hash === "");

await page.getByRole("button", { name: "Lab", exact: true }).click();
await says(page.locator("dialog.drawer .lead"), "twice the limit");
await page.keyboard.press("Escape");
await until("nothing is open", () => new URL(page.url()).hash === "");

// A reload keeps the token, another tab does not have it.
await page.reload();
await visit.ready();
assert.ok(!page.url().includes("token"));
const other = await open({ noise: /status of 401/ });
await says(other.page.locator("dialog.box"), "This server asks for a token");
await other.close();

await page.getByRole("button", { name: "Sign out" }).click();
await says(box, "This server asks for a token");
assert.equal(await page.evaluate(() => sessionStorage.length), 0);
assert.equal(await page.locator("table.limits tbody tr").count(), 0);

await enter("token-for-everything");
await visit.ready();
await says(page.locator("#facts"), /admin/);
await mode.click();
await box.getByLabel("Off").check();
await box.getByRole("button", { name: "Switch to off" }).click();
await says(page.locator("#changes"), /search as the file → off.*admin/);

// A reader that asks all the same is refused by the server.
const answer = await fetch(`${API}/v1/mode`, {
  method: "PUT",
  headers: { "content-type": "application/json", authorization: "Bearer token-for-reading-only" },
  body: JSON.stringify({ mode: "off" }),
});
assert.equal(answer.status, 403);
await visit.close();
await end();
