//! A key that callers can forge, without a second limit on a key that they cannot forge.

use tollgate_document::Problems;

use super::cover::covers;
use super::promise::a_second;
use super::{LintedLimit, MAX_COMPARED_PAIRS};
use crate::limit::{Limit, Missing};
use crate::lint::Lint;
use crate::source::KeySource;

pub(super) fn find_lints(linted: &[LintedLimit<'_>], problems: &mut Problems) {
    let nets: Vec<&LintedLimit<'_>> =
        linted.iter().filter(|it| it.is_enforced() && is_net(it.live)).collect();
    for limit in linted.iter().filter(|it| it.is_on()).take(MAX_COMPARED_PAIRS / nets.len().max(1)) {
        let Some(part) = limit.written.by.iter().find(|part| is_made_up(&part.value)) else { continue };
        if nets.iter().any(|net| holds(net, limit) && covers(net.live, limit.live)) {
            continue;
        }
        problems
            .warning(
                Lint::UnboundedKey,
                part.place,
                format!("a caller that forges values of `{}` is never refused", part.value),
            )
            .label("each new value is a new key with a full allowance")
            .help("add a limit `by: ip` on the same requests, wide enough for an office")
            .help(match &part.value {
                KeySource::Path(_) => {
                    "or keep it, if the upstream service rejects unknown values at no cost".to_owned()
                }
                other => format!("or keep it, if a proxy in front of Tollgate sets `{other}`"),
            });
    }
}

/// Whether the sender chooses the value freely. Users, API keys and tenants are verified by the
/// upstream service, which rejects unknown ones.
fn is_made_up(part: &KeySource) -> bool {
    matches!(part, KeySource::Header(_) | KeySource::Cookie(_) | KeySource::Query(_) | KeySource::Path(_))
}

/// Whether `net` bounds the number of requests per time. Slots bound concurrent requests, which
/// is enough for a limit that bounds nothing else.
fn holds(net: &LintedLimit<'_>, limit: &LintedLimit<'_>) -> bool {
    let is_rate = |it: &LintedLimit<'_>| a_second(it.live.rules()).is_some();
    is_rate(net) || !is_rate(limit)
}

/// Whether forged names do not evade the limit.
fn is_net(limit: &Limit) -> bool {
    let always_there = limit.by().iter().all(|part| matches!(part, KeySource::Ip | KeySource::Global));
    !limit.by().iter().any(is_made_up) && (always_there || limit.missing() != Missing::Skip)
}
