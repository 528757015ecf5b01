import type { Decision } from "./decision.js";

/** Base class of all errors of this package. */
export class TollgateError extends Error {
  override name = "TollgateError";
}

/** A permit was refused. `decision` says by which limit and for how long. */
export class Refused extends TollgateError {
  override name = "Refused";
  constructor(readonly decision: Decision) {
    const by = decision.limit === null ? (decision.reason ?? "by the client") : `by \`${decision.limit}\``;
    const after = decision.retryAfterMs === null ? "" : `; retry after ${decision.retryAfterMs} ms`;
    super(`refused ${by}${after}`);
  }
}

/** The server rejected a call. The message says what to change. */
export class ApiError extends TollgateError {
  override name = "ApiError";
  constructor(
    readonly status: number,
    readonly detail: string,
  ) {
    super(`${status}: ${detail}`);
  }
}

/** The server did not answer, and the call has no outage rule: settle, renew, release, peek. */
export class Unavailable extends TollgateError {
  override name = "Unavailable";
}
