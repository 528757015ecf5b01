// The panel about quotas: two Envoys, played by this script, report a bucket, and the page shows their shares.

import assert from "node:assert/strict";
import { connect } from "node:http2";
import { end, fits, open, says } from "./browser.mjs";

const METHOD = "/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas";

const varint = (n) => (n < 128 ? [n] : [(n & 127) | 128, ...varint(n >>> 7)]);
const field = (number, bytes) => [...varint((number << 3) | 2), ...varint(bytes.length), ...bytes];
const text = (number, value) => field(number, [...Buffer.from(value)]);
const number = (at, value) => [...varint(at << 3), ...varint(value)];

/** A message with one `BucketQuotaUsage`, framed. */
function report(allowed, denied) {
  const entries = Object.entries({ name: "search", tenant: "acme" });
  const id = entries.flatMap(([key, value]) => field(1, [...text(1, key), ...text(2, value)]));
  const usage = [...field(1, id), ...number(3, allowed), ...number(4, denied)];
  const message = Buffer.from([...text(1, "edge"), ...field(2, usage)]);
  const head = Buffer.alloc(5);
  head.writeUInt32BE(message.length, 1);
  return Buffer.concat([head, message]);
}

const session = connect(`http://${process.env.TOLLGATE_RLS}`);
const envoys = [0, 1].map(() => {
  const stream = session.request({
    ":method": "POST",
    ":path": METHOD,
    "content-type": "application/grpc",
    te: "trailers",
  });
  stream.resume();
  stream.write(report(1, 0));
  return stream;
});

const visit = await open();
const { page } = visit;
await visit.ready();
const panel = page.locator("#quotas");
await says(page.locator("#quotas-note"), "2 streams of Envoys, 1 bucket");
await says(panel, "name=search, tenant=acme");
await says(panel, /assigned \d+\/s of 300\/s, demanded .+, by 2 Envoys/);
assert.equal(await panel.getByRole("row", { name: /^Envoy \d+, for/ }).count(), 2);
await page.getByRole("link", { name: "Quotas" }).waitFor();

// One Envoy reports more, and the page shows it.
envoys[0].write(report(900, 100));
const limit = panel.getByRole("row", { name: /^edge-search/ });
await says(limit, "902");
await says(limit.locator(".is-bad").first(), /\d/);
await says(panel.getByRole("row", { name: /^Envoy \d/ }).first(), "/s");
await page.setViewportSize({ width: 390, height: 844 });
await fits(page, "on a telephone");

for (const it of envoys) it.close();
session.destroy();
await visit.close();
await end();
