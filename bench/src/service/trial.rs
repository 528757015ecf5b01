//! One measurement, and the proof that it measured what it says.

use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::{fs, io};

use super::contestant::{Contestant, Programs};
use super::question::{Amount, Answer, KEYS, Limit, Question, key};
use crate::cores::Cores;
use crate::sample::Sample;
use crate::server::{Server, free_address};

/// Seconds of load before anything counts, and the pace that is expected of it, for generators
/// that want a number. The warm-up then tells the real one.
const WARM_UP: Amount = Amount { seconds: 1, per_second: 30_000.0 };

/// Of many keys, so many are looked at.
const MAX_CHECKED_KEYS: u64 = 500;

/// What all measurements of a run share.
pub struct Track {
    /// Who runs where.
    pub cores: Cores,
    /// What is run.
    pub programs: Programs,
    /// For configurations and logs.
    pub folder: PathBuf,
    /// How long a load takes.
    pub seconds: u64,
}

impl Track {
    /// Measures a contestant, again if others disturbed it, and takes the calmest.
    pub fn measure(&self, contestant: &Contestant) -> io::Result<Sample> {
        let Contestant { case, subject, .. } = contestant;
        Sample::calmest(|| self.measure_once(contestant))
            .map_err(|error| io::Error::other(format!("{case}, {subject}: {error}")))
    }

    /// Starts a contestant, proves that it limits, measures it, and proves that it did what it was asked.
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

fn connects(address: SocketAddr) -> io::Result<()> {
    TcpStream::connect(address).map(drop)
}

/// Wants the small limit to admit two and to refuse the third; gives the first answer.
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

/// Wants the keys to have been charged as often as the load has asked.
fn has_charged(question: &dyn Question, server: SocketAddr, asked: u64) -> io::Result<()> {
    let (keys, ample) = (question.keys(), question.ample());
    let looked_at = keys.min(MAX_CHECKED_KEYS);
    let mut charged = 0;
    for number in 0..looked_at {
        let answer = question.ask(server, ample, &key(number * (keys / looked_at)))?;
        if !answer.admitted {
            return Err(io::Error::other(format!("an ample limit refuses: {answer:?}")));
        }
        // Without this question itself.
        charged += ample.units.saturating_sub(answer.left + 1);
    }
    if is_plausible(charged, asked, looked_at, keys) {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "{asked} requests about {keys} keys, and {looked_at} of these were charged {charged}"
    )))
}

/// Whether a sample of the keys was charged as often as it should. A load that picks keys by chance
/// asks some more often than others; and of what one key was charged, a little has come back meanwhile.
#[allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn is_plausible(charged: u64, asked: u64, looked_at: u64, keys: u64) -> bool {
    let expected = asked as f64 * looked_at as f64 / keys as f64;
    let by_chance = if keys == KEYS { 6.0 * expected.sqrt() } else { 20.0 };
    (charged as f64 - expected).abs() <= by_chance
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_did_not_charge_what_it_was_asked_is_found_out() {
        // Two each, of which five hundred keys were looked at.
        assert!(is_plausible(1_000, 2 * KEYS, 500, KEYS));
        assert!(is_plausible(1_100, 2 * KEYS, 500, KEYS), "by chance");
        assert!(!is_plausible(500, 2 * KEYS, 500, KEYS), "only half of them");
        assert!(!is_plausible(0, 2 * KEYS, 500, KEYS));
        assert!(is_plausible(99_990, 100_000, 1, 1), "some come back");
        assert!(!is_plausible(99_000, 100_000, 1, 1));
    }
}
