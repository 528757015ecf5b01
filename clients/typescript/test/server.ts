/** A real Tollgate server for the tests: the binary that `TOLLGATE_BINARY` names, on free ports. */
import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

const POLICY = `
listen: {gateway: off, api: "127.0.0.1:0", rls: off, resp: off}
limits:
  - {name: search, endpoint: /search, by: user, bucket: 2/hour}
  - {name: tokens, endpoint: /chat, by: user, bucket: 100/hour}
  - {name: exports, endpoint: /exports, by: user, slots: 1}
  - {name: reports, endpoint: /reports, by: user, rate: 1/minute, queue: {length: 5, wait: 10m}}
  - {name: mails, endpoint: /mails, by: user, rate: 50/second, queue: {length: 5, wait: 5s}}
`;
const START_TIMEOUT_MS = 30_000;

export interface Server {
  readonly url: string;
  stop(): Promise<void>;
}

export async function startServer(): Promise<Server> {
  const binary = process.env["TOLLGATE_BINARY"];
  if (binary === undefined) throw new Error("TOLLGATE_BINARY names the server to test with");
  const folder = mkdtempSync(join(tmpdir(), "tollgate-"));
  writeFileSync(join(folder, "policy.yaml"), POLICY);
  const log = openSync(join(folder, "log"), "w");
  const child = spawn(binary, ["serve", "--config", "policy.yaml", "--ready-file", "ready.json"], {
    cwd: folder,
    stdio: ["ignore", log, log],
  });
  const ended = new Promise<void>((resolve) => child.once("exit", () => resolve()));
  const ready = join(folder, "ready.json");
  const deadline = Date.now() + START_TIMEOUT_MS;
  while (!existsSync(ready)) {
    if (child.exitCode !== null || Date.now() > deadline) {
      throw new Error(`the server did not start: ${readFileSync(join(folder, "log"), "utf8")}`);
    }
    await sleep(20);
  }
  const addresses = JSON.parse(readFileSync(ready, "utf8")) as { api: string };
  return {
    url: `http://${addresses.api}`,
    async stop() {
      child.kill("SIGKILL");
      await ended;
      rmSync(folder, { recursive: true });
    },
  };
}
