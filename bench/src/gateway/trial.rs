//! One measurement, with checks that it measured the intended work.

use std::io::{self, Read as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

use super::contestant::{self, Contestant, Duty};
use super::perf::Perf;
use super::probe::{self, Answer};
use super::upstream;
use super::wrk::{self, WrkReport};
use crate::cores::Cores;
use crate::sample::Sample;
use crate::server::Server;
use crate::stopwatch;

/// Seconds of load before the measurement.
const WARM_UP: u64 = 1;

/// One request in this many may be admitted where all should be refused: a limit of nginx cannot be below one a
/// minute.
const MAX_ADMITTED_ONE_IN: u64 = 1_000;

/// Requests that the upstream never answers, so that further requests are shed.
pub const HELD_REQUESTS: usize = 8;

/// Time limit until requests are shed.
const SHEDDING_DEADLINE: Duration = Duration::from_secs(20);

/// The time after which a request was not shed: the upstream does not answer it.
const SHED_WITHIN: Duration = Duration::from_millis(200);

/// The number of refusals in a row after which all requests are shed.
const SHED_IN_A_ROW: u32 = 100;

/// Settings that all measurements of a run share.
pub struct Track {
    /// Core assignment.
    pub cores: Cores,
    /// The upstream of every contestant.
    pub upstream: SocketAddr,
    /// Folder of configurations and logs.
    pub folder: PathBuf,
    /// Seconds of load.
    pub seconds: u64,
    /// The script of the load, if it has one.
    pub script: Option<PathBuf>,
    /// Counts instructions, if available.
    pub perf: Option<Perf>,
}

impl Track {
    /// Measures a contestant, repeats disturbed measurements, and returns the least disturbed one.
    pub fn measure(&self, contestant: &dyn Contestant, duty: Duty) -> io::Result<Sample> {
        Sample::calmest(|| self.measure_once(contestant, duty))
    }

    /// Starts a contestant, checks that it fulfills its duty, and measures it.
    fn measure_once(&self, contestant: &dyn Contestant, duty: Duty) -> io::Result<Sample> {
        if duty.is_shed() {
            return self.measure_shedding(contestant, duty);
        }
        let server = self.start(contestant, duty)?;
        // wrk does not report the status, so one request before and one after the load check it.
        if duty == Duty::Refuse {
            spend(&server)?;
        }
        self.measure_verified(contestant, duty, &server)
    }

    /// Measures a contestant between two requests that check its duty.
    fn measure_verified(
        &self,
        contestant: &dyn Contestant,
        duty: Duty,
        server: &Server,
    ) -> io::Result<Sample> {
        dutiful(contestant.name(), duty, &probe::ask(server.address())?)?;
        wrk::run(server.address(), WARM_UP, self.script.as_deref(), &[])?;
        let sample = self.load(contestant, duty, server)?;
        dutiful(contestant.name(), duty, &probe::ask(server.address())?)?;
        Ok(sample)
    }

    /// Measures a contestant whose upstream accepts connections and never answers.
    fn measure_shedding(&self, contestant: &dyn Contestant, duty: Duty) -> io::Result<Sample> {
        let stalled = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let (core, upstream) = (self.cores.contestant, stalled.local_addr()?);
        let server = contestant::start(contestant, duty, core, upstream, &self.folder)?;
        let mut held = Vec::new();
        for _ in 0..HELD_REQUESTS {
            let mut stream = probe::open(server.address())?;
            probe::ask_without_reading(&mut stream)?;
            held.push(stream);
        }
        wait_until_shed(contestant.name(), server.address())?;
        let sample = self.measure_verified(contestant, duty, &server);
        drop(held);
        sample
    }

    /// Starts a contestant on its core.
    pub fn start(&self, contestant: &dyn Contestant, duty: Duty) -> io::Result<Server> {
        contestant::start(contestant, duty, self.cores.contestant, self.upstream, &self.folder)
    }

    #[allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    fn load(&self, contestant: &dyn Contestant, duty: Duty, server: &Server) -> io::Result<Sample> {
        let family = server.family()?;
        let before = self.perf.as_ref().map_or_else(Vec::new, |perf| perf.before(&family));
        let answer_bytes = probe::ask(server.address())?.text.len();
        let load = || wrk::run(server.address(), self.seconds, self.script.as_deref(), &before);
        let (sample, seen) = Sample::take(&family, load, |seen| seen.pace)?;
        all_as_expected(contestant.name(), duty, &seen)?;
        let counted = self.perf.as_ref().map(Perf::counted).transpose()?;
        let instructions = counted.map(|counted| counted as f64 / sample.requests as f64);
        Ok(Sample { instructions, answer_bytes, ..sample })
    }
}

