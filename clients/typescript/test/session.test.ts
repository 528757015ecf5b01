/** Decisions of the client itself, on a clock that the test sets. */
import assert from "node:assert/strict";
import { test } from "node:test";

import { allow, deny, localLimit, TollgateError, type OutageRule } from "../src/index.js";
import { MAX_KEYS } from "../src/outage.js";
import { FAILURES_TO_OPEN, MAX_REMEMBERED, PROBE_INTERVAL_MS, Session } from "../src/session.js";

const REFUSED = { allowed: false, limit: "l", retry_after_ms: 30_000, limits: [] };
const check = (key: string, cost = 1) => ({ path: "/v1/limits/l/check", body: { key, cost }, cost });

function start(rememberMs = 1000, rule: OutageRule = allow) {
  const clock = { now: 100_000 };
  return { clock, session: new Session(rule, rememberMs, () => clock.now) };
}

test("a refusal is repeated for at most the time to remember", () => {
  const { clock, session } = start();
  session.decideFrom(check("ann"), REFUSED);
  clock.now += 750;
  assert.equal(session.decideWithoutCall(check("ann"))?.retryAfterMs, 29_250);
  assert.equal(session.decideWithoutCall(check("bob")), undefined);
  assert.equal(session.decideWithoutCall(check("ann", 2)), undefined, "another cost is another question");
  clock.now += 250;
  assert.equal(session.decideWithoutCall(check("ann")), undefined);
});

test("a refusal is never repeated after its wait", () => {
  const { clock, session } = start(60_000);
  session.decideFrom(check("ann"), { ...REFUSED, retry_after_ms: 500 });
  clock.now += 500;
  assert.equal(session.decideWithoutCall(check("ann")), undefined);
});

test("the order of members makes no difference", () => {
  const { session } = start();
  session.decideFrom({ path: "/v1/check", body: { path: "/", headers: { a: "1", b: "2" } }, cost: 1 }, REFUSED);
  const other = { path: "/v1/check", body: { headers: { b: "2", a: "1" }, path: "/" }, cost: 1 };
  assert.equal(session.decideWithoutCall(other)?.remembered, true);
});

test("remembered refusals are bounded", () => {
  const { session } = start();
  for (let it = 0; it < MAX_REMEMBERED + 10; it++) session.decideFrom(check(String(it)), REFUSED);
  assert.equal(session.remembered, MAX_REMEMBERED);
});

test("a server that fails is called once per interval", () => {
  const { clock, session } = start(0, deny());
  for (let it = 0; it < FAILURES_TO_OPEN; it++) {
    assert.equal(session.decideWithoutCall(check("ann")), undefined);
    session.recordFailure();
  }
  assert.equal(session.decideWithoutCall(check("ann"))?.allowed, false);
  clock.now += PROBE_INTERVAL_MS;
  assert.equal(session.decideWithoutCall(check("ann")), undefined, "this call probes");
  assert.equal(session.decideWithoutCall(check("ann"))?.allowed, false, "the others do not");
  session.recordAnswer();
  assert.equal(session.decideWithoutCall(check("ann")), undefined);
});

test("a local limit admits its count and refills", () => {
  const rule = localLimit(3, 300);
  assert.deepEqual([1, 2, 3, 4].map(() => rule("k", 1, 5000).allowed), [true, true, true, false]);
  assert.equal(rule("k", 2, 5000).retryAfterMs, 200);
  assert.equal(rule("k", 2, 5200).allowed, true);
  assert.equal(rule("k", 4, 5200).reason, "never");
  for (let it = 0; it < MAX_KEYS + 10; it++) rule(String(it), 1, 6000);
  assert.equal(rule.size, MAX_KEYS);
});

test("an answer that is no decision is an error", () => {
  for (const body of [undefined, null, 5, [], {}, { allowed: 1 }, { allowed: true, limits: [{}] }, { allowed: true, limits: 5 }]) {
    assert.throws(() => start().session.decideFrom(check("ann"), body), TollgateError);
  }
});
