//! Three parsers read the same bytes: the gateway, hyper and nginx.
//!
//! Every request that the gateway forwards must be the same request to hyper and to nginx: method, target, host,
//! headers and body. Requests that they read differently must be refused. Otherwise a proxy in front of the gateway
//! could pass a request that only the gateway, or only the proxy, finds in the bytes.
//!
//! hyper reads in this process. nginx is Debian's and forwards to a recording upstream, as the gateway does. Each
//! connection has a client address of its own, which both proxies pass on.
//!
//! `make fuzz-gateway` sends more. The number is in `TOLLGATE_DIFFERENTIAL`, the seed in `TOLLGATE_MUTATION_SEED`.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::timeout;
use tollgate::policy::path;

use crate::mutations::{Rng, futures_join, mutated, number};
use crate::nginx::Nginx;
use crate::recording::{self, RecordedRequest};
use crate::support::{Behind, TEST_TIMEOUT};

/// The connections with mutated requests without `TOLLGATE_DIFFERENTIAL`.
const DEFAULT_CONNECTIONS: u64 = 1_500;

/// The connections at a time.
const CONCURRENCY: u64 = 32;

/// How long a connection of the gateway may be quiet before the client closes its side. It decides only how much of the
/// input is read.
const QUIET: Duration = Duration::from_millis(40);

/// The last request of every connection.
const LAST: &str = "GET /last HTTP/1.1\r\nhost: last\r\nconnection: close\r\n\r\n";

/// A request as a parser reads it, without the parts that proxies rewrite.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Reading {
    method: String,
    /// The path without dot segments, and the query.
    target: String,
    /// The host in lower case, without its port and a dot at its end.
    host: String,
    headers: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
}

impl Reading {
    /// Returns the reading of a request. `host` is the host that the parser has found, and `nominated` are the headers
    /// that `Connection` names.
    fn new(request: &RecordedRequest, host: &str, nominated: &[String]) -> Self {
        let (path, query) = request.target.split_once('?').unwrap_or((&request.target, ""));
        let path = path::without_dot_segments(path).unwrap_or_else(|| path.to_owned());
        let is_compared = |name: &str| !is_rewritten(name) && !nominated.iter().any(|it| it == name);
        let mut headers: Vec<_> = request.headers.iter().filter(|it| is_compared(&it.0)).cloned().collect();
        headers.sort_by(|one, other| one.0.cmp(&other.0));
        // The gateway joins several lines of cookies.
        let cookies: Vec<_> = request.values("cookie").collect();
        if is_compared("cookie") && !cookies.is_empty() {
            headers.push(("cookie".to_owned(), cookies.join(&b"; "[..])));
        }
        Self {
            method: request.method.clone(),
            target: format!("{path}?{query}"),
            host: comparable_host(host),
            headers,
            body: request.body.clone(),
        }
    }
}

/// Whether a proxy removes or replaces a header, so that it is not compared.
fn is_rewritten(name: &str) -> bool {
    matches!(
        name,
        "cookie"
            | "connection"
            | "content-length"
            | "expect"
            | "forwarded"
            | "host"
            | "http2-settings"
            | "keep-alive"
            | "proxy-authenticate"
            | "proxy-authorization"
            | "proxy-connection"
            | "te"
            | "transfer-encoding"
            | "upgrade"
            | "via"
            | "x-nginx-host"
            | "x-real-ip"
    ) || name.starts_with("x-forwarded")
        || name.starts_with("x_forwarded")
}

/// Returns a host as nginx's `$host` has it.
fn comparable_host(host: &str) -> String {
    let name = match host.rfind(':') {
        Some(colon) if !host[colon..].contains(']') => &host[..colon],
        _ => host,
    };
    match name.strip_suffix('.').unwrap_or(name) {
        // The gateway writes this host if an HTTP/1.0 request has none.
        "" => "localhost".to_owned(),
        name => name.to_ascii_lowercase(),
    }
}

fn nominated(request: &RecordedRequest) -> Vec<String> {
    let lines = request.texts("connection");
    lines.iter().flat_map(|it| it.split(',')).map(|it| it.trim().to_ascii_lowercase()).collect()
}

/// The requests that an upstream received, by the address of their client.
#[derive(Default)]
struct Recorder {
    seen: Mutex<HashMap<IpAddr, Vec<RecordedRequest>>>,
    wrong: Mutex<Vec<String>>,
}

