//! Callers that send sequential requests, and record the responses.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::rig::{KEYS, tight_key};
use crate::client::{Answer, Client};

/// The pause between two requests of a caller, because all processes share two cores.
const THINK_TIME: Duration = Duration::from_millis(3);

/// A request and its result.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) at: Instant,
    pub(crate) took: Duration,
    /// Zero if there was no response.
    pub(crate) status: u16,
    pub(crate) allowed: bool,
    /// Unknown for the gateway.
    pub(crate) degraded: Option<bool>,
    /// The index of the tight key; `None` for a wide one.
    pub(crate) tight: Option<usize>,
    pub(crate) node: usize,
}

impl Sample {
    pub(crate) fn end(&self) -> Instant {
        self.at + self.took
    }

    /// Whether the caller got a 5xx or no response.
    pub(crate) fn is_error(&self) -> bool {
        self.status == 0 || self.status >= 500
    }
}

/// Live counters of a running load.
pub(crate) struct Live {
    started: Instant,
    stopped: AtomicBool,
    /// The number of tight keys.
    keys: usize,
    /// Admissions of tight keys.
    admitted: AtomicU64,
    /// The time of the last degraded decision, in microseconds since the start.
    last_degraded: AtomicU64,
}

impl Live {
    pub(crate) fn new(keys: usize) -> Arc<Self> {
        Arc::new(Self {
            keys,
            started: Instant::now(),
            stopped: AtomicBool::new(false),
            admitted: AtomicU64::new(0),
            last_degraded: AtomicU64::new(0),
        })
    }

    pub(crate) fn admitted(&self) -> u64 {
        self.admitted.load(Ordering::SeqCst)
    }

    pub(crate) fn last_degraded(&self) -> Instant {
        self.started + Duration::from_micros(self.last_degraded.load(Ordering::SeqCst))
    }

    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
    }

    pub(crate) fn note(&self, sample: &Sample) {
        if sample.tight.is_some() && sample.allowed {
            self.admitted.fetch_add(1, Ordering::SeqCst);
        }
        if sample.degraded == Some(true) {
            let micros = u64::try_from((sample.end() - self.started).as_micros()).unwrap_or(u64::MAX);
            self.last_degraded.fetch_max(micros, Ordering::SeqCst);
        }
    }
}

/// The endpoint that is called.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Surface {
    Api(SocketAddr),
    Gateway(SocketAddr),
}

/// A caller with its own connection.
pub(crate) struct Caller {
    surface: Surface,
    node: usize,
    connection: Option<Client>,
}

impl Caller {
    pub(crate) fn new(surface: Surface, node: usize) -> Self {
        Self { surface, node, connection: None }
    }

    /// Sends one request. A broken connection is replaced for the next one.
    pub(crate) fn ask(&mut self, tight: Option<usize>, wide: usize) -> Sample {
        let (path, key) = match tight {
            Some(number) => ("/tight", tight_key(number)),
            None => ("/wide", format!("wide-{wide:02}")),
        };
        let (address, request) = match self.surface {
            Surface::Api(api) => {
                let body = format!(r#"{{"method":"GET","path":"{path}","api_key":"{key}"}}"#);
                let head =
                    format!("POST /v1/check HTTP/1.1\r\nHost: {api}\r\nContent-Length: {}", body.len());
                (api, format!("{head}\r\n\r\n{body}"))
            }
            Surface::Gateway(gateway) => {
                (gateway, format!("GET {path} HTTP/1.1\r\nHost: {gateway}\r\nX-API-Key: {key}\r\n\r\n"))
            }
        };
        let at = Instant::now();
        let answer = self.exchange(address, &request);
        let mut sample = Sample {
            at,
            took: at.elapsed(),
            status: 0,
            allowed: false,
            degraded: None,
            tight,
            node: self.node,
        };
        let Some(answer) = answer else { return sample };
        sample.status = answer.status;
        sample.allowed = answer.status == 200;
        if let (Surface::Api(_), 200) = (self.surface, answer.status) {
            let json: Value = serde_json::from_slice(&answer.body).expect("the API answers in JSON");
            sample.allowed = json["allowed"] == true;
            sample.degraded = Some(json["degraded"] == true);
        }
        sample
    }

    fn exchange(&mut self, address: SocketAddr, request: &str) -> Option<Answer> {
        if self.connection.is_none() {
            self.connection = Client::connect(address).ok();
        }
        let answer = self.connection.as_mut()?.ask(request).ok();
        if answer.as_ref().is_none_or(|answer| answer.closes) {
            self.connection = None;
        }
        answer
    }

    /// Sends requests on a separate thread, until the load is stopped.
    pub(crate) fn keep_asking(mut self, seed: u64, live: &Arc<Live>) -> JoinHandle<Vec<Sample>> {
        let live = Arc::clone(live);
        thread::spawn(move || {
            let (mut samples, mut rng) = (Vec::new(), Rng(seed));
            while !live.stopped.load(Ordering::SeqCst) {
                // The gateway does not report the deciding store, so it gets only tight keys.
                let tight = matches!(self.surface, Surface::Gateway(_)) || samples.len() % 2 == 0;
                let wide = rng.below(KEYS);
                let sample = self.ask(tight.then(|| rng.favourite(live.keys)), wide);
                live.note(&sample);
                samples.push(sample);
                thread::sleep(THINK_TIME);
            }
            samples
        })
    }
}

/// A deterministic xorshift generator.
struct Rng(u64);

impl Rng {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap_or(0) % most
    }

    /// Returns one of the first quarter half of the time, so that some keys are spent early and others
    /// late.
    fn favourite(&mut self, most: usize) -> usize {
        let favoured = self.below(2) == 0;
        self.below(if favoured { (most / 4).max(1) } else { most })
    }
}

/// Returns the percentile of the times.
pub(crate) fn percentile(mut times: Vec<Duration>, percent: usize) -> Duration {
    times.sort_unstable();
    let at = times.len() * percent / 100;
    times.get(at.min(times.len().saturating_sub(1))).copied().unwrap_or_default()
}
