//! `tollgate mode` and `tollgate changes`: changes modes of limits, and lists past changes.
//!
//! All names are checked before any mode is changed. On a terminal, a change that weakens protection
//! needs confirmation; scripts are not asked.

use std::io::{self, BufRead, IsTerminal};
use std::process::ExitCode;

use serde_json::Value;
use tollgate_api::{Changes, Limit, LimitSwitch, Limits, Modes, SwitchRequest, Switched};
use tollgate_daemon::{Environment, Failure};
use tollgate_document::hint;
use tollgate_document::sanitize::printable;

use super::report::rows;
use super::server::{Question, Server};
use super::url::segment;
use crate::arguments::{self, Mode, Switch};
use crate::output;

/// `tollgate mode`: shows or changes modes.
pub(crate) fn mode(arguments: &Mode, environment: &Environment) -> Result<ExitCode, Failure> {
    let server = Server::of(&arguments.api, environment)?;
    let Some(to) = arguments.to else {
        let answer = server.ask(&Question::get("/v1/mode"))?;
        super::print(&arguments.api, &answer, standing)?;
        return Ok(ExitCode::SUCCESS);
    };
    if !arguments.all && arguments.limits.is_empty() {
        let word = to.word();
        return Err(Failure::with_help(
            format_args!("switch what to {word}?"),
            format_args!("`tollgate mode {word} LIMIT`, or `tollgate mode {word} --all` for everything"),
        ));
    }
    let now = CurrentModes::of(&server)?;
    let steps = if arguments.all { now.everything(to) } else { now.some(to, &arguments.limits)? };
    if steps.is_empty() {
        output::line("nothing is switched: everything is as the policy says")?;
        return Ok(ExitCode::SUCCESS);
    }
    if !arguments.yes && !agreed(&steps) {
        output::complain("nothing was changed\n");
        return Ok(ExitCode::from(1));
    }
    let by = arguments.by.as_deref().or_else(|| environment.common("USER"));
    let by = by.or_else(|| environment.common("LOGNAME"));
    for step in &steps {
        let answer = server.ask(&step.question(arguments.reason.as_deref(), by))?;
        super::print(&arguments.api, &answer, |done| step.sentence(done))?;
    }
    if !arguments.api.json {
        output::text(&now.note(to, arguments.all))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// `tollgate changes`: lists past changes, the newest first.
pub(crate) fn changes(
    arguments: &arguments::Changes,
    environment: &Environment,
) -> Result<ExitCode, Failure> {
    let server = Server::of(&arguments.api, environment)?;
    let mut answer = server.ask::<Changes>(&Question::get("/v1/changes"))?;
    if let Some(most) = arguments.most {
        answer.value.changes.truncate(most);
        answer.body = truncated(&answer.body, most);
    }
    super::print(&arguments.api, &answer, journal)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the response with its first changes, and all of their members.
fn truncated(body: &[u8], most: usize) -> Vec<u8> {
    let mut answer: Value = serde_json::from_slice(body).unwrap_or_default();
    if let Some(changes) = answer["changes"].as_array_mut() {
        changes.truncate(most);
    }
    answer.to_string().into_bytes()
}

fn journal(answer: &Changes) -> String {
    if answer.changes.is_empty() {
        return "nothing was switched yet\n".to_owned();
    }
    rows(&answer.changes, |it| {
        let what = it.limit.as_deref().map_or_else(|| "everything".to_owned(), printable);
        // The name that the operator gave, then the data that the server verified.
        let (by, certificate) = (Some(&*it.by), it.certificate.as_deref());
        let [by, certificate, peer] =
            [by, certificate, it.peer.as_deref()].map(|said| said.filter(|said| !said.is_empty()));
        let who = printable(by.or(certificate).unwrap_or("somebody"));
        let known: Vec<_> = [certificate.filter(|_| by.is_some()), peer].into_iter().flatten().collect();
        let known = printable(&known.join(", "));
        let place = if known.is_empty() { known } else { format!(" ({known})") };
        let change = format!("{} -> {}", printable(&it.from), printable(&it.to));
        [printable(&it.at), what, change, format!("{who}{place}"), printable(&it.reason)]
    })
}

/// Renders the output of `tollgate mode`.
fn standing(answer: &Modes) -> String {
    let everything = match answer.mode.as_str() {
        "enforce" => "everything: each limit as it says".to_owned(),
        "shadow" => {
            "everything: shadow. All is counted and no limit refuses; a deny list still does".to_owned()
        }
        "off" => "everything: off. No limit counts or refuses; a deny list still does".to_owned(),
        other => format!("everything: {}", printable(other)),
    };
    if answer.limits.is_empty() {
        return format!("{everything}\nno limit is switched\n");
    }
    let rows = rows(&answer.limits, |it| {
        let (name, switch) = (printable(&it.name), printable(&it.switch));
        let Some(mode) = &it.mode else {
            return [name, UNKNOWN_LIMIT_NOTE.to_owned(), format!("(switched to {switch})")];
        };
        let policy = printable(it.policy_mode.as_deref().unwrap_or_default());
        [name, printable(mode), format!("(switched to {switch}; the policy says {policy})")]
    });
    format!("{everything}\n{rows}")
}

/// The note for an override of a limit that is not in the policy.
const UNKNOWN_LIMIT_NOTE: &str = "waits: the policy has no such limit";

/// One change of a mode.
#[derive(Debug, PartialEq, Eq)]
struct Step {
    /// `None` for everything.
    limit: Option<String>,
    /// The override before and after.
    from: String,
    to: &'static str,
    /// The mode in force before and after: `enforce`, `shadow`, `off`.
    before: String,
    after: String,
}

impl Step {
    fn question(&self, reason: Option<&str>, by: Option<&str>) -> Question {
        let path = match &self.limit {
            Some(name) => format!("/v1/limits/{}/mode", segment(name)),
            None => "/v1/mode".to_owned(),
        };
        Question::put(path, &SwitchRequest { mode: self.to, reason, by })
    }

    fn is_weaker(&self) -> bool {
        strength(&self.after) < strength(&self.before)
    }

    fn what(&self) -> String {
        self.limit.as_deref().map_or_else(|| "everything".to_owned(), printable)
    }

    fn sentence(&self, done: &Switched) -> String {
        let [mode, before] =
            [&done.mode, &done.before].map(|it| it.as_deref().map(printable).unwrap_or_default());
        let what = self.what();
        let change = if done.mode.is_none() {
            format!("{what}: no longer switched; the policy has no such limit")
        } else if mode != before {
            format!("{what}: {mode} now, was {before}")
        } else if self.from == self.to {
            format!("{what}: {mode}, as before")
        } else {
            format!("{what}: switched to {}; in force is {mode}, as before", self.to)
        };
        let kept = match done.persisted {
            Some(true) => "kept through restarts",
            Some(false) => "in force, but it could not be written down: a restart forgets it",
            None => "until the server restarts: it has no state folder (`state:`)",
        };
        let warning = done.warning.as_deref().map(|it| format!("  warning: {}\n", printable(it)));
        format!("{change}; {kept}\n{}", warning.unwrap_or_default())
    }
}

/// Ranks a mode by protection; an unknown mode ranks highest.
fn strength(mode: &str) -> u8 {
    match mode {
        "off" => 0,
        "shadow" => 1,
        _ => 2,
    }
}

/// The current modes.
struct CurrentModes {
    everything: String,
    limits: Vec<Limit>,
    /// The overrides, including those of limits that are not in the policy.
    switched: Vec<LimitSwitch>,
}

impl CurrentModes {
    fn of(server: &Server) -> Result<Self, Failure> {
        let modes: Modes = server.ask(&Question::get("/v1/mode"))?.value;
        let Limits { mut limits } = server.ask(&Question::get("/v1/limits"))?.value;
        limits.extend(modes.shedders.into_iter().map(shedder));
        Ok(Self { everything: printable(&modes.mode), limits, switched: modes.limits })
    }

    /// Returns the changes for the named limits; fails if any name is unknown.
    fn some(&self, to: Switch, names: &[String]) -> Result<Vec<Step>, Failure> {
        let known = || {
            let limits = self.limits.iter().map(|it| it.name.as_str());
            let names: Vec<_> = limits.chain(self.switched.iter().map(|it| it.name.as_str())).collect();
            let repeated = |at: usize| names[..at].contains(&names[at]);
            (0..names.len()).filter(|at| !repeated(*at)).map(|at| names[at]).collect::<Vec<_>>()
        };
        let step = |name: &String| {
            if self.waiting().any(|it| it.name == *name) {
                let shown = printable(name);
                return match to {
                    Switch::Policy => Ok(self.forget(name)),
                    _ => Err(Failure::with_help(
                        format_args!("the policy has no limit `{shown}`; nothing was changed"),
                        format_args!("`tollgate mode policy {shown}` removes its override"),
                    )),
                };
            }
            let Some(limit) = self.limits.iter().find(|it| it.name == *name) else {
                let message = format!("no limit is called `{}`; nothing was changed", printable(name));
                return Err(Failure::with_help(message, printable(&hint(name, "limits", known()))));
            };
            Ok(self.step(limit, to))
        };
        names.iter().map(step).collect()
    }

    fn step(&self, limit: &Limit, to: Switch) -> Step {
        let own = match to {
            // A frozen shedder refuses as the policy says.
            Switch::Policy | Switch::Frozen => limit.policy_mode.as_str(),
            _ => to.word(),
        };
        let weaker = if strength(own) < strength(&self.everything) { own } else { &self.everything };
        Step {
            limit: Some(limit.name.clone()),
            from: self.switch(&limit.name),
            to: to.word(),
            before: limit.mode.clone(),
            after: weaker.to_owned(),
        }
    }

    /// Removes the override of a limit that is not in the policy.
    fn forget(&self, name: &str) -> Step {
        let nothing = || "nothing".to_owned();
        let (limit, to) = (Some(name.to_owned()), Switch::Policy.word());
        Step { limit, from: self.switch(name), to, before: nothing(), after: nothing() }
    }

    /// Returns the override of a limit.
    fn switch(&self, name: &str) -> String {
        let found = self.switched.iter().find(|it| it.name == name);
        found.map_or(Switch::Policy.word(), |it| it.switch.as_str()).to_owned()
    }

    /// Returns the overrides of limits that are not in the policy.
    fn waiting(&self) -> impl Iterator<Item = &LimitSwitch> {
        self.switched.iter().filter(|it| it.mode.is_none())
    }

    /// Returns the changes for everything. For `policy`, removes every override.
    fn everything(&self, to: Switch) -> Vec<Step> {
        let step = |to: &'static str| Step {
            limit: None,
            from: self.everything.clone(),
            to,
            before: self.everything.clone(),
            after: to.to_owned(),
        };
        if to != Switch::Policy {
            return vec![step(to.word())];
        }
        // Everything first, because it affects the modes in force of the limits.
        let first = (self.everything != "enforce").then(|| step("enforce"));
        let everything = "enforce".to_owned();
        let free = Self { everything, limits: Vec::new(), switched: self.switched.clone() };
        let switched = self.switched().map(|it| free.step(it, to));
        let waiting = self.waiting().map(|it| self.forget(&it.name));
        first.into_iter().chain(switched).chain(waiting).collect()
    }

    fn switched(&self) -> impl Iterator<Item = &Limit> {
        self.limits.iter().filter(|it| it.switched)
    }

    /// Returns a note about another override that hides the effect of the change.
    fn note(&self, to: Switch, all: bool) -> String {
        let switched = self.switched().count();
        if !all && self.everything != "enforce" && to != Switch::Off {
            let everything = printable(&self.everything);
            return format!(
                "note: everything is switched to {everything}, which holds for this too; `tollgate mode enforce --all` ends it\n"
            );
        }
        if all && to == Switch::Enforce && switched > 0 {
            return format!(
                "note: {switched} of the limits have their own override; `tollgate mode policy --all` removes all of them\n"
            );
        }
        String::new()
    }
}

/// Returns the modes of a shedder as those of a limit: both are switched in the same way.
fn shedder(shedder: LimitSwitch) -> Limit {
    Limit {
        name: shedder.name,
        mode: shedder.mode.unwrap_or_default(),
        policy_mode: shedder.policy_mode.unwrap_or_default(),
        switched: shedder.switch != Switch::Policy.word(),
        ..Limit::default()
    }
}

/// Asks for confirmation on a terminal; returns true without asking elsewhere.
fn agreed(steps: &[Step]) -> bool {
    let weaker: Vec<_> = steps.iter().filter(|it| it.is_weaker()).collect();
    if weaker.is_empty() || !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return true;
    }
    let changes = rows(&weaker, |it| [it.what(), format!("{} -> {}", printable(&it.before), it.after)]);
    output::complain(&format!("this protects less:\n{changes}go on? [y/N] "));
    let mut answer = String::new();
    let read = io::stdin().lock().read_line(&mut answer);
    read.is_ok() && matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn switch(name: &str, modes: Option<(&str, &str)>, switch: &str) -> LimitSwitch {
        let (mode, policy_mode) = modes.map(|(mode, policy)| (mode.to_owned(), policy.to_owned())).unzip();
        LimitSwitch { name: name.to_owned(), mode, policy_mode, switch: switch.to_owned() }
    }

    fn done(mode: Option<&str>) -> Switched {
        let mode = mode.map(str::to_owned);
        Switched { before: mode.clone(), mode, persisted: Some(true), warning: None }
    }

    fn now(everything: &str) -> CurrentModes {
        let limit = |name: &str, mode: &str, policy: &str, switched: bool| Limit {
            name: name.to_owned(),
            mode: mode.to_owned(),
            policy_mode: policy.to_owned(),
            switched,
            ..Limit::default()
        };
        CurrentModes {
            everything: everything.to_owned(),
            limits: vec![
                limit("search", "enforce", "enforce", false),
                limit("trial", "enforce", "shadow", true),
                limit("login", "off", "enforce", true),
            ],
            switched: vec![
                switch("trial", Some(("enforce", "shadow")), "enforce"),
                switch("login", Some(("off", "enforce")), "off"),
                switch("gone", None, "off"),
            ],
        }
    }

    fn answered(steps: &[Step]) -> Vec<String> {
        let tell =
            |it: &Step| format!("{} {} {}", it.what(), it.to, if it.is_weaker() { "weaker" } else { "fine" });
        steps.iter().map(tell).collect()
    }

    #[test]
    fn a_change_that_weakens_protection_is_recognized() {
        let some = |everything: &str, to, name: &str| {
            answered(&now(everything).some(to, &[name.to_owned()]).unwrap())
        };
        assert_eq!(some("enforce", Switch::Shadow, "search"), ["search shadow weaker"]);
        assert_eq!(some("enforce", Switch::Policy, "trial"), ["trial policy weaker"]);
        assert_eq!(some("enforce", Switch::Policy, "login"), ["login policy fine"]);
        assert_eq!(some("enforce", Switch::Shadow, "login"), ["login shadow fine"]);
        assert_eq!(answered(&now("enforce").everything(Switch::Off)), ["everything off weaker"]);
        assert_eq!(answered(&now("off").everything(Switch::Shadow)), ["everything shadow fine"]);
    }

    #[test]
    fn policy_for_all_removes_every_override() {
        assert_eq!(
            answered(&now("off").everything(Switch::Policy)),
            ["everything enforce fine", "trial policy weaker", "login policy fine", "gone policy fine"]
        );
    }

    #[test]
    fn the_override_of_a_removed_limit_can_only_be_removed() {
        let gone = ["gone".to_owned()];
        let steps = now("enforce").some(Switch::Policy, &gone).unwrap();
        assert_eq!(answered(&steps), ["gone policy fine"]);
        let said = steps[0].sentence(&done(None));
        assert_eq!(said, "gone: no longer switched; the policy has no such limit; kept through restarts\n");
        let failure = now("enforce").some(Switch::Off, &gone).unwrap_err().to_string();
        assert!(failure.contains("has no limit `gone`; nothing was changed"), "{failure}");
        assert!(failure.contains("`tollgate mode policy gone` removes its override"), "{failure}");
    }

    #[test]
    fn the_mode_list_shows_dormant_overrides_and_mentions_deny_lists() {
        assert_eq!(
            standing(&Modes {
                mode: "off".to_owned(),
                limits: vec![switch("gone", None, "off")],
                shedders: Vec::new(),
            }),
            "everything: off. No limit counts or refuses; a deny list still does\n  \
             gone  waits: the policy has no such limit  (switched to off)\n"
        );
    }

    #[test]
    fn a_change_hidden_by_everything_is_reported() {
        let done = done(Some("off"));
        let said = |to, name: &str| now("off").some(to, &[name.to_owned()]).unwrap()[0].sentence(&done);
        assert!(
            said(Switch::Shadow, "search")
                .starts_with("search: switched to shadow; in force is off, as before;")
        );
        assert!(said(Switch::Policy, "search").starts_with("search: off, as before;"));
        assert!(said(Switch::Off, "login").starts_with("login: off, as before;"));
    }

    #[test]
    fn one_unknown_name_prevents_all_changes() {
        let names = ["search".to_owned(), "logn".to_owned()];
        let failure = now("enforce").some(Switch::Off, &names).unwrap_err().to_string();
        assert!(failure.contains("no limit is called `logn`; nothing was changed"), "{failure}");
        assert!(failure.contains("did you mean `login`?"), "{failure}");
        let failure = now("enforce").some(Switch::Off, &["typo".to_owned()]).unwrap_err().to_string();
        assert!(failure.contains("the limits are `search`, `trial`, `login` and `gone`"), "{failure}");
    }
}
