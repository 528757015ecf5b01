// The switches of the shedders on the panel about overload: each can be put into shadow mode, disabled and returned to
// the file, and the shedder of the node can be frozen.

import assert from "node:assert/strict";
import { API, end, open, says, send, until } from "./browser.mjs";

const visit = await open();
const { page } = visit;
await visit.ready();
const [panel, box] = [page.locator("#overload"), page.getByRole("dialog")];
const shedders = async () => (await (await fetch(`${API}/v1/overview`)).json()).shed;
const bulk = async () => (await send("/export", { "x-priority": "bulk" })).status;

/** Switches a shedder on the panel. */
async function change(name, label, button) {
  await panel.getByRole("button", { name: new RegExp(`^Mode of ${name}:`) }).click();
  await box.getByLabel(label, { exact: false }).first().check();
  await box.getByRole("button", { name: button }).click();
  await box.waitFor({ state: "detached" });
}

// The fleet shedder has one request per hour for `bulk`.
await until("shed", async () => (await bulk()) === 503);
for (const [name, short] of [
  ["shed.fleet", "fleet"],
  ["shed.node", "node"],
  ["shed.throttle", "throttle"],
]) {
  const before = (await shedders())[short].mode;
  for (const [label, mode] of [
    ["Shadow", "shadow"],
    ["Off", "off"],
    ["Enforce", "enforce"],
  ]) {
    await change(name, label, `Switch to ${mode}`);
    await says(page.locator("#notices"), `\`${name}\` is now ${mode}`);
    await panel.getByRole("button", { name: `Mode of ${name}: ${mode}` }).waitFor();
    assert.equal((await shedders())[short].mode, mode, name);
    if (short === "fleet") await until(`bulk with ${mode}`, async () => (await bulk()) === (mode === "enforce" ? 503 : 200));
  }
  await change(name, "As the file says", "Take the switch back");
  await panel.getByRole("button", { name: `Mode of ${name}: ${before}` }).waitFor();
}

// Only the shedder of the node has a level, which can be frozen.
await panel.getByRole("button", { name: /^Mode of shed.fleet:/ }).click();
assert.equal(await box.getByLabel("Frozen").count(), 0);
await box.getByRole("button", { name: "Cancel" }).click();
await box.waitFor({ state: "detached" });
await change("shed.node", "Frozen", "Switch to frozen");
await says(panel, "frozen");
assert.equal((await shedders()).node.switch, "frozen");
await change("shed.node", "As the file says", "Take the switch back");
await until("not frozen", async () => (await shedders()).node.switch === "policy");

await visit.close();
await end();
