/** The outcome of one window of one limit. Times are in milliseconds, as in the API. */
export interface LimitOutcome {
  readonly name: string;
  readonly window: string | null;
  readonly key: string;
  readonly allowed: boolean;
  readonly limit: number;
  readonly remaining: number;
  /** `null` if waiting is not needed or does not help. */
  readonly retryAfterMs: number | null;
  /** The time until the key has its full allowance. */
  readonly resetAfterMs: number;
}

/** The answer to a check. Times are in milliseconds, as in the API. */
export interface Decision {
  readonly allowed: boolean;
  /** The id, to settle, renew or release the request; `null` if the server did not decide. */
  readonly id: string | null;
  /** The limit that refused, otherwise the one closest to refusing. */
  readonly limit: string | null;
  /** The time to wait after a refusal; `null` if waiting is not needed or does not help. */
  readonly retryAfterMs: number | null;
  /** The time to wait before an admitted request starts, if a limit has a queue. */
  readonly waitMs: number;
  /** Whether outage rules decided: those of the server, or those of this client. */
  readonly degraded: boolean;
  /** Whether this client repeated an earlier refusal without a call. */
  readonly remembered: boolean;
  readonly priority: string | null;
  readonly reason: string | null;
  readonly limits: readonly LimitOutcome[];
}

/** A decision of the client itself, without a server. */
export function localDecision(decision: { allowed: boolean; retryAfterMs?: number; reason: string }): Decision {
  return {
    id: null,
    limit: null,
    retryAfterMs: null,
    waitMs: 0,
    degraded: true,
    remembered: false,
    priority: null,
    limits: [],
    ...decision,
  };
}

/** Reads the response to a check; `undefined` if it is none. Members that this version does not know are ignored. */
export function readDecision(body: unknown): Decision | undefined {
  if (!isObject(body) || typeof body["allowed"] !== "boolean") return undefined;
  const limits = body["limits"] ?? [];
  if (!Array.isArray(limits)) return undefined;
  const outcomes = limits.map(readOutcome);
  if (!outcomes.every((it) => it !== undefined)) return undefined;
  return {
    allowed: body["allowed"],
    id: text(body["id"]),
    limit: text(body["limit"]),
    retryAfterMs: count(body["retry_after_ms"]),
    waitMs: count(body["wait_ms"]) ?? 0,
    degraded: body["degraded"] === true,
    remembered: false,
    priority: text(body["priority"]),
    reason: text(body["reason"]),
    limits: outcomes,
  };
}

function readOutcome(body: unknown): LimitOutcome | undefined {
  if (!isObject(body) || typeof body["name"] !== "string" || typeof body["allowed"] !== "boolean") return undefined;
  return {
    name: body["name"],
    window: text(body["window"]),
    key: text(body["key"]) ?? "",
    allowed: body["allowed"],
    limit: count(body["limit"]) ?? 0,
    remaining: count(body["remaining"]) ?? 0,
    retryAfterMs: count(body["retry_after_ms"]),
    resetAfterMs: count(body["reset_after_ms"]) ?? 0,
  };
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function text(value: unknown): string | null {
  return typeof value === "string" ? value : null;
}

function count(value: unknown): number | null {
  return typeof value === "number" && value >= 0 ? value : null;
}
