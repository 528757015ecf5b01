//! Servers that Tollgate did not write: small ones in Python (`servers`), with the limits and headers of GitHub, Discord
//! and `OpenAI`. Beside Tollgate's client, the client that is written for the service calls it (`peers`).
#![allow(clippy::disallowed_methods, reason = "other programs keep real time")]

use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use tollgate::{Clock, SystemClock};

use crate::report::Row;
use crate::subject::{Target, run_ours};
use crate::watch::{Counts, Watch};

/// The longest time of a peer: it is stopped then, and the calls until then count.
const MAX_PEER_TIME: Duration = Duration::from_secs(30);
/// Channels of the server that is like Discord.
const CHANNELS: u64 = 10;

/// A server with its limit.
pub(crate) struct ForeignCase {
    /// The name in the report.
    pub(crate) name: &'static str,
    script: &'static str,
    arguments: &'static [&'static str],
    /// Units per second of the limit, and those that can be used at once.
    limit: (f64, f64),
    targets: fn(&str) -> Vec<Target>,
    peer: Option<(&'static str, Peer)>,
}

/// A script that calls.
enum Peer {
    Node(&'static str),
    Python(&'static str),
}

/// All cases.
pub(crate) const CASES: [ForeignCase; 4] = [
    ForeignCase {
        name: "github-like",
        script: "github_like.py",
        arguments: &["2500", "5", "down"],
        limit: (500.0, 0.0),
        targets: |url| vec![Target::get(format!("{url}/zen"))],
        peer: Some(("octokit with its throttling plugin", Peer::Node("octokit.mjs"))),
    },
    ForeignCase {
        name: "github-like, rounded up",
        script: "github_like.py",
        arguments: &["2500", "5", "up"],
        limit: (500.0, 0.0),
        targets: |url| vec![Target::get(format!("{url}/zen"))],
        peer: None,
    },
    ForeignCase {
        name: "discord-like",
        script: "discord_like.py",
        arguments: &["50", "1", "600"],
        limit: (500.0, 0.0),
        targets: channels,
        peer: Some(("@discordjs/rest", Peer::Node("discord.mjs"))),
    },
    ForeignCase {
        name: "openai-like",
        script: "openai_like.py",
        arguments: &["1000", "60000", "2"],
        limit: (500.0, 1_000.0),
        targets: |url| vec![Target::chat(format!("{url}/v1/chat/completions"))],
        peer: Some(("openai-python", Peer::Python("openai_calls.py"))),
    },
];

fn channels(url: &str) -> Vec<Target> {
    let channel =
        |number| Target::get(format!("{url}/api/v10/channels/{}/messages", 100_000_000_000_000_000 + number));
    (0..CHANNELS).map(channel).collect()
}

/// Measures Tollgate's client and the peer of a case, each with a new server.
pub(crate) fn measure(case: &ForeignCase, calls: usize, has_peers: bool) -> Result<Vec<Row>, Box<dyn Error>> {
    let mut rows = vec![ours(case, calls)?];
    if let Some((name, peer)) = case.peer.as_ref().filter(|_| has_peers) {
        rows.push(theirs(case, (*name, peer), calls)?);
    }
    Ok(rows)
}

fn ours(case: &ForeignCase, calls: usize) -> Result<Row, Box<dyn Error>> {
    let server = Server::start(case)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let watch = Watch::new();
    let succeeded = runtime.block_on(run_ours((case.targets)(&server.url), calls, &watch));
    let row = Row::new((case.name, "tollgate-client"), (calls, succeeded), watch.elapsed(), watch.counts());
    server.stop()?;
    Ok(row.with_limit(case.limit.0, case.limit.1))
}

/// The server counts the attempts of a peer.
fn theirs(
    case: &ForeignCase,
    (name, peer): (&'static str, &Peer),
    calls: usize,
) -> Result<Row, Box<dyn Error>> {
    let server = Server::start(case)?;
    let mut command = peer.command(&server.url, calls)?;
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let clock = SystemClock::new();
    let start = clock.now();
    while child.try_wait()?.is_none() && Duration::from(clock.now().since(start)) < MAX_PEER_TIME {
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(child.kill());
    child.wait()?;
    let stats = server.stop()?;
    let count = |name: &str| stats[name].as_u64().and_then(|it| usize::try_from(it).ok()).unwrap_or(0);
    let counts = Counts {
        attempts: count("answered") + count("refused"),
        refused: count("refused"),
        refused_known: count("refused_known"),
        early: count("early"),
    };
    let time = Duration::from_secs_f64(stats["seconds"].as_f64().unwrap_or(0.0));
    let row = Row::new((case.name, name), (calls, count("answered")), time, counts);
    Ok(row.with_limit(case.limit.0, case.limit.1))
}

impl Peer {
    fn command(&self, url: &str, calls: usize) -> Result<Command, Box<dyn Error>> {
        let folder = folder().join("peers");
        let installed = folder.join("../../../target").canonicalize()?;
        let mut command = match self {
            Self::Node(script) => {
                let mut command = Command::new("node");
                // Packages are found from the working directory.
                command.current_dir(installed.join("node")).args(["--input-type=module", "--eval"]);
                command.arg(std::fs::read_to_string(folder.join(script))?);
                command
            }
            Self::Python(script) => {
                let mut command = Command::new(installed.join("python/bin/python"));
                command.arg(folder.join(script));
                command
            }
        };
        command.args([url, &calls.to_string()]);
        Ok(command)
    }
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// A server that runs until it is stopped.
struct Server {
    child: Child,
    output: BufReader<ChildStdout>,
    url: String,
}

impl Server {
    fn start(case: &ForeignCase) -> Result<Self, Box<dyn Error>> {
        let script = folder().join("servers").join(case.script);
        let mut command = Command::new("python3");
        command.arg(script).args(case.arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let mut output = BufReader::new(child.stdout.take().ok_or("the server has no output")?);
        let mut port = String::new();
        output.read_line(&mut port)?;
        let url = format!("http://127.0.0.1:{}", port.trim().parse::<u16>()?);
        Ok(Self { child, output, url })
    }

    /// Stops the server. Returns its counts.
    fn stop(mut self) -> Result<Value, Box<dyn Error>> {
        if let Some(mut input) = self.child.stdin.take() {
            input.flush()?;
        }
        let mut text = String::new();
        self.output.read_to_string(&mut text)?;
        self.child.wait()?;
        Ok(serde_json::from_str(&text)?)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
