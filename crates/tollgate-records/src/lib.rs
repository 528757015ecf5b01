//! The decision log: records of decisions on disk, found by id, time, key and limit.
//!
//! A record in memory is evicted after minutes of refusals. This log keeps records for days, within a
//! bound of disk space, and over restarts and crashes.
//!
//! ```text
//! records ─► queue ─► thread ─► segment 7 (being written) ─ full or old ─► sealed, with an index
//!                                segment 6 + index
//!                                segment 5 + index  ◄─ lookup by id: one page of each index
//!                                segment 4 + index  ◄─ deleted as a whole, when too old or over the bound
//! ```
//!
//! - [`RecordLog`]: the handle that reads. Clones share their state.
//! - [`RecordWriter`]: the bounded queue to the thread that writes. Appending never waits.
//! - [`RecordQuery`], [`RecordPage`]: a search by time, limit and key, in pages.
//! - [`History`], [`MinuteCounts`]: counts of decisions per minute.
//!
//! | file | content |
//! |---|---|
//! | `0000000000000007.log` | a segment: frames, each with its length and checksum (`frame`, `codec`) |
//! | `0000000000000006.idx` | the index of a sealed segment (`index`) |
//! | `history` | counts per minute (`history`) |
//! | `lock` | held by the process that writes |
//!
//! Records arrive redacted: keys and addresses are stored as the policy's `privacy` shows them. This
//! crate never sees others. Explanations in words are in `tollgate-telemetry`, JSON is in
//! `tollgate-server`.
//!
//! Invariants: the files never exceed the configured size (`tests/bounds.rs`); a killed process loses
//! at most the last second (`tests/killed.rs`); no content of a file causes a panic (`tests/damage.rs`).

mod catalog;
mod codec;
mod error;
mod frame;
mod history;
mod index;
mod log;
mod query;
mod segment;
mod settings;
mod status;
mod writer;

pub use error::RecordLogError;
pub use history::{History, MinuteCounts};
pub use log::RecordLog;
pub use query::{Cursor, ParseCursorError, RecordPage, RecordQuery};
pub use settings::RecordLogSettings;
pub use status::RecordLogStatus;
pub use writer::RecordWriter;
