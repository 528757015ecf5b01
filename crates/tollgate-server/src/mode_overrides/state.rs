//! The policy of the file, the overrides, and the modes that result.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tollgate::{Limit, Mode, Policy};

use super::{SavedOverrides, SwitchError};

/// The policy of the file and the overrides.
#[derive(Clone)]
pub(super) struct State {
    /// The policy as the file has it.
    pub(super) file: Arc<Policy>,
    pub(super) saved: Arc<SavedOverrides>,
    /// The version of the policy that was put into force for this state.
    pub(super) version: u64,
}

/// The override of a limit or of everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Switch {
    /// The limit refuses.
    Enforce,
    /// The limit counts and does not refuse.
    Shadow,
    /// The limit is not checked.
    Off,
    /// No override: the mode of the policy file.
    #[default]
    Policy,
}

/// The target of an override.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'t> {
    /// All limits at once.
    Everything,
    /// The limit of this name.
    Limit(&'t str),
}

/// A snapshot of all modes and overrides.
#[derive(Clone)]
pub struct Modes {
    pub(super) state: State,
}

/// A limit that has an override.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitOverride {
    /// The name of the limit.
    pub name: String,
    /// The mode in force; `None` if the policy does not have the limit.
    pub mode: Option<Mode>,
    /// The mode in the policy file.
    pub policy_mode: Option<Mode>,
    /// The override.
    pub switch: Switch,
}

impl Switch {
    /// Returns the word of the API and of files.
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

/// Returns the weaker mode: `off` < `shadow` < `enforce`.
const fn weaker(one: Mode, other: Mode) -> Mode {
    match (one, other) {
        (Mode::Off, _) | (_, Mode::Off) => Mode::Off,
        (Mode::Shadow, _) | (_, Mode::Shadow) => Mode::Shadow,
        (Mode::Enforce, Mode::Enforce) => Mode::Enforce,
    }
}

impl State {
    /// Returns the mode of everything.
    fn everything(&self) -> Mode {
        self.saved.everything.mode().unwrap_or_default()
    }

    fn switch_of(&self, name: &str) -> Switch {
        self.saved.limits.get(name).copied().unwrap_or_default()
    }

    /// Returns the mode in force of a limit of the file.
    fn mode_of(&self, limit: &Limit) -> Mode {
        let own = match self.switch_of(limit.name()).mode() {
            // A candidate never refuses, even if a saved file says so.
            Some(Mode::Enforce) if limit.candidate_of().is_some() => limit.mode(),
            Some(mode) => mode,
            None => limit.mode(),
        };
        weaker(own, self.everything())
    }

    /// Returns the policy of the file with the overrides applied.
    pub(super) fn policy(&self) -> Policy {
        self.file.with_modes(|limit| self.mode_of(limit))
    }

    /// Returns the mode in force of a target.
    pub(super) fn of(&self, target: Target<'_>) -> Option<Mode> {
        match target {
            Target::Everything => Some(self.everything()),
            Target::Limit(name) => self.file.limit(name).map(|limit| self.mode_of(limit)),
        }
    }
}

/// Checks whether a limit accepts this override.
pub(super) fn admit(state: &State, name: &str, switch: Switch) -> Result<(), SwitchError> {
    let Some(limit) = state.file.limit(name) else {
        // The override of a removed limit may be deleted.
        let waits = switch == Switch::Policy && state.saved.limits.contains_key(name);
        return if waits { Ok(()) } else { Err(SwitchError::Unknown) };
    };
    match limit.candidate_of().and_then(|place| state.file.limits().get(place)) {
        Some(live) if switch == Switch::Enforce => Err(SwitchError::Candidate(live.name().to_owned())),
        _ => Ok(()),
    }
}

/// Returns a warning about an effect that an operator may expect of a switch and that it does not have.
pub(super) fn undone(state: &State, target: Target<'_>, switch: Switch) -> Option<String> {
    let (own, all) = (switch.mode()?, state.everything());
    if target == Target::Everything {
        let denied = state.file.deny_entries();
        return (own != Mode::Enforce && denied > 0).then(|| {
            let entries = if denied == 1 { "its one entry" } else { "its entries" };
            format!("the deny list is not a limit and stays in force: callers in {entries} are still refused")
        });
    }
    let is_hidden = weaker(own, all) != own;
    is_hidden.then(|| {
        let all = crate::decision_view::mode(all);
        format!("everything is switched to `{all}`, and that counts until it is switched back")
    })
}

impl Modes {
    /// Returns the mode of everything.
    pub fn everything(&self) -> Mode {
        self.state.everything()
    }

    /// Returns the mode of a limit in the policy file.
    pub fn policy_mode(&self, name: &str) -> Option<Mode> {
        self.state.file.limit(name).map(Limit::mode)
    }

    /// Whether a limit has an override.
    pub fn is_switched(&self, name: &str) -> bool {
        self.state.saved.limits.contains_key(name)
    }

    /// Returns the limits that have an override, by name.
    pub fn switched(&self) -> impl Iterator<Item = LimitOverride> {
        self.state.saved.limits.iter().map(|(name, &switch)| LimitOverride {
            name: name.clone(),
            mode: self.state.of(Target::Limit(name)),
            policy_mode: self.policy_mode(name),
            switch,
        })
    }
}
