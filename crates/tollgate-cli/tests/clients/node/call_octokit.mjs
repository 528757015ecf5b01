// octokit with its throttling plugin: retries where `x-ratelimit-remaining` is 0,
// or where the message speaks of a secondary rate limit.
import { Octokit } from '@octokit/core';
import { throttling } from '@octokit/plugin-throttling';

const heard = [];
const hears = (kind) => (retryAfter, _options, _octokit, retryCount) => {
  heard.push(kind);
  return retryCount < 5;
};
const throttle = { onRateLimit: hears('primary'), onSecondaryRateLimit: hears('secondary') };
const log = { debug() {}, info() {}, warn() {}, error() {} };
const client = new (Octokit.plugin(throttling))({ baseUrl: url, throttle, log });
await report(() => client.request('GET /zen'), { heard });
