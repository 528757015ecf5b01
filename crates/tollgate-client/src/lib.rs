#![doc = include_str!("../README.md")]
#![warn(missing_debug_implementations)]

pub mod bucket;
pub mod budget;
mod call;
mod client;
mod clock_offset;
mod error;
pub mod headers;
mod layer;
pub mod queue;
mod registry;
#[cfg(feature = "reqwest")]
mod reqwest_client;
#[cfg(feature = "shared")]
mod reservation_line;
pub mod retry;
mod scheduler;
mod settings;
#[cfg(feature = "shared")]
mod shared_budget;
mod span;

pub use call::CallOptions;
pub use client::{Answer, Call, Client, ClientBuilder};
pub use error::{Error, GaveUp, GaveUpCause};
pub use layer::{ClientFuture, ClientLayer, ClientService, RepeatableBody};
pub use queue::Priority;
pub use registry::BucketView;
pub use scheduler::Counts;
pub use settings::Settings;
#[cfg(feature = "shared")]
pub use shared_budget::SharedBudget;
