//! Counters, recent decision records and explanations for a rate limiter, in bounded memory.
//!
//! A [`Watcher`] is an observer of a limiter. It adds some tens of nanoseconds to an admitted request, and some hundreds to a
//! refused one.
//! Metrics endpoints, dashboards and logs read its counters and records.
//!
//! ```
//! use tollgate::{Call, Limiter};
//! use tollgate_telemetry::{WatchSettings, Watcher};
//!
//! let watcher = Watcher::new(&WatchSettings::default());
//! let limiter = Limiter::from_policy("limits: [{name: api, by: ip, bucket: 1/minute}]")?
//!     .with_observer(watcher.clone());
//! let call = Call::new("GET", "/").ip([203, 0, 113, 9]);
//! limiter.check(&call);
//! let refused = limiter.check(&call);
//! let record = watcher.record(limiter.id_of(&refused)).expect("refusals are remembered");
//! assert_eq!((&*record.path, record.allowed), ("/", false));
//! # Ok::<(), tollgate::PolicyError>(())
//! ```
//!
//! - [`Watcher`]: the observer, and the entry point of every query.
//! - [`Record`]: one decision, with the data that explains it.
//! - [`Counts`], [`Series`]: counts of decisions in total and per second.
//! - [`TopKey`], [`HotRoute`]: the keys refused most and the routes requested most, from a sketch of
//!   fixed size.
//! - [`ExhaustedKey`]: keys that have had nothing left for minutes.
//! - [`Sketch`], [`PathRedactor`], [`show_address`]: counting and redaction for other crates that
//!   report keys (`tollgate-sim`).
//!
//! Rendering as JSON or HTML is in `tollgate-server`; timers and files are in the binary.
//!
//! Invariant: the settings and the number of limits bound the memory; traffic does not.
//! `tests/bounded.rs` checks this.

mod address;
mod class_counter;
mod counting;
mod counts;
mod describe;
mod exhausted;
mod explanation;
mod exposition;
mod histogram;
mod history;
mod key_cache;
mod key_hash;
mod latency;
mod latency_sampler;
mod limit_counter;
mod metrics;
mod observation;
mod packed_record;
mod pending_spends;
mod policies;
mod policy_watch;
mod queue_counter;
mod record;
mod record_store;
mod redact;
mod reservations;
mod ring;
mod sampler;
mod samples;
mod series;
mod settings;
mod shed_alerts;
mod sketch;
mod spenders;
mod stripes;
mod text;
mod top;
mod traceparent;
mod watcher;
mod window;
mod windowed_topk;

/// The tests count allocations.
#[cfg(test)]
#[global_allocator]
static ALLOCATOR: tollgate_testkit::CountingAllocator = tollgate_testkit::CountingAllocator;

pub use address::show_address;
pub use class_counter::ClassCounts;
pub use counts::{Counts, MAX_NAMED_LIMITS};
pub use describe::{blocked, reason};
pub use exhausted::ExhaustedKey;
pub use exposition::{Exposition, Family, MetricKind};
pub use history::{LimitSeries, LimitWindow};
pub use latency::LatencyHistogram;
pub use limit_counter::LimitCounts;
pub use queue_counter::QueueView;
pub use record::{LimitRecord, Record, RecordFate, RecordHead, ShadowBlock};
pub use record_store::RecordPage;
pub use redact::PathRedactor;
pub use ring::RetentionCounts;
pub use series::{Series, WindowCounts};
pub use settings::WatchSettings;
pub use sketch::{Entry as SketchEntry, Sketch};
pub use spenders::Spender;
pub use top::{HotRoute, TopKey, TopList};
pub use traceparent::TraceParent;
pub use watcher::Watcher;
