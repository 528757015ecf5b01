//! Mutated requests through the gateway to an upstream that checks every byte.
//!
//! The upstream has a parser of its own, stricter than the standard. Everything that it receives must be a request
//! that the gateway wrote: valid, with one clear end, and with the headers that the gateway adds. Bytes of a client that
//! pass as a request of their own have none of these.
//!
//! `make fuzz-gateway` sends a million of them. The number is in `TOLLGATE_MUTATIONS`, the seed in
//! `TOLLGATE_MUTATION_SEED`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::recording::{self, RecordedRequest};
use crate::support::{Behind, ServedGateway, TEST_TIMEOUT, eventually};

/// The requests of a run without `TOLLGATE_MUTATIONS`.
const DEFAULT_REQUESTS: u64 = 4_000;

/// The requests of one connection, and the connections at a time.
const REQUESTS_PER_CONNECTION: u64 = 4;
const CONNECTIONS: u64 = 64;

/// How long a connection may be quiet before the client closes its side. It decides only how much of the input is read.
const QUIET: Duration = Duration::from_millis(40);

/// The maximum growth of the process after a tenth of the requests of `make fuzz-gateway`.
const MAX_GROWTH_KIB: u64 = 48 * 1024;

/// A limit that counts all requests and refuses none. Its window does not end during a run.
const COUNTED: &str =
    "limits: [{name: all, by: global, algorithm: fixed-window, rate: 1000000000/1000 days}]";

/// The same, and a limit whose slots all requests hold.
const HELD: &str = "limits: [{name: all, by: global, algorithm: fixed-window, rate: 1000000000/1000 days}, \
     {name: held, by: global, slots: 1000, ttl: 1h}]";

/// A seeded generator (splitmix64).
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % bound as u64).unwrap()
    }
}

const SEEDS: [&str; 9] = [
    "GET / HTTP/1.1\r\nhost: a\r\n\r\n",
    "POST /a?b=c HTTP/1.1\r\nHost: a.test:80\r\nContent-Length: 33\r\n\r\nGET /in HTTP/1.1\r\nhost: a\r\nx: y\r\n\r\n",
    "POST /b HTTP/1.1\r\nhost: a\r\nTransfer-Encoding: chunked\r\n\r\n21\r\nGET /in HTTP/1.1\r\nhost: a\r\nx: y\r\n\r\n\r\n0\r\n\r\n",
    "PUT /c HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3;a=b\r\nabc\r\n1\r\nd\r\n0\r\nx-t: y\r\n\r\n",
    "HEAD /d HTTP/1.1\r\nhost: [::1]:80\r\nconnection: keep-alive\r\naccept: */*\r\n\r\n",
    "DELETE /e/../f HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\ncookie: a=1\r\n\r\n",
    "POST /g HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 3\r\n\r\nabc",
    "OPTIONS * HTTP/1.1\r\nhost: a\r\n\r\n",
    "GET http://a/h HTTP/1.1\r\nhost: a\r\nte: trailers\r\n\r\n",
];

const INSERTS: [&str; 34] = [
    "\r",
    "\n",
    "\r\n",
    "\r\n\r\n",
    "\0",
    " ",
    "\t",
    ":",
    ";",
    ",",
    "?",
    "#",
    "%",
    "/",
    "\\",
    "\u{b}",
    "\u{7f}",
    "\u{e9}",
    "0",
    "1",
    "f",
    "-",
    "+",
    "_",
    "chunked",
    "content-length: 3\r\n",
    "Content-Length: 40\r\n",
    "transfer-encoding: chunked\r\n",
    "Transfer-Encoding : chunked\r\n",
    "host: b\r\n",
    "connection: close\r\n",
    "connection: via, x\r\n",
    "HTTP/1.0",
    "GET /in HTTP/1.1\r\nhost: a\r\n\r\n",
];

