// The Lab: what is chosen is worked out, drawn, told in words and kept in the address.

import assert from "node:assert/strict";
import { API, end, fits, named, open, says, until } from "./browser.mjs";

const visit = await open({ noise: /status of 422/ });
const { page } = visit;
await visit.ready();
const lab = page.locator("dialog.drawer");
const hash = () => decodeURIComponent(new URL(page.url()).hash);

// Bare, it shows why a fixed window lets twice its limit through.
await page.getByRole("button", { name: "Lab", exact: true }).click();
await says(lab, "Lab: algorithms side by side");
await says(lab.locator(".lead"), "fixed-window let 20 through where 10 may pass: twice the limit.");
assert.equal(hash(), "#lab");
const row = (name) => lab.locator("table tbody tr").filter({ has: page.getByRole("rowheader", { name, exact: true }) });
await says(row("fixed-window"), "20 (2.0 ×)");
await says(row("sliding-log"), "10 (1.0 ×)");
assert.equal(await lab.locator(".lab-picture path").count(), 7);
assert.equal(await lab.locator("line.level").count(), 1);

// The picture is read with arrows.
const slider = lab.getByRole("slider");
await slider.focus();
for (const key of ["Home", "ArrowRight", "End"]) await page.keyboard.press(key);
assert.equal(await slider.getAttribute("aria-valuenow"), "239");
assert.match(await slider.getAttribute("aria-valuetext"), /^10 min: fixed-window \d+, sliding-window/);
await page.keyboard.press("Escape");
assert.ok(await lab.isVisible(), "the first Escape leaves the picture, not the Lab");

// Fewer algorithms, another shape: the address says so, and the numbers are those of the API.
await lab.getByLabel("gcra").uncheck();
await lab.getByLabel("token-bucket").uncheck();
await lab.getByLabel("Traffic").selectOption("retry-storm");
await lab.getByLabel("with jitter").uncheck();
await lab.getByLabel("Rate").fill("100/minute");
await until("the address holds it all", () =>
  /^#lab\/traffic=retry-storm&rate=100\/minute&jitter=false&algorithms=fixed-window,sliding-window/.test(hash()),
);
await says(lab.locator("thead"), "Wasted retries");
const answer = await fetch(`${API}/v1/lab/simulate`, {
  method: "POST",
  headers: { "content-type": "application/json" },
  body: JSON.stringify({ traffic: "retry-storm", rate: "100/minute", jitter: false, algorithms: ["fixed-window"] }),
});
const [fixed] = (await answer.json()).algorithms;
const shown = (n) => n.toLocaleString("en");
await says(row("fixed-window"), [fixed.offered, fixed.admitted, fixed.refused].map(shown).join(""));
await says(lab, "tollgate simulate --traffic retry-storm --rate '100/minute' --no-jitter");

// A mistake is told by the server, in words, and what was there before is not taken for the answer.
await lab.getByLabel("Rate").fill("100/minuet");
await says(lab.getByRole("alert"), "did you mean `minute`?");
assert.equal(await lab.locator(".stale").count(), 1);
await lab.getByLabel("Rate").fill("100/minute");
await until("it is answered again", async () => (await lab.locator(".stale").count()) === 0);

// Whoever is sent the address sees the same.
const address = hash();
const other = await open({ hash: address, scheme: "dark", width: 420 });
await other.ready();
const there = other.page.locator("dialog.drawer");
await says(there.locator("table tbody"), shown(fixed.offered));
assert.equal(await there.getByLabel("gcra").isChecked(), false);
assert.equal(await there.getByLabel("Traffic").inputValue(), "retry-storm");
await fits(other.page, "the Lab on a phone");
await other.close();

// Protections against overload: the other half of the Lab, with an address of its own.
const storm = await open({ hash: "#lab/overload=retry-storm&workers=8&duration=12s&protections=none,adaptive", noise: /status of 422/ });
await storm.ready();
const overload = storm.page.locator("dialog.drawer");
await says(overload, "Lab: protections against overload");
const protection = (name) => overload.locator("table tbody tr").filter({ has: storm.page.getByRole("rowheader", { name, exact: true }) });
await says(overload.locator(".lead"), "adaptive answered");
await says(protection("none"), "not at the end");
assert.equal(await overload.locator(".lab-picture path").count(), 3, "two protections, and what is possible");
await says(overload, "tollgate simulate --overload retry-storm --workers 8");
await overload.getByLabel("Critical calls that succeeded").check();
assert.equal(await overload.locator(".lab-picture path").count(), 2);
await overload.getByLabel("slots", { exact: true }).check();
await until("the address holds it all", () =>
  /overload=retry-storm&workers=8&duration=12s&chart=critical&protections=none,slots,adaptive$/.test(decodeURIComponent(new URL(storm.page.url()).hash)),
);
await says(protection("slots"), "%");
await overload.getByLabel("Workers").fill("0");
await says(overload.getByRole("alert"), "1 to 10000 workers");
await named(overload.locator("button, input, select, [role=slider], fieldset"));
await fits(storm.page, "the overload Lab");
await overload.getByRole("button", { name: "Compare algorithms" }).click();
await says(overload.locator(".lead"), "twice the limit");
await storm.close();

// A hostile address is inert.
const hostile = await open({ hash: "#lab/rate=%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E&traffic=%FF&chart=<", noise: /status of 422/ });
await hostile.ready();
await says(hostile.page.locator("dialog.drawer").getByRole("alert"), "rate");
assert.equal(await hostile.page.locator("dialog.drawer img").count(), 0);
await hostile.close();

// Closed with Escape, the focus is back, and the address is clean.
await page.keyboard.press("Escape");
await lab.waitFor({ state: "detached" });
await until("nothing is open", () => hash() === "");
await until("focus is back", () => page.evaluate(() => document.activeElement?.id === "lab"));

// Every part has a name.
await page.getByRole("button", { name: "Lab", exact: true }).click();
await says(lab.locator(".lead"), "twice the limit");
await named(lab.locator("button, input, select, textarea, [role=img], [role=slider], fieldset"));
await visit.close();
await end();
