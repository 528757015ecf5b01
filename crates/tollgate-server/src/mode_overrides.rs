//! Changes the modes of limits while requests are served.
//!
//! The policy file sets the initial mode of each limit. An override applies to one limit or to
//! everything, and survives changes of the file: a limit that an operator switched off stays off when
//! the file is edited.
//!
//! The mode in force is the weaker of the limit's mode (its override, else the file) and the mode of
//! everything. Everything at `enforce` thus leaves each limit unchanged.
//!
//! Operators that switch modes wait for each other and for the disk, if overrides are saved. Requests
//! do not wait: they use the limiter in force.
//!
//! Saving is up to the callback of [`ModeOverrides::on_change`]; authorization is in `access`.

mod journal;
mod state;

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tollgate::{MemoryStore, Mode, Policy, SharedLimiter, Timestamp};

pub use self::journal::{Change, SavedOverrides};
pub use self::state::{LimitOverride, Modes, Switch, Target};
use self::state::{State, admit, undone};
use crate::access::Role;

/// Overrides the modes of limits, and records each change. Clones share their state.
///
/// ```
/// # use tollgate::{Call, Limiter, Timestamp, SharedLimiter};
/// # use tollgate_server::{Role, Switch, ModeOverrides, Target, Actor};
/// let limiter = Limiter::from_policy("limits: [{name: api, by: global, bucket: 1/minute}]")?;
/// let limiter = SharedLimiter::from(limiter);
/// let switches = ModeOverrides::new(limiter.clone());
/// let passes = || limiter.load().check(&Call::new("GET", "/")).is_allowed();
/// assert!(passes() && !passes());
///
/// let ann = Actor { by: "ann".into(), reason: "launch day".into(), role: Role::Admin, peer: None, certificate: None, at: Timestamp::from_secs(1_772_366_400) };
/// let switched = switches.switch(Target::Limit("api"), Switch::Shadow, &ann).expect("it is there");
/// assert!(passes());
/// assert_eq!(switches.changes()[0].by, "ann");
/// # Ok::<(), tollgate::PolicyError>(())
/// ```
pub struct ModeOverrides<S = MemoryStore>(Arc<Board<S>>);

struct Board<S> {
    limiter: SharedLimiter<S>,
    /// Held for the whole of a change: reading, applying and saving.
    turn: Mutex<()>,
    /// Held only while reading or replacing the state.
    state: Mutex<State>,
    keeper: OnceLock<Keeper>,
    /// Whether the last change could not be saved.
    unkept: AtomicBool,
}

type Keeper = Box<dyn Fn(&SavedOverrides, &Change) -> Result<(), String> + Send + Sync>;

/// The author of a change, and its reason.
#[derive(Clone, Debug)]
pub struct Actor {
    /// The name that the operator gave. It is not verified.
    pub by: String,
    /// The reason that the operator gave.
    pub reason: String,
    /// The role of the operator.
    pub role: Role,
    /// The address of the operator.
    pub peer: Option<IpAddr>,
    /// The subject of the certificate that the operator presented.
    pub certificate: Option<String>,
    /// The time of the change.
    pub at: Timestamp,
}

/// The result of a switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchOutcome {
    /// The mode now in force, of everything or of the limit. `None` if the policy does not have the
    /// limit.
    pub mode: Option<Mode>,
    /// The mode that was in force before.
    pub before: Option<Mode>,
    /// Whether the change survives a restart; `None` if changes are not saved.
    pub persisted: Option<bool>,
    /// A warning for the operator.
    pub warning: Option<String>,
}

/// The reason why a switch was rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SwitchError {
    /// The limit does not exist.
    Unknown,
    /// `policy` does not apply to everything, which has no mode in the file; `enforce` leaves each
    /// limit unchanged.
    NoPolicyOfEverything,
    /// `frozen` keeps the learned numbers of a shedder, and this limit has none. `is_fleet`: it is the fleet shedder.
    NothingLearned {
        /// Whether the limit is the fleet shedder.
        is_fleet: bool,
    },
    /// The limit is a candidate of the limit of this name, and never refuses.
    Candidate(String),
}

impl<S> ModeOverrides<S> {
    /// Creates overrides that change nothing yet.
    pub fn new(limiter: SharedLimiter<S>) -> Self {
        let current = limiter.load();
        let file = Arc::new(current.policy().clone());
        let state = Mutex::new(State { file, saved: Arc::default(), version: current.version() });
        drop(current);
        Self(Arc::new(Board {
            limiter,
            turn: Mutex::new(()),
            state,
            keeper: OnceLock::new(),
            unkept: AtomicBool::new(false),
        }))
    }

    /// Puts a new policy into force, with the overrides applied.
    pub fn reload(&self, policy: Policy) {
        let _turn = self.0.turn.lock();
        self.put(State { file: Arc::new(policy), ..self.state() });
    }

