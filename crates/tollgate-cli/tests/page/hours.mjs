// Hours in a minute: the page's seconds are made short, and what it holds does not grow.

import assert from "node:assert/strict";
import { end, open, traffic, until } from "./browser.mjs";

const BEATS = 120;
const stop = traffic("/api/v1/search", { "x-user-id": "acme" }, 15);
const visit = await open({
  init: () => {
    const [later, now] = [window.setTimeout, performance.now.bind(performance)];
    window.setTimeout = (call, ms, ...rest) => later(call, ms > 1000 ? ms : ms / 40, ...rest);
    performance.now = () => now() * 40;
  },
});
const { page } = visit;
await visit.ready();
let beats = 0;
page.on("response", (it) => {
  if (it.url().endsWith("/v1/overview")) beats += 1;
});
const session = await page.context().newCDPSession(page);
await session.send("Performance.enable");
const held = async () => {
  await session.send("HeapProfiler.collectGarbage");
  const { metrics } = await session.send("Performance.getMetrics");
  const of = (name) => metrics.find((it) => it.name === name).value;
  return { nodes: of("Nodes"), listeners: of("JSEventListeners"), heap: of("JSHeapUsedSize") };
};
await until("beats", () => beats > BEATS);
const before = await held();
await until("as many again", () => beats > 2 * BEATS);
await until("and again", () => beats > 3 * BEATS);
const after = await held();
console.log(JSON.stringify({ beats, before, after }));
assert.ok(after.nodes < before.nodes * 1.5 + 500, "elements");
assert.ok(after.listeners < before.listeners * 1.5 + 100, "listeners");
assert.ok(after.heap < before.heap * 1.5 + 2_000_000, "memory");
assert.ok((await page.locator("table.stream tbody tr").count()) <= 25);

// Hidden, it asks nothing.
await page.evaluate(() => {
  Object.defineProperty(document, "hidden", { get: () => true });
  document.dispatchEvent(new Event("visibilitychange"));
});
await page.waitForTimeout(300);
const then = beats;
await page.waitForTimeout(600);
assert.equal(beats, then);
stop();
await visit.close();
await end();
