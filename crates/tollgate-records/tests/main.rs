//! Tests of the decision log on real files.

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
