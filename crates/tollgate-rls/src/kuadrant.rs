//! Kuadrant's rate limit service: `kuadrant.service.ratelimit.v1.RateLimitService`, as limitador-server serves it.
//!
//! - `CheckRateLimit` decides about one hit and charges nothing, whatever `hits_addend` says.
//! - `Report` charges hits that have been spent. It is never refused: a limit of the policy goes into debt, a
//!   counter of Envoy's files counts beyond its limit.
//! - `Reserve` charges an estimate to all limits or to none. `Commit` replaces it by the actual amount; without
//!   a reservation it is a `Report`. An estimate of zero only checks.
//!
//! As in Limitador, an empty domain is answered with the code `UNKNOWN`, descriptors without entries match no
//! limit, and limit overrides are ignored. Answers have no headers unless the settings say so. Unlike in
//! Limitador, they have the status of each descriptor, and an estimate is reserved in full.
//!
//! Not here: the receipts of reservations (`reservations`), decisions (`native`, `upstream`).

mod request;
mod reservations;

use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use http::{HeaderMap, Response};
use http_body::Body;
use tollgate::{Clock as _, Decision, Input, Limiter, Receipt, Store};
use tollgate_envoy::Domains;
use tollgate_grpc::GrpcBody;
use tollgate_grpc::call::{self as grpc, Refusal, framed, read_message};
use tollgate_grpc::wire::{Write as _, put_always};

use self::request::KuadrantCall;
pub(crate) use self::request::Method;
pub(crate) use self::reservations::Reservations;
use crate::counters::Surface;
use crate::decide::{EncodedResponse, Form};
use crate::held::{CallTimeout, GrpcTimeout, waiting_for_store};
use crate::native::{Ahead, Batch, Part};
use crate::request::{RateLimitRequest, read_lossy_utf8};
use crate::request_descriptor;
use crate::response::{Answer, OK, OVER_LIMIT};
use crate::response_headers::{self, Headers};
use crate::service::Inner;
use crate::upstream::{self, DescriptorOutcome, DescriptorOutcomes, ResolvedDescriptors};

impl<S: Store> Inner<S> {
    /// Answers a call.
    pub(crate) async fn answer_kuadrant<B: Body>(
        &self,
        method: Method,
        body: B,
        headers: &HeaderMap,
    ) -> Result<Response<GrpcBody>, Refusal> {
        let message = read_message(body).await?;
        let place = OnceLock::new();
        let call = read_lossy_utf8(&message, &place, |message| KuadrantCall::read(method, message))?;
        let limiter = self.in_force();
        let deciding = self.decide_kuadrant(&limiter, call, headers);
        let answered = waiting_for_store(&limiter, GrpcTimeout::of(headers), deciding).await?;
        self.counters().answered(Surface::Kuadrant, answered.over);
        Ok(grpc::response(GrpcBody::message(answered.bytes)))
    }