/// Sends requests until the limit is exhausted.
fn spend(server: &Server) -> io::Result<()> {
    for _ in 0..3 {
        if probe::ask(server.address())?.status == Duty::Refuse.status() {
            break;
        }
    }
    Ok(())
}

/// Sends requests until several in a row are answered, which are refusals: a shedder starts with a part of the requests.
fn wait_until_shed(name: &str, address: SocketAddr) -> io::Result<()> {
    let start = stopwatch::mark();
    let mut shed = 0;
    loop {
        let mut stream = probe::open(address)?;
        stream.set_read_timeout(Some(SHED_WITHIN))?;
        probe::ask_without_reading(&mut stream)?;
        shed = if stream.read(&mut [0]).is_ok_and(|bytes| bytes > 0) { shed + 1 } else { 0 };
        if shed == SHED_IN_A_ROW {
            return Ok(());
        }
        if start.elapsed() > SHEDDING_DEADLINE {
            return Err(io::Error::other(format!("{name} sheds no request")));
        }
    }
}

/// Checks the status that the duty requires, and the presence or absence of the upstream's body.
fn dutiful(name: &str, duty: Duty, answer: &Answer) -> io::Result<()> {
    let from_upstream = answer.text.contains(upstream::BODY);
    if answer.status == duty.status() && from_upstream != duty.is_refused() {
        return Ok(());
    }
    let (duty, status) = (duty.name(), duty.status());
    Err(io::Error::other(format!("{name}, {duty}: expected {status}, and got:\n{}", answer.text)))
}

/// Checks that all responses of a run are as expected.
fn all_as_expected(name: &str, duty: Duty, seen: &WrkReport) -> io::Result<()> {
    let requests = seen.pace.requests;
    let (wrong, tolerated) = match duty {
        Duty::Off | Duty::Admit => (seen.refused, 0),
        Duty::Refuse | Duty::ShedNode | Duty::ShedAdaptive => {
            (requests.saturating_sub(seen.refused), requests / MAX_ADMITTED_ONE_IN)
        }
    };
    if requests > 0 && seen.errors == 0 && wrong <= tolerated {
        return Ok(());
    }
    let (errors, duty) = (seen.errors, duty.name());
    Err(io::Error::other(format!(
        "{name}, {duty}: {wrong} of {requests} answers were wrong, and {errors} connections failed"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Pace;

    #[test]
    fn a_response_must_match_the_duty() {
        let answer = |status, text: &str| Answer { status, text: text.to_owned() };
        assert!(dutiful("x", Duty::Admit, &answer(200, upstream::BODY)).is_ok());
        assert!(dutiful("x", Duty::Admit, &answer(200, "an error page")).is_err());
        assert!(dutiful("x", Duty::Admit, &answer(429, "")).is_err());
        assert!(dutiful("x", Duty::Refuse, &answer(429, "")).is_ok());
        assert!(dutiful("x", Duty::Refuse, &answer(429, upstream::BODY)).is_err());
        assert!(dutiful("x", Duty::Refuse, &answer(503, "")).is_err());
        assert!(dutiful("x", Duty::ShedNode, &answer(503, "")).is_ok());
    }

    #[test]
    fn a_run_with_a_wrong_answer_does_not_count() {
        check(Duty::Admit, 0, 0, true);
        check(Duty::Admit, 1, 0, false);
        check(Duty::Off, 0, 1, false);
        check(Duty::Refuse, 10_000, 0, true);
        check(Duty::Refuse, 9_990, 0, true);
        check(Duty::Refuse, 9_989, 0, false);
        check(Duty::Refuse, 10_000, 1, false);
    }

    fn check(duty: Duty, refused: u64, errors: u64, counts: bool) {
        let pace = Pace { requests: 10_000, per_second: 1.0, p50_us: 1.0, p99_us: 1.0 };
        let seen = WrkReport { pace, refused, errors };
        assert_eq!(all_as_expected("x", duty, &seen).is_ok(), counts, "{duty:?} {seen:?}");
    }
}
