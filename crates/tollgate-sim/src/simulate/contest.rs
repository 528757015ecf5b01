//! Runs one algorithm and counts its results.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use tollgate::{Request, Span, Timestamp};

use super::busiest::Busiest;
use super::contestant::{Choice, Contestant, ContestantError};
use super::nodes::{Network, NodeDecision, Nodes};
use super::report::{AlgorithmReport, SeriesReport};
use super::series::Series;
use super::size::Sizes;
use super::words;
use crate::distance::Distance;
use crate::traffic::Next;
use crate::waits::WaitCounter;

/// The most clients whose admissions are counted separately.
const MAX_CLIENTS: usize = 1 << 16;

/// The client of a request.
#[derive(Clone, Copy)]
pub(super) struct RequestSource {
    pub(super) at: Timestamp,
    /// Identifies the client for sticky routing.
    pub(super) client: u64,
    /// Whether this is the first attempt, and the time of the first attempt.
    pub(super) is_first: bool,
    pub(super) first: Timestamp,
}

/// One algorithm and its results.
pub(super) struct Contest {
    contestant: Contestant,
    nodes: Nodes,
    /// Evictions in stores that were replaced.
    evictions: u64,
    begin: Timestamp,
    counts: Counts,
    clients: HashMap<u64, ClientTotals>,
    busiest: Busiest,
    series: Series,
    /// The first cell without a window value; `None` if window values are not computed.
    next_cell: Option<usize>,
    distance: Option<Distance>,
    sizes: Sizes,
    /// Admitted requests that wait in a queue: their start, key and cost.
    queued: BinaryHeap<Reverse<(Timestamp, u64, u64)>>,
    waits: WaitCounter,
}

#[derive(Default)]
struct Counts {
    offered: u64,
    admitted: u64,
    requests: u64,
    wasted_retries: u64,
    given_up: u64,
    longest_retry_after: Span,
    longest_wait: Span,
}

#[derive(Default)]
struct ClientTotals {
    requests: u64,
    admitted: u64,
}

impl Contest {
    /// Creates a run on generated traffic of this length.
    pub(super) fn on_shape(
        contestant: Contestant,
        network: Network,
        keys: usize,
        begin: Timestamp,
        length: Span,
    ) -> Result<Self, ContestantError> {
        Self::new(contestant, network, keys, begin, Series::over(begin, length), Some(0))
    }

    /// Creates a run on a log that begins at this time. Window values over time are not computed, because there may
    /// be millions of keys.
    pub(super) fn on_log(
        contestant: Contestant,
        keys: usize,
        begin: Timestamp,
    ) -> Result<Self, ContestantError> {
        Self::new(contestant, Network::default(), keys, begin, Series::open(begin), None)
    }

    fn new(
        contestant: Contestant,
        network: Network,
        keys: usize,
        begin: Timestamp,
        series: Series,
        next_cell: Option<usize>,
    ) -> Result<Self, ContestantError> {
        Ok(Self {
            nodes: Nodes::new(&contestant, network, keys, begin)?,
            evictions: 0,
            begin,
            counts: Counts::default(),
            clients: HashMap::new(),
            busiest: Busiest::new(contestant.rate.period),
            series,
            next_cell,
            distance: Distance::new(&contestant.quota),
            sizes: Sizes::default(),
            queued: BinaryHeap::new(),
            waits: WaitCounter::default(),
            contestant,
        })
    }

    /// Continues with a new store: all state of the old one has expired. Only for logs, which run on one node.
    pub(super) fn renew(&mut self, keys: usize, now: Timestamp) -> Result<(), ContestantError> {
        self.evictions += self.nodes.evictions();
        self.nodes = Nodes::new(&self.contestant, Network::default(), keys, now)?;
        Ok(())
    }

    /// Decides a request. `None` if the limit does not apply to it.
    pub(super) fn ask<R: Request + Sync>(
        &mut self,
        request: &R,
        asking: RequestSource,
    ) -> Option<NodeDecision> {
        let RequestSource { at, client, is_first, first } = asking;
        let decided = self.nodes.decide(request, client, at)?;
        self.start_until(at);
        self.stand_until(at);
        let counts = &mut self.counts;
        counts.offered += 1;
        counts.requests += u64::from(is_first);
        counts.wasted_retries += u64::from(!is_first && !decided.admitted);
        let room = self.clients.len() < MAX_CLIENTS || self.clients.contains_key(&client);
        if room {
            let served = self.clients.entry(client).or_default();
            served.requests += u64::from(is_first);
            served.admitted += u64::from(decided.admitted);
        }
        if decided.admitted {
            counts.admitted += 1;
            counts.longest_wait = counts.longest_wait.max((at + decided.wait).since(first));
            self.waits.put(decided.wait);
            self.series.cell(at).admitted += 1;
            if decided.wait.is_zero() {
                self.start(at, decided.key, decided.cost);
            } else {
                self.queued.push(Reverse((at + decided.wait, decided.key, decided.cost)));
            }
        } else {
            counts.longest_retry_after =
                counts.longest_retry_after.max(decided.retry_after.unwrap_or_default());
        }
        self.series.cell(at).offered += 1;
        if let Some(distance) = &mut self.distance {
            distance.request(decided.key, decided.cost, at, decided.admitted);
        }
        self.sizes.request(&self.contestant.quota, decided.key, decided.cost, at);
        Some(decided)
    }

