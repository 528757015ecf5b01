//! The values that a descriptor does not match, because another descriptor takes precedence.

use tollgate::policy::Glob;
use tollgate_envoy::Descriptor;

/// The maximum number of patterns that one pattern is compared with, so that a file of patterns
/// does not take quadratic time.
const MAX_COMPARISONS: usize = 1_000;

/// A descriptor with its siblings.
#[derive(Clone, Copy)]
pub(super) struct Level<'c> {
    pub(super) siblings: &'c [Descriptor],
    pub(super) at: usize,
}

/// The siblings that take precedence over a descriptor.
#[derive(Default)]
pub(super) struct Shadows<'c> {
    /// Exact values.
    pub(super) values: Vec<&'c str>,
    /// Patterns.
    pub(super) patterns: Vec<&'c str>,
    /// Whether there are too many to list.
    pub(super) unknown: bool,
}

impl<'c> Level<'c> {
    pub(super) fn descriptor(&self) -> &'c Descriptor {
        &self.siblings[self.at]
    }

    /// Returns the siblings with precedence: named values before patterns, a pattern before later
    /// ones, all before the bare key.
    pub(super) fn shadows(&self) -> Shadows<'c> {
        let own = self.descriptor();
        let glob = own.value.as_deref().and_then(Glob::parse);
        let mut found = Shadows::default();
        let others = self.siblings.iter().enumerate().filter(|(_, it)| it.key.value == own.key.value);
        for (compared, (at, other)) in others.enumerate() {
            let Some(value) = other.value.as_deref() else { continue };
            if glob.is_some() && compared > MAX_COMPARISONS {
                found.unknown = true;
                return found;
            }
            match &glob {
                None if other.is_wildcard() => found.patterns.push(value),
                None => found.values.push(value),
                Some(glob) if other.is_wildcard() => {
                    found.patterns.extend((at < self.at && may_overlap(glob, value)).then_some(value));
                }
                Some(glob) => found.values.extend(glob.fits(value).then_some(value)),
            }
        }
        found
    }
}

/// Whether two patterns may have values in common: not if their prefixes differ.
fn may_overlap(one: &Glob, other: &str) -> bool {
    let head = other.split('*').next().unwrap_or_default();
    head.starts_with(one.prefix()) || one.prefix().starts_with(head)
}
