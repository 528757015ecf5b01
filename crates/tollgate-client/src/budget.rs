//! A budget that several processes share.
//!
//! Units are reserved before an attempt is sent and settled by its response: a refused attempt gives its units back.
//! The feature `shared` has the implementation on a [`tollgate::Limiter`], with a policy and any store.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use http::{HeaderMap, StatusCode};

use crate::call::host_of;
use crate::client::Call;
use crate::error::GaveUpCause;

/// The future of a reservation.
pub type ReserveFuture<'b> =
    Pin<Box<dyn Future<Output = Result<Box<dyn Reservation>, GaveUpCause>> + Send + 'b>>;

/// A budget that several processes share.
pub trait Budget: Send + Sync + 'static {
    /// Reserves units for one attempt, and waits for them for at most `max_wait`.
    fn reserve<'b>(&'b self, request: &'b BudgetRequest, max_wait: Duration) -> ReserveFuture<'b>;
}

/// Reserved units. Dropping them without a response keeps them charged, because the server may have counted the call.
pub trait Reservation: Send + 'static {
    /// Settles the units by the head of the response.
    fn settle(self: Box<Self>, status: StatusCode, headers: &HeaderMap, is_refusal: bool);

    /// Gives the units back, because nothing was sent.
    fn cancel(self: Box<Self>);
}

/// The head of a call for which units are reserved.
#[derive(Clone, Debug)]
pub struct BudgetRequest {
    /// The method.
    pub method: String,
    /// The host of the server.
    pub host: String,
    /// The path and the query.
    pub path: String,
    /// The headers.
    pub headers: HeaderMap,
    /// The cost in tokens, if it is known.
    pub cost: Option<u64>,
}

impl BudgetRequest {
    pub(crate) fn new(call: &Call<'_>) -> Self {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // made from an integer
        let cost = call.options.cost.map(|cost| cost as u64);
        Self {
            method: call.method.as_str().to_owned(),
            host: host_of((call.uri, call.headers)),
            path: call.uri.path_and_query().map_or("/", |it| it.as_str()).to_owned(),
            headers: call.headers.clone(),
            cost,
        }
    }
}
