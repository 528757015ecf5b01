//! Decides a request: selects the semantics of its domain, and avoids waiting if the store permits
//! it.

use bytes::Bytes;
use futures_util::future::join_all;
use tollgate::{Decision, Limiter, Store};
use tollgate_envoy::Domains;

use crate::grpc::{Refusal, framed};
use crate::json;
use crate::native::{self, Ahead, Batch, DescriptorRequest, WithCost};
use crate::request::{Descriptor, RateLimitRequest};
use crate::request_descriptor::{self, describe};
use crate::response::{Answer, Status};
use crate::response_headers;
use crate::service::Inner;
use crate::upstream::{self, DescriptorOutcomes, ResolvedDescriptor};

/// The encoding of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Protobuf with the gRPC prefix.
    Framed,
    Json,
}

/// An encoded response.
#[derive(Clone, Debug)]
pub(crate) struct EncodedResponse {
    pub(crate) over: bool,
    pub(crate) bytes: Bytes,
}

impl Form {
    fn write(self, answer: &Answer<'_>) -> EncodedResponse {
        let bytes = match self {
            Self::Framed => framed(|out| answer.write(out)),
            Self::Json => json::render(answer),
        };
        EncodedResponse { over: answer.over, bytes }
    }
}

/// The result of an attempt to decide without waiting.
pub(crate) enum TryDecision {
    Answered(EncodedResponse),
    /// The store has to be awaited; contains the outcomes so far.
    Waits(DescriptorOutcomes),
}

impl<S: Store> Inner<S> {
    /// Decides without waiting, if the store permits it.
    pub(crate) fn try_decide(
        &self,
        limiter: &Limiter<S>,
        asked: &RateLimitRequest<'_>,
        form: Form,
    ) -> Result<TryDecision, Refusal> {
        if let Some(domains) = Domains::of(limiter.policy()).filter(|it| it.knows(asked.domain)) {
            let met = upstream::resolve(limiter, domains, asked)?;
            let mut outcomes = upstream::try_decide(limiter, asked, &met, self.headers_upstream());
            if outcomes.iter().any(Option::is_none) {
                return Ok(TryDecision::Waits(outcomes));
            }
            upstream::count(&self.statistics, limiter, asked, &met, &outcomes);
            return Ok(TryDecision::Answered(form.write(&upstream::answer(asked, &met, &mut outcomes))));
        }
        self.statistics.count_domain(limiter, asked.domain);
        let answered = if asked.domain == request_descriptor::DOMAIN {
            self.try_batch(limiter, asked, &Batch::described(asked)?, form)
        } else {
            self.try_batch(limiter, asked, &self.native(limiter, asked)?, form)
        };
        Ok(answered.map_or_else(|| TryDecision::Waits(DescriptorOutcomes::new()), TryDecision::Answered))
    }

