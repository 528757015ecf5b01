//! `tollgate serve` processes with different stores: their throughput and latency on RESP and as a gateway.
//!
//! - A hot key in memory and leased from Redis, in turns.
//! - Two regions, 80 ms apart, of which one gets all requests, against one near Redis.
//! - Two peers, of which one gets all requests and the other owns the key.
//!
//! The process under load has a core to itself; the load, Redis, the upstream and other nodes share the rest.

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{fs, io};

use serde::Serialize;
use tollgate_testkit::{Redis, SlowLink};

use crate::gateway::{upstream, wrk};
use crate::server::{Server, free_address};
use crate::service::question::resp::Load;

/// A hot key: an ample bucket for all requests.
const AMPLE: &str = "limits: [{name: all, by: ip, bucket: '1000000/second, burst 2000000000'}]";

/// The round trip between regions.
const FAR: Duration = Duration::from_millis(80);

/// The limit of two regions. One region with half of it cannot serve the load of the benchmark alone, and both can: wrk
/// sends some 250,000 requests in [`REGION_SECONDS`] and the second before.
const GLOBAL: &str = "limits: [{name: all, by: ip, bucket: '6000/second, burst 360000', scope: global}]";

/// The same limit on one Redis.
const LOCAL: &str = "limits: [{name: all, by: ip, bucket: '6000/second, burst 360000'}]";

/// Seconds of load on two regions.
const REGION_SECONDS: u64 = 4;

/// The key of the requests over RESP.
const ADDRESS: &str = "203.0.113.9";

/// Requests per second and the latency of one process.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Speed {
    /// Requests in a second.
    pub per_second: f64,
    /// CPU time of the process for a request, in microseconds.
    pub cpu_us: f64,
    /// Median latency, in microseconds.
    pub p50_us: f64,
    /// 99th percentile of the latency, in microseconds.
    pub p99_us: f64,
    /// The share of refused requests.
    pub refused: f64,
}

/// A surface with the two stores: the fastest rounds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct SurfaceRow {
    /// The name.
    pub surface: &'static str,
    /// `store: memory`.
    pub memory: Speed,
    /// Leased from Redis.
    pub leased: Speed,
}

/// A region that gets all requests of two, against one Redis.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct RegionRow {
    /// One near Redis.
    pub near: Speed,
    /// Two regions.
    pub regions: Speed,
}

/// Checks that one node forwards to the owner of their key.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PeerRow {
    /// Median latency of a forwarded check, one at a time, in microseconds.
    pub p50_us: f64,
    /// The same of a check that the node owns.
    pub own_p50_us: f64,
    /// Pipelined checks in a second.
    pub per_second: f64,
    /// Pipelined checks per second of CPU time of the owner.
    pub owner_per_core: f64,
    /// Pipelined checks per second of CPU time of the node that forwards them.
    pub forwarder_per_core: f64,
}

/// The programs and places of a run.
pub struct Stage {
    /// `tollgate`.
    pub program: PathBuf,
    /// The core of the process under load.
    pub core: usize,
    /// Folder of configurations and logs.
    pub folder: PathBuf,
    /// Seconds of load.
    pub seconds: u64,
}

impl Stage {
    /// Measures a hot key in this number of rounds.
    pub fn surfaces(&self, rounds: usize) -> io::Result<Vec<SurfaceRow>> {
        let redis = Redis::start();
        let store = format!("store: {{url: '{}', lease: 250ms}}\n{AMPLE}", redis.url());
        let upstream = upstream::start(&self.folder)?;
        let mut rows = Vec::new();
        for surface in ["resp", "gateway"] {
            let mut best = [None::<Speed>; 2];
            for _ in 0..rounds {
                for (best, policy) in best.iter_mut().zip([AMPLE, &store]) {
                    let speed = match surface {
                        "resp" => self.resp(policy)?,
                        _ => self.gateway(policy, upstream.address(), self.seconds)?,
                    };
                    *best = Some(best.filter(|it| it.per_second > speed.per_second).unwrap_or(speed));
                }
            }
            if let [Some(memory), Some(leased)] = best {
                rows.push(SurfaceRow { surface, memory, leased });
            }
        }
        Ok(rows)
    }

    /// Measures two regions: one region alone has not enough units for the load.
    pub fn regions(&self) -> io::Result<RegionRow> {
        let seconds = REGION_SECONDS;
        let upstream = upstream::start(&self.folder)?;
        // A Redis of its own for each: a limit of the same name would keep its usage.
        let [alone, near, far] = std::array::from_fn(|_| Redis::start());
        let link = SlowLink::to(&far);
        link.delay(FAR);
        let alone =
            self.gateway(&format!("store: '{}'\n{LOCAL}", alone.url()), upstream.address(), seconds)?;
        let policy = format!(
            "store: '{}'\nregions: {{here: a, shares: {{a: 50%, b: 50%}}, stores: {{b: 'redis://{}'}}}}\n{GLOBAL}",
            near.url(),
            link.address()
        );
        Ok(RegionRow { near: alone, regions: self.gateway(&policy, upstream.address(), seconds)? })
    }

