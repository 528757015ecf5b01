//! Policies in virtual time: what they would have done to yesterday's traffic, and what they would do to traffic of a given shape.
//!
//! - [`log`] reads access logs: [`Entry`] by [`Entry`], in the order of their times.
//! - [`replay`] puts them to one or several policies and reports who was refused, when, and by how much other numbers would differ.
//! - [`traffic`] makes requests of a shape; [`simulate`] puts those, or a log, to algorithms side by side.
//! - [`distance`] says how far a limit is from an exact log of the same numbers.
//! - [`plot`] draws: SVG, PNG, terminal. [`page`] makes one HTML file of a replay.
//!
//! Everything is decided by the limiter that serves, on the store in memory, whose clock stands where the log says.
//!
//! Not here: files, sockets, clocks, arguments (`tollgate-cli`): this crate is handed readers and hands back reports.

pub mod distance;
mod entry;
mod epoch;
pub mod log;
pub mod page;
pub mod plot;
pub mod replay;
mod sample;
mod sanitize;
pub mod simulate;
pub mod traffic;

pub use entry::Entry;
