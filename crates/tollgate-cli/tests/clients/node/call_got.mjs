// got: obeys `Retry-After` on 429 by itself.
import got from 'got';

await report(() => got(url, { retry: { limit: 5 } }));
