//! `POST /v1/lab/overload`: compares protections of a service against overload, in virtual time.
//!
//! The bounds are those of a simulation: the number of attempts is limited, and the work yields to other tasks.

use schemars::JsonSchema;
use serde::Deserialize;
use tollgate::{Span, Store};
use tollgate_sim::overload::{MAX_LOAD, MAX_WORKERS, OverloadRun, Protection, Scenario, Shape};

use super::{EVENTS_PER_SLICE, MAX_TEXT_BYTES, let_others, one_of, or_null, time};
use crate::api::Inner;
use crate::body::read;
use crate::problem::Problem;
use crate::reply::{Reply, json_of};

/// The maximum number of attempts, summed over all protections: about a second of work.
const MAX_ATTEMPTS: u64 = 250_000;
/// The defaults of the Lab, which are smaller than those of the command line.
const DEFAULT_WORKERS: u32 = 16;
const DEFAULT_SERVICE_TIME: Span = Span::from_millis(50);
const DEFAULT_DURATION: Span = Span::from_secs(36);

const FIELDS: &[&str] = &["overload", "protections", "workers", "service_time", "load", "duration", "seed"];

/// The parameters of an overload, all optional.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("examples" = [{"overload": "step", "protections": ["none", "adaptive-classes"]}]))]
pub(crate) struct OverloadRequest {
    /// The shape; `step` unless given.
    #[schemars(extend("enum" = or_null(Shape::ALL.map(Shape::word))))]
    overload: Option<String>,
    /// By default all.
    #[schemars(extend("minItems" = 1, "items" = {"enum": Protection::ALL.map(Protection::word)}))]
    protections: Option<Vec<String>>,
    /// The workers of the service; 16 by default.
    #[schemars(extend("minimum" = 1, "maximum" = MAX_WORKERS))]
    workers: Option<u32>,
    /// The mean time that a worker needs for a call, up to `500ms`; `50ms` by default.
    #[schemars(extend("maxLength" = MAX_TEXT_BYTES))]
    service_time: Option<String>,
    /// The offered work in the overload, as a multiple of the capacity; 4 by default.
    #[schemars(extend("minimum" = 1, "maximum" = MAX_LOAD))]
    load: Option<f64>,
    /// The length of the simulation, `10s` to `1h`; `36s` by default.
    #[schemars(extend("maxLength" = MAX_TEXT_BYTES))]
    duration: Option<String>,
    /// Other numbers, other chances.
    seed: Option<u64>,
}

impl<S: Store> Inner<S> {
    /// Runs a simulation that compares protections.
    pub(crate) async fn overload(&self, body: &[u8]) -> Result<Reply, Problem> {
        let scenario = read::<OverloadRequest>(body, FIELDS)?.scenario()?;
        let _permit = self.lab.enter().ok_or_else(Problem::lab_is_full)?;
        let mut run = OverloadRun::new(scenario).map_err(|error| Problem::senseless(error.to_string()))?;
        while run.step(EVENTS_PER_SLICE) {
            let_others().await;
        }
        Ok(json_of(&run.report()))
    }
}

impl OverloadRequest {
    fn scenario(&self) -> Result<Scenario, Problem> {
        let shapes = Shape::ALL.map(|it| (it.word(), it));
        let shape = one_of("overload", self.overload.as_deref(), Shape::Step, &shapes)?;
        let usual = Scenario::new(shape);
        let known = Protection::ALL.map(|it| (it.word(), it));
        let mut protections = Vec::new();
        for word in self.protections.iter().flatten() {
            let protection = one_of("protections", Some(word.as_str()), Protection::None, &known)?;
            if !protections.contains(&protection) {
                protections.push(protection);
            }
        }
        if self.protections.is_none() {
            protections = usual.protections;
        }
        Ok(Scenario {
            max_attempts: MAX_ATTEMPTS / protections.len().max(1) as u64,
            protections,
            workers: self.workers.unwrap_or(DEFAULT_WORKERS),
            service_time: time("service_time", self.service_time.as_deref(), DEFAULT_SERVICE_TIME)?,
            load: self.load.unwrap_or(usual.load),
            duration: time("duration", self.duration.as_deref(), DEFAULT_DURATION)?,
            seed: self.seed.unwrap_or(usual.seed),
            shape,
        })
    }
}