impl Recorder {
    async fn listen(self: &Arc<Self>) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, recorder) = (listener.local_addr().unwrap(), Arc::clone(self));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let recorder = Arc::clone(&recorder);
                tokio::spawn(async move { recorder.serve(stream).await });
            }
        });
        address
    }

    async fn serve(&self, stream: TcpStream) {
        let mut stream = BufReader::new(stream);
        loop {
            let request = match recording::read(&mut stream).await {
                Ok(Some(request)) if request.is_whole => request,
                Ok(_) => return,
                Err(wrong) => return self.wrong.lock().unwrap().push(wrong),
            };
            let clients = request.texts("x-forwarded-for");
            let [client] = &clients[..] else {
                return self.wrong.lock().unwrap().push(format!("not one client: {request:?}"));
            };
            let Ok(client) = client.parse() else {
                return self.wrong.lock().unwrap().push(format!("not a client: {request:?}"));
            };
            self.seen.lock().unwrap().entry(client).or_default().push(request);
            if stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.is_err() {
                return;
            }
        }
    }

    /// Takes the requests of a client.
    fn take(&self, client: IpAddr) -> Vec<RecordedRequest> {
        self.seen.lock().unwrap().remove(&client).unwrap_or_default()
    }
}

/// Starts nginx in front of an upstream. It passes on as much as it can.
fn start_nginx(upstream: SocketAddr) -> Nginx {
    Nginx::start(
        &format!("upstream recorder {{ server {upstream}; keepalive 64; }}"),
        "ignore_invalid_headers off; underscores_in_headers on; client_max_body_size 0;\n\
         location / {\n\
             proxy_pass http://recorder; proxy_http_version 1.1; proxy_ignore_client_abort on;\n\
             proxy_set_header Connection ''; proxy_set_header Host recorder;\n\
             proxy_set_header X-Nginx-Host $host; proxy_set_header X-Forwarded-For $remote_addr;\n\
         }",
    )
}

/// Returns the requests that hyper reads from a connection, and its readings of them.
async fn hyper_requests(sent: &[u8]) -> Vec<(RecordedRequest, Reading)> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (mut client, server) = tokio::io::duplex(64 * 1024);
    let notes = Arc::clone(&seen);
    let service = service_fn(move |request: Request<Incoming>| {
        let notes = Arc::clone(&notes);
        async move {
            let (parts, body) = request.into_parts();
            if let Ok(body) = body.collect().await {
                let headers = parts.headers.iter();
                let recorded = RecordedRequest {
                    method: parts.method.to_string(),
                    target: match parts.uri.query() {
                        Some(query) => format!("{}?{query}", parts.uri.path()),
                        None => parts.uri.path().to_owned(),
                    },
                    headers: headers.map(|it| (it.0.as_str().to_owned(), it.1.as_bytes().to_vec())).collect(),
                    body: body.to_bytes().to_vec(),
                    is_whole: true,
                };
                let hosts = recorded.texts("host");
                let host = match parts.uri.authority() {
                    Some(authority) if hosts.len() <= 1 => authority.as_str().to_owned(),
                    // Several hosts are refused.
                    _ => hosts.join(", "),
                };
                let reading = Reading::new(&recorded, &host, &nominated(&recorded));
                notes.lock().unwrap().push((recorded, reading));
            }
            Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
        }
    });
    let server = hyper::server::conn::http1::Builder::new()
        .half_close(true)
        .serve_connection(TokioIo::new(server), service);
    let talking = async {
        let _ = client.write_all(sent).await;
        let _ = client.shutdown().await;
        let _ = client.read_to_end(&mut Vec::new()).await;
    };
    let _ = tokio::join!(server, talking);
    std::mem::take(&mut *seen.lock().unwrap())
}

