// The same with keys alone.

import assert from "node:assert/strict";
import { end, named, open, says, send, until } from "./browser.mjs";

const acme = { "x-user-id": "acme" };
await until("a refusal", async () => (await send("/api/v1/search", acme)).status === 429);
const visit = await open();
const { page } = visit;
await visit.ready();
await says(page.locator("#top-body"), "acme");
const press = (key) => page.keyboard.press(key);
const focused = () =>
  page.evaluate(() => {
    const it = document.activeElement;
    const style = getComputedStyle(it.closest(".choice") ?? it);
    const { top, bottom } = it.getBoundingClientRect();
    return {
      name: (it.getAttribute("aria-label") ?? it.labels?.[0]?.textContent ?? it.textContent).trim(),
      id: it.id,
      seen: style.outlineStyle !== "none" && style.outlineWidth !== "0px",
      inside: bottom > 0 && top < innerHeight,
    };
  });

/** Goes on with Tab until something of that name has the focus; all that it passes shows its focus. */
async function tabTo(name) {
  for (let i = 0; i < 120; i += 1) {
    await press("Tab");
    const now = await focused();
    if (now.name === "") continue;
    assert.ok(now.seen && now.inside, `the focus cannot be seen: ${JSON.stringify(now)}`);
    if (typeof name === "string" ? now.name === name : name.test(now.name)) return now;
  }
  return assert.fail(`Tab never comes to ${name}`);
}

// The first thing is the way past the head.
await press("Tab");
assert.equal((await focused()).name, "Skip to the data");
await press("Enter");
await until("main has the focus", async () => (await focused()).id === "main");

// The chart is read with arrows.
await tabTo(/Traffic of the last five minutes/);
for (const key of ["Home", "ArrowRight", "End", "ArrowLeft", "ArrowLeft"]) await press(key);
await says(page.locator(".readout"), /\d\d:\d\d:\d\d: .* allowed/);
assert.match(await page.getByRole("slider").getAttribute("aria-valuetext"), /allowed/);
assert.equal(await page.getByRole("slider").getAttribute("aria-valuenow"), "297");
await press("Escape");

// A limit is opened and closed, and the focus is back where it was.
await tabTo("Search limits");
await tabTo("search");
await press("Enter");
await says(page.locator("dialog.drawer"), "Least that any key had left");
await tabTo("Close");
await press("Escape");
await page.locator("dialog").waitFor({ state: "detached" });
assert.equal((await focused()).name, "search");

// Its switch: chosen with arrows, reasoned, confirmed.
await tabTo(/^enforce: change the mode of search$/);
await press("Enter");
const box = page.locator("dialog.box");
await says(box, "Mode of search");
await press("ArrowUp");
await press("ArrowUp");
await says(box, "Requests that `search` would refuse will pass.");
await press("Tab");
await page.keyboard.type("by hand");
await press("Tab");
await page.keyboard.type("bo");
await tabTo("Switch to shadow");
await press("Enter");
await box.waitFor({ state: "detached" });
assert.equal((await send("/api/v1/search", acme)).status, 200);
await says(page.locator("#changes"), /search as the file → shadow.*by hand.*bo/);
await says(page.locator("#announce"), /search|switched/);

// A refused key, explained.
await tabTo("acme");
await press("Enter");
await says(page.locator("dialog.drawer"), "Why was this decided?");
await says(page.locator("dialog.drawer"), /Refused by `search`/);
await press("Escape");
await page.locator("dialog").waitFor({ state: "detached" });
assert.equal((await focused()).name, "acme");

// And on through decisions and policy to the end.
await tabTo("Filter decisions");
await tabTo("Pause");
await press("Space");
await page.getByRole("button", { name: "Go on" }).waitFor();

// Every part has a name, and there is one of each landmark.
for (const role of ["banner", "main", "contentinfo", "search"])
  assert.equal(await page.getByRole(role).count(), 1, role);
assert.equal(await page.locator("section:not([aria-labelledby])").count(), 0);
await named(page.locator("button, input, select, textarea, [role=img]"));
await visit.close();
await end();
