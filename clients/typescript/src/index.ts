/** Client of the Tollgate rate limiter. */
export { Tollgate, type CheckRequest, type Key, type TollgateOptions } from "./client.js";
export type { Decision, LimitOutcome } from "./decision.js";
export { ApiError, Refused, TollgateError, Unavailable } from "./errors.js";
export { allow, deny, localLimit, type OutageRule } from "./outage.js";
export { Permit } from "./permit.js";