    /// Returns the descriptors that are decided together. If Envoy files are loaded, an override in
    /// an unknown domain counts nothing, as in envoyproxy/ratelimit.
    fn native<'m>(
        &self,
        limiter: &Limiter<S>,
        asked: &'m RateLimitRequest<'_>,
    ) -> Result<Batch<DescriptorRequest<'m>>, Refusal> {
        let knows_files = Domains::of(limiter.policy()).is_some();
        Batch::of(asked, !knows_files || self.statistics.is_covered(limiter, asked.domain))
    }

    fn try_batch<R: WithCost>(
        &self,
        limiter: &Limiter<S>,
        asked: &RateLimitRequest<'_>,
        batch: &Batch<R>,
        form: Form,
    ) -> Option<EncodedResponse> {
        if asked.descriptors.iter().any(|it| it.gives_back) || !batch.looks().is_empty() {
            return None;
        }
        limiter.try_decide_together_with(&batch.parts, batch.overrides(), |decision| {
            let (mut ahead, mut after) = (Ahead::new(), None);
            for (part, units, valid) in native::wishes(decision, batch.parts.len()) {
                let more = [batch.parts[part].costing(units)];
                let hand_out = |more: &Decision<'_>| {
                    let quota = native::handed_out(limiter, more, units, valid)?;
                    after
                        .get_or_insert_with(|| decision.clone())
                        .follow(native::saturate_u32(part as u64), more);
                    Some((part, quota))
                };
                ahead.extend(limiter.try_decide_batch(&more, hand_out).flatten());
            }
            let decision = after.as_ref().unwrap_or(decision);
            let mut answer = batch.answer(decision, asked.descriptors.len(), &ahead);
            response_headers::add(&mut answer, limiter, decision, self.headers_native());
            form.write(&answer)
        })
    }

    /// Decides the descriptors that have no outcome yet.
    pub(crate) async fn decide(
        &self,
        limiter: &Limiter<S>,
        asked: &RateLimitRequest<'_>,
        outcomes: DescriptorOutcomes,
        form: Form,
    ) -> Result<EncodedResponse, Refusal> {
        if let Some(domains) = Domains::of(limiter.policy()).filter(|it| it.knows(asked.domain)) {
            let met = upstream::resolve(limiter, domains, asked)?;
            let each = met.iter().zip(&asked.descriptors).zip(outcomes);
            let headers = self.headers_upstream();
            let all = each.map(|((met, descriptor), outcome)| async move {
                match outcome {
                    Some(outcome) => Some(outcome),
                    None => Some(upstream::decide(limiter, asked, met, descriptor, headers).await),
                }
            });
            let mut outcomes = join_all(all).await.into();
            upstream::count(&self.statistics, limiter, asked, &met, &outcomes);
            return Ok(form.write(&upstream::answer(asked, &met, &mut outcomes)));
        }
        if asked.domain == request_descriptor::DOMAIN {
            self.batch(limiter, asked, &Batch::described(asked)?, form).await
        } else {
            self.batch(limiter, asked, &self.native(limiter, asked)?, form).await
        }
    }

    async fn batch<R: WithCost>(
        &self,
        limiter: &Limiter<S>,
        asked: &RateLimitRequest<'_>,
        batch: &Batch<R>,
        form: Form,
    ) -> Result<EncodedResponse, Refusal> {
        let headers = self.headers_native();
        let peeked = batch.peeked_overrides();
        let mut decision = batch.decide(limiter, &peeked).await;
        let mut ahead = Ahead::new();
        for (part, units, valid) in native::wishes(&decision, batch.parts.len()) {
            let more = [batch.parts[part].costing(units)];
            let more = limiter.decide_batch(&more).await;
            if let Some(quota) = native::handed_out(limiter, &more, units, valid) {
                decision.follow(native::saturate_u32(part as u64), &more);
                ahead.push((part, quota));
            }
        }
        let mut answer = batch.answer(&decision, asked.descriptors.len(), &ahead);
        response_headers::add(&mut answer, limiter, &decision, headers);
        for (place, descriptor) in asked.descriptors.iter().enumerate().filter(|(_, it)| it.gives_back) {
            let status = self.refund_descriptor(limiter, asked, descriptor).await?;
            if let Some(slot) = answer.statuses.get_mut(place) {
                *slot = status;
            }
        }
        Ok(form.write(&answer))
    }

    /// Refunds the hits of a descriptor that is not part of a batch.
    async fn refund_descriptor<'l>(
        &self,
        limiter: &'l Limiter<S>,
        asked: &RateLimitRequest<'_>,
        descriptor: &Descriptor<'_>,
    ) -> Result<Status<'l>, Refusal> {
        let cost = upstream::hits(asked, descriptor);
        if asked.domain == request_descriptor::DOMAIN {
            return Ok(native::refund(limiter, &describe(&descriptor.entries)?.cost(cost)).await);
        }
        let Some(instead) = descriptor.instead else {
            let (domain, entries) = (asked.domain, &descriptor.entries[..]);
            return Ok(
                native::refund(limiter, &DescriptorRequest { domain, entries, cost: Some(cost) }).await
            );
        };
        if Domains::of(limiter.policy()).is_some() && !self.statistics.is_covered(limiter, asked.domain) {
            return Ok(Status::default());
        }
        let (requests, unit) = (instead.requests, instead.unit()?);
        let rule = upstream::rule(None, requests, unit)?;
        let key = upstream::override_key(asked.domain, descriptor);
        let outcome = upstream::refund(limiter, limiter.policy().ad_hoc().name(), &rule, &key, cost).await;
        let met = ResolvedDescriptor::Override { leaf: None, rule: Box::new(rule), requests, unit };
        Ok(upstream::status(&met, &outcome))
    }
}
