//! `/v1/mode`, `/v1/limits/{name}/mode`, `/v1/changes`: modes of limits, and the record of their
//! changes.

use std::borrow::Cow;

use http::request::Parts;
use tollgate::Store;
use tollgate::policy::{NODE_SHEDDER, THROTTLE};
use tollgate_api::{
    Changes, LimitSwitch, MAX_NAME_CHARS, MAX_REASON_CHARS, Modes, SwitchRequest, Switched, SwitchedLimit,
};

use crate::access::{Caller, Role};
use crate::api::Inner;
use crate::body::{listed, quoted, read};
use crate::decision_view::mode;
use crate::json::Text;
use crate::limit_keys::unknown;
use crate::mode_overrides::{Actor, Change, LimitOverride, Switch, SwitchError, Target};
use crate::problem::Problem;
use crate::query::{Query, unescaped};
use crate::reply::{Reply, json_of};

const FIELDS: &[&str] = &["mode", "reason", "by"];

/// The modes that apply to everything and to a limit.
const GLOBAL_MODES: [Switch; 3] = [Switch::Enforce, Switch::Shadow, Switch::Off];
const LIMIT_MODES: [Switch; 5] =
    [Switch::Enforce, Switch::Shadow, Switch::Off, Switch::Frozen, Switch::Policy];

/// Returns the requested mode, if it is one of these.
fn switch_of(request: &SwitchRequest<Text<'_>>, known: &[Switch]) -> Result<Switch, Problem> {
    let said = request.mode.as_str();
    known.iter().copied().find(|switch| switch.word() == said).ok_or_else(|| {
        let words: Vec<_> = known.iter().map(|switch| switch.word()).collect();
        let words = listed(&words).replace(" and ", " or ");
        Problem::senseless(format!("`mode` must be {words}, not `{}`", quoted(said)))
    })
}

/// Returns a text of the operator, if it is not too long.
fn said(name: &str, text: Option<&Text<'_>>, most: usize) -> Result<String, Problem> {
    let text = text.map(|text| text.as_str().trim()).unwrap_or_default();
    let length = text.chars().count();
    if length > most {
        return Err(Problem::senseless(format!(
            "`{name}` may have at most {most} characters, and this has {length}"
        )));
    }
    Ok(text.to_owned())
}

impl<S: Store> Inner<S> {
    /// Returns the modes and overrides.
    pub(crate) fn modes(&self, parts: &Parts) -> Result<Reply, Problem> {
        Query::none(parts.uri.query())?;
        let modes = self.mode_overrides().modes();
        Ok(json_of(&Modes {
            mode: Cow::Borrowed(mode(modes.everything())),
            limits: modes.switched().map(overridden).collect(),
            shedders: modes.shedders().map(overridden).collect(),
        }))
    }

    /// Switches the mode of a limit or of everything.
    pub(crate) async fn switch(
        &self,
        limit: Option<&str>,
        body: &[u8],
        role: Role,
        caller: Caller,
    ) -> Result<Reply, Problem> {
        let request: SwitchRequest<Text<'_>> = read(body, FIELDS)?;
        let name = limit.map(unescaped);
        let name = name.map(String::from);
        let switch = switch_of(&request, if name.is_some() { &LIMIT_MODES } else { &GLOBAL_MODES })?;
        let who = Actor {
            by: said("by", request.by.as_ref(), MAX_NAME_CHARS)?,
            reason: said("reason", request.reason.as_ref(), MAX_REASON_CHARS)?,
            role,
            peer: Some(caller.peer),
            certificate: caller.certificate.map(|it| String::from(&*it)),
            at: self.now(),
        };
        let (board, limit) = (self.mode_overrides().clone(), name.clone());
        // Saving may wait for a disk, which must not block other requests of this thread.
        let switched = self.offload.run(move || {
            board.switch(limit.as_deref().map_or(Target::Everything, Target::Limit), switch, &who)
        });
        let unknown = name.as_deref().unwrap_or_default();
        let switched = switched.await?.map_err(|error| self.not_switched(&error, unknown))?;
        let [mode, before] = [switched.mode, switched.before].map(|it| it.map(|it| mode(it).to_owned()));
        let (persisted, warning) = (switched.persisted, switched.warning);
        Ok(match name {
            Some(name) => json_of(&SwitchedLimit { name, mode, before, persisted, warning }),
            None => json_of(&Switched { mode, before, persisted, warning }),
        })
    }

    fn not_switched(&self, error: &SwitchError, name: &str) -> Problem {
        match error {
            SwitchError::Unknown => unknown(name, self.limiter.load().policy()),
            SwitchError::NothingLearned { is_fleet: true } => Problem::conflict(format!(
                "`{name}` cannot be frozen: it compares the requests of the fleet with the numbers of the policy file, and has \
                 no level that changes; `off` disables it, `shadow` only counts"
            )),
            SwitchError::NothingLearned { is_fleet: false } => Problem::conflict(format!(
                "`{name}` cannot be frozen: its numbers are those of the policy file; only `{NODE_SHEDDER}`, `{THROTTLE}` and \
                 limits with `slots: adaptive` learn a value that can be kept"
            )),
            SwitchError::NoPolicyOfEverything => Problem::senseless(
                "everything has no mode in the policy file: `enforce` leaves each limit with its own mode",
            ),
            SwitchError::Candidate(live) => Problem::senseless(format!(
                "`{name}` is tried beside `{live}` and never refuses: to put it in force, write it as `{live}` in the policy file"
            )),
        }
    }

    /// Returns the recorded changes, the newest first.
    pub(crate) fn changes(&self, parts: &Parts) -> Result<Reply, Problem> {
        Query::none(parts.uri.query())?;
        let changes = self.mode_overrides().changes().into_iter().map(view);
        Ok(json_of(&Changes { changes: changes.collect() }))
    }
}

fn overridden(limit: LimitOverride) -> LimitSwitch<Cow<'static, str>> {
    LimitSwitch {
        name: Cow::Owned(limit.name),
        mode: limit.mode.map(mode).map(Cow::Borrowed),
        policy_mode: limit.policy_mode.map(mode).map(Cow::Borrowed),
        switch: Cow::Borrowed(limit.switch.word()),
    }
}

fn view(change: Change) -> tollgate_api::Change {
    let Change { at, limit, from, to, reason, by, role, peer, certificate } = change;
    tollgate_api::Change {
        what: if limit.is_some() { "limit" } else { "everything" }.to_owned(),
        at,
        limit,
        from: from.word().to_owned(),
        to: to.word().to_owned(),
        reason,
        by,
        role: role.word().to_owned(),
        peer: peer.map(|it| it.to_string()),
        certificate,
    }
}
