//! What was decided: counted, remembered and explained, in memory that does not grow.
//!
//! A [`Watcher`] is an observer of a limiter. What it is told costs a request some
//! hundreds of nanoseconds; what it knows is read by whoever asks: metrics, a page, a log.
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
//! - [`Watcher`]: the way of a decision through all of it.
//! - [`Record`]: one decision, as it can be explained afterwards.
//! - [`counts`](Counts), [`series`](Series): how many, and when.
//! - [`TopKey`], [`HotRoute`]: who and where, from a sketch of fixed size.
//! - [`ExhaustedKey`]: keys that have nothing left for minutes.
//! - [`Sketch`], [`PathRedactor`], [`show_address`]: counting and showing, for others who tell of keys (`tollgate-sim`).
//!
//! Not here: wording it as JSON or pages (`tollgate-server`), timers and files (the binary).
//!
//! Invariant: memory is fixed by the settings and the number of limits, whatever
//! requests come. Held by `tests/bounded.rs`.

#[cfg(test)]
mod allocations;
mod counting;
mod counts;
mod describe;
mod exhausted;
mod explanation;
mod exposition;
mod histogram;
mod history;
mod limit_counter;
mod metrics;
mod policy_watch;
mod record;
mod redact;
mod reservations;
mod ring;
mod sampler;
mod samples;
mod series;
mod settings;
mod sketch;
mod spenders;
mod stripes;
mod top;
mod traceparent;
mod watcher;
mod window;
mod windowed_topk;

pub use counts::{Counts, MAX_NAMED_LIMITS};
pub use describe::{blocked, reason, show_address};
pub use exhausted::ExhaustedKey;
pub use exposition::{Exposition, MetricKind};
pub use history::{LimitSeries, LimitWindow};
pub use limit_counter::LimitCounts;
pub use record::{LimitRecord, Record, RecordFate, ShadowBlock};
pub use redact::PathRedactor;
pub use ring::RetentionCounts;
pub use series::{Series, WindowCounts};
pub use settings::WatchSettings;
pub use sketch::{Entry as SketchEntry, Sketch};
pub use spenders::Spender;
pub use top::{HotRoute, TopKey, TopList};
pub use traceparent::TraceParent;
pub use watcher::Watcher;