    async fn decide_kuadrant(
        &self,
        limiter: &Limiter<S>,
        mut call: KuadrantCall<'_>,
        headers: &HeaderMap,
    ) -> Result<EncodedResponse, Refusal> {
        let (method, domain) = (call.method, call.request.domain);
        if domain.is_empty() {
            return Ok(encoded(false, framed(|_| {})));
        }
        if method == Method::Reserve && self.reservations.is_full() {
            return Err(reservations::too_many());
        }
        // Taken after the descriptors are read: a commit that fails leaves its reservation as it is.
        let receipt = |call: &KuadrantCall<'_>| {
            if method == Method::Commit { self.reservations.take(call.reservation) } else { None }
        };
        if let Some(domains) = Domains::of(limiter.policy()).filter(|it| it.knows(domain)) {
            let met = upstream::resolve(limiter, domains, &call.request)?;
            let receipt = receipt(&call);
            return Ok(self.decide_by_files(limiter, &call, met, receipt).await);
        }
        self.count_policy_domain(limiter, domain);
        if domain == request_descriptor::DOMAIN {
            let batch = Batch::described(&call.request)?;
            let receipt = receipt(&call);
            return Ok(self.decide_by_policy(limiter, &call, batch, receipt, headers).await);
        }
        let batch = Batch::of(&mut call.request, false)?;
        let receipt = receipt(&call);
        Ok(self.decide_by_policy(limiter, &call, batch, receipt, headers).await)
    }

    /// Decides by the limits of the policy.
    async fn decide_by_policy<P: Part>(
        &self,
        limiter: &Limiter<S>,
        call: &KuadrantCall<'_>,
        batch: Batch<P>,
        receipt: Option<Receipt>,
        headers: &HeaderMap,
    ) -> EncodedResponse {
        let descriptors = call.request.descriptors.len();
        match call.method {
            Method::Check => {
                let decision = batch.decide(limiter).await;
                let mut answer = batch.answer(&decision, descriptors, &Ahead::new());
                response_headers::add(&mut answer, limiter, &decision, self.kuadrant_headers());
                Form::Framed.write(&answer)
            }
            Method::Report => {
                let charged = limiter.charge_in_full(&batch.parts).await;
                let mut answer = batch.answer(&charged, descriptors, &Ahead::new());
                never_over(&mut answer);
                Form::Framed.write(&answer)
            }
            Method::Reserve if call.amount == 0 => {
                let decision = batch.decide(limiter).await;
                self.reserved(limiter, &decision, call)
            }
            Method::Reserve => {
                let started_at = self.clock.now();
                let mut decision = limiter.reserve(&batch.parts).await;
                let spent = self.clock.now().since(started_at).into();
                let first = batch.parts.first().map(|it| it as &(dyn Input + Sync));
                let timeout = CallTimeout::Grpc(GrpcTimeout::of(headers));
                let hold = self.held.hold(limiter, (first, &mut decision), timeout, spent).await;
                if let Some(hold) = hold
                    && hold.await.is_err()
                {
                    // The server stops before the request may start.
                    decision.refuse_wait(Duration::ZERO);
                }
                self.reserved(limiter, &decision, call)
            }
            Method::Commit => {
                let is_known = receipt.is_some();
                match receipt {
                    Some(receipt) => settle(limiter, &receipt, call.amount).await,
                    None if call.amount > 0 => drop(limiter.charge_in_full(&batch.parts).await),
                    None => {}
                }
                committed(is_known)
            }
        }
    }

    /// Decides by the limits of Envoy's files.
    async fn decide_by_files(
        &self,
        limiter: &Limiter<S>,
        call: &KuadrantCall<'_>,
        met: ResolvedDescriptors<'_>,
        receipt: Option<Receipt>,
    ) -> EncodedResponse {
        let request = &call.request;
        match call.method {
            Method::Check => Form::Framed.write(&self.look_at_files(limiter, request, &met).await),
            Method::Report => {
                let mut outcomes = self.charge_files(limiter, request, &met).await;
                let mut answer = upstream::answer(request, &met, &mut outcomes);
                never_over(&mut answer);
                Form::Framed.write(&answer)
            }
            Method::Reserve => {
                if call.amount == 0 || met.iter().any(upstream::ResolvedDescriptor::is_quota_mode) {
                    let look = call.look();
                    if self.look_at_files(limiter, &look, &met).await.over {
                        return refused();
                    }
                }
                let keys = met.iter().zip(&request.descriptors);
                let keys = keys.filter_map(|(met, descriptor)| met.charged_alone(descriptor)).collect();
                let decision = limiter.reserve_named(keys, call.amount).await;
                self.reserved(limiter, &decision, call)
            }
            Method::Commit => {
                let is_known = receipt.is_some();
                if let Some(receipt) = receipt {
                    settle(limiter, &receipt, call.amount).await;
                    if call.amount > 0 {
                        let (rest, met) = call.without_reserved(met);
                        self.charge_files(limiter, &rest, &met).await;
                    }
                } else if call.amount > 0 {
                    self.charge_files(limiter, request, &met).await;
                }
                committed(is_known)
            }
        }
    }

    /// Decides about one hit of each descriptor, without a charge.
    async fn look_at_files<'p>(
        &self,
        limiter: &Limiter<S>,
        request: &RateLimitRequest<'_>,
        met: &ResolvedDescriptors<'p>,
    ) -> Answer<'p> {
        let mut outcomes = self.charge_files(limiter, request, met).await;
        outcomes.iter_mut().for_each(DescriptorOutcome::exceed_if_spent);
        upstream::answer(request, met, &mut outcomes)
    }

    /// Charges the hits of each descriptor, and counts them.
    async fn charge_files(
        &self,
        limiter: &Limiter<S>,
        request: &RateLimitRequest<'_>,
        met: &ResolvedDescriptors<'_>,
    ) -> DescriptorOutcomes {
        let headers = self.kuadrant_headers();
        let each = met.iter().zip(&request.descriptors).map(|(met, descriptor)| async move {
            match upstream::try_decide(limiter, request, met, descriptor, headers) {
                Ok(outcome) => outcome,
                Err(pending) => pending.finish(limiter, request, met, descriptor, headers).await,
            }
        });
        let outcomes = join_all(each).await.into();
        upstream::count(&self.statistics, limiter, request, met, &outcomes);
        outcomes
    }

    /// Keeps the receipt of an admitted reservation, and encodes the answer.
    fn reserved(
        &self,
        limiter: &Limiter<S>,
        decision: &Decision<'_>,
        call: &KuadrantCall<'_>,
    ) -> EncodedResponse {
        if !decision.is_allowed() {
            return refused();
        }
        let id = limiter.id_of(decision);
        if let Some(receipt) = decision.receipt().filter(|_| call.amount > 0) {
            self.reservations.add(id, receipt.with_id(id), self.clock.now() + call.hold_time());
        }
        encoded(
            false,
            framed(|out| {
                out.put_uint(1, OK);
                out.put_bytes(2, &id.digits());
            }),
        )
    }

    /// Limitador adds no headers, so the default of other methods does not apply.
    fn kuadrant_headers(&self) -> Headers {
        self.settings.headers.unwrap_or(Headers::Off)
    }
}

/// Replaces the estimate of a reservation. A change that the store does not confirm is deferred; if too many
/// wait, the estimate stays charged.
async fn settle<S: Store>(limiter: &Limiter<S>, receipt: &Receipt, amount: u64) {
    let _stays_charged = limiter.settle_receipt(receipt, amount).await;
}

/// Removes refusals from the answer to a report.
fn never_over(answer: &mut Answer<'_>) {
    answer.over = false;
    answer.statuses.iter_mut().for_each(|status| status.over = false);
    answer.response_headers.clear();
    answer.request_headers.clear();
    answer.raw_body = Bytes::new();
}

fn refused() -> EncodedResponse {
    encoded(true, framed(|out| out.put_uint(1, OVER_LIMIT)))
}

fn committed(is_known: bool) -> EncodedResponse {
    encoded(
        false,
        framed(|out| {
            if is_known {
                put_always(out, 1, 1);
            }
        }),
    )
}

const fn encoded(over: bool, bytes: Bytes) -> EncodedResponse {
    EncodedResponse { over, bytes, hold: None }
}
