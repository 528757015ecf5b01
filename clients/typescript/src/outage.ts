import { type Decision, localDecision } from "./decision.js";

/** The keys that a local limit counts at a time. The one that was used least recently is forgotten. */
export const MAX_KEYS = 10_000;

/** Decides while the server does not answer. `key` is equal for requests with equal identity, `now` is monotonic. */
export type OutageRule = (key: string, cost: number, now: number) => Decision;

/** Admits every request while the server does not answer. */
export const allow: OutageRule = () => localDecision({ allowed: true, reason: "degraded" });

/** Refuses every request while the server does not answer. */
export function deny(retryAfterMs = 1000): OutageRule {
  return () => localDecision({ allowed: false, reason: "degraded", retryAfterMs });
}

/**
 * A token bucket for each key in this process, of `count` units every `perMs` milliseconds.
 * Give it a share of the real limit: every process has a bucket of its own.
 */
export function localLimit(count: number, perMs: number): OutageRule & { readonly size: number } {
  if (!(count >= 1 && perMs > 0)) throw new RangeError("a local limit has a count of at least 1 and a period above 0");
  const interval = perMs / count;
  // The time at which each bucket is full again, in the order of use.
  const fullAt = new Map<string, number>();
  const decide: OutageRule = (key, cost, now) => {
    if (cost > count) return localDecision({ allowed: false, reason: "never" });
    const full = Math.max(fullAt.get(key) ?? now, now) + cost * interval;
    const late = full - now - count * interval;
    // A sum of intervals may differ from their product by rounding.
    if (late > interval * 1e-6) return localDecision({ allowed: false, reason: "degraded", retryAfterMs: Math.ceil(late) });
    fullAt.delete(key);
    fullAt.set(key, full);
    if (fullAt.size > MAX_KEYS) forgetOldest(fullAt);
    return localDecision({ allowed: true, reason: "degraded" });
  };
  return Object.defineProperty(decide, "size", { get: () => fullAt.size }) as OutageRule & { readonly size: number };
}

/** Removes the first entry of a map, which is the oldest one. */
export function forgetOldest(map: Map<string, unknown>): void {
  for (const key of map.keys()) {
    map.delete(key);
    return;
  }
}