    /// Starts the requests whose turn in a queue has come.
    fn start_until(&mut self, now: Timestamp) {
        while let Some(&Reverse((at, key, cost))) = self.queued.peek().filter(|it| it.0.0 <= now) {
            self.queued.pop();
            self.stand_until(at);
            self.start(at, key, cost);
        }
    }

    /// Counts a request in the windows of its key when it starts.
    fn start(&mut self, at: Timestamp, key: u64, cost: u64) {
        let lately = self.busiest.admit(key, cost, at);
        let cell = self.series.cell(at);
        cell.window = cell.window.max(lately);
    }

    /// Counts the reaction of the client.
    pub(super) fn then(&mut self, next: Next) {
        self.counts.given_up += u64::from(next == Next::GivesUp);
    }

    /// Computes the largest window at the start of each cell up to now.
    fn stand_until(&mut self, at: Timestamp) {
        let Some(mut next) = self.next_cell else { return };
        while next <= self.series.index(at) {
            let start = self.series.start_of(next);
            let standing = self.busiest.standing(start);
            let cell = self.series.cell(start);
            cell.window = cell.window.max(standing);
            next += 1;
        }
        self.next_cell = Some(next);
    }

    /// Ends the run at this time.
    pub(super) fn end(&mut self, at: Timestamp) {
        self.start_until(at);
        self.stand_until(Timestamp::from_micros(at.as_micros().saturating_sub(1)));
    }

    pub(super) fn evictions(&self) -> u64 {
        self.evictions + self.nodes.evictions()
    }

    pub(super) const fn contestant(&self) -> &Contestant {
        &self.contestant
    }

    pub(super) const fn series(&self) -> &Series {
        &self.series
    }

    pub(super) fn report(&self) -> AlgorithmReport {
        let (counts, contestant) = (&self.counts, &self.contestant);
        let (most, at) = self.busiest.most();
        let limit = contestant.rate.count;
        let (least_served, most_served) = self.fairness().unzip();
        let mut report = AlgorithmReport {
            algorithm: contestant.choice,
            quota: contestant.quota.to_string(),
            offered: counts.offered,
            admitted: counts.admitted,
            refused: counts.offered - counts.admitted,
            requests: counts.requests,
            retries: counts.offered - counts.requests,
            wasted_retries: counts.wasted_retries,
            given_up: counts.given_up,
            most_in_a_window: most,
            times_the_limit: ratio(most, limit),
            most_at_s: at.map(|at| seconds(at.since(self.begin))),
            longest_retry_after_s: seconds(counts.longest_retry_after),
            longest_wait_s: seconds(counts.longest_wait),
            least_served,
            most_served,
            closed_loop: self.distance.as_ref().map(Distance::closed),
            open_loop: self.distance.as_ref().and_then(Distance::open),
            state_bytes: self.sizes.largest(),
            waits: (contestant.choice == Choice::LeakyQueue).then(|| self.waits.waits()),
            words: String::new(),
            series: SeriesReport::of(self.series.cells(), self.next_cell.is_some()),
        };
        report.words = words::of(&report, contestant);
        report
    }

    /// Returns the admitted share of the client with the least and of the client with the most.
    fn fairness(&self) -> Option<(f64, f64)> {
        if !(2..MAX_CLIENTS).contains(&self.clients.len()) {
            return None;
        }
        let shares =
            self.clients.values().filter(|it| it.requests > 0).map(|it| ratio(it.admitted, it.requests));
        Some(shares.fold((1.0, 0.0), |(least, most): (f64, f64), it| (least.min(it), most.max(it))))
    }
}

#[allow(clippy::cast_precision_loss, reason = "a ratio of counts, for people")]
fn ratio(of: u64, whole: u64) -> f64 {
    of as f64 / whole.max(1) as f64
}

#[allow(clippy::cast_precision_loss, reason = "for people")]
pub(super) fn seconds(span: Span) -> f64 {
    span.as_micros() as f64 / 1e6
}
