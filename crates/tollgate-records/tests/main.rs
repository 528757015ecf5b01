//! Tests of the decision log on real files.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]
#![allow(clippy::disallowed_methods, reason = "some tests wait for other processes")]

mod bounds;
mod clock;
mod concurrency;
mod damage;
mod folder;
mod full_disk;
mod killed;
mod lookup;
mod search;
mod support;
