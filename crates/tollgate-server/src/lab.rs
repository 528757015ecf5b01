//! `POST /v1/lab/simulate`: compares algorithms on generated traffic, in virtual time.
//!
//! A simulation changes nothing and does not use the store, so the reader role suffices. To bound its
//! CPU time, the number of events is limited, the work yields to other tasks between slices, and at
//! most two simulations run at once.
//!
//! Traffic and counting are in `tollgate_sim`, the charts in `page/lab.js`; protections against overload are in
//! `overload`.

mod overload;

use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use schemars::JsonSchema;
use serde::Deserialize;
use tollgate::{Rate, Span, Store};
use tollgate_sim::simulate::{
    Choice, Contestant, ContestantError, Network, Question, Routing, Simulation, Stores, length,
};
use tollgate_sim::traffic::{By, MAX_ATTEMPTS, Retry, Shape, Traffic};

pub(crate) use self::overload::OverloadRequest;
use crate::api::Inner;
use crate::body::{listed, quoted, read};
use crate::problem::Problem;
use crate::reply::{Reply, json_of};

/// The maximum number of requests in a simulation, summed over all algorithms.
pub(crate) const MAX_EVENTS: u64 = 50_000;
/// The maximum number of clients. Each takes memory for each algorithm.
const MAX_CLIENTS: u32 = 500;
/// The maximum number of nodes. Each has a store for each algorithm.
const MAX_NODES: u32 = 16;
/// The maximum number of concurrent simulations.
const MAX_CONCURRENT: usize = 2;
/// The number of events between two yields.
const EVENTS_PER_SLICE: u32 = 250;
/// The maximum length of a rate or a duration.
const MAX_TEXT_BYTES: usize = 64;

const FIELDS: &[&str] = &[
    "traffic",
    "rate",
    "algorithms",
    "burst",
    "load",
    "clients",
    "by",
    "duration",
    "seed",
    "jitter",
    "honours_retry_after",
    "attempts",
    "nodes",
    "store",
    "routing",
];

/// The number of running simulations.
#[derive(Debug, Default)]
pub(crate) struct Lab(AtomicUsize);

/// A permit for one simulation, released on drop.
struct LabPermit<'l>(&'l AtomicUsize);

impl Lab {
    fn enter(&self) -> Option<LabPermit<'_>> {
        let seat = LabPermit(&self.0);
        // A caller without a permit was counted; dropping `seat` corrects that.
        (self.0.fetch_add(1, Ordering::Relaxed) < MAX_CONCURRENT).then_some(seat)
    }
}

impl Drop for LabPermit<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The parameters of a simulation, all optional.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("examples" = [{"traffic": "edge", "rate": "10/minute", "algorithms": ["fixed-window", "sliding-log"]}]))]
pub(crate) struct SimulateRequest {
    /// The shape; `edge` unless given.
    #[schemars(extend("enum" = or_null(Shape::ALL.map(Shape::word))))]
    traffic: Option<String>,
    /// As in a policy; `10/minute` by default.
    #[schemars(extend("maxLength" = MAX_TEXT_BYTES))]
    rate: Option<String>,
    /// By default all that support the rate.
    #[schemars(extend("minItems" = 1, "items" = {"enum": Choice::ALL.map(Choice::word)}))]
    algorithms: Option<Vec<String>>,
    /// The burst of token-bucket and gcra.
    #[schemars(extend("minimum" = 1))]
    burst: Option<u64>,
    /// A multiple of the rate.
    #[schemars(extend("minimum" = 0.01, "maximum" = 1000))]
    load: Option<f64>,
    /// The number of clients.
    #[schemars(extend("minimum" = 1, "maximum" = MAX_CLIENTS))]
    clients: Option<u32>,
    /// The key of the limit: each client, or all together.
    #[schemars(extend("enum" = ["ip", "global", null]))]
    by: Option<String>,
    /// The length of the simulation: `30s`, `10m`; ten windows by default.
    #[schemars(extend("maxLength" = MAX_TEXT_BYTES))]
    duration: Option<String>,
    /// Other numbers, other chances.
    seed: Option<u64>,
    /// Whether clients that retry add jitter to their waits.
    jitter: Option<bool>,
    /// Whether they follow Retry-After.
    honours_retry_after: Option<bool>,
    /// The maximum number of attempts of a request.
    #[schemars(extend("minimum" = 1, "maximum" = MAX_ATTEMPTS))]
    attempts: Option<u32>,
    /// The number of nodes.
    #[schemars(extend("minimum" = 1, "maximum" = MAX_NODES))]
    nodes: Option<u32>,
    /// Whether each node counts for itself, or all share one store.
    #[schemars(extend("enum" = ["memory", "shared", null]))]
    store: Option<String>,
    /// The routing of requests to nodes.
    #[schemars(extend("enum" = ["round-robin", "sticky", null]))]
    routing: Option<String>,
}