/// Connects with a source address.
async fn connect(client: IpAddr, server: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((client, 0).into()).unwrap();
    let stream = socket.connect(server).await.unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// Sends a connection to nginx, and returns the statuses of its final responses. nginx reads all bytes before the end of
/// the connection.
async fn ask_nginx(nginx: &Nginx, client: IpAddr, sent: &[u8]) -> Vec<u16> {
    let mut stream = connect(client, nginx.address).await;
    let _ = stream.write_all(sent).await;
    let _ = stream.shutdown().await;
    let mut said = Vec::new();
    let _ = timeout(TEST_TIMEOUT, stream.read_to_end(&mut said)).await.expect("nginx ends the connection");
    let said = String::from_utf8_lossy(&said);
    // Pages of nginx contain no such text.
    let statuses = said.split("HTTP/1.1 ").skip(1).filter_map(|it| it.get(..3)?.parse().ok());
    statuses.filter(|status| *status >= 200).collect()
}

/// Sends a connection to the gateway in two pieces, and reads to its end.
async fn ask_gateway(gateway: SocketAddr, client: IpAddr, (one, two): (&[u8], &[u8])) {
    let mut stream = connect(client, gateway).await;
    let _ = stream.write_all(one).await;
    tokio::task::yield_now().await;
    let _ = stream.write_all(two).await;
    let mut is_open = true;
    loop {
        let mut some = [0; 4096];
        let patience = if is_open { QUIET } else { TEST_TIMEOUT };
        match timeout(patience, stream.read(&mut some)).await {
            Ok(Ok(0) | Err(_)) => return,
            Ok(Ok(_)) => {}
            Err(_) if is_open => {
                is_open = false;
                let _ = stream.shutdown().await;
            }
            Err(error) => panic!("a connection hangs ({error})"),
        }
    }
}

/// Returns why nginx refuses a request that the gateway forwards, or why it ends the connection after it. These requests
/// are valid, and mean the same to every server that accepts them.
fn nginx_reason((request, reading): &(RecordedRequest, Reading), sent: &[u8]) -> Option<&'static str> {
    let path = request.target.split('?').next().unwrap_or_default();
    let connection = request.texts("connection").join(",").to_ascii_lowercase();
    if !request.method.bytes().all(|it| it.is_ascii_uppercase() || matches!(it, b'-' | b'_')) {
        Some("a method of other characters than A-Z, - and _")
    } else if path == "*" {
        Some("OPTIONS *")
    } else if path.contains('%') {
        Some("an escape that is malformed or stands for NUL")
    } else if path.contains("..") {
        Some("a path that leaves the root")
    } else if sent.contains(&b'\t')
        && ["content-length", "transfer-encoding", "host"]
            .iter()
            .any(|it| request.values(it).any(|it| !it.is_empty()))
    {
        Some("a tab beside the value of a header that nginx reads")
    } else if reading.host.contains('_') {
        Some("an underscore in the host of a target, which nginx accepts in the header")
    } else if request.values("expect").count() > 1 {
        Some("several lines of a header that nginx permits once, which the gateway removes")
    } else if connection.contains("close") {
        Some("`close` as a part of an option of Connection")
    } else {
        None
    }
}

/// Compares the readings of one connection. Returns the number of forwarded requests that were the same to all.
///
/// The requests of hyper are all requests that precede a mistake. As long as nginx is in step with it, the responses of
/// nginx are the responses to these, and those with status 200 are the responses to the requests that nginx forwarded.
fn compare(
    gateway: &[Reading],
    nginx: &[Reading],
    hyper: &[(RecordedRequest, Reading)],
    (nginx_statuses, sent): (&[u16], &[u8]),
) -> Result<u64, String> {
    let mut forwarded_by_nginx = nginx.iter();
    let nginx: Vec<_> = nginx_statuses
        .iter()
        .map(|status| if *status == 200 { forwarded_by_nginx.next() } else { None })
        .collect();
    let (mut same, mut next) = (0, 0);
    for forwarded in gateway {
        let Some(skipped) = hyper[next..].iter().position(|it| it.1 == *forwarded) else {
            return Err(format!("hyper does not read {forwarded:?}"));
        };
        let at = next + skipped;
        next = at + 1;
        let has_reason = |at: usize| hyper.get(at).is_some_and(|it| nginx_reason(it, sent).is_some());
        match nginx.get(at) {
            Some(Some(reading)) if *reading == forwarded => same += 1,
            Some(Some(reading)) => return Err(format!("nginx reads {reading:?} instead of {forwarded:?}")),
            Some(None) if has_reason(at) => {}
            Some(None) => return Err(format!("nginx refuses {forwarded:?}: {nginx_statuses:?}")),
            // nginx refused an earlier request, or ended the connection after one.
            None => match nginx.last() {
                Some(None) => {}
                Some(Some(_)) if has_reason(nginx.len() - 1) => {}
                _ => return Err(format!("nginx ends before {forwarded:?}: {nginx_statuses:?}")),
            },
        }
    }
    Ok(same)
}

