//! The lists of requests that pass unchecked or are refused: `allow` and `deny`.
//!
//! All conditions of an entry must hold, and one value of each condition must match.
//! Entries with a single condition are by far the most frequent. They are merged into one
//! table per property, so ten thousand addresses cost one binary search and ten thousand
//! keys cost one lookup.
//!
//! A request can give several values for one property. `deny` applies if any of them is
//! listed. `allow` applies only to a single value: otherwise a second value could hide a
//! denied one, or a caller could add an allowed one.
//! A path may have several readings. `deny` applies if an entry covers one of them, `allow`
//! applies only if the entry covers all of them.

use std::fmt;

use foldhash::HashMap;

use crate::identify::Identify;
use crate::lookup::Lookup;
use crate::net::{Net, NetSet};
use crate::pattern::PathPattern;
use crate::properties::Properties;
use crate::source::KeySource;

/// One entry of `allow` or `deny`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListEntry {
    text: Box<str>,
    line: u32,
}

impl ListEntry {
    pub(crate) fn new(text: String, line: u32) -> Self {
        Self { text: text.into(), line }
    }

    /// Returns the line of the entry in the policy file.
    pub const fn line(&self) -> u32 {
        self.line
    }
}

/// Formats the entry as written, shortened: `ip: 10.0.0.0/8`.
impl fmt::Display for ListEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// One condition of an entry.
#[derive(Clone, Debug)]
pub(crate) enum Condition {
    /// The client address is in one of these networks.
    Address(Vec<Net>),
    /// The property has one of these values.
    Value(KeySource, Vec<Box<[u8]>>),
    /// The property has a value.
    Present(KeySource),
    /// One of these patterns covers the path.
    Endpoint(Vec<PathPattern>),
}

impl Condition {
    /// Returns the property that the condition reads, other than address and path.
    pub(crate) const fn source(&self) -> Option<&KeySource> {
        match self {
            Self::Value(source, _) | Self::Present(source) => Some(source),
            Self::Address(_) | Self::Endpoint(_) => None,
        }
    }
}

/// Values of one property, with the index of their entry.
type Values = HashMap<Box<[u8]>, u32>;

/// The effect of a list on matching requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListKind {
    /// The requests pass unchecked. A property counts only if it has a single value.
    Allow,
    /// The requests are refused. Every value of a property counts.
    Deny,
}

#[derive(Clone, Debug)]
pub(crate) struct List {
    kind: ListKind,
    entries: Vec<ListEntry>,
    nets: NetSet,
    values: Vec<(KeySource, Values)>,
    compound: Vec<(u32, Conditions)>,
}

/// Conditions that must all hold, in a form that is fast to evaluate.
#[derive(Clone, Debug)]
pub(crate) struct Conditions(Vec<Test>);

/// A condition in a form that is fast to evaluate.
#[derive(Clone, Debug)]
enum Test {
    Address(NetSet),
    Value(KeySource, Values),
    Present(KeySource),
    Endpoint(Vec<PathPattern>),
}

impl List {
    pub(crate) fn new(kind: ListKind, written: Vec<(ListEntry, Vec<Condition>)>) -> Self {
        let (entries, values, compound) = (Vec::new(), Vec::new(), Vec::new());
        let mut list = Self { kind, entries, nets: NetSet::default(), values, compound };
        let mut nets = Vec::new();
        for (index, (entry, conditions)) in (0..).zip(written) {
            list.entries.push(entry);
            match <[Condition; 1]>::try_from(conditions) {
                Ok([Condition::Address(more)]) => nets.extend(more.into_iter().map(|net| (net, index))),
                Ok([Condition::Value(source, values)]) => list.add_values(source, values, index),
                Ok(other) => list.compound.push((index, Conditions::new(other))),
                Err(several) => list.compound.push((index, Conditions::new(several))),
            }
        }
        list.nets = NetSet::new(nets);
        list
    }

    /// Returns the number of entries.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the entry with this index.
    pub(crate) fn entry(&self, index: usize) -> Option<&ListEntry> {
        self.entries.get(index)
    }

