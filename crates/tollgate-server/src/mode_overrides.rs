//! Which limits refuse, switched while requests are served.
//!
//! The policy file says how each limit begins. A switch is laid over it, for one limit or
//! for everything, and stays there when the file changes: whoever switched a limit off at
//! night does not find it on again because somebody edited a comment.
//!
//! What is in force is the weaker of two: what the limit says (its switch, else the file)
//! and what is said of everything. So everything at `enforce` leaves each limit as it is.
//!
//! Those who switch wait for each other, and for the disk if it is kept there; a request
//! waits for nobody: it takes the limiter that is in force.
//!
//! Not here: the disk (whoever calls [`ModeOverrides::on_change`]), who may switch (`access`).

mod journal;
mod state;

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tollgate::{MemoryStore, Mode, Policy, Timestamp};
use tollgate_http::SharedLimiter;

pub use self::journal::{Change, MAX_CHANGES, SavedOverrides};
pub(crate) use self::journal::{MAX_NAME_CHARS, MAX_REASON_CHARS};
pub use self::state::{LimitOverride, Modes, Switch, Target};
use self::state::{State, admit, undone};
use crate::access::Role;

/// Switches limits, and remembers who did. Clones are the same.
///
/// ```
/// # use tollgate::{Call, Limiter, Timestamp};
/// # use tollgate_http::SharedLimiter;
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
    /// Held by whoever changes something, from what it finds to what is in force and kept.
    turn: Mutex<()>,
    /// Held for as long as it takes to look.
    state: Mutex<State>,
    keeper: OnceLock<Keeper>,
    /// Whether the last change could not be kept.
    unkept: AtomicBool,
}

type Keeper = Box<dyn Fn(&SavedOverrides, &Change) -> Result<(), String> + Send + Sync>;

/// Who switches, and why.
#[derive(Clone, Debug)]
pub struct Actor {
    /// A name, as they give it: nobody checks it.
    pub by: String,
    /// Why, in their words.
    pub reason: String,
    /// What they may do.
    pub role: Role,
    /// Where they are.
    pub peer: Option<IpAddr>,
    /// Whom the certificate names that they have shown, if they have.
    pub certificate: Option<String>,
    /// When.
    pub at: Timestamp,
}

/// What a switch has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchOutcome {
    /// What is in force now: of everything, or of the limit. `None` for a limit that the
    /// policy does not have at the moment.
    pub mode: Option<Mode>,
    /// What was in force before.
    pub before: Option<Mode>,
    /// Whether it will survive a restart; `None` where nothing is kept.
    pub persisted: Option<bool>,
    /// What whoever switched should know.
    pub warning: Option<String>,
}

/// Why nothing was switched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SwitchError {
    /// No limit has this name.
    Unknown,
    /// Everything has no policy of its own: `enforce` leaves each limit as it is.
    NoPolicyOfEverything,
    /// It is tried beside the limit of this name, and never refuses.
    Candidate(String),
}

impl<S> ModeOverrides<S> {
    /// Everything as the policy in force has it.
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

    /// The file has changed: puts it in force, with the switches laid over it.
    pub fn reload(&self, policy: Policy) {
        let _turn = self.turn();
        self.put(State { file: Arc::new(policy), ..self.state() });
    }

    /// Puts in force what was kept when this last ran.
    pub fn restore(&self, saved: SavedOverrides) {
        let _turn = self.turn();
        let state = State { saved: Arc::new(saved.bounded()), ..self.found() };
        // A start at which nothing was switched is no change of the policy.
        if state.saved.switches_nothing() {
            *self.lock() = state;
        } else {
            self.put(state);
        }
    }

    /// Who keeps what was switched, for the next start. The first one counts. If it says
    /// why it could not, the switch is in force all the same, and whoever switched is told.
    pub fn on_change(
        &self,
        keep: impl Fn(&SavedOverrides, &Change) -> Result<(), String> + Send + Sync + 'static,
    ) {
        let _first = self.0.keeper.set(Box::new(keep));
    }

    /// Switches, and writes down who did. What is so already is no change.
    pub fn switch(
        &self,
        target: Target<'_>,
        switch: Switch,
        who: &Actor,
    ) -> Result<SwitchOutcome, SwitchError> {
        let _turn = self.turn();
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
        // Everything begins at `enforce`, by whatever word.
        let from = match (target, from) {
            (Target::Everything, Switch::Policy) => Switch::Enforce,
            _ => from,
        };
        if from == switch {
            let mode = before.of(target);
            // What could not be kept the last time is tried again.
            let why = if self.0.unkept.load(Ordering::Relaxed) {
                before.saved.changes.back().and_then(|last| self.keep(&before, last))
            } else {
                None
            };
            return Ok(self.switched((mode, mode), why, undone(&before, target, switch)));
        }
        let change = Change::new(target, from, switch, who);
        saved.note(change.clone());
        let after = State { saved: Arc::new(saved), ..before.clone() };
        self.put(after.clone());
        let why = self.keep(&after, &change);
        Ok(self.switched((before.of(target), after.of(target)), why, undone(&after, target, switch)))
    }

    /// Has it kept for the next start, if anybody keeps it. Why it could not be.
    fn keep(&self, state: &State, change: &Change) -> Option<String> {
        let why = self.0.keeper.get()?(&state.saved, change).err();
        // Only ever looked at by whoever has the turn.
        self.0.unkept.store(why.is_some(), Ordering::Relaxed);
        why
    }

    /// What a switch has done, from one mode to another.
    fn switched(
        &self,
        (before, mode): (Option<Mode>, Option<Mode>),
        not_kept: Option<String>,
        undone: Option<String>,
    ) -> SwitchOutcome {
        let persisted = self.0.keeper.get().map(|_| not_kept.is_none());
        let not_kept = not_kept
            .map(|why| format!("it is in force, and will be forgotten when this server restarts: {why}"));
        let warnings: Vec<_> = not_kept.into_iter().chain(undone).collect();
        let warning = (!warnings.is_empty()).then(|| warnings.join("; "));
        SwitchOutcome { mode, before, persisted, warning }
    }

    /// How everything is switched now.
    pub fn modes(&self) -> Modes {
        Modes { state: self.state() }
    }

    /// Who switched what, the newest first.
    pub fn changes(&self) -> Vec<Change> {
        self.state().saved.changes.iter().rev().cloned().collect()
    }

    /// Puts it in force, and then says that it is.
    fn put(&self, mut state: State) {
        self.0.limiter.replace(state.policy());
        state.version = self.0.limiter.load().version();
        *self.lock() = state;
    }

    /// How things are, for whoever has the turn. A policy that was put in force past this
    /// board is taken for the file's: it must not be lost to the next switch.
    fn found(&self) -> State {
        let (state, current) = (self.state(), self.0.limiter.load());
        if state.version == current.version() {
            return state;
        }
        State { file: Arc::new(current.policy().clone()), version: current.version(), ..state }
    }

    fn state(&self) -> State {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // It is replaced as a whole, so whoever panicked left one that is whole.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn turn(&self) -> MutexGuard<'_, ()> {
        self.0.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S> Clone for ModeOverrides<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}
