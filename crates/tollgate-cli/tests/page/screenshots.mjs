// Photographs of the page after some minutes of traffic, into the folder that TOLLGATE_SCREENSHOTS names.

import assert from "node:assert/strict";
import path from "node:path";
import { end, open, order, says, send, until } from "./browser.mjs";

const folder = process.env.TOLLGATE_SCREENSHOTS;
assert.ok(folder, "TOLLGATE_SCREENSHOTS names no folder");
const MINUTES = Number(process.env.TOLLGATE_SCREENSHOT_MINUTES ?? 5);

// A customer's job gets louder, and the limit holds it. Waves, so that the picture has a shape.
const begun = Date.now();
const tenants = ["acme", "globex", "initech", "hooli", "umbrella"];
let count = 0;
let stopped = false;
async function caller(number) {
  while (!stopped) {
    const minute = (Date.now() - begun) / 60_000;
    const wave = 1 + 0.5 * Math.sin(minute * 2.6 + number);
    const tenant =
      minute > MINUTES * 0.45 && number % 3 === 0 ? "acme" : tenants[(number * 7 + count) % tenants.length];
    const user = { "x-tenant-id": tenant, "x-user-id": `${tenant}-${number % 4}` };
    count += 1;
    const kind = count % 20;
    const sent =
      kind < 12
        ? send("/api/v1/search", user)
        : kind < 16
          ? send("/api/v1/posts", user)
          : kind < 18
            ? send("/api/v1/exports", user)
            : kind < 19
              ? send(`/files/${count % 9}.png`, user, "PUT")
              : send("/api/v1/login", user, "POST");
    await sent.catch(() => {});
    await new Promise((done) => setTimeout(done, 90 / wave));
  }
}
const callers = Array.from({ length: 9 }, (_, number) => caller(number));
const sleep = (share) => new Promise((done) => setTimeout(done, share * MINUTES * 60_000));
await sleep(0.25);
await order("break");
await sleep(0.08);
await order("mend");
await sleep(0.67);

const photograph = async (page, name) => {
  await page.mouse.move(0, 0);
  await page.screenshot({ path: path.join(folder, `${name}.png`) });
  console.log(name);
};
const settle = async (visit) => {
  await visit.ready();
  await says(visit.page.locator("#top-body"), "acme");
  await until("sparklines", async () => (await visit.page.locator("table.limits svg.spark").count()) > 8);
};

const light = await open({ height: 1000 });
await settle(light);
const { page } = light;
await photograph(page, "dashboard-light");
await page.locator("#keys").scrollIntoViewIfNeeded();
await page.locator("#keys").evaluate((it) => it.scrollIntoView());
await photograph(page, "dashboard-keys");
await page.evaluate(() => scrollTo(0, 0));
await page.locator("#top-body").getByRole("button", { name: "acme" }).first().click();
await says(page.locator("dialog.drawer"), "For the customer");
await photograph(page, "dashboard-explain");
await page.keyboard.press("Escape");
await page
  .locator("table.limits")
  .getByRole("button", { name: "enforce: change the mode of search", exact: true })
  .click();
await page.locator("dialog.box").getByLabel("Shadow").check();
await photograph(page, "dashboard-switch");
await page.keyboard.press("Escape");
await light.close();

const dark = await open({ scheme: "dark", height: 1000 });
await settle(dark);
await photograph(dark.page, "dashboard-dark");
await dark.page.locator("table.limits").getByRole("button", { name: "search.candidate", exact: true }).click();
await says(dark.page.locator("dialog.drawer"), "Agreement with the live limit");
await photograph(dark.page, "dashboard-limit");
await dark.close();

const narrow = await open({ width: 360, height: 780, scheme: "dark" });
await settle(narrow);
await photograph(narrow.page, "dashboard-narrow");
await narrow.close();
stopped = true;
await Promise.all(callers);
await end();
