//! Finds the locations that a limit does not apply to, although its endpoints cover them.
//!
//! nginx uses one location for a path, with the limits of that location only. A limit of `location /` therefore does not
//! apply in `location /n/`, if that has limits of its own, and a policy says so with `except`.
//!
//! A path must not lose a limit that nginx applies. A location is excluded only if its patterns cover no other
//! paths than it does, if nginx prefers it to every location with the limit that covers it, and if no location
//! with the limit lies within it. The others are listed in a comment.

use std::collections::BTreeSet;

use super::scope::{LimitConfig, Site, Use};

/// The maximum number of pairs of locations that are compared for one limit. Above that, no location
/// is excluded.
const MAX_COMPARED_PAIRS: usize = 1_000_000;

/// The maximum number of paths that one limit excludes.
const MAX_EXCLUDED_PATHS: usize = 256;

/// The locations without a limit that its endpoints cover.
#[derive(Debug, Default)]
pub(super) struct Uncovered<'f> {
    /// Their paths, for `except`.
    pub(super) excluded: Vec<String>,
    /// The locations that cannot be excluded.
    pub(super) overlapping: Vec<&'f Site>,
}

/// Returns the locations of these servers that do not have a limit and that its endpoints cover.
pub(super) fn uncovered<'f>(
    limit: &Use,
    endpoints: &[String],
    servers: &[usize],
    found: &'f LimitConfig,
) -> Uncovered<'f> {
    let in_servers = found.sites.iter().filter(|site| servers.contains(&site.server));
    let (with, without): (Vec<&Site>, Vec<&Site>) =
        in_servers.partition(|site| site.scope.uses().any(|(it, _)| it == *limit));
    let without: Vec<_> = without
        .into_iter()
        .filter(|site| patterns(site).next().is_some() && patterns(site).all(|it| covers(endpoints, it)))
        .collect();
    let is_comparable = with.len().max(servers.len()).saturating_mul(without.len()) <= MAX_COMPARED_PAIRS;
    let covered: BTreeSet<(usize, Vec<&String>)> =
        without.iter().map(|site| (site.server, patterns(site).collect())).collect();
    let mut out = Uncovered::default();
    let mut known = BTreeSet::new();
    for site in &without {
        // All servers of the group have the same endpoints in the policy, so all exclude a location or none.
        let is_in_all = || {
            let own: Vec<_> = patterns(site).collect();
            servers.iter().all(|server| covered.contains(&(*server, own.clone())))
        };
        if !is_comparable || !with.iter().all(|outer| is_apart(site, outer)) || !is_in_all() {
            out.overlapping.push(site);
            continue;
        }
        out.excluded.extend(patterns(site).filter(|it| known.insert(*it)).cloned());
    }
    if out.excluded.len() > MAX_EXCLUDED_PATHS {
        out = Uncovered { excluded: Vec::new(), overlapping: without };
    }
    out
}

fn patterns(site: &Site) -> impl Iterator<Item = &String> {
    site.endpoints.iter().flat_map(|it| &it.patterns)
}

/// Whether nginx uses `site`, and never `other`, for each path that the patterns of `site` cover.
fn is_apart(site: &Site, other: &Site) -> bool {
    let Ok(endpoints) = &site.endpoints else { return false };
    // The paths of the other location are unknown, and so is whether it lies within this one.
    let Ok(others) = &other.endpoints else { return false };
    !endpoints.is_wider
        && endpoints.patterns.iter().all(|inner| {
            others.patterns.iter().all(|outer| {
                !overlap(inner, outer)
                    || inner != outer
                        && covers(std::slice::from_ref(outer), inner)
                        && site.selection.is_preferred_to(other.selection)
            })
        })
}

/// Whether one of the endpoints covers everything that another covers.
fn covers(endpoints: &[String], other: &str) -> bool {
    endpoints.iter().any(|it| {
        it == other || it.strip_suffix("**").is_some_and(|folder| other.starts_with(folder) || folder == "/")
    })
}

/// Whether two patterns may cover the same path.
fn overlap(one: &str, other: &str) -> bool {
    let (mut one, mut other) = (one.split('/').skip(1), other.split('/').skip(1));
    loop {
        match (one.next(), other.next()) {
            // `/a/**` covers `/a`, too.
            (Some("**"), _) | (_, Some("**")) | (None, None) => return true,
            (Some(one), Some(other)) if one == other || one == "*" || other == "*" => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_overlap_if_a_path_matches_both() {
        for (one, other, expected) in [
            ("/**", "/n/**", true),
            ("/n/**", "/n", true),
            ("/n/**", "/nn/**", false),
            ("/*/x", "/n/**", true),
            ("/*/x", "/n/y", false),
            ("/*/x", "/n/x", true),
            ("/n", "/n/x", false),
            ("/a/b/**", "/a/c/**", false),
        ] {
            assert_eq!(overlap(one, other), expected, "{one} {other}");
            assert_eq!(overlap(other, one), expected, "{other} {one}");
        }
    }
}
