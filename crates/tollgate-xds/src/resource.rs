//! Reads `RateLimitConfig` resources, with the checks of envoyproxy/ratelimit files.
//!
//! A resource is one domain with the tree of its descriptors. `share_threshold` and `value_to_metric`
//! are not part of the protobuf format.

use std::collections::HashSet;
use std::fmt;

use tollgate_document::{Located, Place};
use tollgate_envoy::{Allowance, Descriptor, Domain, RESERVED_DOMAIN, RateLimit, Unit};
use tollgate_grpc::wire::{Reader, Value, WireError};

use crate::metadata;

/// The maximum depth of descriptors and of metadata, as in protobuf libraries.
pub(crate) const MAX_DEPTH: usize = 100;
/// The maximum number of descriptors in all resources of a response.
pub(crate) const MAX_DESCRIPTORS: usize = 1_000_000;
/// The maximum length of a name in a message, in characters.
const MAX_SHOWN_CHARS: usize = 80;

/// The reason why a resource is rejected, with its place in the tree.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) struct ResourceError {
    /// From the innermost descriptor to the domain.
    path: Vec<String>,
    message: String,
}

impl ResourceError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { path: Vec::new(), message: message.into() }
    }

    fn at(mut self, part: String) -> Self {
        self.path.push(part);
        self
    }
}

impl From<WireError> for ResourceError {
    fn from(_: WireError) -> Self {
        Self::new("this is not the protobuf of a RateLimitConfig")
    }
}

impl fmt::Display for ResourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, part) in self.path.iter().rev().enumerate() {
            write!(f, "{}{part}", if at > 0 { " > " } else { "" })?;
        }
        write!(f, "{}{}", if self.path.is_empty() { "" } else { ": " }, self.message)
    }
}

/// Returns a text of the server for a message: short, and without control characters.
pub(crate) fn quoted(text: &str) -> String {
    let mut shown: String = text.chars().take(MAX_SHOWN_CHARS).flat_map(char::escape_debug).collect();
    if text.chars().count() > MAX_SHOWN_CHARS {
        shown.push('…');
    }
    format!("`{shown}`")
}

/// Reads a resource. `left` is the number of descriptors that the response may still have.
pub(crate) fn read(message: &[u8], left: &mut usize) -> Result<Domain, ResourceError> {
    let (mut name, mut domain, mut found) = ("", "", Vec::new());
    let mut fields = Reader::new(message);
    while let Some((number, value)) = fields.next_field()? {
        match number {
            1 => name = value.text()?,
            2 => domain = value.text()?,
            3 => found.push(value.bytes()?),
            _ => {}
        }
    }
    if domain.is_empty() {
        return Err(ResourceError::new("the domain is empty").at(format!("resource {}", quoted(name))));
    }
    let in_domain = |error: ResourceError| error.at(format!("domain {}", quoted(domain)));
    if domain == RESERVED_DOMAIN {
        return Err(ResourceError::new(format!("the domain `{RESERVED_DOMAIN}` is reserved")));
    }
    let descriptors = descriptors(&found, left, 1).map_err(in_domain)?;
    let file = if name.is_empty() { domain } else { name };
    Ok(Domain { name: domain.to_owned(), file: file.to_owned(), descriptors })
}

/// Reads one level of a tree.
fn descriptors(found: &[&[u8]], left: &mut usize, depth: usize) -> Result<Vec<Descriptor>, ResourceError> {
    if depth > MAX_DEPTH {
        return Err(ResourceError::new(format!("descriptors are nested deeper than {MAX_DEPTH}")));
    }
    *left = left
        .checked_sub(found.len())
        .ok_or_else(|| ResourceError::new(format!("there are more than {MAX_DESCRIPTORS} descriptors")))?;
    let mut all = Vec::with_capacity(found.len());
    for message in found {
        all.push(descriptor(message, left, depth)?);
    }
    let mut seen = HashSet::with_capacity(all.len());
    if let Some(twice) =
        all.iter().find(|it: &&Descriptor| !seen.insert((it.key.value.as_str(), it.value.as_deref())))
    {
        return Err(ResourceError::new(format!(
            "{} is defined twice",
            shown(&twice.key.value, twice.value.as_deref())
        )));
    }
    Ok(all)
}

