//! A store with scripted failures, and a limiter on it.

use std::collections::HashSet;
use std::future::pending;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tollgate::store::{AdjustmentId, Answer, Check, Repeatable};
use tollgate::{
    Adjustment, Call, Decision, Limiter, ManualClock, MemoryStore, OutageSettings, Outcome, Policy, Rule,
    Store, StoreError, Timestamp,
};

/// The behavior of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mood {
    Well,
    /// Applies the call and fails before it reports the result.
    Mute,
    /// Applies nothing, neither in time nor later, and reports a timeout.
    TimingOut,
    /// Applies nothing, and reports an unknown result.
    Broken,
    Refusing,
    Foreign,
    /// Never answers.
    Stuck,
}

/// The state that a test and its store share.
pub(crate) struct Script {
    mood: Mutex<Mood>,
    nodes: AtomicUsize,
    decisions: AtomicU64,
    adjustments: AtomicU64,
    probes: AtomicU64,
    /// Keys that contain this text are on a failed part of the store.
    gone: Mutex<Option<&'static str>>,
    /// The adjustments that were applied, and whether they are recognized.
    applied: Mutex<HashSet<AdjustmentId>>,
    recognizes: AtomicBool,
}

impl Script {
    pub(crate) fn lose(&self, keys: Option<&'static str>) {
        *self.gone.lock().unwrap() = keys;
    }

    /// Returns the behavior for this key.
    fn mood_of(&self, key: &[u8]) -> Mood {
        let gone = self.gone.lock().unwrap().map(str::as_bytes);
        let is_gone = gone.is_some_and(|gone| key.windows(gone.len()).any(|part| part == gone));
        if is_gone { Mood::TimingOut } else { self.mood() }
    }

    /// Makes the store ignore the ids of adjustments.
    pub(crate) fn ignore_ids(&self) {
        self.recognizes.store(false, Ordering::SeqCst);
    }

    /// Returns whether an adjustment is to be applied.
    fn is_new(&self, id: AdjustmentId) -> bool {
        !self.recognizes.load(Ordering::SeqCst) || self.applied.lock().unwrap().insert(id)
    }

    /// Returns the number of probes.
    pub(crate) fn probes(&self) -> u64 {
        self.probes.load(Ordering::SeqCst)
    }

    pub(crate) fn turn(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
    }

    pub(crate) fn set_nodes(&self, nodes: usize) {
        self.nodes.store(nodes, Ordering::SeqCst);
    }

    /// Returns the number of decisions.
    pub(crate) fn decisions(&self) -> u64 {
        self.decisions.load(Ordering::SeqCst)
    }

    /// Returns the number of adjustments.
    pub(crate) fn adjustments(&self) -> u64 {
        self.adjustments.load(Ordering::SeqCst)
    }

    fn mood(&self) -> Mood {
        *self.mood.lock().unwrap()
    }
}

impl Mood {
    async fn fail(self) -> Option<StoreError> {
        match self {
            Mood::Well => None,
            Mood::TimingOut => Some(StoreError::TimedOut(Duration::from_millis(50))),
            Mood::Mute | Mood::Broken => Some(StoreError::Failed("connection reset".into())),
            Mood::Refusing => Some(StoreError::Refused("out of memory".into())),
            Mood::Foreign => Some(StoreError::Foreign("tollgate:key".into())),
            Mood::Stuck => pending().await,
        }
    }

    fn does_it(self) -> bool {
        matches!(self, Mood::Well | Mood::Mute)
    }
}

pub(crate) struct ScriptedStore {
    memory: MemoryStore<ManualClock>,
    script: Arc<Script>,
}

impl ScriptedStore {
    async fn adjust_in(
        &self,
        mood: Mood,
        rule: &Rule,
        key: &[u8],
        adjustment: Adjustment,
    ) -> Result<Outcome, StoreError> {
        self.script.adjustments.fetch_add(1, Ordering::SeqCst);
        let outcome = mood.does_it().then(|| self.memory.adjust_now(rule, key, adjustment));
        match mood.fail().await {
            Some(error) => Err(error),
            None => Ok(outcome.unwrap()),
        }
    }
}

