//! The policy of the file, the overrides, and the modes that result.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tollgate::policy::{NODE_SHEDDER, THROTTLE};
use tollgate::{Limit, Mode, NodeShedSettings, Policy};

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
    /// The shedder keeps its learned numbers: the level of the node, a learned number of slots, the share of a throttle.
    /// Other limits have learned nothing. It ends with the process, as the kept value does.
    Frozen,
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
            Self::Frozen => "frozen",
            Self::Policy => "policy",
        }
    }

    const fn mode(self) -> Option<Mode> {
        match self {
            Self::Enforce => Some(Mode::Enforce),
            Self::Shadow => Some(Mode::Shadow),
            Self::Off => Some(Mode::Off),
            Self::Frozen | Self::Policy => None,
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

    pub(super) fn switch_of(&self, name: &str) -> Switch {
        self.saved.limits.get(name).copied().unwrap_or_default()
    }

    fn is_frozen(&self, name: &str) -> bool {
        self.switch_of(name) == Switch::Frozen
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

    /// Returns the mode in the file of a shedder that is no limit, if the file has it.
    fn file_mode(&self, shedder: &str) -> Option<Mode> {
        match shedder {
            NODE_SHEDDER => self.file.node_shed().map(|it| it.mode),
            THROTTLE => self.file.throttle_mode(),
            _ => None,
        }
    }

    /// Returns the mode in force of a shedder that is no limit, if the file has it.
    fn shedder_mode(&self, shedder: &str) -> Option<Mode> {
        let file = self.file_mode(shedder)?;
        Some(weaker(self.switch_of(shedder).mode().unwrap_or(file), self.everything()))
    }

    /// Returns the policy of the file with the overrides applied.
    pub(super) fn policy(&self) -> Policy {
        // Without overrides, a large policy is not copied.
        let mut policy = if self.saved.switches_nothing() {
            Policy::clone(&self.file)
        } else {
            self.file
                .with_modes(|limit| self.mode_of(limit))
                .with_frozen(|limit| self.is_frozen(limit.name()))
        };
        if let Some(mode) = self.shedder_mode(THROTTLE) {
            policy = policy.with_throttle_mode(mode).with_frozen_throttle(self.is_frozen(THROTTLE));
        }
        match (self.shedder_mode(NODE_SHEDDER), self.file.node_shed()) {
            (Some(mode), Some(file)) => {
                let is_frozen = self.is_frozen(NODE_SHEDDER);
                policy.with_node_shed(NodeShedSettings { mode, is_frozen, ..file.clone() })
            }
            _ => policy,
        }
    }

    /// Returns the mode in force of a target.
    pub(super) fn of(&self, target: Target<'_>) -> Option<Mode> {
        match target {
            Target::Everything => Some(self.everything()),
            Target::Limit(name) => {
                self.shedder_mode(name).or_else(|| self.file.limit(name).map(|limit| self.mode_of(limit)))
            }
        }
    }
}

/// Checks whether a limit accepts this override.
pub(super) fn admit(state: &State, name: &str, switch: Switch) -> Result<(), SwitchError> {
    if state.file_mode(name).is_some() {
        return Ok(());
    }
    let Some(limit) = state.file.limit(name) else {
        // The override of a removed limit may be deleted.
        let waits = switch == Switch::Policy && state.saved.limits.contains_key(name);
        return if waits { Ok(()) } else { Err(SwitchError::Unknown) };
    };
    if switch == Switch::Frozen && limit.adaptive().is_none() {
        return Err(SwitchError::NothingLearned { is_fleet: limit.is_shed() });
    }
    match limit.candidate_of().and_then(|place| state.file.limits().get(place)) {
        Some(live) if switch == Switch::Enforce => Err(SwitchError::Candidate(live.name().to_owned())),
        _ => Ok(()),
    }
}

/// Returns a warning about an effect that an operator may expect of a switch and that it does not have.
pub(super) fn undone(state: &State, target: Target<'_>, switch: Switch) -> Option<String> {
    if switch == Switch::Frozen {
        let weakened = if state.everything() == Mode::Off {
            "everything is switched off, so it refuses nothing until that is switched back; "
        } else {
            ""
        };
        return Some(format!(
            "{weakened}it stays frozen until this server restarts, which loses what it has learned"
        ));
    }
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
        self.state.file_mode(name).or_else(|| self.state.file.limit(name).map(Limit::mode))
    }

    /// Returns the override of a limit.
    pub fn switch_of(&self, name: &str) -> Switch {
        self.state.switch_of(name)
    }

    /// Whether a limit has an override.
    pub fn is_switched(&self, name: &str) -> bool {
        self.state.saved.limits.contains_key(name)
    }

    /// Returns the shedders that are no limits, with or without an override.
    pub fn shedders(&self) -> impl Iterator<Item = LimitOverride> {
        [NODE_SHEDDER, THROTTLE].into_iter().filter_map(|name| {
            let (policy_mode, switch) = (self.policy_mode(name), self.switch_of(name));
            let mode = Some(self.state.shedder_mode(name)?);
            Some(LimitOverride { mode, policy_mode, switch, name: name.to_owned() })
        })
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
