/**
 * The part of the client that does not wait: remembered refusals, the breaker, outage rules.
 */
import { type Decision, readDecision } from "./decision.js";
import { TollgateError } from "./errors.js";
import { forgetOldest, type OutageRule } from "./outage.js";

/** The refusals that are remembered at a time. */
export const MAX_REMEMBERED = 10_000;
/** The failed calls in a row after which the server is called only every `PROBE_INTERVAL_MS`. */
export const FAILURES_TO_OPEN = 3;
export const PROBE_INTERVAL_MS = 1000;

/** A check: its path and body, and the cost. */
export interface Check {
  readonly path: string;
  readonly body: Readonly<Record<string, unknown>>;
  readonly cost: number;
}

interface Refusal {
  readonly until: number;
  readonly retryAt: number;
  readonly decision: Decision;
}

/** Remembered refusals, breaker and outage rule of one client. */
export class Session {
  readonly #onOutage: OutageRule;
  readonly #rememberMs: number;
  readonly #clock: () => number;
  readonly #refusals = new Map<string, Refusal>();
  #failures = 0;
  #probeAt = 0;

  constructor(onOutage: OutageRule, rememberMs: number, clock: () => number = () => performance.now()) {
    this.#onOutage = onOutage;
    this.#rememberMs = rememberMs;
    this.#clock = clock;
  }

  get remembered(): number {
    return this.#refusals.size;
  }

  /** Returns a decision that needs no call: a remembered refusal, or the outage rule while the breaker is open. */
  decideWithoutCall(check: Check): Decision | undefined {
    const now = this.#clock();
    const key = keyOf(check);
    const refusal = this.#refusals.get(key);
    if (refusal !== undefined) {
      if (now < refusal.until) {
        return { ...refusal.decision, retryAfterMs: Math.ceil(refusal.retryAt - now), remembered: true };
      }
      this.#refusals.delete(key);
    }
    if (this.#failures >= FAILURES_TO_OPEN) {
      if (now < this.#probeAt) return this.decideInOutage(check);
      // One caller probes; the others continue without the server until it has an answer.
      this.#probeAt = now + PROBE_INTERVAL_MS;
    }
    return undefined;
  }

  /** Reads the decision of the server, and remembers a refusal. */
  decideFrom(check: Check, body: unknown): Decision {
    const decision = readDecision(body);
    if (decision === undefined) throw new TollgateError("the server answered with something that is not a decision");
    const wait = decision.retryAfterMs ?? 0;
    const span = Math.min(wait, this.#rememberMs);
    if (!decision.allowed && !decision.degraded && span > 0 && check.cost > 0) {
      const now = this.#clock();
      this.#refusals.set(keyOf(check), { until: now + span, retryAt: now + wait, decision });
      if (this.#refusals.size > MAX_REMEMBERED) forgetOldest(this.#refusals);
    }
    return decision;
  }

  decideInOutage(check: Check): Decision {
    const { cost: _, ...identity } = check.body;
    return this.#onOutage(check.path + stable(identity), check.cost, this.#clock());
  }

  /** Forgets remembered refusals, after units were returned. */
  forgetRefusals(): void {
    this.#refusals.clear();
  }

  recordAnswer(): void {
    this.#failures = 0;
  }

  recordFailure(): void {
    this.#failures += 1;
    this.#probeAt = this.#clock() + PROBE_INTERVAL_MS;
  }
}

function keyOf(check: Check): string {
  return check.path + stable(check.body);
}

/** Encodes a body so that the order of its members does not matter. */
function stable(value: unknown): string {
  return JSON.stringify(value, (_, member: unknown) =>
    typeof member === "object" && member !== null && !Array.isArray(member)
      ? Object.fromEntries(Object.entries(member).sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0)))
      : member,
  );
}