/// Heads and bodies that parsers are known to disagree about.
const CORPUS: &[&str] = &[
    "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 03\r\n\r\nabc",
    "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\ncontent-length: 3\r\n\r\nabc",
    "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3, 3\r\n\r\nabc",
    "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: +3\r\n\r\nabc",
    "POST / HTTP/1.1\r\nhost: a\r\ncontent-length:\t3\r\n\r\nabc",
    "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3 \t\r\n\r\nabc",
    "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding:\tchunked\r\n\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3 \r\nabc\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3\nabc\n0\n\n",
    "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3;a=\"\r\nabc\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3;a\nabc\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx: y\n\nGET /in HTTP/1.1\r\nhost: a\r\n\r\n",
    "BREW / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx: y\n\nGET /in HTTP/1.1\r\nhost: a\r\n\r\n",
    "BREW / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3 \r\nabc\r\n0\r\n\r\n",
    "BREW / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n000000000000000000003\r\nabc\r\n0\r\n\r\n",
    "GET / HTTP/1.1\nhost: a\n\n",
    "GET / HTTP/1.1\r\nhost: a\nx: y\r\n\r\n",
    "GET / HTTP/1.1\r\nhost: a\r\nx: y\r\n z\r\n\r\n",
    "GET / HTTP/1.1\r\n x: y\r\nhost: a\r\n\r\n",
    "GET / HTTP/1.1\r\nhost : a\r\n\r\n",
    "GET / HTTP/1.1\r\nhost: a\r\nhost: a\r\n\r\n",
    "GET / HTTP/1.1\r\nhost: a, b\r\n\r\n",
    "GET / HTTP/1.1\r\nhost: a@b\r\n\r\n",
    "GET / HTTP/1.1\r\nhost: A.TEST.:80\r\n\r\n",
    "GET / HTTP/1.1\r\nhost:\r\n\r\n",
    "GET / HTTP/1.1\r\n\r\n",
    "GET / HTTP/1.0\r\n\r\n",
    "GET / HTTP/1.0\r\nhost: a\r\nconnection: keep-alive\r\n\r\n",
    "GET / HTTP/1.2\r\nhost: a\r\n\r\n",
    "GET / HTTP/1.1 \r\nhost: a\r\n\r\n",
    "GET  / HTTP/1.1\r\nhost: a\r\n\r\n",
    "GET /\r\n",
    "GET /a#b HTTP/1.1\r\nhost: a\r\n\r\n",
    "GET /a?b#c HTTP/1.1\r\nhost: a\r\n\r\n",
    "GET http://b/x HTTP/1.1\r\nhost: a\r\n\r\n",
    "GET http://b?x HTTP/1.1\r\nhost: a\r\n\r\n",
    "GET http://b HTTP/1.1\r\nhost: a\r\n\r\n",
    "GET http://u@b/x HTTP/1.1\r\nhost: a\r\n\r\n",
    "GET ftp://b/x HTTP/1.1\r\nhost: a\r\n\r\n",
    "GET //b/x HTTP/1.1\r\nhost: a\r\n\r\n",
    "GET /a/../b HTTP/1.1\r\nhost: a\r\n\r\n",
    "GET /%2e%2e/b HTTP/1.1\r\nhost: a\r\n\r\n",
    "GET /a\\..\\b HTTP/1.1\r\nhost: a\r\n\r\n",
    "GET /%00 HTTP/1.1\r\nhost: a\r\n\r\n",
    "GET /%zz HTTP/1.1\r\nhost: a\r\n\r\n",
    "GET /{a}|b\" HTTP/1.1\r\nhost: a\r\n\r\n",
    "GET /\u{e9} HTTP/1.1\r\nhost: a\r\n\r\n",
    "OPTIONS * HTTP/1.1\r\nhost: a\r\n\r\n",
    "\r\n\r\nGET / HTTP/1.1\r\nhost: a\r\n\r\n",
    "\nGET / HTTP/1.1\r\nhost: a\r\n\r\n",
    "get / HTTP/1.1\r\nhost: a\r\n\r\n",
    "GET / HTTP/1.1\r\nhost: a\r\nx: a\rb\r\n\r\n",
    "GET / HTTP/1.1\r\nhost: a\r\nx: a\u{1}b\r\n\r\n",
    "GET / HTTP/1.1\r\nhost: a\r\nx_y: 1\r\nx!: 2\r\nx:\t \t\r\n\r\n",
    "GET / HTTP/1.1\r\nhost: a\r\nconnection: closed\r\n\r\n",
    "GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\nconnection: keep-alive\r\n\r\n",
    "GET / HTTP/1.1\r\nhost: a\r\nconnection: x, host\r\nx: 1\r\n\r\n",
    "GET / HTTP/1.1\r\nhost: a\r\ncookie: a=1\r\ncookie: b=2\r\n\r\n",
    "GET / HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\nabc",
    "GET / HTTP/1.1\r\nhost: a\r\nupgrade: h2c\r\nconnection: upgrade, http2-settings\r\nhttp2-settings: x\r\n\r\n",
    "GET / HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 3\r\n\r\nabc",
    "GET / HTTP/1.1\r\nhost: a\r\nexpect: other\r\n\r\n",
];

