//! A limit as a request meets it: how much, whose counter, and what else to say.

use std::borrow::Cow;

use tollgate::policy::Key;
use tollgate::{Limit, Policy};

use crate::file_format::{Allowance, Descriptor, composite};
use crate::metadata::Metadata;
use crate::unit::Unit;

/// The limit at the end of a path through the descriptors of a domain.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "a descriptor has as many switches")]
pub struct Leaf {
    /// In the policy's limits; none for one that is unlimited.
    place: Option<usize>,
    allowed: Allowance,
    name: Option<Box<str>>,
    replaces: Box<[Box<str>]>,
    shadow_mode: bool,
    quota_mode: bool,
    detailed_metric: bool,
    metadata: Option<Metadata>,
    domain: Box<str>,
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
    pub(crate) key: Box<str>,
    pub(crate) value: Option<Box<str>>,
    /// All values that fit share one counter.
    share_threshold: bool,
    value_to_metric: bool,
}

impl Step {
    pub(crate) fn of(descriptor: &Descriptor) -> Self {
        Self {
            key: descriptor.key.value.as_str().into(),
            value: descriptor.value.as_deref().map(Into::into),
            share_threshold: descriptor.share_threshold,
            value_to_metric: descriptor.value_to_metric,
        }
    }

    /// The pattern that stands for all its values, if they share a counter.
    fn shared(&self) -> Option<&str> {
        self.value.as_deref().filter(|_| self.share_threshold)
    }

    /// Whether it fits more than one value.
    fn is_open(&self) -> bool {
        self.value.as_deref().is_none_or(|value| value.contains('*'))
    }
}

impl Leaf {
    /// The limit of the last descriptor on a path, if that has one.
    pub(crate) fn new(domain: &str, path: &[Step], last: &Descriptor, place: Option<usize>) -> Option<Self> {
        let limit = last.rate_limit.as_ref()?;
        let varies = |step: &Step| {
            step.is_open() && step.shared().is_none() && (step.value_to_metric || last.detailed_metric)
        };
        let mut stat = domain.to_owned();
        for step in path {
            stat.push('.');
            stat.push_str(&composite(&step.key, step.value.as_deref()));
        }
        Some(Self {
            place,
            allowed: limit.allowed,
            name: limit.name.as_deref().map(Into::into),
            replaces: limit.replaces.iter().map(|name| name.value.as_str().into()).collect(),
            shadow_mode: last.shadow_mode,
            quota_mode: last.quota_mode,
            detailed_metric: last.detailed_metric,
            metadata: last.metadata.clone(),
            domain: domain.into(),
            path: path.into(),
            shares: path.iter().any(|step| step.shared().is_some()),
            stat: stat.into(),
            stat_varies: path.iter().any(varies),
        })
    }

    /// Its place in the limits of the policy it was applied to; none when it is unlimited.
    pub const fn place(&self) -> Option<usize> {
        self.place
    }

    /// It as a limit of that policy; none when it is unlimited.
    pub fn limit<'p>(&self, policy: &'p Policy) -> Option<&'p Limit> {
        policy.limits().get(self.place?)
    }

    /// How much it grants.
    pub const fn allowed(&self) -> Allowance {
        self.allowed
    }

    /// How many requests it admits in a unit; none when it is unlimited.
    pub const fn requests_per_unit(&self) -> Option<u32> {
        match self.allowed {
            Allowance::Requests { per_unit, .. } => Some(per_unit),
            Allowance::Unlimited => None,
        }
    }

    /// In which time; none when it is unlimited.
    pub const fn unit(&self) -> Option<Unit> {
        match self.allowed {
            Allowance::Requests { unit, .. } => Some(unit),
            Allowance::Unlimited => None,
        }
    }

    /// Its `name`: what answers call it, and what `replaces` of others means.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The names of the limits that are dropped when a request meets them beside this one.
    pub fn replaces(&self) -> impl Iterator<Item = &str> {
        self.replaces.iter().map(|name| &**name)
    }

    /// Whether it drops a limit with this name.
    pub fn replaces_name(&self, name: &str) -> bool {
        self.replaces.iter().any(|known| **known == *name)
    }

    /// Whether it only counts, and refuses nothing.
    pub const fn shadow_mode(&self) -> bool {
        self.shadow_mode
    }

    /// Whether it refuses a request only together with all others of this kind.
    pub const fn quota_mode(&self) -> bool {
        self.quota_mode
    }

    /// Whether its metrics tell all values apart.
    pub const fn detailed_metric(&self) -> bool {
        self.detailed_metric
    }

    /// Whether some of its entries share one counter for all values that fit.
    pub const fn share_threshold(&self) -> bool {
        self.shares
    }

    /// What is handed to the proxy with its answers.
    pub const fn metadata(&self) -> Option<&Metadata> {
        self.metadata.as_ref()
    }

    /// The domain it belongs to.
    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// Whose counter a descriptor that led here spends: one for each set of values, where
    /// an entry with `share_threshold` counts as its pattern, whatever its value.
    pub fn key(&self, entries: &[(&str, &str)]) -> Key {
        if !self.shares {
            return Key::of_entries(entries.iter().copied());
        }
        let value = |at: usize| self.path.get(at).and_then(Step::shared);
        Key::of_entries(entries.iter().enumerate().map(|(at, (key, sent))| (*key, value(at).unwrap_or(sent))))
    }

    /// The name of its metrics, as the file alone gives it: `shop.plan_gold.user`.
    pub fn stat(&self) -> &str {
        &self.stat
    }

    /// Whether [`stat_of`](Self::stat_of) depends on the values of a request. Then nobody
    /// bounds how many names there are but whoever counts them.
    pub const fn stat_varies(&self) -> bool {
        self.stat_varies
    }

    /// The name of its metrics for a descriptor that led here: with the values that
    /// `detailed_metric` and `value_to_metric` ask for.
    pub fn stat_of(&self, entries: &[(&str, &str)]) -> Cow<'_, str> {
        if !self.stat_varies {
            return Cow::Borrowed(&self.stat);
        }
        let mut stat = String::from(&*self.domain);
        for (step, (_, sent)) in self.path.iter().zip(entries) {
            let told = self.detailed_metric || step.value_to_metric;
            let value = match step.shared() {
                None if told && step.is_open() => Some(*sent).filter(|sent| !sent.is_empty()),
                _ => step.value.as_deref(),
            };
            stat.push('.');
            stat.push_str(&composite(&step.key, value));
        }
        Cow::Owned(stat)
    }
}
