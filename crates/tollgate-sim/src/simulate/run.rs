//! Runs generated traffic against one algorithm after the other.

use std::net::{IpAddr, Ipv4Addr};

use tollgate::{OutageSettings, Request, Timestamp};

use super::contest::{Contest, RequestSource, seconds};
use super::contestant::{Contestant, ContestantError};
use super::nodes::{Network, Stores};
use super::report::{AlgorithmReport, Round, TrafficReport};
use crate::traffic::{Flow, Traffic, TrafficError};

/// Input of a simulation.
#[derive(Clone)]
pub struct Question {
    /// The traffic.
    pub traffic: Traffic,
    /// The algorithms; all have the rate of the traffic.
    pub contestants: Vec<Contestant>,
    /// The nodes that decide.
    pub network: Network,
    /// The most events per algorithm. Later events are dropped, and the report says so.
    pub most_events: u64,
    /// Further notes for the report, such as algorithms that were left out.
    pub notes: Vec<String>,
}

/// Reason why a simulation cannot run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuestionError {
    /// The traffic is invalid.
    #[error(transparent)]
    Traffic(TrafficError),
    /// An algorithm or a rate is invalid.
    #[error(transparent)]
    Contestant(#[from] ContestantError),
    /// There are no algorithms.
    #[error("there is no algorithm to look at; name at least one")]
    Nobody,
    /// An algorithm differs from the traffic in rate or key.
    #[error("the algorithms must have the rate of the traffic, and count whom it means")]
    Apart,
    /// There are too many events.
    #[error(
        "that is about {expected} requests for each algorithm, and {most} are worked through; take a lower rate or \
         load, fewer clients, or less time"
    )]
    TooMany {
        /// Estimated events per algorithm.
        expected: u64,
        /// The most events.
        most: u64,
    },
}

/// A simulation in progress.
///
/// ```
/// # use tollgate::Rate;
/// # use tollgate_sim::simulate::{Choice, Contestant, Network, Question, Simulation};
/// # use tollgate_sim::traffic::{Shape, Traffic};
/// let fixed = Contestant::new(Choice::FixedWindow, "10/minute", None, "ip")?;
/// let traffic = Traffic::new(Shape::Edge, fixed.rate);
/// let (contestants, network, notes) = (vec![fixed], Network::default(), Vec::new());
/// let question = Question { traffic, contestants, network, most_events: 10_000, notes };
/// let round = Simulation::new(question)?.run();
/// assert_eq!(round.algorithms[0].most_in_a_window, 20);             // twice the limit
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Simulation {
    question: Question,
    /// Algorithms that have not run, the next one last.
    waiting: Vec<Contestant>,
    current: Option<(Contest, Flow)>,
    done: Vec<AlgorithmReport>,
    /// Events of the current algorithm.
    events: u64,
    /// The earliest end of an algorithm that was cut short.
    until: Timestamp,
    begin: Timestamp,
    step_s: f64,
}

