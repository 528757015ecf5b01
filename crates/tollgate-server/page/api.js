// Calls the API. URLs are relative, so the page works behind any prefix.
//
// The token lives in this tab only (sessionStorage) and is sent as a header: no cookie, nothing to forge.

const TOKEN = "tollgate-token";
const PATIENCE = 8000;

/** An API error: no response, or an unusable one. `status` 0: no response. */
export class Failure extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

let token = null;
try {
  token = sessionStorage.getItem(TOKEN);
} catch {
  // Storage may be forbidden: the token then lives until the page is closed.
}

export const hasToken = () => token !== null;

export function setToken(value) {
  token = value;
  try {
    if (value === null) sessionStorage.removeItem(TOKEN);
    else sessionStorage.setItem(TOKEN, value);
  } catch {
    // As above.
  }
}

async function ask(method, path, body) {
  const stop = new AbortController();
  const timer = setTimeout(() => stop.abort(), PATIENCE);
  const headers = { accept: "application/json" };
  if (token !== null) headers.authorization = `Bearer ${token}`;
  if (body !== undefined) headers["content-type"] = "application/json";
  try {
    const options = { method, headers, signal: stop.signal, cache: "no-store", credentials: "same-origin" };
    if (body !== undefined) options.body = JSON.stringify(body);
    const answer = await fetch(path, options);
    const text = await answer.text();
    let told = null;
    try {
      told = JSON.parse(text);
    } catch {
      // The message is set below.
    }
    if (!answer.ok) {
      throw new Failure(answer.status, String(told?.detail ?? told?.title ?? `the server answered ${answer.status}`));
    }
    if (told === null)
      throw new Failure(answer.status, "the answer is not what Tollgate says: is something in between?");
    return told;
  } catch (error) {
    if (error instanceof Failure) throw error;
    throw new Failure(
      0,
      stop.signal.aborted ? `no answer within ${PATIENCE / 1000} s` : "the server cannot be reached",
    );
  } finally {
    clearTimeout(timer);
  }
}

export const get = (path) => ask("GET", path);
export const post = (path, body) => ask("POST", path, body);
export const put = (path, body) => ask("PUT", path, body);
