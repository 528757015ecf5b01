// @discordjs/rest: many calls at a time over some channels, and how many succeeded.
// The last two arguments are the URL and the number of calls.
import { REST } from '@discordjs/rest';

const [url, calls] = process.argv.slice(-2);
const CHANNELS = 10;
const client = new REST({ api: `${url}/api`, version: '10', globalRequestsPerSecond: 600 }).setToken('nobody');

const ended = await Promise.all(
  Array.from({ length: Number(calls) }, (_, number) =>
    client.get(`/channels/${100000000000000000n + BigInt(number % CHANNELS)}/messages`).then(() => 1, () => 0),
  ),
);
console.log(JSON.stringify({ succeeded: ended.reduce((sum, one) => sum + one, 0) }));
