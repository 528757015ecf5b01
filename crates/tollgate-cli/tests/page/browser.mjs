// A real Chromium, and a page in it that is watched: what it logs, where it asks, whether a script in it fails.

import assert from "node:assert/strict";
import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";

// Packages lie where the test is run, not here.
const { chromium } = createRequire(path.join(process.cwd(), "from-here.js"))("playwright-core");

const [api, gateway] = [process.env.TOLLGATE_API, process.env.TOLLGATE_GATEWAY];
export const API = `http://${api}`;
export const GATEWAY = `http://${gateway}`;

function installed(name) {
  const found = process.env.PATH.split(path.delimiter)
    .map((folder) => path.join(folder, name))
    .find((it) => fs.existsSync(it));
  assert.ok(found, `${name} is missing: run \`make test\`, which installs it`);
  return found;
}

const browser = await chromium.launch({
  executablePath: installed("chromium"),
  // Our own page needs no sandbox, and a container has none to give.
  args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--force-color-profile=srgb"],
});

/** Opens the page, or a file. `noise`: what its log may say, where a test provokes it. */
export async function open({
  width = 1440,
  height = 900,
  scheme = "light",
  hash = "",
  file = null,
  noise = null,
  init = null,
} = {}) {
  const context = await browser.newContext({
    viewport: { width, height },
    colorScheme: scheme,
    timezoneId: "UTC",
    reducedMotion: "reduce",
  });
  await context.grantPermissions(["clipboard-read", "clipboard-write"]);
  const page = await context.newPage();
  if (init) await page.addInitScript(init);
  const wrong = [];
  const sizes = [];
  page.on("console", (it) => {
    if (["error", "warning"].includes(it.type()) && !noise?.test(it.text())) wrong.push(`${it.type()}: ${it.text()}`);
  });
  page.on("pageerror", (it) => wrong.push(`script: ${it.message}`));
  page.on("request", (it) => {
    const ours = file ? it.url() === file : it.url().startsWith(`${API}/`);
    if (!ours && !it.url().startsWith("data:")) wrong.push(`asked another host: ${it.url()}`);
  });
  page.on("response", (it) => {
    const path = new URL(it.url()).pathname;
    if (path === "/" || path.startsWith("/page/")) sizes.push(it.request().sizes());
  });
  const start = performance.now();
  await page.goto(file ?? `${API}/${hash}`);
  return {
    page,
    /** Waits for the first answer to be drawn; tells how long that took. */
    async ready() {
      await page.locator('#fresh[data-state="live"]').waitFor();
      return Math.round(performance.now() - start);
    },
    /** What the files of the page took on the wire. */
    async bytes() {
      return (await Promise.all(sizes)).reduce((sum, it) => sum + it.responseBodySize, 0);
    },
    /** Ends it; whatever was wrong fails the test. */
    async close() {
      assert.deepEqual(wrong, []);
      await context.close();
    },
  };
}

/** Nothing is wider than the window. */
export async function fits(page, where) {
  const [wide, window] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
  assert.ok(wide <= window, `${where}: ${wide} px in a window of ${window} px`);
}

/** Waits until text is there. */
export async function says(locator, text) {
  const rule = text instanceof RegExp ? text : new RegExp(text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  await locator.filter({ hasText: rule }).first().waitFor();
}

/** Every control has a name for screen readers. */
export async function named(controls) {
  const unnamed = await controls.evaluateAll((list) =>
    list
      .filter((it) => !(it.getAttribute("aria-label") || it.labels?.length || it.textContent.trim()))
      .map((it) => it.outerHTML),
  );
  assert.deepEqual(unnamed, []);
}

/** Waits until it is so. */
export async function until(what, so) {
  const end = performance.now() + 30_000;
  for (;;) {
    if (await so()) return;
    assert.ok(performance.now() < end, `never: ${what}`);
    await new Promise((done) => setTimeout(done, 50));
  }
}

/** A request through the gateway: its status and the id of its decision. */
export async function send(path, headers = {}, method = "GET") {
  const answer = await fetch(GATEWAY + path, { method, headers });
  await answer.arrayBuffer();
  return { status: answer.status, id: answer.headers.get("tollgate-decision") };
}

/** Many requests to the API at once, a thousand at most. */
export async function check(requests) {
  const body = JSON.stringify({ requests });
  const answer = await fetch(`${API}/v1/check/batch`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body,
  });
  const told = await answer.json();
  assert.equal(answer.status, 200, JSON.stringify(told));
  return told.decisions;
}

/** Asks the test to do something with the servers (`Server::obey`), and waits for it. */
export async function order(what) {
  const file = path.join(process.env.ORDERS, what);
  fs.writeFileSync(file, "");
  await until(what, () => !fs.existsSync(file));
}

/** Requests that go on until stopped. */
export function traffic(path, headers, every = 60) {
  const timer = setInterval(() => send(path, headers).catch(() => {}), every);
  return () => clearInterval(timer);
}

/** Ends the browser, and with it the script. */
export const end = () => browser.close();