impl Simulation {
    /// Checks the input and starts.
    pub fn new(question: Question) -> Result<Self, QuestionError> {
        let traffic = &question.traffic;
        traffic.check().map_err(QuestionError::Traffic)?;
        if question.contestants.is_empty() {
            return Err(QuestionError::Nobody);
        }
        let fits = |it: &Contestant| it.rate == traffic.rate && it.by == traffic.by.word();
        if !question.contestants.iter().all(fits) {
            return Err(QuestionError::Apart);
        }
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "an estimate, which saturates"
        )]
        let expected = traffic.expected() as u64;
        if expected > question.most_events {
            return Err(QuestionError::TooMany { expected, most: question.most_events });
        }
        let begin = traffic.start().begin();
        let mut waiting = question.contestants.clone();
        waiting.reverse();
        let mut simulation = Self {
            until: begin + traffic.duration,
            question,
            waiting,
            current: None,
            done: Vec::new(),
            events: 0,
            begin,
            step_s: 0.0,
        };
        simulation.next_contest()?;
        Ok(simulation)
    }

    fn next_contest(&mut self) -> Result<bool, ContestantError> {
        let Some(contestant) = self.waiting.pop() else { return Ok(false) };
        let (traffic, keys) = (&self.question.traffic, self.keys());
        let contest =
            Contest::on_shape(contestant, self.question.network, keys, self.begin, traffic.duration)?;
        self.step_s = seconds(contest.series().step());
        self.current = Some((contest, traffic.start()));
        self.events = 0;
        Ok(true)
    }

    /// Returns the number of keys of a store. Its table is four ways wide: room for twice the keys avoids evictions.
    fn keys(&self) -> usize {
        (self.question.traffic.clients as usize * 2).max(1_024)
    }

    /// Processes this many events. Returns whether events are left.
    pub fn step(&mut self, events: u32) -> bool {
        for _ in 0..events {
            let Some((contest, flow)) = &mut self.current else { return false };
            let arrival = if self.events < self.question.most_events { flow.next() } else { None };
            let Some(arrival) = arrival else {
                self.finish();
                continue;
            };
            self.events += 1;
            let request = SimulatedRequest(address(arrival.client));
            let asking = RequestSource {
                at: arrival.at,
                client: arrival.client.into(),
                is_first: arrival.tries == 0,
                first: arrival.first,
            };
            if let Some(decided) = contest.ask(&request, asking) {
                contest.then(flow.after_reply(&arrival, decided.admitted, decided.retry_after));
            }
        }
        self.current.is_some()
    }

    /// Completes the current algorithm and starts the next one.
    fn finish(&mut self) {
        let Some((mut contest, mut flow)) = self.current.take() else { return };
        if let Some(left) = flow.next() {
            self.until = self.until.min(left.at);
        }
        contest.end(self.begin + self.question.traffic.duration);
        self.done.push(contest.report());
        // The policy was parsed when the contestant was created, so it is valid.
        let _more = self.next_contest();
    }

    /// Processes all remaining events.
    pub fn run(mut self) -> Round {
        while self.step(1 << 16) {}
        self.round()
    }

    /// Returns the results.
    pub fn round(self) -> Round {
        let Question { traffic, network, most_events, mut notes, .. } = self.question;
        let end = self.begin + traffic.duration;
        if self.until < end {
            let whole = traffic.duration;
            notes.push(format!(
                "cut short after {most_events} tries of one algorithm, at {:.1} s of {:.1} s: clients came back too often",
                seconds(self.until.since(self.begin)),
                seconds(whole),
            ));
        }
        match network.store {
            Stores::Memory if network.nodes > 1 => notes.push(format!(
                "{} nodes, each with a count of its own: together they may let through up to {} times the limit",
                network.nodes, network.nodes
            )),
            Stores::Outage => notes.push(format!(
                "the shared store gives no answer: each node grants its part of {} % of the limit, as `on_outage: local` does",
                OutageSettings::default().share
            )),
            Stores::Memory | Stores::Shared => {}
        }
        Round {
            rate: traffic.rate.to_string(),
            limit: traffic.rate.count,
            window_s: seconds(traffic.rate.period),
            traffic: Some(TrafficReport {
                shape: traffic.shape.word(),
                words: traffic.shape.sentence(),
                load: traffic.load,
                clients: traffic.clients,
                by: traffic.by,
                duration_s: seconds(traffic.duration),
                retry: traffic.shape.retries().then_some(traffic.retry),
                seed: traffic.seed,
                nodes: network.nodes,
                store: network.store,
                routing: network.routing,
                until_s: seconds(self.until.since(self.begin)),
            }),
            algorithms: self.done,
            notes,
            from_s: seconds(self.begin.since(Timestamp::EPOCH)),
            step_s: self.step_s,
        }
    }
}

/// A request with nothing but a client address.
struct SimulatedRequest(IpAddr);

impl Request for SimulatedRequest {
    fn method(&self) -> &'static str {
        "GET"
    }

    fn path(&self) -> &'static str {
        "/"
    }

    fn client(&self) -> Option<IpAddr> {
        Some(self.0)
    }
}

/// Returns the address of a client, from 10.0.0.0 on. The network has more addresses than there may be clients.
const fn address(client: u32) -> IpAddr {
    let [_, b, c, d] = client.to_be_bytes();
    IpAddr::V4(Ipv4Addr::new(10, b, c, d))
}
