//! One shape of traffic, put to one algorithm after the other.

use std::net::{IpAddr, Ipv4Addr};

use tollgate::{OutageSettings, Request, Timestamp};

use super::contest::{Contest, RequestSource, seconds};
use super::contestant::{Contestant, ContestantError};
use super::nodes::{Network, Stores};
use super::report::{AlgorithmReport, Round, TrafficReport};
use crate::traffic::{Flow, Traffic, TrafficError};

/// What to find out.
#[derive(Clone)]
pub struct Question {
    /// The traffic.
    pub traffic: Traffic,
    /// Who is put side by side; all have the rate of the traffic.
    pub contestants: Vec<Contestant>,
    /// Who decides.
    pub network: Network,
    /// How many events are worked through for each algorithm at most. What comes later is left out, and the report says so.
    pub most_events: u64,
    /// What else is to be said, such as who was left out.
    pub notes: Vec<String>,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuestionError {
    /// No such traffic.
    Traffic(TrafficError),
    /// No such algorithm or rate.
    Contestant(ContestantError),
    /// Nothing to put side by side.
    Nobody,
    /// An algorithm of another rate than the traffic's, or one that counts others than the traffic means.
    Apart,
    /// More events than are worked through.
    TooMany {
        /// About how many there would be for each algorithm.
        expected: u64,
        /// How many may be.
        most: u64,
    },
}

impl std::fmt::Display for QuestionError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Traffic(error) => error.fmt(f),
            Self::Contestant(error) => error.fmt(f),
            Self::Nobody => f.write_str("there is no algorithm to look at; name at least one"),
            Self::Apart => {
                f.write_str("the algorithms must have the rate of the traffic, and count whom it means")
            }
            Self::TooMany { expected, most } => write!(
                f,
                "that is about {expected} requests for each algorithm, and {most} are worked through; take a lower rate or \
                 load, fewer clients, or less time"
            ),
        }
    }
}

impl std::error::Error for QuestionError {}

impl From<ContestantError> for QuestionError {
    fn from(error: ContestantError) -> Self {
        Self::Contestant(error)
    }
}

/// A question that is being worked on.
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
    /// Those to come, the next one last.
    waiting: Vec<Contestant>,
    current: Option<(Contest, Flow)>,
    done: Vec<AlgorithmReport>,
    /// Of the current one.
    events: u64,
    /// The earliest end, where one was cut short.
    until: Timestamp,
    begin: Timestamp,
    step_s: f64,
}

impl Simulation {
    /// Begins, if the question makes sense.
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
        let traffic = &self.question.traffic;
        // The table of a store is four ways wide: twice the keys keeps all of them.
        let keys = (traffic.clients as usize * 2).max(1_024);
        let contest =
            Contest::on_shape(contestant, self.question.network, keys, self.begin, traffic.duration)?;
        self.step_s = seconds(contest.series().step());
        self.current = Some((contest, traffic.start()));
        self.events = 0;
        Ok(true)
    }

    /// Works through so many events. Whether there is more to do.
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

    /// One algorithm is through; the next one begins.
    fn finish(&mut self) {
        let Some((mut contest, mut flow)) = self.current.take() else { return };
        if let Some(left) = flow.next() {
            self.until = self.until.min(left.at);
        }
        contest.end(self.begin + self.question.traffic.duration);
        self.done.push(contest.report());
        // It was read before, when it became a contestant.
        let _more = self.next_contest();
    }

    /// Works through all that is left.
    pub fn run(mut self) -> Round {
        while self.step(1 << 16) {}
        self.round()
    }

    /// What was found out.
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

/// A request of a client that has nothing but an address.
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

/// From 10.0.0.0 on: there is room for more clients than there may be.
const fn address(client: u32) -> IpAddr {
    let [_, b, c, d] = client.to_be_bytes();
    IpAddr::V4(Ipv4Addr::new(10, b, c, d))
}
