//! Compares the delays of nginx's `limit_req` with those of the gateway under the imported policy: the same arrivals,
//! in the same run.
//!
//! Requests are sent a few milliseconds apart, so that both servers receive them in the same order, and the times between
//! bursts are far from the times at which a place becomes free.
//!
//! - [`arrivals`]: the times of the requests, and sending them.
//! - [`report`]: the table, the JSON, the bars.
//!
//! Not here: whether the arithmetic is that of nginx, which tests check without a clock.

pub mod arrivals;
pub mod report;

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use std::{fs, iter};

use self::arrivals::{Response, send};
use self::report::MAX_LATE;
pub use self::report::{QueueReport, Row};
use crate::cores::Cores;
use crate::gateway::contestant::nginx;
use crate::gateway::{probe, upstream};
use crate::server::{Server, free_address};
use crate::stopwatch;

/// A `limit_req` of nginx, at ten requests a second.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The words after the zone.
    pub words: &'static str,
    /// The number of places.
    burst: u32,
}

impl Case {
    /// All cases.
    pub const ALL: [Self; 4] = [
        Self { words: "burst=8", burst: 8 },
        Self { words: "burst=8 delay=3", burst: 8 },
        Self { words: "burst=8 nodelay", burst: 8 },
        Self { words: "burst=20 delay=5", burst: 20 },
    ];

    /// The times of the requests, in milliseconds: more than fit at once, then some when a few places are free.
    fn arrivals(self) -> Vec<u64> {
        let first = (0..u64::from(self.burst) + 6).map(|nth| 2 * nth);
        let later = [350, 360, 370, 380, 390, 650, 652, 654, 1_150, 1_250];
        first.chain(later).collect()
    }

    /// The time after which the queue is empty again.
    fn rest(self) -> Duration {
        Duration::from_millis(u64::from(self.burst) * 100 + 500)
    }
}

/// The most attempts of a round on a busy machine.
const MAX_TRIES: usize = 3;

/// Runs a case on both servers, and returns a row.
pub fn measure(case: Case, tollgate: &Path, folder: &Path, rounds: usize) -> io::Result<Row> {
    let folder = folder.join(case.words.replace([' ', '='], "-"));
    fs::create_dir_all(&folder)?;
    let upstream = upstream::start(&folder)?;
    let (theirs, ours) = (free_address()?, free_address()?);
    let config = folder.join("nginx.conf");
    fs::write(&config, nginx_config(case, theirs, upstream.address()))?;
    let policy = folder.join("tollgate.yaml");
    fs::write(&policy, imported(tollgate, &config, upstream.address())?)?;
    let mut command = Command::new(tollgate);
    command.arg("serve").arg("--config").arg(&policy).arg("--set").arg(format!("listen.gateway={ours}"));
    command.args(["--set", "listen.api=off", "--set", "listen.rls=off", "--set", "listen.resp=off"]);
    let nginx = Server::start(&nginx::command(&config, &folder), None, theirs, &folder, probe::answers)?;
    // One worker, as nginx has: two workers of a busy machine may take requests out of their order.
    let core = Cores::shared_out()?.contestant;
    let gateway = Server::start(&command, Some(core), ours, &folder, probe::answers)?;
    let mut all = Vec::new();
    for _ in 0..rounds {
        let mut round = compare(case, [&nginx, &gateway])?;
        for _ in 1..MAX_TRIES {
            if max_late(&round) <= MAX_LATE {
                break;
            }
            let again = compare(case, [&nginx, &gateway])?;
            if max_late(&again) < max_late(&round) {
                round = again;
            }
        }
        all.push(round);
    }
    Ok(Row::new(case.words, &all))
}

/// The responses of nginx and of the gateway to one request.
pub type Pair = (Response, Response);

/// Sends the requests of a case to both servers, one after the other.
fn compare(case: Case, [nginx, gateway]: [&Server; 2]) -> io::Result<Vec<Pair>> {
    let of = |server: &Server| {
        let responses = send(server.address(), &case.arrivals());
        stopwatch::pause(case.rest());
        responses
    };
    Ok(iter::zip(of(nginx)?, of(gateway)?).collect())
}

/// Returns the time by which a request of the round was sent too late.
fn max_late(round: &[Pair]) -> Duration {
    round.iter().map(|(theirs, ours)| theirs.late.max(ours.late)).max().unwrap_or_default()
}

/// Imports the configuration of nginx, and puts the gateway in front of the upstream.
fn imported(tollgate: &Path, config: &Path, upstream: SocketAddr) -> io::Result<String> {
    let imported = Command::new(tollgate).args(["import", "nginx"]).arg(config).output()?;
    if !imported.status.success() {
        let said = String::from_utf8_lossy(&imported.stderr).into_owned();
        return Err(io::Error::other(format!("tollgate import nginx: {said}")));
    }
    let policy = String::from_utf8_lossy(&imported.stdout).into_owned();
    Ok(format!("gateway: {{upstream: \"http://{upstream}\"}}\n{policy}"))
}

fn nginx_config(case: Case, listen: SocketAddr, upstream: SocketAddr) -> String {
    let (preamble, words) = (nginx::PREAMBLE, case.words);
    format!(
        "{preamble}
http {{
    access_log off;
    client_body_temp_path body; proxy_temp_path proxied; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    limit_req_zone $server_name zone=all:1m rate=10r/s;
    limit_req_status 429;
    server {{
        listen {listen}; server_name all;
        location = {path} {{ limit_req zone=all {words}; proxy_pass http://{upstream}; }}
        location / {{ proxy_pass http://{upstream}; }}
    }}
}}
",
        path = arrivals::PATH,
    )
}
