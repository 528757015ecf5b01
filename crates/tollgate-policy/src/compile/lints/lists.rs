//! Entries of `allow` and `deny` that match every caller, or any caller that forges a value.

use tollgate_document::Problems;

use crate::file_format::File;
use crate::file_format::lists::Entry;
use crate::lint::Lint;
use crate::lists::Condition;
use crate::pattern::PathPattern;
use crate::source::KeySource;

pub(super) fn find_lints(file: &File, problems: &mut Problems) {
    for entry in &file.allow {
        if matches_every_address(entry) {
            problems
                .warning(Lint::AllowsEverybody, entry.place, "this entry admits every request")
                .label("no limit applies")
                .help("`tollgate mode off --all` switches limits off and says so everywhere");
        } else if let Some(source) = made_up(entry) {
            problems
                .warning(
                    Lint::ForgeableAllow,
                    entry.place,
                    "a value that any caller can forge passes all limits",
                )
                .label(format!("every value of `{source}` matches"))
                .help("list the values, or add a condition that callers cannot forge: `ip: 10.0.0.0/8`");
        }
    }
    for entry in file.deny.iter().filter(|it| matches_every_address(it)) {
        problems
            .warning(Lint::DeniesEverybody, entry.place, "this entry refuses every request")
            .label("no request passes")
            .help("list the intended networks");
    }
}

fn matches_every_address(entry: &Entry) -> bool {
    match &entry.conditions[..] {
        [Condition::Address(nets)] => nets.iter().any(|net| net.prefix() == 0),
        [Condition::Endpoint(patterns)] => {
            patterns.iter().any(|it| it.covers_all_of(&PathPattern::everything()))
        }
        _ => false,
    }
}

/// Returns the forgeable source of an entry whose conditions any caller can satisfy. Claims of a
/// verified token and values set by the proxy are not forgeable.
fn made_up(entry: &Entry) -> Option<&KeySource> {
    let mut found = None;
    for condition in &entry.conditions {
        match condition {
            Condition::Present(KeySource::Claim(_) | KeySource::Entry(_))
            | Condition::Address(_)
            | Condition::Value(..) => return None,
            // Any caller can request the endpoint.
            Condition::Endpoint(_) => {}
            Condition::Present(source) => found = Some(source),
        }
    }
    found
}