    /// Applies overrides that an earlier process saved, except `frozen`: the value that was kept ended with the process.
    pub fn restore(&self, saved: SavedOverrides) {
        let _turn = self.0.turn.lock();
        let mut saved = saved.bounded();
        // The value that was to be kept has ended with the process that learned it.
        saved.limits.retain(|_, switch| *switch != Switch::Frozen);
        let state = State { saved: Arc::new(saved), ..self.found() };
        // A start without overrides is not a change of the policy.
        if state.saved.switches_nothing() {
            *self.0.state.lock() = state;
        } else {
            self.put(state);
        }
    }

    /// Sets the callback that saves changes for the next start. Only the first call has an effect. If
    /// it fails, the change stays in force, and the operator gets a warning.
    pub fn on_change(
        &self,
        keep: impl Fn(&SavedOverrides, &Change) -> Result<(), String> + Send + Sync + 'static,
    ) {
        let _first = self.0.keeper.set(Box::new(keep));
    }

    /// Changes a mode and records the change. Switching to the current mode is not a change.
    pub fn switch(
        &self,
        target: Target<'_>,
        switch: Switch,
        who: &Actor,
    ) -> Result<SwitchOutcome, SwitchError> {
        let _turn = self.0.turn.lock();
        let before = self.found();
        let mut saved = SavedOverrides::clone(&before.saved);
        let from = match target {
            Target::Everything if switch == Switch::Policy => return Err(SwitchError::NoPolicyOfEverything),
            Target::Everything => std::mem::replace(&mut saved.everything, switch),
            Target::Limit(name) => {
                admit(&before, name, switch)?;
                match switch {
                    Switch::Policy => saved.limits.remove(name),
                    _ => saved.limits.insert(name.to_owned(), switch),
                }
                .unwrap_or_default()
            }
        };
        // Everything starts at `enforce`, which is the same as `policy`.
        let from = match (target, from) {
            (Target::Everything, Switch::Policy) => Switch::Enforce,
            _ => from,
        };
        if from == switch {
            let mode = before.of(target);
            // Retries a save that failed the last time.
            let why = if self.0.unkept.load(Ordering::Relaxed) {
                before.saved.changes.back().and_then(|last| self.keep(&before, last))
            } else {
                None
            };
            return Ok(self.switched(switch, (mode, mode), why, undone(&before, target, switch)));
        }
        let change = Change::new(target, from, switch, who);
        saved.note(change.clone());
        let after = State { saved: Arc::new(saved), ..before.clone() };
        self.put(after.clone());
        let why = self.keep(&after, &change);
        let modes = (before.of(target), after.of(target));
        Ok(self.switched(switch, modes, why, undone(&after, target, switch)))
    }

    /// Saves the state for the next start, if there is a callback. Returns the reason of a failure.
    fn keep(&self, state: &State, change: &Change) -> Option<String> {
        let why = self.0.keeper.get()?(&state.saved, change).err();
        // Accessed only while the turn is held.
        self.0.unkept.store(why.is_some(), Ordering::Relaxed);
        why
    }

    /// Returns the result of a switch from one mode to another.
    fn switched(
        &self,
        switch: Switch,
        (before, mode): (Option<Mode>, Option<Mode>),
        not_kept: Option<String>,
        undone: Option<String>,
    ) -> SwitchOutcome {
        let persisted = self.0.keeper.get().map(|_| not_kept.is_none() && switch != Switch::Frozen);
        let not_kept = not_kept
            .map(|why| format!("it is in force, and will be forgotten when this server restarts: {why}"));
        let warnings: Vec<_> = not_kept.into_iter().chain(undone).collect();
        let warning = (!warnings.is_empty()).then(|| warnings.join("; "));
        SwitchOutcome { mode, before, persisted, warning }
    }

    /// Returns the current modes and overrides.
    pub fn modes(&self) -> Modes {
        Modes { state: self.state() }
    }

    /// Returns the recorded changes, the newest first.
    pub fn changes(&self) -> Vec<Change> {
        self.state().saved.changes.iter().rev().cloned().collect()
    }

    /// Puts a state into force, then publishes it.
    fn put(&self, mut state: State) {
        self.0.limiter.replace(state.policy());
        state.version = self.0.limiter.load().version();
        *self.0.state.lock() = state;
    }

    /// Returns the current state, for the holder of the turn. A policy that was put into force by other
    /// code is adopted as the file's policy, so that the next switch does not revert it.
    fn found(&self) -> State {
        let (state, current) = (self.state(), self.0.limiter.load());
        if state.version == current.version() {
            return state;
        }
        State { file: Arc::new(current.policy().clone()), version: current.version(), ..state }
    }

    fn state(&self) -> State {
        self.0.state.lock().clone()
    }
}

impl<S> Clone for ModeOverrides<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}
