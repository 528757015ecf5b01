//! The algorithms against their definitions.
//!
//! `agreement` holds each one to a slow exact model (`tests/model`), answer by
//! answer. The other rooms hold them to what their docs promise, without asking
//! a model what the answer should be: a mistake would have to be made twice.
//!
//! Random, and the same every time: the seed is fixed, printed when something
//! fails, and taken from `TOLLGATE_SEED` when that is set.

mod advertised;
mod agreement;
mod bounds;
mod calendars;
mod clocks;
mod damage;
mod drift;
mod evicted;
mod giving_back;
#[path = "../model/mod.rs"]
mod model;
mod parts;
mod promises;
mod quotas;
mod seed;
mod sharing;
mod slots;
mod strict;
mod ticks;
mod trace;
