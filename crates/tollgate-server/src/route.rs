//! Which path is what, and by which methods.
//!
//! By hand: the paths are few, and a `match` on their pieces costs nothing.

use http::Method;

use crate::problem::Problem;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route<'p> {
    /// `/`
    Index,
    /// `/healthz`
    Health,
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
    /// `/v1/auth`
    Auth,
}

/// What is done to one key of one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Decides, and charges.
    Check,
    /// Only looks.
    Peek,
    /// Lets the key spend more.
    Grant,
    /// Forgets the key.
    Reset,
    /// Gives back what was charged.
    Refund,
}

/// What forward auth is asked by.
const EVERY_OTHER: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS, TRACE";

impl<'p> Route<'p> {
    pub(crate) fn of(path: &'p str) -> Option<Self> {
        Some(match path {
            "/v1/check" => Self::Check,
            "/v1/auth" => Self::Auth,
            "/v1/check/batch" => Self::Batch,
            "/v1/settle" => Self::Settle,
            "/v1/release" => Self::Release,
            "/v1/limits" => Self::Limits,
            "/" => Self::Index,
            "/healthz" => Self::Health,
            "/readyz" => Self::Ready,
            "/metrics" => Self::Metrics,
            "/openapi.json" => Self::OpenApi,
            _ => {
                let (name, operation) = path.strip_prefix("/v1/limits/")?.split_once('/')?;
                Self::Named(name, Operation::of(operation)?)
            }
        })
    }

    /// Whether the route answers to a method.
    pub(crate) fn admit(self, method: &Method) -> Result<(), Problem> {
        let allowed = match self {
            // A proxy that keeps its client's method may send any, but for the one that
            // OpenAPI 3.1 cannot describe: a description that leaves out what is answered lies.
            Self::Auth if method.as_str() == "QUERY" => EVERY_OTHER,
            Self::Auth => return Ok(()),
            Self::Check | Self::Batch | Self::Named(..) | Self::Settle | Self::Release => "POST",
            Self::Index | Self::Health | Self::Ready | Self::Metrics | Self::OpenApi | Self::Limits => {
                "GET, HEAD"
            }
        };
        let fits = match *method {
            Method::POST => allowed == "POST",
            Method::GET | Method::HEAD => allowed == "GET, HEAD",
            _ => false,
        };
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