impl Store for ScriptedStore {
    async fn decide(&self, checks: &[Check<'_>]) -> Result<Answer, StoreError> {
        self.script.decisions.fetch_add(1, Ordering::SeqCst);
        let mood = self.script.mood();
        let answer = mood.does_it().then(|| self.memory.decide_now(checks));
        match mood.fail().await {
            Some(error) => Err(error),
            None => Ok(answer.unwrap()),
        }
    }

    async fn adjust(&self, rule: &Rule, key: &[u8], adjustment: Adjustment) -> Result<Outcome, StoreError> {
        self.adjust_in(self.script.mood_of(key), rule, key, adjustment).await
    }

    async fn adjust_once(&self, rule: &Rule, key: &[u8], once: Repeatable) -> Result<Outcome, StoreError> {
        // Read once: another thread may turn the mood.
        let mood = self.script.mood_of(key);
        let applies = mood.does_it() && self.script.is_new(once.id);
        let nothing = Adjustment::Grant { units: 0 };
        self.adjust_in(mood, rule, key, if applies { once.adjustment } else { nothing }).await
    }

    fn recognizes_adjustments(&self) -> bool {
        self.script.recognizes.load(Ordering::SeqCst)
    }

    async fn probe(&self) -> Result<(), StoreError> {
        self.script.probes.fetch_add(1, Ordering::SeqCst);
        self.script.mood().fail().await.map_or(Ok(()), Err)
    }

    fn nodes(&self) -> usize {
        self.script.nodes.load(Ordering::SeqCst)
    }
}

pub(crate) struct Subject {
    pub(crate) limiter: Limiter<ScriptedStore>,
    pub(crate) clock: ManualClock,
    pub(crate) store: Arc<Script>,
}

pub(crate) const START: Timestamp = Timestamp::from_secs(1_772_366_400);

pub(crate) fn subject(policy: &str) -> Subject {
    with_settings(policy, &OutageSettings::default())
}

pub(crate) fn with_settings(policy: &str, settings: &OutageSettings) -> Subject {
    let clock = ManualClock::at(START);
    let store = Arc::new(Script {
        mood: Mutex::new(Mood::Well),
        nodes: AtomicUsize::new(1),
        decisions: AtomicU64::new(0),
        adjustments: AtomicU64::new(0),
        probes: AtomicU64::new(0),
        gone: Mutex::new(None),
        applied: Mutex::default(),
        recognizes: AtomicBool::new(true),
    });
    let moody = ScriptedStore {
        memory: MemoryStore::with_seed(10_000, clock.clone(), 7),
        script: Arc::clone(&store),
    };
    let limiter = Limiter::with_store(parse(policy), moody).with_outage_on(settings, clock.clone());
    Subject { limiter, clock, store }
}

pub(crate) fn parse(policy: &str) -> Policy {
    Policy::parse(policy).unwrap_or_else(|mistakes| panic!("{mistakes}"))
}

pub(crate) fn ann() -> Call<'static> {
    Call::new("GET", "/").ip([203, 0, 113, 9]).user("ann")
}

impl Subject {
    pub(crate) fn decide(&self, call: &Call<'_>) -> Decision<'_> {
        pollster::block_on(self.limiter.decide(call))
    }

    pub(crate) fn admits(&self, call: &Call<'_>) -> bool {
        self.decide(call).is_allowed()
    }

    /// Returns how many of `of` requests pass.
    pub(crate) fn admitted(&self, call: &Call<'_>, of: usize) -> usize {
        (0..of).filter(|_| self.admits(call)).count()
    }

    /// Returns the remaining units of a limit in the store, by a request that matches it alone.
    #[track_caller]
    pub(crate) fn left(&self) -> u64 {
        let decision = self.decide(&ann().cost(0));
        assert!(!decision.is_degraded());
        decision.limits().next().unwrap().outcome().remaining
    }

    pub(crate) fn reconcile(&self) -> usize {
        pollster::block_on(self.limiter.reconcile())
    }
}

/// Returns the name, limit and remaining units of every limit that was counted.
pub(crate) fn standing<'d>(decision: &'d Decision<'_>) -> Vec<(&'d str, u64, u64)> {
    decision.limits().map(|it| (it.name(), it.outcome().limit, it.outcome().remaining)).collect()
}
