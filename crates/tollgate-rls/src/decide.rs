//! Decides a request: selects the semantics of its domain, and avoids waiting if the store permits
//! it.
//!
//! A request is read and its descriptors are resolved once. If the store has to be awaited, they move
//! into the [`PendingCall`] with the decisions so far.
//!
//! An admitted request may have to wait in the queue of a limit. Its answer is encoded and held
//! (`held`), so that neither the decision nor the descriptors stay in memory meanwhile.

use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use smallvec::SmallVec;
use tollgate::{Clock as _, Decision, Input, Limiter, Pending, Store, Timestamp};
use tollgate_envoy::Domains;

use crate::held::{CallTimeout, Hold, NotStarted};
use crate::json;
use crate::native::{self, Ahead, Batch, DescriptorPart, Part, Refunds};
use crate::request::{Descriptor, RateLimitRequest};
use crate::request_descriptor::{self, describe};
use crate::response::{Answer, Status};
use crate::response_headers::{self, Headers};
use crate::service::Inner;
use crate::upstream::{self, DescriptorOutcomes, ResolvedDescriptor, ResolvedDescriptors};
use tollgate_grpc::call::{Refusal, framed};

/// The encoding of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Protobuf with the gRPC prefix.
    Framed,
    Json,
}

/// An encoded response.
pub(crate) struct EncodedResponse {
    pub(crate) over: bool,
    pub(crate) bytes: Bytes,
    /// Completes when the response may be sent. `None`: now.
    pub(crate) hold: Option<Box<HeldResponse>>,
}

/// The wait before a response may be sent.
pub(crate) struct HeldResponse {
    pub(crate) wait: Hold,
    /// The refusal that is sent instead if the server stops before.
    pub(crate) refusal: Bytes,
}

/// A call before its descriptors are resolved, and the way to answer it.
pub(crate) struct RateLimitCall<'m> {
    pub(crate) request: RateLimitRequest<'m>,
    pub(crate) form: Form,
    pub(crate) timeout: CallTimeout<'m>,
}

impl Form {
    pub(crate) fn write(self, answer: &Answer<'_>) -> EncodedResponse {
        let bytes = match self {
            Self::Framed => framed(|out| answer.write(out)),
            Self::Json => json::render(answer),
        };
        EncodedResponse { over: answer.over, bytes, hold: None }
    }
}

/// A call whose store has to be awaited. Boxed: it is large, and a store in this process never needs
/// it.
pub(crate) type PendingCall<'c> = Pin<Box<dyn Future<Output = Result<EncodedResponse, Refusal>> + Send + 'c>>;

