/** The client against a real server. */
import assert from "node:assert/strict";
import { after, before, suite, test } from "node:test";

import { ApiError, deny, localLimit, Refused, Tollgate, Unavailable, type TollgateOptions } from "../src/index.js";
import { type Server, startServer } from "./server.js";

// Calls may be slow on a busy machine; only the tests of outages want an early end.
const TIMEOUT_MS = 30_000;

suite("with a server", () => {
  let server: Server;
  before(async () => void (server = await startServer()));
  after(() => server.stop());
  const client = (options: TollgateOptions = {}) =>
    new Tollgate({ baseUrl: server.url, timeoutMs: TIMEOUT_MS, rememberMs: 0, ...options });

  test("a refusal says which limit and how long", async () => {
    const tollgate = client();
    const decisions = [];
    for (let it = 0; it < 3; it++) decisions.push(await tollgate.check({ path: "/search", user: "ann" }));
    assert.deepEqual(decisions.map((it) => it.allowed), [true, true, false]);
    const refused = decisions[2]!;
    assert.equal(refused.limit, "search");
    assert.ok(refused.retryAfterMs! > 1_700_000 && refused.retryAfterMs! <= 1_800_000);
    assert.equal(decisions[1]!.limits[0]!.remaining, 0);
  });

  test("a refusal is remembered until units are returned", async () => {
    const tollgate = client({ rememberMs: 600_000 });
    for (let it = 0; it < 2; it++) await tollgate.checkLimit("search", "bob");
    assert.equal((await tollgate.checkLimit("search", "bob")).remembered, false);
    assert.equal((await tollgate.checkLimit("search", "bob")).remembered, true);
    assert.equal((await tollgate.grant("search", "bob", 1)).allowed, true);
    assert.equal((await tollgate.checkLimit("search", "bob")).allowed, true);
  });

  test("a permit holds its slot until the block ends", async () => {
    const tollgate = client();
    {
      await using permit = await tollgate.permit({ path: "/exports", user: "ann" }, { renewEveryMs: 60_000 });
      await assert.rejects(
        () => tollgate.permit({ path: "/exports", user: "ann" }),
        (error) => error instanceof Refused && error.decision.limit === "exports",
      );
      assert.equal(await tollgate.renew(permit.decision), 1);
    }
    await using again = await tollgate.permitLimit("exports", "ann");
    assert.ok(again.decision.allowed);
  });

  test("the final cost replaces the charge", async () => {
    const tollgate = client();
    {
      await using permit = await tollgate.permit({ path: "/chat", user: "ann", cost: 10 });
      await permit.settle(30);
    }
    assert.equal((await tollgate.peek("tokens", "ann")).limits[0]!.remaining, 70);
  });

  test("a queue makes permits wait", async () => {
    const tollgate = client();
    const waits = [];
    for (let it = 0; it < 3; it++) waits.push((await tollgate.check({ path: "/reports", user: "ann" })).waitMs);
    assert.equal(waits[0], 0);
    assert.ok(0 < waits[1]! && waits[1]! <= 60_000 && 60_000 < waits[2]! && waits[2]! <= 120_000, String(waits));
    for (let it = 0; it < 3; it++) await (await tollgate.permit({ path: "/mails", user: "ann" })).release();
  });

  test("calls at the same time never exceed the limit", async () => {
    const tollgate = client();
    const decisions = await Promise.all(Array.from({ length: 20 }, () => tollgate.checkLimit("tokens", "eve", 10)));
    assert.equal(decisions.filter((it) => it.allowed).length, 10);
  });

  test("a mistake is an error that says what to change", async () => {
    await assert.rejects(
      () => client().checkLimit("serach", "ann"),
      (error) => error instanceof ApiError && error.status === 404 && error.detail.includes("search"),
    );
  });
});

suite("without a server", () => {
  let url: string;
  before(async () => {
    const server = await startServer();
    url = server.url;
    await server.stop();
  });

  test("the outage rule decides", async () => {
    const open = new Tollgate({ baseUrl: url });
    const decision = await open.check({ path: "/search", user: "ann" });
    assert.deepEqual([decision.allowed, decision.degraded, decision.id], [true, true, null]);
    await open.settle(decision, 5);
    assert.equal(await open.release(decision), 0);
    await using _permit = await open.permit({ path: "/search", user: "ann" });
    assert.equal((await new Tollgate({ baseUrl: url, onOutage: deny() }).check({ path: "/" })).allowed, false);
    const local = new Tollgate({ baseUrl: url, onOutage: localLimit(2, 3_600_000) });
    const allowed = [];
    for (let it = 0; it < 3; it++) allowed.push((await local.check({ path: "/", user: "ann" })).allowed);
    assert.deepEqual(allowed, [true, true, false]);
    assert.equal((await local.check({ path: "/", user: "bob" })).allowed, true);
  });

  test("operations without a rule throw", async () => {
    await assert.rejects(() => new Tollgate({ baseUrl: url }).peek("search", "ann"), Unavailable);
  });
});