/// Returns the words of an optional member.
fn or_null<const N: usize>(words: [&'static str; N]) -> Vec<Option<&'static str>> {
    words.into_iter().map(Some).chain([None]).collect()
}

impl<S: Store> Inner<S> {
    /// Runs a simulation that compares algorithms.
    pub(crate) async fn experiment(&self, body: &[u8]) -> Result<Reply, Problem> {
        let question = read::<SimulateRequest>(body, FIELDS)?.question()?;
        let _seat = self.lab.enter().ok_or_else(Problem::lab_is_full)?;
        let mut simulation =
            Simulation::new(question).map_err(|error| Problem::senseless(error.to_string()))?;
        while simulation.step(EVENTS_PER_SLICE) {
            let_others().await;
        }
        Ok(json_of(&simulation.round()))
    }
}

/// Yields once to other tasks of this thread.
async fn let_others() {
    let mut has_waited = false;
    poll_fn(|context| {
        if std::mem::replace(&mut has_waited, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

impl SimulateRequest {
    fn question(&self) -> Result<Question, Problem> {
        let shape =
            one_of("traffic", self.traffic.as_deref(), Shape::Edge, &Shape::ALL.map(|it| (it.word(), it)))?;
        let usual = Traffic::new(shape, Rate::per_minute(1));
        let by = one_of(
            "by",
            self.by.as_deref(),
            usual.by,
            &[By::Client, By::Everybody].map(|it| (it.word(), it)),
        )?;
        let (contestants, notes) = self.contestants(by)?;
        let Some(first) = contestants.first() else {
            return Err(Problem::senseless(
                "`algorithms` is empty; name at least one, or leave it out for all",
            ));
        };
        let traffic = self.traffic(Traffic { by, ..Traffic::new(shape, first.rate) })?;
        let most_events = MAX_EVENTS / contestants.len() as u64;
        Ok(Question { traffic, contestants, network: self.network()?, most_events, notes })
    }

    /// Returns the algorithms; by default all that support the rate.
    fn contestants(&self, by: By) -> Result<(Vec<Contestant>, Vec<String>), Problem> {
        let rate = bounded("rate", self.rate.as_deref().unwrap_or("10/minute"))?;
        let senseless = |error: ContestantError| Problem::senseless(format!("`rate`: {error}"));
        if let Some(words) = &self.algorithms {
            let mut chosen = Vec::new();
            for word in words {
                let words = Choice::ALL.map(|it| (it.word(), it));
                let choice = one_of("algorithms", Some(word.as_str()), Choice::SlidingLog, &words)?;
                if !chosen.contains(&choice) {
                    chosen.push(choice);
                }
            }
            let made = chosen.into_iter().map(|it| Contestant::new(it, rate, self.burst, by.word()));
            return made.collect::<Result<_, _>>().map(|made| (made, Vec::new())).map_err(senseless);
        }
        Contestant::all(rate, self.burst, by.word()).map_err(senseless)
    }

    fn traffic(&self, usual: Traffic) -> Result<Traffic, Problem> {
        let duration = time("duration", self.duration.as_deref(), usual.duration)?;
        let clients = self.clients.unwrap_or(usual.clients);
        if !(1..=MAX_CLIENTS).contains(&clients) {
            return Err(Problem::senseless(format!("`clients` must be 1 to {MAX_CLIENTS} here")));
        }
        Ok(Traffic {
            load: self.load.unwrap_or(usual.load),
            clients,
            duration,
            seed: self.seed.unwrap_or(usual.seed),
            retry: Retry {
                jitter: self.jitter.unwrap_or(usual.retry.jitter),
                honours_retry_after: self.honours_retry_after.unwrap_or(usual.retry.honours_retry_after),
                attempts: self.attempts.unwrap_or(usual.retry.attempts),
            },
            ..usual
        })
    }

    fn network(&self) -> Result<Network, Problem> {
        let nodes = self.nodes.unwrap_or(1);
        if !(1..=MAX_NODES).contains(&nodes) {
            return Err(Problem::senseless(format!("`nodes` must be 1 to {MAX_NODES}")));
        }
        let stores = [("memory", Stores::Memory), ("shared", Stores::Shared)];
        let routings = [("round-robin", Routing::RoundRobin), ("sticky", Routing::Sticky)];
        let store = one_of("store", self.store.as_deref(), Stores::Memory, &stores)?;
        Ok(Network {
            nodes,
            store,
            routing: one_of("routing", self.routing.as_deref(), Routing::RoundRobin, &routings)?,
        })
    }
}

/// Maps a word to its value, or to the default if there is none.
fn one_of<T: Copy>(field: &str, word: Option<&str>, usual: T, known: &[(&str, T)]) -> Result<T, Problem> {
    let Some(word) = word else { return Ok(usual) };
    let found = known.iter().find(|(name, _)| *name == word);
    found.map(|(_, it)| *it).ok_or_else(|| {
        let words: Vec<_> = known.iter().map(|(name, _)| *name).collect();
        Problem::senseless(format!("`{field}` must be one of {}, not `{}`", listed(&words), quoted(word)))
    })
}

/// Parses a length of time, if there is one.
fn time(field: &str, text: Option<&str>, usual: Span) -> Result<Span, Problem> {
    let Some(text) = text else { return Ok(usual) };
    length(bounded(field, text)?)
        .map_err(|error| Problem::senseless(format!("`{field}`: {error}, not `{}`", quoted(text))))
}

fn bounded<'t>(field: &str, text: &'t str) -> Result<&'t str, Problem> {
    if text.len() > MAX_TEXT_BYTES {
        return Err(Problem::senseless(format!("`{field}` may have at most {MAX_TEXT_BYTES} bytes")));
    }
    Ok(text)
}
