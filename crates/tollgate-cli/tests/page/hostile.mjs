// What strangers send is shown as text, whole or cut, and never turns the page around.

import assert from "node:assert/strict";
import { check, end, fits, open, says } from "./browser.mjs";

const MARKUP = "<img src=x onerror=window.pwned=1>";
const callers = [
  MARKUP,
  "\u202Egnp.exe",
  "</td><script>window.pwned=1</script>",
  "x".repeat(3000),
  "\u0000\u0007\u001B[31mred",
  "שלום עולם",
  "&lt;b&gt;",
  "👩‍🚀".repeat(40),
  "{{7*7}}`${1}`",
  "javascript:alert(1)",
];
const path = (user) => `/api/v1/search/${user}`;
const requests = callers.flatMap((user) => Array.from({ length: 9 }, () => ({ path: path(user), user })));
const decisions = await check(requests);
const refused = decisions.filter((it) => !it.allowed);
assert.ok(refused.length > 0);

for (const width of [1440, 360]) {
  const visit = await open({ width, noise: /status of 4(04|22)/ });
  const { page } = visit;
  await visit.ready();
  await says(page.locator("#top-body"), MARKUP);
  await says(page.locator("#top-body"), "\\u{202e}gnp.exe");
  for (const [wish, shown] of [
    ["gnp", "‹U+202E›gnp.exe"],
    ["[31m", "‹U+001B›[31mred"],
  ]) {
    await page.getByLabel("Filter decisions").fill(wish);
    await says(page.locator("#decisions-body"), shown);
  }
  await fits(page, `${width} px`);
  const ask = async (id) => {
    await page.goto(`${page.url().split("#")[0]}#explain/${encodeURIComponent(id)}`);
    await page.locator("dialog.drawer .lead").waitFor();
    await fits(page, `explained at ${width} px`);
    const [wide, room] = await page.locator("dialog.drawer").evaluate((it) => [it.scrollWidth, it.clientWidth]);
    assert.ok(wide <= room, `${wide} px in a drawer of ${room} px`);
    await page.keyboard.press("Escape");
    await page.locator("dialog").waitFor({ state: "detached" });
  };
  const stored = await (await fetch(`${page.url().split("#")[0]}v1/decisions?refused=true&most=1000`)).json();
  for (const user of callers) {
    const one = stored.decisions.find((it) => user.startsWith(it.key ?? " ") || it.key?.startsWith(user.slice(0, 4)));
    if (one) await ask(one.id);
  }
  for (const id of [MARKUP, "../../v1/mode", "%00", "a".repeat(500)]) await ask(id);
  await page.getByLabel("Filter decisions").fill(MARKUP);
  await says(page.locator("table.stream"), MARKUP);
  assert.equal(await page.locator("img, script:not([src]), iframe, object, [style*=expression], [onerror]").count(), 0);
  assert.equal(await page.evaluate(() => window.pwned), undefined);
  await visit.close();
}
await end();
