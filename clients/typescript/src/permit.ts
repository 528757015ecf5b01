import type { Decision } from "./decision.js";
import { TollgateError } from "./errors.js";

/** The operations of a client that a permit needs. */
interface Client {
  settle(decision: Decision, cost: number): Promise<void>;
  renew(decision: Decision): Promise<number>;
  release(decision: Decision): Promise<number>;
}

/** An admitted request. `await using` releases its slots at the end of the block. */
export class Permit implements AsyncDisposable {
  readonly #client: Client;
  readonly #renewals: ReturnType<typeof setInterval> | undefined;
  #isReleased = false;

  /** @internal */
  constructor(
    client: Client,
    readonly decision: Decision,
    renewEveryMs: number | undefined,
  ) {
    this.#client = client;
    if (renewEveryMs !== undefined) {
      // A renewal that fails is made again at the next interval, which may still be in time.
      this.#renewals = setInterval(() => void client.renew(decision).catch(ignoreFailure), renewEveryMs);
    }
  }

  /** Reports the final cost of the request. */
  settle(cost: number): Promise<void> {
    return this.#client.settle(this.decision, cost);
  }

  /** Releases the slots of the request. A server that does not answer lets them expire. */
  async release(): Promise<void> {
    clearInterval(this.#renewals);
    if (this.#isReleased) return;
    this.#isReleased = true;
    await this.#client.release(this.decision).catch(ignoreFailure);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.release();
  }
}

function ignoreFailure(error: unknown): void {
  if (!(error instanceof TollgateError)) throw error;
}