/// The part of a batch that was decided without waiting.
enum Started<'c, S> {
    /// Nothing: descriptors that only peek, overrides and refunds need more than one step.
    Nothing,
    /// The limits are known, and the store has to be awaited.
    Matched(Pending<'c, S>),
    /// The decision, before hits are granted in advance.
    Decided(Box<Decision<'c>>),
}

impl<S: Store> Inner<S> {
    /// Decides without waiting, if the store permits it. Otherwise returns the call that waits: its
    /// descriptors are not resolved again.
    pub(crate) fn try_decide<'c, 'm: 'c>(
        &'c self,
        limiter: &'c Limiter<S>,
        call: RateLimitCall<'m>,
    ) -> Result<Result<EncodedResponse, PendingCall<'c>>, Refusal> {
        let RateLimitCall { mut request, form, timeout } = call;
        if let Some(domains) = Domains::of(limiter.policy()).filter(|it| it.knows(request.domain)) {
            let met = upstream::resolve(limiter, domains, &request)?;
            return Ok(self.try_upstream(limiter, request, met, form));
        }
        self.count_policy_domain(limiter, request.domain);
        Ok(if request.domain == request_descriptor::DOMAIN {
            let batch = Batch::described(&request)?;
            self.try_batch(limiter, RateLimitCall { request, form, timeout }, batch)
        } else {
            let counts_overrides = self.counts_overrides(limiter, request.domain);
            let batch = Batch::of(&mut request, counts_overrides)?;
            self.try_batch(limiter, RateLimitCall { request, form, timeout }, batch)
        })
    }

    /// Counts a call in a domain that Envoy's files do not define.
    #[inline]
    pub(crate) fn count_policy_domain(&self, limiter: &Limiter<S>, domain: &str) {
        if self.is_unconfigured(limiter) {
            self.count_unconfigured();
        } else {
            self.statistics.count_domain(limiter, domain);
        }
    }

    /// Whether an override counts in a domain of the policy. If Envoy files are loaded, an override
    /// in an unknown domain counts nothing, as in envoyproxy/ratelimit.
    fn counts_overrides(&self, limiter: &Limiter<S>, domain: &str) -> bool {
        let has_files = Domains::of(limiter.policy()).is_some() || self.is_unconfigured(limiter);
        !has_files || self.statistics.is_covered(limiter, domain)
    }

    fn try_upstream<'c, 'm: 'c>(
        &'c self,
        limiter: &'c Limiter<S>,
        request: RateLimitRequest<'m>,
        met: ResolvedDescriptors<'c>,
        form: Form,
    ) -> Result<EncodedResponse, PendingCall<'c>> {
        let headers = self.settings.headers.unwrap_or(Headers::Refusals);
        let decide = |(met, descriptor)| upstream::try_decide(limiter, &request, met, descriptor, headers);
        let tried: SmallVec<[_; 2]> = met.iter().zip(&request.descriptors).map(decide).collect();
        if tried.iter().all(Result::is_ok) {
            let outcomes = tried.into_iter().flatten().collect();
            return Ok(self.answer_upstream(limiter, &request, &met, outcomes, form));
        }
        Err(Box::pin(async move {
            let request = &request;
            let each = met.iter().zip(&request.descriptors).zip(tried);
            let each = each.map(|((met, descriptor), tried)| async move {
                match tried {
                    Ok(outcome) => outcome,
                    Err(pending) => pending.finish(limiter, request, met, descriptor, headers).await,
                }
            });
            let outcomes = join_all(each).await.into();
            Ok(self.answer_upstream(limiter, request, &met, outcomes, form))
        }))
    }

    fn answer_upstream(
        &self,
        limiter: &Limiter<S>,
        request: &RateLimitRequest<'_>,
        met: &ResolvedDescriptors<'_>,
        mut outcomes: DescriptorOutcomes,
        form: Form,
    ) -> EncodedResponse {
        upstream::count(&self.statistics, limiter, request, met, &outcomes);
        form.write(&upstream::answer(request, met, &mut outcomes))
    }

    fn try_batch<'c, 'm: 'c, P: Part + 'c>(
        &'c self,
        limiter: &'c Limiter<S>,
        call: RateLimitCall<'m>,
        batch: Batch<P>,
    ) -> Result<EncodedResponse, PendingCall<'c>> {
        let RateLimitCall { request, form, .. } = &call;
        let refunds = request.descriptors.iter().any(|it| it.gives_back);
        let is_late = limiter.policy().charges_afterwards();
        let started = if refunds || is_late || !batch.overrides().is_empty() || batch.looks() {
            Started::Nothing
        } else {
            let tried = limiter.try_decide_batch(&batch.parts, |decision| {
                if decision.wait().is_zero() && native::wishes(decision, batch.parts.len()).is_empty() {
                    let answer = self.answer_batch(limiter, request, &batch, decision, &Ahead::new());
                    Ok(form.write(&answer))
                } else {
                    Err(Box::new(decision.clone()))
                }
            });
            match tried {
                Ok(Ok(answered)) => return Ok(answered),
                Ok(Err(decision)) => Started::Decided(decision),
                Err(pending) => Started::Matched(pending),
            }
        };
        Err(Box::pin(self.finish_batch(limiter, call, batch, started)))
    }

    fn answer_batch<'d, P: Part>(
        &self,
        limiter: &Limiter<S>,
        request: &RateLimitRequest<'_>,
        batch: &Batch<P>,
        decision: &'d Decision<'_>,
        ahead: &Ahead,
    ) -> Answer<'d> {
        let mut answer = batch.answer(decision, request.descriptors.len(), ahead);
        let headers = self.settings.headers.unwrap_or(Headers::All);
        response_headers::add(&mut answer, limiter, decision, headers);
        answer
    }

    async fn finish_batch<P: Part>(
        &self,
        limiter: &Limiter<S>,
        call: RateLimitCall<'_>,
        batch: Batch<P>,
        started: Started<'_, S>,
    ) -> Result<EncodedResponse, Refusal> {
        let started_at = self.clock.now();
        match started {
            Started::Nothing => {
                let decision = batch.decide(limiter).await;
                self.conclude_batch(limiter, &call, &batch, decision, started_at).await
            }
            Started::Matched(pending) => {
                let first = batch.parts.first().map(|it| it as &(dyn Input + Sync));
                let decision = pending.finish(first).await;
                self.conclude_batch(limiter, &call, &batch, decision, started_at).await
            }
            Started::Decided(decision) => {
                self.conclude_batch(limiter, &call, &batch, *decision, started_at).await
            }
        }
    }

    /// Holds a request that has to wait, grants hits in advance, refunds hits, and writes the answer.
    async fn conclude_batch<P: Part>(
        &self,
        limiter: &Limiter<S>,
        call: &RateLimitCall<'_>,
        batch: &Batch<P>,
        mut decision: Decision<'_>,
        started_at: Timestamp,
    ) -> Result<EncodedResponse, Refusal> {
        let RateLimitCall { request, form, timeout } = call;
        let spent = self.clock.now().since(started_at).into();
        let first = batch.parts.first().map(|it| it as &(dyn Input + Sync));
        let hold = self.held.hold(limiter, (first, &mut decision), *timeout, spent).await;
        let hold = hold.map(|wait| {
            let mut refused = decision.clone();
            refused.refuse_wait(Duration::ZERO);
            let wait = reporting(limiter, &decision, wait);
            let refusal = self.answer_batch(limiter, request, batch, &refused, &Ahead::new());
            Box::new(HeldResponse { wait, refusal: form.write(&refusal).bytes })
        });
        let mut ahead = Ahead::new();
        for (part, units, valid) in native::wishes(&decision, batch.parts.len()) {
            let more = [batch.parts[part].costing(units)];
            let more = limiter.decide_batch(&more).await;
            if let Some(quota) = native::handed_out(limiter, &more, units, valid) {
                decision.follow(native::saturate_u32(part as u64), &more);
                ahead.push((part, quota));
            }
        }
        let mut answer = self.answer_batch(limiter, request, batch, &decision, &ahead);
        if limiter.policy().charges_afterwards() {
            batch.charge_afterwards(limiter, &mut answer).await;
        }
        for (place, descriptor) in request.descriptors.iter().enumerate().filter(|(_, it)| it.gives_back) {
            let permitted = if *form == Form::Json { Refunds::All } else { self.refunds() };
            let status = self.refund_descriptor(limiter, request, descriptor, permitted).await?;
            if let Some(slot) = answer.statuses.get_mut(place) {
                *slot = status;
            }
        }
        Ok(EncodedResponse { hold, ..form.write(&answer) })
    }

    /// Refunds the hits of a descriptor that is not part of a batch.
    async fn refund_descriptor<'l, 'm>(
        &self,
        limiter: &'l Limiter<S>,
        request: &RateLimitRequest<'m>,
        descriptor: &Descriptor<'m>,
        permitted: Refunds,
    ) -> Result<Status<'l>, Refusal> {
        let cost = upstream::hits(request, descriptor);
        if request.domain == request_descriptor::DOMAIN {
            return Ok(native::refund(limiter, &describe(&descriptor.entries)?.cost(cost), permitted).await);
        }
        let Some(instead) = descriptor.instead else {
            let (domain, entries) = (request.domain, descriptor.entries.clone());
            let part = DescriptorPart { domain, entries, cost: Some(cost) };
            return Ok(native::refund(limiter, &part, permitted).await);
        };
        if !self.counts_overrides(limiter, request.domain) {
            return Ok(Status::default());
        }
        let (requests, unit) = (instead.requests, instead.unit()?);
        let rule = upstream::rule(None, requests, unit)?;
        let key = upstream::override_key(request.domain, descriptor);
        let outcome = upstream::refund(limiter, limiter.policy().ad_hoc().name(), &rule, &key, cost).await;
        let met = ResolvedDescriptor::Override { leaf: None, rule: Box::new(rule), requests, unit };
        Ok(upstream::status(&met, &outcome))
    }
}

/// Returns a wait that reports a request that is displaced to the observer, without its descriptors: they are gone by
/// then.
fn reporting<S: Store>(limiter: &Limiter<S>, decision: &Decision<'_>, wait: Hold) -> Hold {
    // No request displaces one of the most important class.
    if decision.rank() == 0 {
        return wait;
    }
    let held = Box::new(limiter.hold_decision(decision, limiter.id_of(decision)));
    Box::pin(async move {
        let end = wait.await;
        if end == Err(NotStarted::Displaced) {
            let _reported = held.displace(None);
        }
        end
    })
}
