// axios with axios-retry: obeys `Retry-After` by default.
import axios from 'axios';
import axiosRetry from 'axios-retry';

const client = axios.create({ proxy: false });
axiosRetry(client, { retries: 5 });
await report(() => client.get(url));
