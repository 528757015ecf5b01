//! One measurement, with checks that it measured the intended work.

use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::{fs, io};

use super::contestant::{Contestant, Programs};
use super::question::{Amount, Answer, KEYS, Limit, Question, key};
use crate::cores::Cores;
use crate::sample::Sample;
use crate::server::{Server, free_address};

/// Warm-up load: its seconds, and the assumed rate, for load generators that need a number of requests. The warm-up
/// then determines the real rate.
const WARM_UP: Amount = Amount { seconds: 1, per_second: 30_000.0 };

/// The most keys that are checked after a load.
const MAX_CHECKED_KEYS: u64 = 500;

/// Settings that all measurements of a run share.
pub struct Track {
    /// Core assignment.
    pub cores: Cores,
    /// The programs.
    pub programs: Programs,
    /// Folder of configurations and logs.
    pub folder: PathBuf,
    /// Seconds of load.
    pub seconds: u64,
}

impl Track {
    /// Measures a contestant, repeats disturbed measurements, and returns the least disturbed one.
    pub fn measure(&self, contestant: &Contestant) -> io::Result<Sample> {
        let Contestant { case, subject, .. } = contestant;
        Sample::calmest(|| self.measure_once(contestant))
            .map_err(|error| io::Error::other(format!("{case}, {subject}: {error}")))
    }

    /// Starts a contestant, checks that it limits, measures it, and checks that it charged every request.
    fn measure_once(&self, contestant: &Contestant) -> io::Result<Sample> {
        let folder = self.folder.join(format!("{}_{}", contestant.case, contestant.subject));
        fs::create_dir_all(&folder)?;
        let address = free_address()?;
        let command = contestant.command(&self.programs, address, &folder)?;
        let server = Server::start(&command, Some(self.cores.contestant), address, &folder, connects)?;
        let question = contestant.question.as_ref();
        question.prepare(address)?;
        let answer = refuses(question, address)?;
        let warm = question.load(address, WARM_UP, &folder)?;
        let amount = Amount { seconds: self.seconds, per_second: warm.per_second };
        let load = || question.load(address, amount, &folder);
        let (sample, _) = Sample::take(&server.family()?, load, |pace| *pace)?;
        has_charged(question, address, warm.requests + sample.requests)?;
        Ok(Sample { answer_bytes: answer.bytes, ..sample })
    }
}

/// Checks that a server accepts connections.
pub(super) fn connects(address: SocketAddr) -> io::Result<()> {
    TcpStream::connect(address).map(drop)
}

/// Checks that the small limit admits two requests and refuses the third; returns the first answer.
fn refuses(question: &dyn Question, server: SocketAddr) -> io::Result<Answer> {
    let ask = || question.ask(server, Limit::SMALL, "small");
    let first = ask()?;
    if question.refuses() {
        let seen = [first, ask()?, ask()?].map(|it| (it.admitted, it.left));
        if seen != [(true, 1), (true, 0), (false, 0)] {
            return Err(io::Error::other(format!("two should pass and no third: {seen:?}")));
        }
    }
    Ok(first)
}

/// Checks that the keys were charged as often as the load sent requests.
fn has_charged(question: &dyn Question, server: SocketAddr, requests: u64) -> io::Result<()> {
    let (keys, ample) = (question.keys(), question.ample());
    let looked_at = keys.min(MAX_CHECKED_KEYS);
    let mut charged = 0;
    for number in 0..looked_at {
        let answer = question.ask(server, ample, &key(number * (keys / looked_at)))?;
        if !answer.admitted {
            return Err(io::Error::other(format!("an ample limit refuses: {answer:?}")));
        }
        // Without the request that reads the count.
        charged += ample.units.saturating_sub(answer.left + 1);
    }
    if is_plausible(charged, requests, looked_at, keys) {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "{requests} requests about {keys} keys, and {looked_at} of these were charged {charged}"
    )))
}

/// Whether a sample of the keys was charged as often as expected. Random keys are not requested equally often, and a
/// little of a single key's allowance refills meanwhile.
#[allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn is_plausible(charged: u64, requests: u64, looked_at: u64, keys: u64) -> bool {
    let expected = requests as f64 * looked_at as f64 / keys as f64;
    let by_chance = if keys == KEYS { 6.0 * expected.sqrt() } else { 20.0 };
    (charged as f64 - expected).abs() <= by_chance
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_does_not_charge_every_request_is_detected() {
        // Two requests per key, of which five hundred keys were checked.
        assert!(is_plausible(1_000, 2 * KEYS, 500, KEYS));
        assert!(is_plausible(1_100, 2 * KEYS, 500, KEYS), "by chance");
        assert!(!is_plausible(500, 2 * KEYS, 500, KEYS), "only half of them");
        assert!(!is_plausible(0, 2 * KEYS, 500, KEYS));
        assert!(is_plausible(99_990, 100_000, 1, 1), "some come back");
        assert!(!is_plausible(99_000, 100_000, 1, 1));
    }
}
