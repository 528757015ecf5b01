//! The limit at the end of a path of descriptors: amount, counter key, and metadata.

use std::borrow::Cow;
use std::sync::Arc;

use tollgate::policy::{EnvoyMatchEntry, Key};

use crate::file_format::{Allowance, Descriptor, composite};
use crate::metadata::Metadata;
use crate::unit::Unit;

/// The limit at the end of a path through the descriptors of a domain.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "a descriptor has as many switches")]
pub struct Leaf {
    /// The index in the limits that were compiled together; `None` for an unlimited leaf.
    index: Option<usize>,
    allowed: Allowance,
    name: Option<Box<str>>,
    replaces: Box<[Box<str>]>,
    shadow_mode: bool,
    quota_mode: bool,
    detailed_metric: bool,
    metadata: Option<Metadata>,
    domain: Arc<str>,
    /// The path, if a key or the name of metrics depends on it.
    path: Box<[Step]>,
    /// Whether any step shares its counter.
    shares: bool,
    stat: Box<str>,
    /// Whether the name of its metrics depends on the values of a request.
    stat_varies: bool,
}

/// One entry of the path.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) key: Arc<str>,
    pub(crate) value: Option<Arc<str>>,
    /// The entry as operators see it.
    pub(crate) shown: EnvoyMatchEntry,
    /// Whether all fitting values share one counter.
    share_threshold: bool,
    value_to_metric: bool,
}

impl Step {
    pub(crate) fn of(descriptor: &Descriptor) -> Self {
        let key = Arc::from(descriptor.key.value.as_str());
        Self {
            shown: EnvoyMatchEntry::new(&key, descriptor.value.as_deref()),
            key,
            value: descriptor.value.as_deref().map(Into::into),
            share_threshold: descriptor.share_threshold,
            value_to_metric: descriptor.value_to_metric,
        }
    }

    /// Returns the pattern that replaces the values in the key, if they share a counter.
    fn shared(&self) -> Option<&str> {
        self.value.as_deref().filter(|_| self.share_threshold)
    }

    /// Whether more than one value fits.
    fn is_open(&self) -> bool {
        self.value.as_deref().is_none_or(|value| value.contains('*'))
    }
}

impl Leaf {
    /// Returns the limit of the last descriptor on a path, if it has one.
    pub(crate) fn new(
        domain: &Arc<str>,
        path: &[Step],
        last: &Descriptor,
        index: Option<usize>,
    ) -> Option<Self> {
        let limit = last.rate_limit.as_ref()?;
        let varies = |step: &Step| {
            step.is_open() && step.shared().is_none() && (step.value_to_metric || last.detailed_metric)
        };
        let mut stat = String::with_capacity(domain.len() + 32 * path.len());
        stat.push_str(domain);
        for step in path {
            stat.push('.');
            stat.push_str(&step.key);
            if let Some(value) = &step.value {
                stat.push('_');
                stat.push_str(value);
            }
        }
        let (shares, stat_varies) =
            (path.iter().any(|step| step.shared().is_some()), path.iter().any(varies));
        Some(Self {
            index,
            allowed: limit.allowed,
            name: limit.name.as_deref().map(Into::into),
            replaces: limit.replaces.iter().map(|name| name.value.as_str().into()).collect(),
            shadow_mode: last.shadow_mode,
            quota_mode: last.quota_mode,
            detailed_metric: last.detailed_metric,
            metadata: last.metadata.clone(),
            domain: Arc::clone(domain),
            path: if shares || stat_varies { path.into() } else { Box::default() },
            shares,
            stat: stat.into(),
            stat_varies,
        })
    }

    /// Returns the index in the limits that were compiled together; `None` if unlimited.
    pub(crate) const fn index(&self) -> Option<usize> {
        self.index
    }

    /// Returns the number of requests per unit; `None` if unlimited.
    pub const fn requests_per_unit(&self) -> Option<u32> {
        match self.allowed {
            Allowance::Requests { per_unit, .. } => Some(per_unit),
            Allowance::Unlimited => None,
        }
    }

    /// Returns the unit of time; `None` if unlimited.
    pub const fn unit(&self) -> Option<Unit> {
        match self.allowed {
            Allowance::Requests { unit, .. } => Some(unit),
            Allowance::Unlimited => None,
        }
    }

    /// Returns the `name`, which responses show and `replaces` of other limits refers to.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Returns the names of the limits that this limit replaces if both apply to a request.
    pub fn replaces(&self) -> impl Iterator<Item = &str> {
        self.replaces.iter().map(|name| &**name)
    }

    /// Whether this limit replaces a limit with this name.
    pub fn replaces_name(&self, name: &str) -> bool {
        self.replaces.iter().any(|known| **known == *name)
    }

    /// Whether the limit counts without refusing.
    pub const fn shadow_mode(&self) -> bool {
        self.shadow_mode
    }

    /// Whether the limit refuses a request only if all other `quota_mode` limits of the request refuse.
    pub const fn quota_mode(&self) -> bool {
        self.quota_mode
    }

    /// Returns the data that responses pass to the proxy.
    pub const fn metadata(&self) -> Option<&Metadata> {
        self.metadata.as_ref()
    }

    /// Returns the domain of the limit.
    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// Returns the key of the counter for a descriptor that led here: one per set of values, where
    /// an entry with `share_threshold` contributes its pattern instead of its value.
    pub fn key(&self, entries: &[(&str, &str)]) -> Key {
        if !self.shares {
            return Key::of_entries(entries.iter().copied());
        }
        let value = |at: usize| self.path.get(at).and_then(Step::shared);
        Key::of_entries(entries.iter().enumerate().map(|(at, (key, sent))| (*key, value(at).unwrap_or(sent))))
    }

    /// Returns the static name of the metrics: `shop.plan_gold.user`.
    pub fn stat(&self) -> &str {
        &self.stat
    }

    /// Whether [`stat_of`](Self::stat_of) depends on the values of a request. The collector of the
    /// metrics must then bound the number of names.
    pub const fn stat_varies(&self) -> bool {
        self.stat_varies
    }

    /// Returns the name of the metrics for a descriptor that led here, with the values that
    /// `detailed_metric` and `value_to_metric` select.
    pub fn stat_of(&self, entries: &[(&str, &str)]) -> Cow<'_, str> {
        if !self.stat_varies {
            return Cow::Borrowed(&self.stat);
        }
        let mut stat = String::from(&*self.domain);
        for (step, (_, sent)) in self.path.iter().zip(entries) {
            let is_detailed = self.detailed_metric || step.value_to_metric;
            let value = match step.shared() {
                None if is_detailed && step.is_open() => Some(*sent).filter(|sent| !sent.is_empty()),
                _ => step.value.as_deref(),
            };
            stat.push('.');
            stat.push_str(&composite(&step.key, value));
        }
        Cow::Owned(stat)
    }
}
