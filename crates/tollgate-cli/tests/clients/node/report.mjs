// Put before each of the other scripts: makes calls one after another and prints
// how they ended, as JSON. The last two arguments are URL and number of calls.
const [url, calls] = process.argv.slice(-2);

async function report(call, more = {}) {
  const ended = [];
  for (let done = 0; done < Number(calls); done += 1) {
    const start = performance.now();
    const error = await call().then(() => null, String);
    ended.push({ error, seconds: (performance.now() - start) / 1000 });
  }
  console.log(JSON.stringify({ calls: ended, ...more }));
}
