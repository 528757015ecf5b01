//! Entries of `allow` and `deny` that hold for everybody, or for whoever says so.

use crate::diagnostic::Problems;
use crate::file_format::File;
use crate::file_format::lists::Entry;
use crate::lint::Lint;
use crate::lists::Condition;
use crate::pattern::PathPattern;
use crate::source::KeySource;

pub(super) fn find_lints(file: &File, problems: &mut Problems) {
    for entry in &file.allow {
        if is_everybody(entry) {
            problems
                .warning(Lint::AllowsEverybody, entry.place, "this entry lets everybody pass")
                .label("no limit applies any more")
                .help("`tollgate mode off --all` switches limits off and says so everywhere");
        } else if let Some(source) = made_up(entry) {
            problems
                .warning(Lint::ForgeableAllow, entry.place, "whoever says so passes all limits")
                .label(format!("any value of `{source}` will do"))
                .help("name the values, or add a condition that callers cannot make up: `ip: 10.0.0.0/8`");
        }
    }
    for entry in file.deny.iter().filter(|it| is_everybody(it)) {
        problems
            .warning(Lint::DeniesEverybody, entry.place, "this entry refuses everybody")
            .label("no request passes any more")
            .help("list the networks that are meant");
    }
}

fn is_everybody(entry: &Entry) -> bool {
    match &entry.conditions[..] {
        [Condition::Address(nets)] => nets.iter().any(|net| net.prefix() == 0),
        [Condition::Endpoint(patterns)] => {
            patterns.iter().any(|it| it.covers_all_of(&PathPattern::everything()))
        }
        _ => false,
    }
}

/// What any caller can send, if it is all that an entry asks for. What is of a verified token
/// or comes from the proxy itself is not.
fn made_up(entry: &Entry) -> Option<&KeySource> {
    let mut found = None;
    for condition in &entry.conditions {
        match condition {
            Condition::Present(KeySource::Claim(_) | KeySource::Entry(_))
            | Condition::Address(_)
            | Condition::Value(..) => return None,
            // Any caller can ask for the endpoint too.
            Condition::Endpoint(_) => {}
            Condition::Present(source) => found = Some(source),
        }
    }
    found
}
