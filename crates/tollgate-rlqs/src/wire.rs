//! The messages of `envoy.service.rate_limit_quota.v3`, with the fields that are used.
//!
//! Envoy departs from the documentation of its messages in several ways, so only forms are written
//! that it applies as meant: whole seconds of at least one, `tokens_per_fill` always, never
//! `RequestsPerTimeUnit`, and `DENY_ALL` instead of an empty token bucket.
//!
//! Invariant: no input causes a panic. Tested by `tests/calls.rs`.

use std::fmt;

use bytes::Bytes;
use tollgate::Span;
use tollgate_grpc::call::framed;
use tollgate_grpc::wire::{Reader, WireError, Write as _, put_always};

/// The maximum number of entries of a bucket id.
pub const MAX_ID_ENTRIES: usize = 16;
/// The maximum length of the keys and values of a bucket id together, in bytes.
pub const MAX_ID_BYTES: usize = 1_024;
/// The maximum length of a domain, in bytes.
pub const MAX_DOMAIN_BYTES: usize = 256;
/// The maximum of a reported count, far above any count: sums of it stay exact.
const MAX_COUNT: u64 = 1 << 40;

/// The entries of a bucket, ordered by key. No key appears twice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BucketId(Box<[(Box<str>, Box<str>)]>);

impl BucketId {
    /// Creates an id. The last of several entries with one key counts, as in a protobuf map.
    pub fn new<'e>(entries: impl IntoIterator<Item = (&'e str, &'e str)>) -> Self {
        let mut entries: Vec<(Box<str>, Box<str>)> =
            entries.into_iter().map(|(key, value)| (key.into(), value.into())).collect();
        // Stable, so the last entry of a key is the last of its run.
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        entries.reverse();
        entries.dedup_by(|later, kept| later.0 == kept.0);
        entries.reverse();
        Self(entries.into())
    }

    /// Returns the entries, ordered by key.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (&**key, &**value))
    }

    /// Whether the id has no entries, as buckets without a `bucket_id_builder` have.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the id is within the bounds of its length.
    pub fn is_bounded(&self) -> bool {
        let bytes: usize = self.0.iter().map(|(key, value)| key.len() + value.len()).sum();
        self.0.len() <= MAX_ID_ENTRIES && bytes <= MAX_ID_BYTES
    }

    /// Returns the id as canonical bytes: equal bytes are the same id.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for part in self.0.iter().flat_map(|(key, value)| [key, value]) {
            bytes.extend(u32::try_from(part.len()).unwrap_or(u32::MAX).to_be_bytes());
            bytes.extend(part.as_bytes());
        }
        bytes
    }
}

impl fmt::Display for BucketId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (key, value)) in self.entries().enumerate() {
            if at > 0 {
                f.write_str(", ")?;
            }
            write!(f, "{key}={value}")?;
        }
        Ok(())
    }
}

/// The use of one bucket since the last report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketUsage {
    /// The bucket.
    pub id: BucketId,
    /// The time since the last report, cut to whole seconds by Envoy; zero in a first report.
    pub elapsed: Span,
    /// The requests that the proxy admitted.
    pub allowed: u64,
    /// The requests that the proxy denied.
    pub denied: u64,
}

/// A message of a proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageReports {
    /// The domain; the documentation has it in the first message only, Envoy in every message.
    pub domain: String,
    /// The buckets.
    pub usages: Vec<BucketUsage>,
}

impl UsageReports {
    /// Reads a `RateLimitQuotaUsageReports`.
    pub fn read(message: &[u8]) -> Result<Self, WireError> {
        let (mut fields, mut reports) = (Reader::new(message), Self::default());
        while let Some((number, value)) = fields.next_field()? {
            match number {
                1 => value.text()?.clone_into(&mut reports.domain),
                2 => reports.usages.push(read_usage(value.bytes()?)?),
                _ => {}
            }
        }
        Ok(reports)
    }
}

fn read_usage(message: &[u8]) -> Result<BucketUsage, WireError> {
    let mut usage = BucketUsage { id: BucketId::default(), elapsed: Span::ZERO, allowed: 0, denied: 0 };
    let mut fields = Reader::new(message);
    while let Some((number, value)) = fields.next_field()? {
        match number {
            1 => usage.id = read_id(value.bytes()?)?,
            2 => usage.elapsed = read_duration(value.bytes()?)?,
            3 => usage.allowed = value.varint()?.min(MAX_COUNT),
            4 => usage.denied = value.varint()?.min(MAX_COUNT),
            _ => {}
        }
    }
    Ok(usage)
}

