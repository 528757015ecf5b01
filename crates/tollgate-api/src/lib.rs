//! The JSON shapes of Tollgate's HTTP API, stated once.
//!
//! The server serializes these types, its `OpenAPI` document is generated from them, and the commands
//! of `tollgate` deserialize them. A client in Rust can use them, too:
//!
//! ```
//! use tollgate_api::Decision;
//!
//! let json = r#"{"allowed":false,"limit":"login","retry_after_ms":1500,"degraded":false,"soft":[],"limits":[]}"#;
//! let decision: Decision = serde_json::from_str(json)?;
//! assert!(!decision.allowed);
//! assert_eq!((decision.limit.as_deref(), decision.retry_after_ms), (Some("login"), Some(1500)));
//! # Ok::<(), serde_json::Error>(())
//! ```
//!
//! Texts have a type parameter, so that a server can borrow them and a client can sanitize them while it
//! reads. A reader ignores members that it does not know, so that it understands later servers. The
//! shapes that operators read also accept absent members, which are empty, so that a client understands
//! earlier servers.
//!
//! Not here: the meaning of the values (`tollgate`), the parameters of a simulation
//! (`tollgate-server`) and its results (`tollgate-sim`).

mod decision;
mod explanation;
mod fleet;
mod health;
mod history;
mod learned_limit;
mod lease;
mod mode;
mod overview;
mod policy;
mod problem;
mod quotas;
mod request;
mod schema;
mod shed;
mod stats;
mod words;

pub use decision::{BatchDecision, Decision, LimitOutcome, Released, Renewed, Settled, Throttled};
pub use explanation::{
    DecisionLine, Decisions, ExplainedLimit, ExplainedRequest, Explanation, MAX_DECISIONS, Spender,
};
pub use fleet::{
    FLEET_LATELY_SECONDS, Fleet, FleetNode, FleetTotals, MAX_FLEET_LEASES, MAX_FLEET_NODES, NodeCounts,
    NodeLease, NodeLeases,
};
pub use health::{Readiness, StoreHealth};
pub use history::{History, MAX_HISTORY_STEPS};
pub use learned_limit::{ExceededBy, LearnedLimit, MAX_LEARNED_LIMITS};
pub use lease::{HeldLease, LeasedLimit, Leases, MAX_HELD_LEASES, MAX_LEASED_LIMITS};
pub use mode::{Change, Changes, LimitSwitch, MAX_CHANGES, Modes, Switched, SwitchedLimit};
pub use overview::{
    Alert, Latency, LimitQueue, MAX_OUTAGES, MAX_QUEUES, Outage, Overview, PolicyInForce, RecordLog,
    RefusalLog, Series, StoreInFull, Tarpit, Totals, Window,
};
pub use policy::{
    ClientSettings, HeaderSettings, IdentifySettings, Limit, Limits, PlanQuotas, Policy, RegionShare,
    SlotQueue, Soft,
};
pub use problem::{Problem, Refusal};
pub use quotas::{ExplainedBucket, MAX_QUOTA_BUCKETS, Quota, QuotaBucket, QuotaStream, Quotas};
pub use request::{
    BatchRequest, CheckRequest, KeyRequest, MAX_BATCH_REQUESTS, MAX_METHOD_BYTES, MAX_NAME_CHARS,
    MAX_REASON_CHARS, MAX_UNITS, OneOrMany, Pairs, ReleaseRequest, RenewRequest, ResetRequest, SettleRequest,
    SwitchRequest, ThrottleRequest,
};
pub use schema::{add_request, add_response, schemas};
pub use shed::{
    ExplainedShed, FleetClass, FleetShedder, LoadSignal, NodeShedder, ShedClass, ShedderModes, Shedders,
    ThrottleShedder, ThrottledUpstream,
};
pub use stats::{Agreement, HotRoute, LimitSeries, LimitStats, LimitTotals, Stats, Top, TopKey};