fn descriptor(message: &[u8], left: &mut usize, depth: usize) -> Result<Descriptor, ResourceError> {
    let (mut key, mut text, mut limit, mut data) = ("", "", None, None);
    let (mut below, mut flags) = (Vec::new(), [false; 3]);
    let mut fields = Reader::new(message);
    while let Some((number, value)) = fields.next_field()? {
        match number {
            1 => key = value.text()?,
            2 => text = value.text()?,
            3 => limit = Some(value.bytes()?),
            4 => below.push(value.bytes()?),
            5..=7 => flags[(number - 5) as usize] = is_set(value)?,
            8 => data = Some(metadata::read_struct(value.bytes()?, depth)?),
            _ => {}
        }
    }
    if key.is_empty() {
        return Err(ResourceError::new("a descriptor has an empty key"));
    }
    // An empty value is no value.
    let value = Some(text).filter(|text| !text.is_empty());
    let here = |error: ResourceError| error.at(shown(key, value));
    let rate_limit = limit.map(rate_limit).transpose().map_err(here)?;
    let descriptors = descriptors(&below, left, depth + 1).map_err(here)?;
    let [shadow_mode, detailed_metric, quota_mode] = flags;
    Ok(Descriptor {
        key: Located::new(key.to_owned(), Place::default()),
        value: value.map(str::to_owned),
        rate_limit,
        descriptors,
        shadow_mode,
        quota_mode,
        share_threshold: false,
        detailed_metric,
        value_to_metric: false,
        metadata: data,
    })
}

fn is_set(value: Value<'_>) -> Result<bool, WireError> {
    Ok(value.varint()? != 0)
}

fn shown(key: &str, value: Option<&str>) -> String {
    match value {
        Some(value) => format!("descriptor {} with value {}", quoted(key), quoted(value)),
        None => format!("descriptor {}", quoted(key)),
    }
}

/// Reads a `RateLimitPolicy`.
fn rate_limit(message: &[u8]) -> Result<RateLimit, ResourceError> {
    let (mut unit, mut per_unit, mut unlimited, mut name) = (0, 0, false, "");
    let mut replaces = Vec::new();
    let mut fields = Reader::new(message);
    while let Some((number, value)) = fields.next_field()? {
        match number {
            1 => unit = value.int32()?,
            2 => per_unit = value.uint32()?,
            3 => unlimited = is_set(value)?,
            4 => name = value.text()?,
            5 => replaces.push(replaced(value.bytes()?)?),
            _ => {}
        }
    }
    if replaces.contains(&"") {
        return Err(ResourceError::new("an entry of `replaces` has an empty name"));
    }
    if !name.is_empty() && replaces.contains(&name) {
        return Err(ResourceError::new(format!("the limit {} replaces itself", quoted(name))));
    }
    let allowed = match (unlimited, unit_of(unit)) {
        (true, Some(_)) => return Err(ResourceError::new("`unlimited` and `unit` cannot be combined")),
        (true, None) => Allowance::Unlimited,
        (false, Some(unit)) => Allowance::Requests { per_unit, unit },
        (false, None) => {
            return Err(ResourceError::new(format!(
                "the unit {unit} is unknown: it is SECOND, MINUTE, HOUR, DAY, WEEK, MONTH or YEAR"
            )));
        }
    };
    let replaces = replaces.into_iter().map(|name| Located::new(name.to_owned(), Place::default()));
    let name = Some(name.to_owned()).filter(|name| !name.is_empty());
    Ok(RateLimit { allowed, name, replaces: replaces.collect() })
}

fn replaced(message: &[u8]) -> Result<&str, WireError> {
    let mut name = "";
    let mut fields = Reader::new(message);
    while let Some((number, value)) = fields.next_field()? {
        if number == 1 {
            name = value.text()?;
        }
    }
    Ok(name)
}

/// Returns the unit with this number in `RateLimitUnit`.
const fn unit_of(number: i32) -> Option<Unit> {
    Some(match number {
        1 => Unit::Second,
        2 => Unit::Minute,
        3 => Unit::Hour,
        4 => Unit::Day,
        5 => Unit::Month,
        6 => Unit::Year,
        7 => Unit::Week,
        _ => return None,
    })
}
