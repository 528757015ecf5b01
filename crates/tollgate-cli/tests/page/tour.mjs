// Every panel, every dialog, with a mouse.

import assert from "node:assert/strict";
import { end, fits, open, says, send, traffic, until } from "./browser.mjs";

const acme = { "x-user-id": "acme" };
const stop = traffic("/api/v1/search", acme);
const stopLogin = traffic("/api/v1/login", {}, 200);
await until("a refusal", async () => (await send("/api/v1/search", acme)).status === 429);

const visit = await open({ noise: /status of 4(00|04|22)/ });
const { page } = visit;
const first = await visit.ready();
console.log(`first data after ${first} ms`);
const bytes = await visit.bytes();
console.log(`${bytes} bytes of page`);
assert.ok(bytes > 10_000 && bytes < 100_000, `${bytes} bytes`);
const drawer = page.locator("dialog.drawer");
const box = page.locator("dialog.box");
const row = (name) =>
  page.locator("table.limits tbody tr").filter({ has: page.getByRole("button", { name, exact: true }) });

// At a glance.
await says(page.locator("#pills"), /Refusing \d/);
await says(page.locator("#verdict"), /^[\d.]+ % of requests are refused, since/);
await says(page.locator("#verdict-more"), /Most by search \(\d/);
await says(page.locator("#facts"), /policy 1, loaded .*Tollgate \d.*admin/);
await says(page.locator("#store"), /memory of this node.*closed/);
await says(page.locator("#alerts"), "No key has been at zero for 5 min.");
await says(page.locator("#policy"), /search.*5 per minute/);
await says(page.locator("#policy"), "header:x-user-id");
assert.equal(await page.locator("table.limits tbody tr").count(), 4);

// One second of the chart.
await page.getByRole("slider").hover();
await says(page.locator(".readout"), /\d\d:\d\d:\d\d: .* allowed, .* refused/);
await page.mouse.move(0, 0);

// The customer calls with the id of a refusal.
const { status, id } = await send("/api/v1/search", acme);
assert.equal(status, 429);
await page.getByLabel("Decision id").fill(id);
await page.getByRole("button", { name: "Explain", exact: true }).click();
await says(drawer, /Refused by `search`/);
await says(drawer.locator(".arithmetic"), /asked for/);
await says(drawer, "Who spent from it lately");
assert.equal(new URL(page.url()).hash, `#explain/${id}`);
await drawer.getByRole("button", { name: "Copy" }).click();
await says(drawer, "Copied.");
const copied = await page.evaluate(() => navigator.clipboard.readText());
assert.match(copied, /Your request GET \/api\/v1\/search .* was refused/);
assert.ok(copied.includes(id), copied);
// Who waits as long as it says has waited long enough: one number, rounded up.
const [, promised] = /; it passes in (.*)\.\n/.exec(copied) ?? [];
assert.ok(copied.includes(`It would have passed ${promised} later.`), copied);
const waits = [1, 999, 999.2, 3520, 59_910, 61_000, 3_599_001, 5_400_001, 86_400_000, 90_000_001];
assert.deepEqual(
  await page.evaluate(async (list) => {
    const { duration } = await import("/page/format.js");
    return list.map((it) => duration(it));
  }, waits),
  ["1 ms", "999 ms", "1 s", "3.6 s", "1 min", "1 min 1 s", "1 h", "1 h 31 min", "1 d", "1 d 2 h"],
);
await page.keyboard.press("Escape");
await drawer.waitFor({ state: "detached" });
assert.equal(new URL(page.url()).hash, "");

// A link to it opens it, and an id that nobody remembers is told from one that is.
await page.goto(`${page.url()}#explain/${id}`);
await says(drawer, /Refused by `search`/);
await drawer.getByRole("button", { name: "Close" }).click();
await page.getByLabel("Decision id").fill("0123456789abcdef");
await page.keyboard.press("Enter");
await says(drawer, "Nobody remembers this decision.");
await page.keyboard.press("Escape");

// What if?
await page.getByRole("button", { name: "What if …" }).click();
await drawer.getByLabel("Path").fill("/api/v1/search");
await drawer.getByLabel("User").fill("globex");
await drawer.getByLabel("Headers, one on each line").fill("x-trace: 1");
await drawer.getByRole("button", { name: "Ask" }).click();
await says(drawer, "would be passed");
await drawer.getByLabel("Client address").fill("nowhere");
await drawer.getByRole("button", { name: "Ask" }).click();
await says(drawer, "`ip` is not an address: `nowhere`");
await drawer.getByLabel("Client address").fill("");
await drawer.getByLabel("User").fill("acme");
await drawer.getByRole("button", { name: "Ask" }).click();
await says(drawer, /would be refused/);
await page.keyboard.press("Escape");

// Search and sort.
const names = () => page.locator("table.limits .name").allTextContents();
await page.getByLabel("Search limits").fill("/API/v1/log");
await until("one limit", async () => (await names()).join() === "login");
await says(page.locator("#limits-count"), "1 of 4 limits");
await page.getByLabel("Search limits").fill("nothing like it");
await says(page.locator("#limits"), "No limit matches.");
await page.getByLabel("Search limits").fill("");
await page.getByRole("button", { name: "Limit", exact: true }).click();
await until("names rise", async () => (await names()).join() === "everybody,login,search,search.candidate");
await page.getByRole("button", { name: "Limit", exact: true }).click();
await until("names fall", async () => (await names()).join() === "search.candidate,search,login,everybody");
await until("sparklines", async () => (await row("search").locator("svg.spark").count()) === 2);

// One limit, and the one tried beside it.
await page.getByRole("button", { name: "search", exact: true }).first().click();
await says(drawer, /From 80 % spent on, requests are marked/);
await drawer.getByRole("link", { name: "search.candidate" }).click();
await says(drawer, "Agreement with the live limit");
await says(drawer, /They (differ|agreed)/);
await says(drawer, /Compared since \d\d:\d\d:\d\d, when both first had the rules/);
await page.keyboard.press("Escape");
await drawer.waitFor({ state: "detached" });

// To shadow: said in words, done, seen by the next request, written down.
await row("search")
  .getByRole("button", { name: /change the mode/ })
  .click();
await box.getByLabel("Shadow").check();
await says(box, "Requests that `search` would refuse will pass.");
await says(box, /\d+ requests? (was|were) refused by it in the last 5 minutes/);
assert.equal(await box.getByLabel("Reason").getAttribute("maxlength"), "300", "as much as is kept");
await box.getByLabel("Reason").fill("INC-1: a <b>test</b>");
await box.getByLabel("Your name").fill("ann");
await box.getByRole("button", { name: "Switch to shadow" }).click();
await box.waitFor({ state: "detached" });
await says(page.locator("#notices"), "`search` is now shadow, was enforce.");
assert.equal((await send("/api/v1/search", acme)).status, 200);
await says(row("search"), /shadow/);
await says(row("search"), /switched/);
await says(page.locator("#changes"), "INC-1: a <b>test</b>");
await says(page.locator("#changes"), /search as the file → shadow.*ann · admin/);
await says(page.locator("#pills"), "1 limit switched");

// And back.
await row("search")
  .getByRole("button", { name: /change the mode/ })
  .click();
assert.equal(await box.getByLabel("Your name").inputValue(), "ann");
await box.getByLabel("As the file says").check();
await box.getByRole("button", { name: "Take the switch back" }).click();
await box.waitFor({ state: "detached" });
await until("refused again", async () => (await send("/api/v1/search", acme)).status === 429);
await says(row("search"), /enforce/);

// Everything off, and on again. Cancelled first: nothing happens.
await page.locator("#switch-everything").click();
await box.getByLabel("Off").check();
await says(box, "No limit will be checked or counted.");
await box.getByRole("button", { name: "Cancel" }).click();
assert.equal((await send("/api/v1/search", acme)).status, 429);
await page.locator("#switch-everything").click();
await box.getByLabel("Off").check();
await box.getByRole("button", { name: "Switch to off" }).click();
await says(page.locator("#pills"), "Everything is off");
await says(page.locator("#notices"), "Everything is switched off: no limit is checked.");
await says(page.locator("#verdict"), "Everything is switched off");
assert.equal((await send("/api/v1/search", acme)).status, 200);
await page.locator("#switch-everything").click();
await box.getByLabel("Enforce").check();
await box.getByRole("button", { name: "Switch to enforce" }).click();
await until("refused again", async () => (await send("/api/v1/search", acme)).status === 429);
await says(page.locator("#changes"), /Everything off → enforce/);

// Decisions: refused only, filtered, paused, explained.
const decisions = page.locator("table.stream tbody tr");
await page.getByLabel("Refused only").check();
await until(
  "only refusals",
  async () => (await decisions.count()) > 0 && (await page.locator("table.stream tbody tr:not(.no)").count()) === 0,
);
await page.getByRole("button", { name: "Pause" }).click();
const newest = await decisions.first().getAttribute("data-seq");
await page.waitForResponse((it) => it.url().endsWith("/v1/overview"));
await page.waitForResponse((it) => it.url().endsWith("/v1/overview"));
assert.equal(await decisions.first().getAttribute("data-seq"), newest, "paused");
await decisions.first().getByRole("button").click();
await says(drawer, /Refused by/);
await page.keyboard.press("Escape");
await page.getByRole("button", { name: "Go on" }).click();
await until(
  "it goes on",
  async () => (await decisions.count()) > 0 && (await decisions.first().getAttribute("data-seq")) !== newest,
);
await page.getByLabel("Refused only").uncheck();
await page.getByLabel("Filter decisions").fill("no such thing");
await says(page.locator("#decisions"), "No decision here matches.");
await page.locator("#routes-body").getByRole("button", { name: "/api/v1/login" }).click();
assert.equal(await page.getByLabel("Filter decisions").inputValue(), "/api/v1/login");
await says(decisions.first(), "/api/v1/login");

// A key that is refused most.
await page.locator("#top-body").getByRole("button", { name: "acme" }).click();
await says(drawer, /Refused by `search`/);
await page.keyboard.press("Escape");

// Light and dark.
const back = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
const light = await back();
await page.getByRole("button", { name: "Theme: auto" }).click();
await page.getByRole("button", { name: "Theme: light" }).click();
await page.getByRole("button", { name: "Theme: dark" }).waitFor();
assert.notEqual(await back(), light);
await page.reload();
await page.getByRole("button", { name: "Theme: dark" }).waitFor();
assert.notEqual(await back(), light, "remembered");

// Wide and narrow, with everything open.
for (const width of [1440, 800, 360]) {
  await page.setViewportSize({ width, height: 800 });
  await visit.ready();
  await fits(page, `${width} px`);
  await page
    .locator("table.limits .name")
    .filter({ hasText: /^search$/ })
    .click();
  await says(drawer, "What it says");
  await fits(page, `a limit at ${width} px`);
  await drawer.getByRole("button", { name: "Switch …" }).click();
  await fits(page, `a switch at ${width} px`);
  await page.keyboard.press("Escape");
  await box.waitFor({ state: "detached" });
  await page.keyboard.press("Escape");
  await drawer.waitFor({ state: "detached" });
}
stop();
stopLogin();
await visit.close();

// The other scheme, as the system wishes it.
const dark = await open({ scheme: "dark", width: 360 });
await dark.ready();
assert.notEqual(await dark.page.evaluate(() => getComputedStyle(document.body).backgroundColor), light);
await fits(dark.page, "360 px, dark");
await dark.close();
await end();
