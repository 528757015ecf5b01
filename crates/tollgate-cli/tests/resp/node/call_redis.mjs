// node-redis.
import { createClient } from "redis";

// Whatever goes wrong with a connection is told here too, and would end the program otherwise.
const RESP = protocol === 3 ? { RESP: 3 } : {};
const create = (options) => createClient({ ...RESP, ...options }).on("error", () => {});

const client = create({ url: `redis://127.0.0.1:${open}` });
await client.connect();
const call = (words) => client.sendCommand(words);
// What is sent without a pause in between is sent together.
const heard = await converse(call, (all) => Promise.all(all.map(call)));
const transaction = client.multi();
for (let at = 0; at < 3; at += 1) transaction.addCommand(TRANSACTION);
heard.transaction = (await transaction.exec()).map((answer) => answer[2]);

const at = { host: "127.0.0.1", port: locked, reconnectStrategy: false };
const knows = create({ socket: at, password });
await knows.connect();
heard.password = await knows.sendCommand(CELL);
await knows.close();
heard.wrong_password = await kind(create({ socket: at, password: "open barley" }).connect());
const stranger = create({ socket: at });
heard.no_password = await kind(stranger.connect().then(() => stranger.ping()));
if (stranger.isOpen) stranger.destroy();

await restart();
heard.restarted = await call(CELL);
await client.close();
console.log(JSON.stringify(heard));