    /// Measures two peers.
    pub fn peers(&self) -> io::Result<PeerRow> {
        let [forwarder, owner] = [free_address()?, free_address()?];
        let policy = format!("store: 'tollgate://{forwarder},{owner}'\n{AMPLE}");
        let owner = self.start(&policy, ("resp", owner), None)?;
        let node = self.start(&policy, ("resp", forwarder), Some(self.core))?;
        // Each node owns about half of the keys. Forwarded checks are slower.
        let (mut own, mut forwarded) = (f64::INFINITY, (0.0, Vec::new()));
        for number in 0..16 {
            let words = check(&format!("203.0.113.{number}"));
            let load = Load { connections: 1, pipeline: 1, requests: 5_000 };
            let p50 = load.run(node.address(), &words)?.p50_us;
            own = own.min(p50);
            if p50 > forwarded.0 {
                forwarded = (p50, words);
            }
        }
        let requests = 500_000 * self.seconds;
        let load = Load { connections: 50, pipeline: 64, requests };
        load.run(node.address(), &forwarded.1)?;
        let before = [cpu(&owner)?, cpu(&node)?];
        let pace = load.run(node.address(), &forwarded.1)?;
        let after = [cpu(&owner)?, cpu(&node)?];
        #[allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
        let per_core =
            |at: usize| requests as f64 / after[at].saturating_sub(before[at]).as_secs_f64().max(1e-3);
        Ok(PeerRow {
            p50_us: forwarded.0,
            own_p50_us: own,
            per_second: pace.per_second,
            owner_per_core: per_core(0),
            forwarder_per_core: per_core(1),
        })
    }

    fn resp(&self, policy: &str) -> io::Result<Speed> {
        let server = self.start(policy, ("resp", free_address()?), Some(self.core))?;
        let words = check(ADDRESS);
        let load = |requests| Load { connections: 50, pipeline: 16, requests }.run(server.address(), &words);
        load(200_000)?;
        let (requests, before) = (400_000 * self.seconds, cpu(&server)?);
        let pace = load(requests)?;
        let cpu_us = per_request(cpu(&server)?.saturating_sub(before), requests);
        Ok(Speed {
            per_second: pace.per_second,
            cpu_us,
            p50_us: pace.p50_us,
            p99_us: pace.p99_us,
            refused: 0.0,
        })
    }

    #[allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    fn gateway(&self, policy: &str, upstream: SocketAddr, seconds: u64) -> io::Result<Speed> {
        let policy = format!("gateway: {{upstream: 'http://{upstream}'}}\n{policy}");
        let server = self.start(&policy, ("gateway", free_address()?), Some(self.core))?;
        wrk::run(server.address(), 1, None, &[])?;
        let before = cpu(&server)?;
        let seen = wrk::run(server.address(), seconds, None, &[])?;
        let used = cpu(&server)?.saturating_sub(before);
        if seen.errors > 0 {
            return Err(io::Error::other(format!("wrk had {} errors", seen.errors)));
        }
        let pace = seen.pace;
        let refused = seen.refused as f64 / pace.requests.max(1) as f64;
        let cpu_us = per_request(used, pace.requests);
        Ok(Speed { per_second: pace.per_second, cpu_us, p50_us: pace.p50_us, p99_us: pace.p99_us, refused })
    }

    /// Starts a node with one surface.
    fn start(
        &self,
        policy: &str,
        (surface, at): (&str, SocketAddr),
        core: Option<usize>,
    ) -> io::Result<Server> {
        let folder = self.folder.join(format!("{surface}-{}", at.port()));
        fs::create_dir_all(&folder)?;
        let config = folder.join("tollgate.yaml");
        fs::write(&config, policy)?;
        Server::start(&serve(&self.program, &config, (surface, at)), core, at, &folder, connects)
    }
}

fn serve(program: &Path, config: &Path, (surface, at): (&str, SocketAddr)) -> Command {
    let mut command = Command::new(program);
    command.arg("serve").arg("--config").arg(config).args(["--set", "gateway.workers=1"]);
    for each in ["gateway", "api", "rls", "resp"] {
        let address = if each == surface { at.to_string() } else { "off".to_owned() };
        command.arg("--set").arg(format!("listen.{each}={address}"));
    }
    command
}

fn connects(address: SocketAddr) -> io::Result<()> {
    TcpStream::connect(address).map(drop)
}

fn check(key: &str) -> Vec<String> {
    ["TG.CHECK", "all", key].map(str::to_owned).into()
}

/// Returns the CPU time of a process so far.
fn cpu(server: &Server) -> io::Result<Duration> {
    server.family()?.time().map(|it| it.user + it.system)
}

/// Returns the microseconds for one request.
#[allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn per_request(time: Duration, requests: u64) -> f64 {
    time.as_secs_f64() * 1e6 / requests.max(1) as f64
}
