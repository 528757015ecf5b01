// The switches of the shedders on the panel about overload: each can be put into shadow mode, disabled and returned to
// the file, and those that learn can be frozen.

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

// A learned limit has the same modes.
const learned = async () => (await (await fetch(`${API}/v1/overview`)).json()).adaptive[0];
for (const mode of ["shadow", "off", "enforce"]) {
  await change("upstream", mode[0].toUpperCase() + mode.slice(1), `Switch to ${mode}`);
  await panel.getByRole("button", { name: `Mode of upstream: ${mode}` }).waitFor();
  assert.equal((await learned()).mode, mode);
}
await change("upstream", "As the file says", "Take the switch back");
await until("as the file says", async () => (await learned()).switch === "policy");

// The fleet shedder has learned nothing that could be kept.
await panel.getByRole("button", { name: /^Mode of shed.fleet:/ }).click();
assert.equal(await box.getByLabel("Frozen").count(), 0);
await box.getByRole("button", { name: "Cancel" }).click();
await box.waitFor({ state: "detached" });
const refused = await fetch(`${API}/v1/limits/shed.fleet/mode`, { method: "PUT", body: '{"mode":"frozen"}' });
assert.equal(refused.status, 409);
assert.match((await refused.json()).detail, /cannot be frozen/);

// The others can be frozen.
const switchOf = async (name) =>
  name === "upstream" ? (await learned()).switch : (await shedders())[name.replace("shed.", "")].switch;
for (const [name, words] of [
  ["shed.node", "keeps its level"],
  ["shed.throttle", "keeps the share of requests"],
  ["upstream", "keeps its learned number of slots"],
]) {
  await panel.getByRole("button", { name: new RegExp(`^Mode of ${name}:`) }).click();
  await box.getByLabel("Frozen", { exact: false }).first().check();
  await says(box, words);
  await box.getByRole("button", { name: "Switch to frozen" }).click();
  await box.waitFor({ state: "detached" });
  await panel.getByRole("button", { name: new RegExp(`^Mode of ${name}: .*frozen`) }).waitFor();
  assert.equal(await switchOf(name), "frozen", name);
  await change(name, "As the file says", "Take the switch back");
  await until(`${name} is not frozen`, async () => (await switchOf(name)) === "policy");
}

await visit.close();
await end();