fn read_id(message: &[u8]) -> Result<BucketId, WireError> {
    let (mut fields, mut entries) = (Reader::new(message), Vec::new());
    while let Some((number, value)) = fields.next_field()? {
        if number == 1 {
            let (mut entry, mut pair) = (Reader::new(value.bytes()?), ("", ""));
            while let Some((number, value)) = entry.next_field()? {
                match number {
                    1 => pair.0 = value.text()?,
                    2 => pair.1 = value.text()?,
                    _ => {}
                }
            }
            entries.push(pair);
        }
    }
    Ok(BucketId::new(entries))
}

/// Reads a `Duration`. A negative one counts as zero.
fn read_duration(message: &[u8]) -> Result<Span, WireError> {
    let (mut fields, mut seconds, mut nanos) = (Reader::new(message), 0, 0);
    while let Some((number, value)) = fields.next_field()? {
        match number {
            1 => seconds = value.varint()?.cast_signed(),
            2 => nanos = value.int32()?,
            _ => {}
        }
    }
    let (Ok(seconds @ 0..=MAX_ELAPSED_SECONDS), Ok(nanos)) = (u64::try_from(seconds), u64::try_from(nanos))
    else {
        return Ok(Span::ZERO);
    };
    Ok(Span::from_micros(seconds * 1_000_000 + nanos / 1_000))
}

/// The longest time between two reports that is believed, in seconds.
const MAX_ELAPSED_SECONDS: u64 = 1 << 30;

/// How a proxy limits the requests of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// All requests pass.
    AllowAll,
    /// No request passes.
    DenyAll,
    /// Requests pass as a token bucket permits.
    TokenBucket(TokenBucket),
}

/// A token bucket that Envoy applies as meant: it fills continuously, with
/// `tokens_per_fill / fill_seconds` tokens per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    /// The capacity, at least one.
    pub max_tokens: u32,
    /// The tokens per fill interval, at least one.
    pub tokens_per_fill: u32,
    /// The fill interval in whole seconds, at least one.
    pub fill_seconds: u64,
    /// Cut from the rate, but compared: Envoy does not notice a change of the seconds alone.
    pub fill_nanos: u32,
}

/// The instruction for one bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Apply a strategy for this many seconds.
    Assign {
        /// The strategy.
        strategy: Strategy,
        /// The time to live in whole seconds, at least one.
        ttl_seconds: u64,
    },
    /// Forget the bucket.
    Abandon,
}

/// Encodes a `RateLimitQuotaResponse` with its gRPC prefix.
pub fn response<'a>(actions: impl IntoIterator<Item = (&'a BucketId, Action)>) -> Bytes {
    framed(|out| {
        for (id, action) in actions {
            out.put_message(1, |out| {
                out.put_message(1, |out| put_id(out, id));
                match action {
                    Action::Assign { strategy, ttl_seconds } => out.put_message(2, |out| {
                        out.put_message(2, |out| out.put_uint(1, ttl_seconds));
                        out.put_message(3, |out| put_strategy(out, strategy));
                    }),
                    Action::Abandon => out.put_message(3, |_| {}),
                }
            });
        }
    })
}

fn put_id(out: &mut Vec<u8>, id: &BucketId) {
    for (key, value) in id.entries() {
        out.put_message(1, |out| {
            out.put_bytes(1, key.as_bytes());
            out.put_bytes(2, value.as_bytes());
        });
    }
}

fn put_strategy(out: &mut Vec<u8>, strategy: Strategy) {
    match strategy {
        Strategy::AllowAll => put_always(out, 1, 0),
        Strategy::DenyAll => put_always(out, 1, 1),
        Strategy::TokenBucket(bucket) => out.put_message(3, |out| {
            out.put_uint(1, u64::from(bucket.max_tokens));
            out.put_message(2, |out| out.put_uint(1, u64::from(bucket.tokens_per_fill)));
            out.put_message(3, |out| {
                out.put_uint(1, bucket.fill_seconds);
                out.put_uint(2, u64::from(bucket.fill_nanos));
            });
        }),
    }
}