/// Returns the bytes of a connection: first the corpus, then mutated requests.
fn connection(seed: u64, number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(odd) = usize::try_from(number).ok().and_then(|it| CORPUS.get(it)) {
        bytes.extend_from_slice(odd.as_bytes());
    } else {
        let mut rng = Rng(seed.wrapping_mul(1_000_003).wrapping_add(number));
        for _ in 0..=rng.below(3) {
            if rng.below(4) == 0 {
                let odd = CORPUS[rng.below(CORPUS.len())];
                bytes.extend_from_slice(odd.as_bytes());
            }
            mutated(&mut rng, &mut bytes);
        }
    }
    bytes.extend_from_slice(LAST.as_bytes());
    bytes
}

/// The findings of a run.
#[derive(Default)]
struct Findings {
    next: AtomicU64,
    forwarded: AtomicU64,
    same: AtomicU64,
    wrong: Mutex<Vec<String>>,
}

#[test]
fn forwarded_requests_are_the_same_to_nginx_and_hyper() {
    let seed = number("TOLLGATE_MUTATION_SEED", 20_261_117);
    let connections = number("TOLLGATE_DIFFERENTIAL", DEFAULT_CONNECTIONS) + CORPUS.len() as u64;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (behind_gateway, behind_nginx) = (Arc::new(Recorder::default()), Arc::new(Recorder::default()));
    let origin = format!("http://{}", runtime.block_on(behind_gateway.listen()));
    let nginx = start_nginx(runtime.block_on(behind_nginx.listen()));
    let gateway = Behind::all(&[origin]).with("override_headers: keep").serve();
    let findings = Findings::default();
    let one = |number: u64| {
        let (gateway, nginx, findings) = (gateway.address, &nginx, &findings);
        let (behind_gateway, behind_nginx) = (&behind_gateway, &behind_nginx);
        async move {
            let [_, high, middle, low] = u32::try_from(number).unwrap().to_be_bytes();
            let client = IpAddr::from(Ipv4Addr::new(127, 64 + high, middle, low));
            let sent = connection(seed, number);
            let pieces = sent.split_at(Rng(number).below(sent.len()));
            let ((), statuses, of_hyper) = tokio::join!(
                ask_gateway(gateway, client, pieces),
                ask_nginx(nginx, client, &sent),
                hyper_requests(&sent)
            );
            let (of_gateway, of_nginx) = (behind_gateway.take(client), behind_nginx.take(client));
            let all_nominated: Vec<_> = of_hyper.iter().flat_map(|it| nominated(&it.0)).collect();
            let reading = |request: &RecordedRequest, host: &str| {
                Reading::new(request, &request.texts(host).concat(), &all_nominated)
            };
            let of_gateway: Vec<_> = of_gateway.iter().map(|it| reading(it, "host")).collect();
            let of_nginx: Vec<_> = of_nginx.iter().map(|it| reading(it, "x-nginx-host")).collect();
            let of_hyper: Vec<_> = of_hyper
                .into_iter()
                .map(|(request, it)| {
                    let reading = Reading::new(&request, &it.host, &all_nominated);
                    (request, reading)
                })
                .collect();
            findings.forwarded.fetch_add(of_gateway.len() as u64, Ordering::Relaxed);
            match compare(&of_gateway, &of_nginx, &of_hyper, (&statuses, &sent)) {
                Ok(same) => drop(findings.same.fetch_add(same, Ordering::Relaxed)),
                Err(wrong) => {
                    let sent = String::from_utf8_lossy(&sent);
                    findings.wrong.lock().unwrap().push(format!("{number}: {sent:?}: {wrong}"));
                }
            }
        }
    };
    runtime.block_on(async {
        let client = || async {
            loop {
                match findings.next.fetch_add(1, Ordering::Relaxed) {
                    number if number < connections => one(number).await,
                    _ => return,
                }
            }
        };
        futures_join((0..CONCURRENCY).map(|_| client()).collect()).await;
    });
    let (forwarded, same) =
        (findings.forwarded.load(Ordering::Relaxed), findings.same.load(Ordering::Relaxed));
    println!(
        "{connections} connections, {forwarded} requests forwarded, {same} the same to all three parsers"
    );
    for (name, wrong) in
        [("parsers", &findings.wrong), ("gateway", &behind_gateway.wrong), ("nginx", &behind_nginx.wrong)]
    {
        let wrong = wrong.lock().unwrap();
        // The upstream of nginx is stricter than nginx.
        let is_wrong = name != "nginx" && !wrong.is_empty();
        assert!(
            !is_wrong,
            "seed {seed}, {name}: {} times, such as\n{}",
            wrong.len(),
            wrong[..wrong.len().min(8)].join("\n")
        );
    }
    assert!(same > connections / 4, "only {same} requests of {connections} connections were the same");
}