    /// Returns the index of an entry of this list.
    pub(crate) fn position(&self, entry: &ListEntry) -> Option<usize> {
        self.entries.iter().position(|it| std::ptr::eq(it, entry))
    }

    /// Returns the properties that the entries read.
    pub(crate) fn sources(&self) -> impl Iterator<Item = &KeySource> {
        let compound = self.compound.iter().flat_map(|(_, conditions)| conditions.sources());
        self.values.iter().map(|(source, _)| source).chain(compound)
    }

    fn add_values(&mut self, source: KeySource, values: Vec<Box<[u8]>>, index: u32) {
        let at = self.values.iter().position(|(known, _)| *known == source).unwrap_or(self.values.len());
        if at == self.values.len() {
            self.values.push((source, Values::default()));
        }
        for value in values {
            self.values[at].1.entry(value).or_insert(index);
        }
    }

    #[inline]
    pub(crate) fn find<'r>(&self, identify: &Identify, view: &impl Properties<'r>) -> Option<&ListEntry> {
        if self.entries.is_empty() { None } else { self.find_any(identify, view) }
    }

    #[inline(never)]
    fn find_any<'r>(&self, identify: &Identify, view: &impl Properties<'r>) -> Option<&ListEntry> {
        let net = view.client().and_then(|client| self.nets.find(client));
        let value = || {
            self.values.iter().find_map(|(source, known)| {
                self.kind.first_match(identify, source, view, |value| known.get(value).copied())
            })
        };
        let compound = || {
            let mut all = self.compound.iter();
            all.find(|(_, it)| it.hold(self.kind, identify, view)).map(|(index, _)| *index)
        };
        let index = net.or_else(value).or_else(compound)?;
        self.entries.get(index as usize)
    }
}

impl Conditions {
    pub(crate) fn new(conditions: impl IntoIterator<Item = Condition>) -> Self {
        let test = |condition| match condition {
            Condition::Address(nets) => Test::Address(nets.into_iter().collect()),
            Condition::Value(source, values) => {
                Test::Value(source, values.into_iter().map(|value| (value, 0)).collect())
            }
            Condition::Present(source) => Test::Present(source),
            Condition::Endpoint(patterns) => Test::Endpoint(patterns),
        };
        Self(conditions.into_iter().map(test).collect())
    }

    /// Whether all conditions hold, for the values and readings that count for this kind of list.
    pub(crate) fn hold<'r>(&self, kind: ListKind, identify: &Identify, view: &impl Properties<'r>) -> bool {
        self.0.iter().all(|test| test.holds(kind, identify, view))
    }

    /// Returns the properties that the conditions read.
    pub(crate) fn sources(&self) -> impl Iterator<Item = &KeySource> {
        self.0.iter().filter_map(|test| match test {
            Test::Address(_) | Test::Endpoint(_) => None,
            Test::Value(source, _) | Test::Present(source) => Some(source),
        })
    }
}

impl ListKind {
    /// Returns the first result of `test` over the values that count.
    fn first_match<'r, T>(
        self,
        identify: &Identify,
        source: &KeySource,
        view: &impl Properties<'r>,
        test: impl Fn(&[u8]) -> Option<T>,
    ) -> Option<T> {
        match self {
            Self::Allow => match identify.lookup(source, view) {
                Lookup::Value(value) => test(&value),
                Lookup::Missing | Lookup::Ambiguous => None,
            },
            Self::Deny => {
                let mut found = None;
                identify.visit_values(source, view, |value| {
                    if found.is_none() {
                        found = test(value);
                    }
                });
                found
            }
        }
    }
}

impl Test {
    fn holds<'r>(&self, kind: ListKind, identify: &Identify, view: &impl Properties<'r>) -> bool {
        let any = |source, test: &dyn Fn(&[u8]) -> bool| {
            kind.first_match(identify, source, view, |value| test(value).then_some(())).is_some()
        };
        match self {
            Self::Address(nets) => view.client().is_some_and(|client| nets.contains(client)),
            Self::Value(source, known) => any(source, &|value| known.contains_key(value)),
            Self::Present(source) => any(source, &|_| true),
            Self::Endpoint(patterns) => view.is_covered(patterns, kind),
        }
    }
}
