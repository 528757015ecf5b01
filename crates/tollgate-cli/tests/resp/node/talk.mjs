// Put before each of the other scripts: what is asked of each client, and how what it heard is printed.
// The arguments are the protocol, the ports of an open server and of a locked one, and the password.
const [protocol, open, locked, password] = process.argv.slice(-4).map((word, at) => (at < 3 ? Number(word) : word));

const CELL = ["CL.THROTTLE", "ann", "15", "30", "60"];
const REFUSED = ["CL.THROTTLE", "eve", "0", "1", "86400"];
const CRAB = ["THROTTLE", "bob", "15", "30", "60"];
const GCRA = ["GCRA", "cid", "15", "30", "60"];
const CHECK = ["TG.CHECK", "per-user", "dan"];
const CHECK_REFUSED = ["TG.CHECK", "per-user", "dan", "5"];
const UNKNOWN = ["FLY", "away"];
const NO_LIMIT = ["TG.CHECK", "per-usr", "dan"];
const PIPELINE = ["CL.THROTTLE", "pipe", "99", "100", "8640000"];
const TRANSACTION = ["CL.THROTTLE", "all", "99", "100", "8640000"];

// What HELLO answers is a list of names and values, or a map of them.
function proto(hello) {
  return Array.isArray(hello) ? hello[hello.indexOf("proto") + 1] : hello.proto;
}

// Without the id, which is another one each time.
function checked(answer) {
  if (answer[5]?.length !== 16) throw new Error(`no id: ${answer}`);
  return answer.slice(0, 5);
}

// The error's text without its kind, as redis-py has it; or nothing.
function error(promise) {
  return promise.then(() => null, (raised) => raised.message.replace("ERR ", "").trim());
}

// The first word of an error, which is its kind.
async function kind(promise) {
  return (await error(promise))?.split(" ")[0];
}

async function restart() {
  const told = new Promise((done) => process.stdin.once("data", done));
  console.log("restart");
  await told;
  process.stdin.destroy();
}

// The conversation. `call` takes the words of a command, `many` a list of commands that are sent at once.
async function converse(call, many) {
  const heard = {
    ping: await call(["PING"]),
    cell: await call(CELL),
    cell_refused: (await many([REFUSED, REFUSED]))[1],
    crab: await call(CRAB),
    gcra: await call(GCRA),
    check: checked(await call(CHECK)),
    check_refused: (await call(CHECK_REFUSED))[0],
    pipeline: (await many(Array(100).fill(PIPELINE))).map((answer) => answer[2]),
  };
  const before = await call(["CLIENT", "ID"]);
  heard.unknown = await error(call(UNKNOWN));
  heard.no_limit = await error(call(NO_LIMIT));
  heard.same_connection = (await call(["CLIENT", "ID"])) === before;
  heard.proto = proto(await call(["HELLO"]));
  return heard;
}
