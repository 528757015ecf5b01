// Numbers are never cut off, whatever the width; quotas, badges and tags can be read; whole rows open what they are about.

import assert from "node:assert/strict";
import { check, end, fits, open, order, says, until } from "./browser.mjs";

const asked = (api_key, path, times) => Array.from({ length: times }, () => ({ path, api_key }));
for (let i = 0; i < 12; i += 1) await check(asked("sk-live-the-loudest-customer", "/api/v1/search", 1000));
await check(asked("sk-live-the-other-customer", "/api/v1/search", 60));
await check(asked("sk-live-the-loudest-customer", "/exports", 3));
await check(Array.from({ length: 9 }, () => ({ path: "/v6", ip: "2001:db8:1234:5678:9abc:def0:1234:5678" })));

const visit = await open();
const { page } = visit;
await visit.ready();
await until("both keys", async () => (await page.locator("#top-body tbody tr").count()) >= 4);
await until("sparklines", async () => (await page.locator("table.limits svg.spark").count()) >= 8);

/** What has a digit in it and is not seen whole: cut by itself, or by whatever it is in. */
const cut = () =>
  page.evaluate(() => {
    const names = ".number, .wait, .c-mode, .c-quota, .tag, .badge, .mode, .left > span, .numbers dd, .pill, time, .client";
    const found = [];
    for (const it of document.querySelectorAll(names)) {
      const box = it.getBoundingClientRect();
      if (box.width === 0 || getComputedStyle(it).visibility === "hidden" || it.textContent.trim() === "") continue;
      if (it.scrollWidth > it.clientWidth + 1 && getComputedStyle(it).display !== "inline")
        found.push(`${it.className}: ${it.textContent}`);
      for (let up = it.parentElement; up !== null && up !== document.body; up = up.parentElement) {
        const clips = getComputedStyle(up).overflowX !== "visible";
        const around = up.getBoundingClientRect();
        if (clips && (box.right > around.right + 1 || box.left < around.left - 1))
          found.push(`${it.className} in ${up.className}: ${it.textContent}`);
      }
    }
    // Cells beside each other do not overlap.
    for (const row of document.querySelectorAll("tbody tr")) {
      const cells = [...row.children].map((it) => [it, it.getBoundingClientRect()]).filter(([, box]) => box.width > 0);
      for (const [cell, box] of cells) {
        const range = document.createRange();
        range.selectNodeContents(cell);
        const text = range.getBoundingClientRect();
        if (getComputedStyle(cell).overflowX === "visible" && cell.matches(".number, .c-mode") && text.right > box.right + 1)
          found.push(`${cell.className} runs over: ${cell.textContent}`);
      }
    }
    return found;
  });
for (const width of [1920, 1440, 1280, 1100, 1000, 901, 800, 600, 360]) {
  await page.setViewportSize({ width, height: 900 });
  await fits(page, `${width} px`);
  assert.deepEqual(await cut(), [], `${width} px`);
}

// At 1280: quotas and badges are read whole, and no dots stand behind a mode.
await page.setViewportSize({ width: 1280, height: 900 });
const hidden = await page.evaluate(() =>
  [...document.querySelectorAll("table.limits :is(.c-name, .c-quota, .c-mode)")]
    .filter((it) => it.scrollWidth > it.clientWidth + 1 || it.scrollHeight > it.clientHeight + 1)
    .map((it) => it.textContent),
);
assert.deepEqual(hidden, []);
assert.ok(await page.locator(".badge", { hasText: "candidate" }).isVisible());

// The headline starts with the fact, and names the customer by a tag that is the same everywhere.
await says(page.locator("#verdict"), /^[\d.]+ % of requests are refused/);
const tag = await page.locator("#verdict-more .tag").textContent();
assert.match(tag, /^#[0-9a-f]{8}$/);
const rows = page.locator("#top-body tbody tr").filter({ hasText: tag });
await until("one customer, two limits", async () => (await rows.count()) === 2);
await says(page.locator("table.stream tbody tr").filter({ hasText: "/exports" }).first(), tag);

// A click anywhere in a row opens it.
const drawer = page.locator("dialog.drawer");
const closed = async () => {
  await page.keyboard.press("Escape");
  await drawer.waitFor({ state: "detached" });
};
await rows.filter({ hasText: "search" }).locator("td.number").first().click();
await says(drawer, tag);
await closed();
await page.locator("table.stream tbody tr td.when").first().click();
await says(drawer, "Policy");
await closed();
await page.locator("#routes-body tbody tr td.number").first().click();
assert.notEqual(await page.getByLabel("Filter decisions").inputValue(), "");
await page.getByLabel("Filter decisions").fill("");

// The numbers of each plan stand in the limit's panel.
await page.locator("table.limits tbody tr", { hasText: "api-search-by-plan" }).locator("td.c-traffic").click();
await says(drawer.locator(".plans"), "500 per minute, 900 at once");
await says(drawer.locator(".plans"), "blocked");
await closed();

// Two mistakes in the file are two lines.
await order("spoil-twice");
const notice = page.locator("#notices pre");
await says(notice, "did you mean `minute`?");
await says(notice, "did you mean `bucket`?");
assert.equal((await notice.textContent()).split("\n").length, 2);
assert.ok(!(await notice.textContent()).includes("U+"));
await visit.close();
await end();
