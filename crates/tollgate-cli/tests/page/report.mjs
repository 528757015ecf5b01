// The report of a replay: one file that asks for nothing, and whose numbers are those of `tollgate replay --json`.

import assert from "node:assert/strict";
import fs from "node:fs";
import { pathToFileURL } from "node:url";
import { end, fits, open } from "./browser.mjs";

const file = pathToFileURL(process.env.REPORT).href;
const numbers = JSON.parse(fs.readFileSync(process.env.NUMBERS, "utf8"));
const at = (path) => path.split(".").reduce((it, name) => it[name], numbers);

/** Whether a share is rounded as it is shown. */
function isShare(text, part, whole) {
  const percent = whole === 0 || part === 0 ? 0 : (part / whole) * 100;
  const shown = Number(text.replace(/[<>%\s]/g, ""));
  if (text.startsWith("<")) return percent > 0 && percent < shown;
  if (text.startsWith(">")) return percent > shown && percent < 100;
  const decimals = text.split(".")[1]?.match(/^\d+/)[0].length ?? 0;
  return text.endsWith(" %") && Math.abs(shown - percent) <= 0.5001 / 10 ** decimals;
}

const SECONDS = { d: 86400, h: 3600, min: 60, s: 1 };

// The seconds of a time such as "1 h 30 min".
function seconds(text) {
  const parts = [...text.matchAll(/(\d+) (d|h|min|s)/g)];
  assert.equal(parts.map(([part]) => part).join(" "), text);
  return parts.reduce((sum, [, count, unit]) => sum + Number(count) * SECONDS[unit], 0);
}

function check({ text, path, of, unit, about }) {
  const where = `${path}: ${text}`;
  const shown = Number(text.replaceAll(",", ""));
  if (of !== undefined) {
    const part = path.split(" ").reduce((sum, it) => sum + at(it), 0);
    assert.ok(isShare(text, part, at(of)), `${where}, ${part} of ${at(of)}`);
  } else if (about !== undefined) {
    assert.ok(Math.abs(shown / at(path) - 1) < 0.01, `${where}, ${at(path)}`);
  } else if (unit === "seconds") {
    assert.equal(seconds(text), at(path), where);
  } else {
    assert.equal(shown, at(path), where);
  }
}

for (const [scheme, width] of [
  ["light", 1280],
  ["dark", 1280],
  ["light", 360],
]) {
  const visit = await open({ file, scheme, width });
  const { page } = visit;
  const figures = await page
    .locator("[data-path]")
    .evaluateAll((all) => all.map((it) => ({ text: it.textContent, ...it.dataset })));
  assert.ok(figures.length > 200, `${figures.length} numbers`);
  for (const it of figures) check(it);
  const shown = new Set(figures.map((it) => it.path));
  for (const path of [
    "requests",
    "refused",
    "skipped_lines",
    "clients.refused",
    "limits.1.refused",
    "limits.1.top.0.refused",
    "limits.1.curve.bursts.0.refused",
    "limits.1.suggestion.proposals.0.refused",
    "limits.0.exactness.open.too_lax",
    "compared.0.newly_refused",
    "compared.0.endpoints_moved.0.newly_admitted",
  ]) assert.ok(shown.has(path), `${path} is not shown`);

  // Names, amounts and times aside, no number stands outside.
  const loose = await page.evaluate(() => {
    const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    const found = [];
    while (walk.nextNode()) {
      const { data, parentElement } = walk.currentNode;
      if (/\d/.test(data) && !parentElement.closest("[data-path], .foreign, time, .times, .notice, svg, script")) found.push(data);
    }
    return found;
  });
  assert.deepEqual(loose, []);
  assert.deepEqual(JSON.parse(await page.locator("script#report").textContent()), numbers);
  assert.equal(await page.evaluate(() => window.pwned), undefined);
  assert.equal(await page.locator("img, iframe, object, script:not(#report), [onerror]").count(), 0);
  const seen = await page.locator("body").innerText();
  assert.ok(!/[\u202e\u001b]/.test(seen) && seen.length < 100_000, "keys are spelt out and cut");
  assert.ok(seen.includes("<script>window.pwned=1</script>"), "and shown as text");
  assert.ok(!seen.includes("NaN") && !seen.includes("undefined"));

  const pictures = page.locator("svg[role=img]");
  assert.ok((await pictures.count()) >= 6);
  for (const it of await pictures.all()) {
    assert.ok(await it.getAttribute("aria-label"));
    const box = await it.boundingBox();
    assert.ok(box.width > 100 && box.height > 20, "a picture is drawn");
  }
  for (const it of await page.locator("details").all()) await it.locator("summary").press("Enter");
  assert.equal(await page.locator("details:not([open])").count(), 0, "tables open by key");
  await fits(page, `${scheme}, ${width} px`);
  const back = await page.evaluate(() => Number(getComputedStyle(document.body).backgroundColor.match(/\d+/)[0]));
  assert.ok(scheme === "dark" ? back < 60 : back > 200, `${scheme}: ${back}`);
  if (process.env.PICTURES) await page.screenshot({ path: `${process.env.PICTURES}/${scheme}-${width}.png`, fullPage: true });
  await visit.close();
}
console.log("numbers shown equal the JSON; nothing was asked for");
await end();
