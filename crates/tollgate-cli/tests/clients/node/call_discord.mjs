// @discordjs/rest: waits for `X-RateLimit-Reset-After` before it is refused, and
// for `Retry-After` when it is.
import { REST } from '@discordjs/rest';

const client = new REST({ api: url, version: '10' }).setToken('nobody');
await report(() => client.get('/gateway/bot'));
