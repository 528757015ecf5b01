// ioredis, which speaks RESP2 only.
import { Redis } from "ioredis";

const client = new Redis(open);
client.on("error", () => {});
const call = ([name, ...words]) => client.call(name, ...words);
const many = async (all) => {
  const answers = await client.pipeline(all.map(([name, ...words]) => ["call", name, ...words])).exec();
  return answers.map(([raised, answer]) => {
    if (raised) throw raised;
    return answer;
  });
};
const heard = await converse(call, many);
const transaction = client.multi();
for (let at = 0; at < 3; at += 1) transaction.call(...TRANSACTION);
heard.transaction = (await transaction.exec()).map(([raised, answer]) => raised ?? answer[2]);

const locksmith = (options) => {
  const it = new Redis({ port: locked, retryStrategy: null, maxRetriesPerRequest: 0, ...options });
  it.on("error", () => {});
  return it;
};
const knows = locksmith({ password });
heard.password = await knows.call(...CELL);
knows.disconnect();
const guesses = locksmith({ password: "open barley" });
const rejected = new Promise((done) => guesses.on("error", (raised) => done(raised.message.split(" ")[0])));
heard.wrong_password = await rejected;
guesses.disconnect();
const stranger = locksmith({});
heard.no_password = await kind(stranger.call(...CELL));
stranger.disconnect();

await restart();
heard.restarted = await call(CELL);
client.disconnect();
console.log(JSON.stringify(heard));
