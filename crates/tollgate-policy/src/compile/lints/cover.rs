//! Compares the coverage of two limits: their requests and their keys.
//!
//! `true` is certain. `false` may be wrong where two patterns together cover a third.

use crate::limit::{HeaderMatch, Limit, Missing};
use crate::pattern::{HostPattern, PathPattern};
use crate::source::KeySource;

/// Whether every request that `inner` covers is covered by `outer` too.
pub(super) fn covers(outer: &Limit, inner: &Limit) -> bool {
    match (outer.descriptor(), inner.descriptor()) {
        (Some(wide), Some(narrow)) => {
            let domain = |it: &str| outer.domains().any(|known| known == it);
            let any_domain = outer.domains().next().is_none();
            let entries = wide.entries().iter().zip(narrow.entries());
            (any_domain || (inner.domains().next().is_some() && inner.domains().all(domain)))
                && wide.entries().len() == narrow.entries().len()
                && entries.into_iter().all(|(a, b)| a == b || (a.key() == b.key() && a.written().is_none()))
        }
        (None, None) => {
            let covered = |it: &PathPattern| outer.endpoints().iter().any(|wide| wide.covers_all_of(it));
            let excepted = |it: &PathPattern| inner.except().iter().any(|wide| wide.covers_all_of(it));
            inner.endpoints().iter().all(covered)
                && outer.except().iter().all(excepted)
                && covers_methods(outer, inner)
                && covers_sites(outer, inner)
        }
        _ => false,
    }
}

/// Whether `outer` covers every host of `inner` and requires no header that `inner` does not.
pub(super) fn covers_sites(outer: &Limit, inner: &Limit) -> bool {
    covers_hosts(outer.hosts(), inner.hosts())
        && outer.headers().iter().all(|it| implied(it, inner.headers()))
}

fn covers_methods(outer: &Limit, inner: &Limit) -> bool {
    let all = |limit: &Limit| limit.methods().next().is_none();
    all(outer) || (!all(inner) && inner.methods().all(|it| outer.covers_method(it)))
}

fn covers_hosts(outer: &[HostPattern], inner: &[HostPattern]) -> bool {
    let below = |host: &str, parent: &str| {
        host.strip_suffix(parent).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
    };
    let covers = |wide: &HostPattern, narrow: &HostPattern| match (wide, narrow) {
        (HostPattern::Exact(_), _) => wide == narrow,
        (HostPattern::Below(parent), HostPattern::Exact(host)) => below(host, parent),
        (HostPattern::Below(parent), HostPattern::Below(host)) => host == parent || below(host, parent),
    };
    outer.is_empty()
        || (!inner.is_empty() && inner.iter().all(|it| outer.iter().any(|wide| covers(wide, it))))
}

/// Whether a request with the headers `had` always has the wanted header.
fn implied(wanted: &HeaderMatch, had: &[HeaderMatch]) -> bool {
    had.iter().any(|it| it.name == wanted.name && (wanted.value.is_none() || wanted.value == it.value))
}

/// Whether requests that share a key of `fine` also share a key of `coarse`, and `coarse` skips
/// no request for lack of a key.
pub(super) fn counts_together(coarse: &Limit, fine: &Limit) -> bool {
    if let [KeySource::Global] = coarse.by() {
        return true;
    }
    // The segment that a path parameter refers to depends on the matching endpoint.
    if coarse.by().iter().any(|part| matches!(part, KeySource::Path(_))) {
        return false;
    }
    let of_descriptor = |part: &KeySource| part.is_of_descriptor();
    if let [KeySource::Descriptor] = fine.by() {
        return coarse.by().iter().all(of_descriptor);
    }
    coarse.missing() == fine.missing()
        && coarse.missing() != Missing::Refuse
        && coarse.by().iter().all(|part| fine.by().contains(part))
}