pub(crate) fn mutated(rng: &mut Rng, out: &mut Vec<u8>) {
    let mut bytes = SEEDS[rng.below(SEEDS.len())].as_bytes().to_vec();
    for _ in 0..rng.below(4) {
        let at = rng.below(bytes.len());
        match rng.below(6) {
            0 => bytes[at] = u8::try_from(rng.below(256)).unwrap(),
            1 => drop(bytes.remove(at)),
            2 | 3 => drop(bytes.splice(at..at, INSERTS[rng.below(INSERTS.len())].bytes())),
            4 => bytes[at] ^= 0x20,
            _ => {
                // A line twice.
                let line: Vec<u8> =
                    bytes[at..].iter().copied().take_while(|it| *it != b'\n').chain([b'\n']).collect();
                drop(bytes.splice(at..at, line));
            }
        }
        if bytes.is_empty() {
            bytes.push(b'G');
        }
    }
    out.extend(bytes);
}

/// The findings of the upstream.
#[derive(Default)]
struct Recorder {
    requests: AtomicU64,
    whole: AtomicU64,
    wrong: Mutex<Vec<String>>,
}

impl Recorder {
    /// Serves one connection of the gateway until it ends or something is wrong.
    async fn serve(&self, stream: TcpStream) {
        let mut stream = BufReader::new(stream);
        loop {
            match self.read(&mut stream).await {
                Ok(true) => {}
                Ok(false) => return,
                Err(wrong) => {
                    self.wrong.lock().unwrap().push(wrong);
                    return;
                }
            }
            let answer = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
            if stream.write_all(answer.as_bytes()).await.is_err() {
                return;
            }
        }
    }

    /// Reads a request. `false`: the connection ended, between requests or within one.
    async fn read(&self, stream: &mut BufReader<TcpStream>) -> Result<bool, String> {
        let Some(request) = recording::read(stream).await? else { return Ok(false) };
        self.requests.fetch_add(1, Ordering::Relaxed);
        check(&request)?;
        self.whole.fetch_add(u64::from(request.is_whole), Ordering::Relaxed);
        Ok(request.is_whole)
    }
}

/// Checks that the gateway wrote a request.
fn check(request: &RecordedRequest) -> Result<(), String> {
    let vias = request.texts("via").iter().filter(|it| it.ends_with("tollgate")).count();
    let clients = request.texts("x-forwarded-for").iter().filter(|it| *it == "127.0.0.1").count();
    if (vias, clients) != (1, 1) {
        return Err(format!("not written by the gateway: {vias} via, {clients} clients: {request:?}"));
    }
    let forwarded = ["keep-alive", "proxy-connection", "upgrade", "expect"];
    match forwarded.iter().find(|name| request.values(name).next().is_some()) {
        Some(name) => Err(format!("{name} was forwarded: {request:?}")),
        None => Ok(()),
    }
}

/// Sends requests on one connection and reads to its end. Returns the number of responses.
async fn talk(gateway: &ServedGateway, bytes: &[u8]) -> u64 {
    let Ok(mut stream) = TcpStream::connect(gateway.address).await else { return 0 };
    let _ = stream.write_all(bytes).await;
    let (mut said, mut is_open) = (Vec::new(), true);
    loop {
        let mut some = [0; 4096];
        let patience = if is_open { QUIET } else { TEST_TIMEOUT };
        match timeout(patience, stream.read(&mut some)).await {
            Ok(Ok(0) | Err(_)) => break,
            Ok(Ok(count)) => said.extend_from_slice(&some[..count]),
            Err(_) if is_open => {
                is_open = false;
                let _ = stream.shutdown().await;
            }
            Err(error) => panic!("a connection hangs ({error}) after {:?}", String::from_utf8_lossy(bytes)),
        }
    }
    said.windows(9).filter(|it| it == b"HTTP/1.1 ").count() as u64
}

/// Returns the requests that a gateway may still admit.
fn left(gateways: &[ServedGateway]) -> u64 {
    gateways.iter().map(ServedGateway::left).sum()
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|it| it.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

#[allow(clippy::disallowed_methods, reason = "`make fuzz-gateway` sets the number and the seed")]
pub(crate) fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |it| it.parse().unwrap_or_else(|_| panic!("{variable}: {it}")))
}

