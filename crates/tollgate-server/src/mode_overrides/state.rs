//! What the file says, what is laid over it, and what comes of both.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tollgate::{Limit, Mode, Policy};

use super::{SavedOverrides, SwitchError};

/// What the file says, and what is laid over it.
#[derive(Clone)]
pub(super) struct State {
    /// The policy as the file has it.
    pub(super) file: Arc<Policy>,
    pub(super) saved: Arc<SavedOverrides>,
    /// The number of the policy that was put in force for it.
    pub(super) version: u64,
}

/// How a limit, or everything, is switched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Switch {
    /// It refuses.
    Enforce,
    /// It counts, and refuses nobody.
    Shadow,
    /// It is not looked at.
    Off,
    /// As the policy file says: no switch.
    #[default]
    Policy,
}

/// What is switched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'t> {
    /// All limits at once.
    Everything,
    /// The limit of this name.
    Limit(&'t str),
}

/// How everything is switched, at one moment.
#[derive(Clone)]
pub struct Modes {
    pub(super) state: State,
}

/// A limit that is switched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitOverride {
    /// Its name.
    pub name: String,
    /// What is in force; `None`: the policy does not have it at the moment.
    pub mode: Option<Mode>,
    /// What the file says.
    pub policy_mode: Option<Mode>,
    /// How it is switched.
    pub switch: Switch,
}

impl Switch {
    /// The word for it, in the API and in files.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Shadow => "shadow",
            Self::Off => "off",
            Self::Policy => "policy",
        }
    }

    const fn mode(self) -> Option<Mode> {
        match self {
            Self::Enforce => Some(Mode::Enforce),
            Self::Shadow => Some(Mode::Shadow),
            Self::Off => Some(Mode::Off),
            Self::Policy => None,
        }
    }
}

/// `off` < `shadow` < `enforce`.
const fn weaker(one: Mode, other: Mode) -> Mode {
    match (one, other) {
        (Mode::Off, _) | (_, Mode::Off) => Mode::Off,
        (Mode::Shadow, _) | (_, Mode::Shadow) => Mode::Shadow,
        (Mode::Enforce, Mode::Enforce) => Mode::Enforce,
    }
}

impl State {
    /// What is in force of everything.
    fn everything(&self) -> Mode {
        self.saved.everything.mode().unwrap_or_default()
    }

    fn switch_of(&self, name: &str) -> Switch {
        self.saved.limits.get(name).copied().unwrap_or_default()
    }

    /// What is in force of a limit of the file.
    fn mode_of(&self, limit: &Limit) -> Mode {
        let own = match self.switch_of(limit.name()).mode() {
            // Whatever a file says that was kept: a candidate never refuses.
            Some(Mode::Enforce) if limit.candidate_of().is_some() => limit.mode(),
            Some(mode) => mode,
            None => limit.mode(),
        };
        weaker(own, self.everything())
    }

    /// The file's policy, with the switches laid over it.
    pub(super) fn policy(&self) -> Policy {
        self.file.with_modes(|limit| self.mode_of(limit))
    }

    /// What is in force of a target.
    pub(super) fn of(&self, target: Target<'_>) -> Option<Mode> {
        match target {
            Target::Everything => Some(self.everything()),
            Target::Limit(name) => self.file.limit(name).map(|limit| self.mode_of(limit)),
        }
    }
}

/// Whether a limit can be switched so.
pub(super) fn admit(state: &State, name: &str, switch: Switch) -> Result<(), SwitchError> {
    let Some(limit) = state.file.limit(name) else {
        // One that is gone may be forgotten.
        let waits = switch == Switch::Policy && state.saved.limits.contains_key(name);
        return if waits { Ok(()) } else { Err(SwitchError::Unknown) };
    };
    match limit.candidate_of().and_then(|place| state.file.limits().get(place)) {
        Some(live) if switch == Switch::Enforce => Err(SwitchError::Candidate(live.name().to_owned())),
        _ => Ok(()),
    }
}

/// What a switch that was just made does not do, and its maker may think it does.
pub(super) fn undone(state: &State, target: Target<'_>, switch: Switch) -> Option<String> {
    let (own, all) = (switch.mode()?, state.everything());
    if target == Target::Everything {
        let denied = state.file.deny_entries();
        return (own != Mode::Enforce && denied > 0).then(|| {
            let entries = if denied == 1 { "its one entry" } else { "its entries" };
            format!("the deny list is no limit and stays in force: whoever is in {entries} is refused all the same")
        });
    }
    let is_hidden = weaker(own, all) != own;
    is_hidden.then(|| {
        let all = crate::decision_view::mode(all);
        format!("everything is switched to `{all}`, and that counts until it is switched back")
    })
}

impl Modes {
    /// What is said of everything.
    pub fn everything(&self) -> Mode {
        self.state.everything()
    }

    /// What the file says of a limit.
    pub fn policy_mode(&self, name: &str) -> Option<Mode> {
        self.state.file.limit(name).map(Limit::mode)
    }

    /// Whether a limit is switched.
    pub fn is_switched(&self, name: &str) -> bool {
        self.state.saved.limits.contains_key(name)
    }

    /// The limits that are switched, by name.
    pub fn switched(&self) -> impl Iterator<Item = LimitOverride> {
        self.state.saved.limits.iter().map(|(name, &switch)| LimitOverride {
            name: name.clone(),
            mode: self.state.of(Target::Limit(name)),
            policy_mode: self.policy_mode(name),
            switch,
        })
    }
}
