//! The bytes of a rule set.
//!
//! A version byte, then for each limit its name, key, rules, plans and overrides. Texts, keys and
//! quotas have their length in front, numbers are 32 bits, ids 64 bits, all big-endian. Equal rule sets
//! have equal bytes. Decoding any input ends in a rule set or in an error, and allocates no more than a
//! multiple of the length of the input.

use foldhash::HashMap;
use tollgate_core::{Quota, Rule, RuleId};

use super::{LimitRules, RuleSet};
use crate::key::Key;
use crate::limit::Allowance;

/// The version, which increases when the meaning of the bytes changes.
const VERSION: u8 = 1;

/// The maximum size of an encoded rule set: a policy with some ten thousand overrides.
pub const MAX_RULE_SET_BYTES: usize = 4 << 20;

/// Error returned when bytes do not decode to a rule set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RuleSetError {
    /// The bytes were written by a newer Tollgate, or not by Tollgate at all.
    #[error("not a rule set this version knows")]
    Unknown,
    /// The bytes end too early, continue after the end, or hold a value out of range.
    #[error("the rule set is damaged")]
    Damaged,
}

impl RuleSet {
    /// Encodes the rule set.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        put_count(&mut out, self.limits.len());
        for limit in &self.limits {
            put(&mut out, limit.name.as_bytes());
            put(&mut out, limit.by.as_bytes());
            put_rules(&mut out, &limit.rules);
            let mut plans: Vec<_> = limit.plans.iter().map(|(name, it)| (name.as_bytes(), it)).collect();
            put_allowances(&mut out, &mut plans);
            let mut overrides: Vec<_> =
                limit.overrides.iter().map(|(key, it)| (key.as_bytes(), it)).collect();
            put_allowances(&mut out, &mut overrides);
        }
        out
    }

    /// Decodes a rule set.
    pub fn decode(bytes: &[u8]) -> Result<Self, RuleSetError> {
        let (&version, rest) = bytes.split_first().ok_or(RuleSetError::Damaged)?;
        if version != VERSION {
            return Err(RuleSetError::Unknown);
        }
        let mut rest = Reader(rest);
        let mut limits: Vec<LimitRules> = Vec::new();
        for _ in 0..rest.count()? {
            let limit = LimitRules {
                name: rest.text()?,
                by: rest.text()?,
                rules: rest.rules()?,
                plans: rest.allowances(Reader::text)?,
                overrides: rest.allowances(|it| it.bytes().map(Key::from_encoded))?,
            };
            if limits.last().is_some_and(|last| last.name >= limit.name) {
                return Err(RuleSetError::Damaged);
            }
            limits.push(limit);
        }
        if rest.0.is_empty() { Ok(Self { limits }) } else { Err(RuleSetError::Damaged) }
    }
}

fn put_count(out: &mut Vec<u8>, count: usize) {
    out.extend_from_slice(&u32::try_from(count).unwrap_or(u32::MAX).to_be_bytes());
}

fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    put_count(out, bytes.len());
    out.extend_from_slice(bytes);
}

fn put_rules(out: &mut Vec<u8>, rules: &[Rule]) {
    put_count(out, rules.len());
    for rule in rules {
        put(out, rule.name.as_bytes());
        out.extend_from_slice(&rule.id.0.to_be_bytes());
        put(out, &rule.quota.encode());
    }
}

fn put_allowances(out: &mut Vec<u8>, allowances: &mut [(&[u8], &Allowance)]) {
    // The order of a map differs from process to process.
    allowances.sort_by_key(|(name, _)| *name);
    put_count(out, allowances.len());
    for (name, allowance) in allowances {
        put(out, name);
        match allowance {
            Allowance::Rules(rules) => {
                out.push(0);
                put_rules(out, rules);
            }
            Allowance::Unlimited => out.push(1),
            Allowance::Blocked => out.push(2),
        }
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], RuleSetError> {
        let (first, rest) = self.0.split_first_chunk().ok_or(RuleSetError::Damaged)?;
        self.0 = rest;
        Ok(*first)
    }

    /// Reads a count. A count of more parts than there are bytes fails when the bytes end.
    fn count(&mut self) -> Result<usize, RuleSetError> {
        self.array().map(|bytes| u32::from_be_bytes(bytes) as usize)
    }

    fn bytes(&mut self) -> Result<&'a [u8], RuleSetError> {
        let length = self.count()?;
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(RuleSetError::Damaged)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn text(&mut self) -> Result<Box<str>, RuleSetError> {
        std::str::from_utf8(self.bytes()?).map(Box::from).map_err(|_| RuleSetError::Damaged)
    }

    fn rules(&mut self) -> Result<Vec<Rule>, RuleSetError> {
        let mut rules = Vec::new();
        for _ in 0..self.count()? {
            let (name, id) = (self.text()?, self.array().map(|id| RuleId(u64::from_be_bytes(id)))?);
            let quota = Quota::decode(self.bytes()?).map_err(|_| RuleSetError::Damaged)?;
            rules.push(Rule { name, id, quota, before: None, lease: None, far: None });
        }
        Ok(rules)
    }

    fn allowances<N: std::hash::Hash + Eq>(
        &mut self,
        name: impl Fn(&mut Self) -> Result<N, RuleSetError>,
    ) -> Result<HashMap<N, Allowance>, RuleSetError> {
        let mut all = HashMap::default();
        for _ in 0..self.count()? {
            let name = name(self)?;
            let [kind] = self.array()?;
            let allowance = match kind {
                0 => Allowance::Rules(self.rules()?),
                1 => Allowance::Unlimited,
                2 => Allowance::Blocked,
                _ => return Err(RuleSetError::Damaged),
            };
            all.insert(name, allowance);
        }
        Ok(all)
    }
}