#[test]
fn mutated_requests_never_reach_the_upstream_unless_the_gateway_wrote_them() {
    let (requests, seed) =
        (number("TOLLGATE_MUTATIONS", DEFAULT_REQUESTS), number("TOLLGATE_MUTATION_SEED", 20_261_117));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let recorder = Arc::new(Recorder::default());
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap());
    let gateways =
        [COUNTED, HELD].map(|policy| Behind::all(std::slice::from_ref(&origin)).limited(policy).serve());
    let (before, before_slots) = (left(&gateways), gateways[1].free_slots());
    let (answers, early_kib) = runtime.block_on(async {
        let upstream = Arc::clone(&recorder);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let upstream = Arc::clone(&upstream);
                tokio::spawn(async move { upstream.serve(stream).await });
            }
        });
        let (next, answers, early_kib) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        let client = |number: u64| {
            let (next, answers, early_kib) = (&next, &answers, &early_kib);
            let gateway = &gateways[usize::try_from(number % 2).unwrap()];
            async move {
                let mut rng = Rng(seed.wrapping_mul(1_000_003).wrapping_add(number));
                loop {
                    let sent = next.fetch_add(REQUESTS_PER_CONNECTION, Ordering::Relaxed);
                    if sent >= requests {
                        return;
                    }
                    if sent >= requests / 10 && early_kib.load(Ordering::Relaxed) == 0 {
                        early_kib.store(resident_kib(), Ordering::Relaxed);
                    }
                    let mut bytes = Vec::new();
                    (0..REQUESTS_PER_CONNECTION).for_each(|_| mutated(&mut rng, &mut bytes));
                    answers.fetch_add(talk(gateway, &bytes).await, Ordering::Relaxed);
                }
            }
        };
        let clients: Vec<_> = (0..CONNECTIONS).map(client).collect();
        futures_join(clients).await;
        (answers.into_inner(), early_kib.into_inner())
    });
    let wrong = std::mem::take(&mut *recorder.wrong.lock().unwrap());
    assert!(
        wrong.is_empty(),
        "seed {seed}: {} wrong requests, such as {:?}",
        wrong.len(),
        &wrong[..wrong.len().min(5)]
    );
    let (charged, seen) = (before - left(&gateways), recorder.requests.load(Ordering::Relaxed));
    let (whole, late_kib) = (recorder.whole.load(Ordering::Relaxed), resident_kib());
    println!(
        "{requests} mutated requests, {answers} responses, {charged} decided, {seen} forwarded, {whole} complete; \
         {early_kib} KiB after a tenth, {late_kib} KiB at the end"
    );
    assert!(seen <= charged, "{seen} requests were forwarded, and {charged} were decided");
    assert!(whole > requests / 20, "only {whole} of {requests} requests were forwarded");
    // In a short run, other tests share the process.
    let is_alone = requests > DEFAULT_REQUESTS;
    assert!(!is_alone || late_kib < early_kib + MAX_GROWTH_KIB, "{early_kib} KiB became {late_kib} KiB");
    // The upstream runs on the runtime of the clients.
    for gateway in &gateways {
        let responses = runtime.block_on(talk(gateway, b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"));
        assert_eq!(responses, 1);
    }
    assert!(recorder.whole.load(Ordering::Relaxed) > whole + 1, "a gateway does not forward any more");
    drop(runtime);
    eventually("all slots are free", || gateways[1].free_slots() == before_slots);
}

/// Awaits all futures on this task.
pub(crate) async fn futures_join(futures: Vec<impl Future<Output = ()>>) {
    let mut futures: Vec<_> = futures.into_iter().map(|it| Some(Box::pin(it))).collect();
    std::future::poll_fn(|cx| {
        for future in &mut futures {
            if future.as_mut().is_some_and(|it| it.as_mut().poll(cx).is_ready()) {
                *future = None;
            }
        }
        if futures.iter().all(Option::is_none) {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
}
