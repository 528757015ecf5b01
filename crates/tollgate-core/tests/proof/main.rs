//! The algorithms against their definitions.
//!
//! `agreement` compares each algorithm with a slow exact model (`tests/model`), answer by answer.
//! The other modules check the documented guarantees without a model, so that an error would have
//! to be made twice.
//!
//! Inputs are random and reproducible: the seed is fixed, printed on failure, and taken from
//! `TOLLGATE_SEED` if that is set.

mod adjustments;
mod advertised;
mod agreement;
mod bounds;
mod calendars;
mod clocks;
mod drift;
mod eviction_bounds;
mod leases;
#[path = "../model/mod.rs"]
mod model;
mod parts;
mod predictions;
mod queue;
mod quotas;
mod robustness;
mod seed;
mod sharing;
mod slots;
mod strict;
mod ticks;
mod trace;
