import { type Decision, isObject, readDecision } from "./decision.js";
import { ApiError, Refused, TollgateError, Unavailable } from "./errors.js";
import { allow, type OutageRule } from "./outage.js";
import { Permit } from "./permit.js";
import { type Check, Session } from "./session.js";

/** A key of a limit: a string for each part of its `by`. */
export type Key = string | readonly string[];

type Values = Readonly<Record<string, string | readonly string[]>>;

/** A request to decide about. */
export interface CheckRequest {
  readonly path: string;
  readonly method?: string;
  readonly host?: string;
  readonly ip?: string;
  readonly user?: string;
  readonly apiKey?: string;
  readonly tenant?: string;
  readonly plan?: string;
  readonly headers?: Values;
  readonly claims?: Values;
  readonly cost?: number;
}

export interface TollgateOptions {
  /** `http://127.0.0.1:7070` unless given. */
  readonly baseUrl?: string;
  /** Sent as a bearer token. */
  readonly token?: string;
  /** The time that a call may take, then the outage rule decides. 250 unless given. */
  readonly timeoutMs?: number;
  /** `allow` unless given; also `deny()`, `localLimit(count, perMs)` or a function of your own. */
  readonly onOutage?: OutageRule;
  /**
   * The longest time for which a refusal is repeated without a call. An operator's grant is noticed
   * after this time. 1000 unless given; 0 turns it off.
   */
  readonly rememberMs?: number;
  /** Replaces the global `fetch`. */
  readonly fetch?: typeof fetch;
}

interface PermitOptions {
  /** Renews the slots until the permit is released; choose less than half of the limit's `ttl`. */
  readonly renewEveryMs?: number;
}

/** Asks a Tollgate server for decisions. */
export class Tollgate {
  readonly #baseUrl: string;
  readonly #headers: Record<string, string>;
  readonly #timeoutMs: number;
  readonly #fetch: typeof fetch;
  readonly #session: Session;

  constructor(options: TollgateOptions = {}) {
    this.#baseUrl = (options.baseUrl ?? "http://127.0.0.1:7070").replace(/\/+$/, "");
    this.#headers = { "content-type": "application/json" };
    if (options.token !== undefined) this.#headers["authorization"] = `Bearer ${options.token}`;
    this.#timeoutMs = options.timeoutMs ?? 250;
    this.#fetch = options.fetch ?? fetch;
    this.#session = new Session(options.onOutage ?? allow, options.rememberMs ?? 1000);
  }

  /** Decides about a request by all limits that cover it, and charges it if it is admitted. */
  check(request: CheckRequest): Promise<Decision> {
    const { apiKey, ...body } = request;
    return this.#decide({
      path: "/v1/check",
      body: apiKey === undefined ? body : { ...body, api_key: apiKey },
      cost: request.cost ?? 1,
    });
  }

  /** Decides by one limit of the policy about one key, and charges it if it is admitted. */
  checkLimit(limit: string, key: Key, cost = 1): Promise<Decision> {
    return this.#decide({ path: limitPath(limit, "check"), body: { key, cost }, cost });
  }

  /**
   * Returns a permit for a request, or throws `Refused`. Waits if a limit with a queue says so.
   *
   * `await using permit = await tollgate.permit(…)` releases the slots of the request at the end of the block.
   */
  async permit(request: CheckRequest, options: PermitOptions = {}): Promise<Permit> {
    return this.#start(await this.check(request), options);
  }

  /** Returns a permit of one limit for one key, or throws `Refused`. See `permit`. */
  async permitLimit(limit: string, key: Key, options: PermitOptions & { cost?: number } = {}): Promise<Permit> {
    return this.#start(await this.checkLimit(limit, key, options.cost), options);
  }

  /** Returns the state of a key. Charges nothing. */
  peek(limit: string, key: Key): Promise<Decision> {
    return this.#operate(limit, "peek", { key });
  }

  /** Returns units to a key, up to a full allowance. */
  grant(limit: string, key: Key, units: number): Promise<Decision> {
    return this.#operate(limit, "grant", { key, cost: units });
  }

  /** Returns the last charge of a key, up to a full allowance. */
  refund(limit: string, key: Key, cost = 1): Promise<Decision> {
    return this.#operate(limit, "refund", { key, cost });
  }

  /** Resets a key to its full allowance. */
  reset(limit: string, key: Key): Promise<Decision> {
    return this.#operate(limit, "reset", { key });
  }

  /** Reports the final cost of an admitted request. The first settlement is final. */
  async settle(decision: Decision, cost: number): Promise<void> {
    if (decision.id !== null) await this.#call("/v1/settle", { id: decision.id, cost });
  }

  /** Starts the leases of the slots of a request again. Returns the number of slots that it still holds. */
  renew(decision: Decision): Promise<number> {
    return this.#countSlots("/v1/renew", decision);
  }

  /** Releases the slots of a request. Returns their number. Releasing twice is harmless. */
  release(decision: Decision): Promise<number> {
    return this.#countSlots("/v1/release", decision);
  }

  async #decide(check: Check): Promise<Decision> {
    const known = this.#session.decideWithoutCall(check);
    if (known !== undefined) return known;
    let body: unknown;
    try {
      body = await this.#call(check.path, check.body);
    } catch (error) {
      if (error instanceof Unavailable) return this.#session.decideInOutage(check);
      throw error;
    }
    return this.#session.decideFrom(check, body);
  }

  async #operate(limit: string, operation: string, body: object): Promise<Decision> {
    const decision = readDecision(await this.#call(limitPath(limit, operation), body));
    if (decision === undefined) throw new TollgateError("the server answered with something that is not a decision");
    if (operation !== "peek") this.#session.forgetRefusals();
    return decision;
  }

  async #countSlots(path: string, decision: Decision): Promise<number> {
    if (decision.id === null) return 0;
    const body = await this.#call(path, { id: decision.id });
    return Number(body["slots"] ?? 0);
  }

  async #start(decision: Decision, options: PermitOptions): Promise<Permit> {
    if (!decision.allowed) throw new Refused(decision);
    if (decision.waitMs > 0) await new Promise((resolve) => setTimeout(resolve, decision.waitMs));
    return new Permit(this, decision, options.renewEveryMs);
  }

  async #call(path: string, body: object): Promise<Record<string, unknown>> {
    let response: Response;
    let answer: unknown;
    try {
      response = await this.#fetch(this.#baseUrl + path, {
        method: "POST",
        headers: this.#headers,
        body: JSON.stringify(body),
        redirect: "error",
        signal: AbortSignal.timeout(this.#timeoutMs),
      });
      answer = parse(await response.text());
    } catch (error) {
      this.#session.recordFailure();
      throw new Unavailable(`no answer from ${this.#baseUrl}`, { cause: error });
    }
    if (response.status >= 500) {
      this.#session.recordFailure();
      throw new Unavailable(`${this.#baseUrl} answered ${response.status}`);
    }
    this.#session.recordAnswer();
    if (response.ok && isObject(answer)) return answer;
    if (response.ok) throw new TollgateError(`${this.#baseUrl} is not the API of a Tollgate server: no JSON object`);
    const detail = isObject(answer) ? answer["detail"] : undefined;
    throw new ApiError(
      response.status,
      typeof detail === "string" ? detail : `${this.#baseUrl} did not say why: is it the API of a Tollgate server?`,
    );
  }
}

function limitPath(limit: string, operation: string): string {
  return `/v1/limits/${encodeURIComponent(limit)}/${operation}`;
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
