// Octokit with its throttling plugin, as its README sets it up: many calls at a time, and how many succeeded.
// The last two arguments are the URL and the number of calls.
import { Octokit } from '@octokit/core';
import { throttling } from '@octokit/plugin-throttling';

const [url, calls] = process.argv.slice(-2);
const again = (_retryAfter, _options, _octokit, retryCount) => retryCount < 20;
const throttle = { onRateLimit: again, onSecondaryRateLimit: again };
const log = { debug() {}, info() {}, warn() {}, error() {} };
const client = new (Octokit.plugin(throttling))({ baseUrl: url, throttle, log });

const ended = await Promise.all(
  Array.from({ length: Number(calls) }, () => client.request('GET /zen').then(() => 1, () => 0)),
);
console.log(JSON.stringify({ succeeded: ended.reduce((sum, one) => sum + one, 0) }));
