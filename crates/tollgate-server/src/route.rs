//! Maps paths and methods to routes.
//!
//! The paths are few, so a `match` on their segments suffices.

use http::Method;

use crate::access::Role;
use crate::auth::Family;
use crate::problem::Problem;

/// The route of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route<'p> {
    /// `/`
    Index,
    /// `/healthz`
    Health,
    /// `/health`, the path that throttlecrab's clients use
    Alive,
    /// `/readyz`
    Ready,
    /// `/metrics`
    Metrics,
    /// `/openapi.json`
    OpenApi,
    /// `/v1/check`
    Check,
    /// `/v1/check/batch`
    Batch,
    /// `/v1/limits`
    Limits,
    /// `/v1/limits/{name}/…`
    Named(&'p str, Operation),
    /// `/v1/settle`
    Settle,
    /// `/v1/release`
    Release,
    /// `/v1/renew`
    Renew,
    /// `/v1/auth`, `/v1/auth/original`, `/v1/auth/forwarded/403`
    Auth(Option<AuthPath<'p>>),
    /// `/page/{name}`
    Page(&'p str),
    /// `/book/{name}`, `/book/`
    Book(&'p str),
    /// `/v1/overview`
    Overview,
    /// `/v1/fleet`
    Fleet,
    /// `/v1/quotas`
    Quotas,
    /// `/v1/quotas/bucket`
    QuotaBucket,
    /// `/v1/stats`
    Stats,
    /// `/v1/top`
    Top,
    /// `/v1/decisions`
    Decisions,
    /// `/v1/history`
    History,
    /// `/v1/decisions/{id}`
    Decision(&'p str),
    /// `/v1/explain`
    Explain,
    /// `/v1/policy`
    Policy,
    /// `/v1/mode`
    Mode,
    /// `/v1/limits/{name}/mode`
    LimitMode(&'p str),
    /// `/v1/changes`
    Changes,
    /// `/throttle`
    Throttle,
    /// `/json`
    Json,
    /// `/v1/lab/simulate`
    Lab,
    /// `/v1/lab/overload`
    LabOverload,
}

/// The settings of a proxy in the path of forward auth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AuthPath<'p> {
    /// The headers that name the original request.
    pub(crate) family: Family,
    /// The status of refusals, unparsed.
    pub(crate) status: Option<&'p str>,
}

/// An operation on one key of one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Decides and charges.
    Check,
    /// Reads the state.
    Peek,
    /// Grants units to the key.
    Grant,
    /// Deletes the state of the key.
    Reset,
    /// Returns charged units.
    Refund,
}

/// The methods that forward auth accepts.
const AUTH_METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS, TRACE";

impl<'p> Route<'p> {
    pub(crate) fn of(path: &'p str) -> Option<Self> {
        Some(match path {
            "/v1/check" => Self::Check,
            "/v1/auth" => Self::Auth(None),
            "/v1/auth/original" => Self::Auth(Some(AuthPath { family: Family::Original, status: None })),
            "/v1/auth/forwarded" => Self::Auth(Some(AuthPath { family: Family::Forwarded, status: None })),
            "/throttle" => Self::Throttle,
            "/json" => Self::Json,
            "/v1/check/batch" => Self::Batch,
            "/v1/settle" => Self::Settle,
            "/v1/release" => Self::Release,
            "/v1/renew" => Self::Renew,
            "/v1/limits" => Self::Limits,
            "/" => Self::Index,
            "/healthz" => Self::Health,
            "/health" => Self::Alive,
            "/readyz" => Self::Ready,
            "/metrics" => Self::Metrics,
            "/openapi.json" => Self::OpenApi,
            "/v1/overview" => Self::Overview,
            "/v1/fleet" => Self::Fleet,
            "/v1/quotas" => Self::Quotas,
            "/v1/quotas/bucket" => Self::QuotaBucket,
            "/v1/stats" => Self::Stats,
            "/v1/top" => Self::Top,
            "/v1/decisions" => Self::Decisions,
            "/v1/history" => Self::History,
            "/v1/explain" => Self::Explain,
            "/v1/policy" => Self::Policy,
            "/v1/mode" => Self::Mode,
            "/v1/changes" => Self::Changes,
            "/v1/lab/simulate" => Self::Lab,
            "/v1/lab/overload" => Self::LabOverload,
            _ => return Self::with_name(path),
        })
    }

    fn with_name(path: &'p str) -> Option<Self> {
        let one = |name: &&str| !name.is_empty() && !name.contains('/');
        if let Some(name) = path.strip_prefix("/page/").filter(one) {
            return Some(Self::Page(name));
        }
        if let Some(name) = path.strip_prefix("/book/").filter(|name| !name.contains('/')) {
            return Some(Self::Book(name));
        }
        if let Some(id) = path.strip_prefix("/v1/decisions/").filter(one) {
            return Some(Self::Decision(id));
        }
        if let Some((family, status)) = path.strip_prefix("/v1/auth/").and_then(|rest| rest.split_once('/')) {
            let status = Some(status).filter(one)?;
            return Some(Self::Auth(Some(AuthPath { family: Family::of(family)?, status: Some(status) })));
        }
        let (name, operation) = path.strip_prefix("/v1/limits/")?.split_once('/')?;
        Some(if operation == "mode" {
            Self::LimitMode(name)
        } else {
            Self::Named(name, Operation::of(operation)?)
        })
    }

    /// Returns the role that a request needs. Reads need the reader role, whatever their method;
    /// forward auth needs admin, because it charges.
    pub(crate) fn needs(&self, method: &Method) -> Role {
        match self {
            Self::Named(_, Operation::Peek)
            | Self::Index
            | Self::Page(_)
            | Self::Book(_)
            | Self::Health
            | Self::Alive
            | Self::Ready
            | Self::Metrics
            | Self::OpenApi
            | Self::Limits
            | Self::Overview
            | Self::Fleet
            | Self::Quotas
            | Self::QuotaBucket
            | Self::Stats
            | Self::Top
            | Self::Decisions
            | Self::History
            | Self::Decision(_)
            | Self::Explain
            | Self::Policy
            | Self::Changes
            | Self::Lab
            | Self::LabOverload => Role::Reader,
            Self::Mode | Self::LimitMode(_) if *method != Method::PUT => Role::Reader,
            Self::Mode
            | Self::LimitMode(_)
            | Self::Named(..)
            | Self::Check
            | Self::Batch
            | Self::Settle
            | Self::Release
            | Self::Renew
            | Self::Throttle
            | Self::Json
            | Self::Auth(_) => Role::Admin,
        }
    }

    /// Checks whether the route accepts a method.
    pub(crate) fn admit(self, method: &Method) -> Result<(), Problem> {
        let allowed = match self {
            // A proxy that keeps its client's method may send any method, except `QUERY`, which
            // OpenAPI 3.1 cannot describe.
            Self::Auth(_) if method.as_str() == "QUERY" => AUTH_METHODS,
            Self::Auth(_) => return Ok(()),
            Self::Check
            | Self::Batch
            | Self::Named(..)
            | Self::Settle
            | Self::Release
            | Self::Renew
            | Self::Throttle
            | Self::Json
            | Self::Explain
            | Self::Lab
            | Self::LabOverload => "POST",
            Self::Mode => "GET, HEAD, PUT",
            Self::LimitMode(_) => "PUT",
            _ => "GET, HEAD",
        };
        let fits = allowed.split(", ").any(|known| known == method.as_str());
        if fits { Ok(()) } else { Err(Problem::wrong_method(allowed)) }
    }
}

impl Operation {
    fn of(word: &str) -> Option<Self> {
        Some(match word {
            "check" => Self::Check,
            "peek" => Self::Peek,
            "grant" => Self::Grant,
            "reset" => Self::Reset,
            "refund" => Self::Refund,
            _ => return None,
        })
    }
}
