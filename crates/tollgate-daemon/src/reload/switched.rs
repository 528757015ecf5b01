//! Describes mode overrides that a reloaded file does not change.
//!
//! An override stays in force when the file changes. Without this message, an edit of `mode:` would
//! seem to have no effect.

use tollgate::Mode;
use tollgate_server::{Modes, Switch};

/// The maximum number of limits that are named.
const MAX_NAMED: usize = 10;

/// Describes the overrides and how to remove them; `None` if there are none.
pub(super) fn in_words(modes: &Modes) -> Option<String> {
    let mut parts = Vec::new();
    let everything = modes.everything();
    if everything != Mode::Enforce {
        let word = mode(everything);
        parts.push(format!("everything is switched to `{word}` (`tollgate mode enforce --all` ends it)"));
    }
    let switched: Vec<_> = modes.switched().filter(|it| it.policy_mode.is_some()).collect();
    for limit in switched.iter().take(MAX_NAMED) {
        let file = limit.policy_mode.map_or("nothing", mode);
        let name = &limit.name;
        parts.push(match limit.switch {
            switch if switch.word() == file => {
                format!("`{name}` is switched to `{file}`, which the file says too")
            }
            switch => {
                format!("`{name}` is switched to `{}`, and the file says `{file}`", Switch::word(switch))
            }
        });
    }
    if let Some(more) = switched.len().checked_sub(MAX_NAMED).filter(|more| *more > 0) {
        parts.push(format!("{more} more limits are switched"));
    }
    if parts.is_empty() {
        return None;
    }
    let help = match switched.as_slice() {
        [] => String::new(),
        [only] => format!("; `tollgate mode policy {}` lets the file decide again", only.name),
        _ => "; `tollgate mode policy LIMIT` (or `--all`) lets the file decide again".to_owned(),
    };
    Some(format!("a live switch wins over the file: {}{help}", parts.join("; ")))
}

const fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Enforce => "enforce",
        Mode::Shadow => "shadow",
        Mode::Off => "off",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate::{Limiter, Policy, SharedLimiter, Timestamp};
    use tollgate_server::{Actor, ModeOverrides, Role, Target};

    #[test]
    fn each_override_is_named_with_the_mode_of_the_file() {
        let file = |mode: &str| {
            let limit = |name: &str| format!("{{name: {name}, by: ip, bucket: 1/s, mode: {mode}}}");
            Policy::parse(&format!("limits: [{}, {}]", limit("search"), limit("login"))).unwrap()
        };
        let switches = ModeOverrides::new(SharedLimiter::from(Limiter::new(file("enforce"))));
        let (by, reason) = (String::new(), String::new());
        let at = Timestamp::from_secs(1);
        let who = Actor { by, reason, role: Role::Admin, peer: None, certificate: None, at };
        assert_eq!(in_words(&switches.modes()), None);
        switches.switch(Target::Limit("search"), Switch::Shadow, &who).unwrap();
        assert_eq!(
            in_words(&switches.modes()).unwrap(),
            "a live switch wins over the file: `search` is switched to `shadow`, and the file says `enforce`; \
             `tollgate mode policy search` lets the file decide again"
        );
        switches.reload(file("shadow"));
        switches.switch(Target::Limit("login"), Switch::Off, &who).unwrap();
        switches.switch(Target::Everything, Switch::Shadow, &who).unwrap();
        assert_eq!(
            in_words(&switches.modes()).unwrap(),
            "a live switch wins over the file: everything is switched to `shadow` \
             (`tollgate mode enforce --all` ends it); `login` is switched to `off`, and the file says `shadow`; \
             `search` is switched to `shadow`, which the file says too; \
             `tollgate mode policy LIMIT` (or `--all`) lets the file decide again"
        );
    }
}
