//! From what a proxy asks to what it is told: which way a domain is decided, without
//! waiting where the store needs none.

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

/// How an answer is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Protobuf, behind the prefix of gRPC.
    Framed,
    Json,
}

/// An answer as it is sent.
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

/// What was found out without waiting.
pub(crate) enum TryDecision {
    Answered(EncodedResponse),
    /// There is more to wait for; this was told so far.
    Waits(DescriptorOutcomes),
}

impl<S: Store> Inner<S> {
    /// Decides without waiting, if the store can.
    pub(crate) fn try_decide(
        &self,
        limiter: &Limiter<S>,
        asked: &RateLimitRequest<'_>,
        form: Form,
    ) -> Result<TryDecision, Refusal> {
        if let Some(domains) = Domains::of(limiter.policy()).filter(|it| it.knows(asked.domain)) {
            let met = upstream::resolve(limiter, domains, asked)?;
            let mut told = upstream::try_decide(limiter, asked, &met, self.headers_upstream());
            if told.iter().any(Option::is_none) {
                return Ok(TryDecision::Waits(told));
            }
            upstream::count(&self.statistics, limiter, asked, &met, &told);
            return Ok(TryDecision::Answered(form.write(&upstream::answer(asked, &met, &mut told))));
        }
        self.statistics.count_domain(limiter, asked.domain);
        let answered = if asked.domain == request_descriptor::DOMAIN {
            self.try_batch(limiter, asked, &Batch::described(asked)?, form)
        } else {
            self.try_batch(limiter, asked, &self.native(limiter, asked)?, form)
        };
        Ok(answered.map_or_else(|| TryDecision::Waits(DescriptorOutcomes::new()), TryDecision::Answered))
    }

    /// The descriptors that are decided as one. Beside Envoy's files, an override in a domain that nothing is about
    /// counts nothing: so does upstream.
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
                    after.get_or_insert_with(|| decision.clone()).follow(native::most(part as u64), more);
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

    /// Decides what is not told yet.
    pub(crate) async fn decide(
        &self,
        limiter: &Limiter<S>,
        asked: &RateLimitRequest<'_>,
        told: DescriptorOutcomes,
        form: Form,
    ) -> Result<EncodedResponse, Refusal> {
        if let Some(domains) = Domains::of(limiter.policy()).filter(|it| it.knows(asked.domain)) {
            let met = upstream::resolve(limiter, domains, asked)?;
            let each = met.iter().zip(&asked.descriptors).zip(told);
            let headers = self.headers_upstream();
            let all = each.map(|((met, descriptor), told)| async move {
                match told {
                    Some(told) => Some(told),
                    None => Some(upstream::decide(limiter, asked, met, descriptor, headers).await),
                }
            });
            let mut told = join_all(all).await.into();
            upstream::count(&self.statistics, limiter, asked, &met, &told);
            return Ok(form.write(&upstream::answer(asked, &met, &mut told)));
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
        let looked_for = batch.overrides_looked_for();
        let mut decision = batch.decide(limiter, &looked_for).await;
        let mut ahead = Ahead::new();
        for (part, units, valid) in native::wishes(&decision, batch.parts.len()) {
            let more = [batch.parts[part].costing(units)];
            let more = limiter.decide_batch(&more).await;
            if let Some(quota) = native::handed_out(limiter, &more, units, valid) {
                decision.follow(native::most(part as u64), &more);
                ahead.push((part, quota));
            }
        }
        let mut answer = batch.answer(&decision, asked.descriptors.len(), &ahead);
        response_headers::add(&mut answer, limiter, &decision, headers);
        for (place, descriptor) in asked.descriptors.iter().enumerate().filter(|(_, it)| it.gives_back) {
            let status = self.give_back(limiter, asked, descriptor).await?;
            if let Some(slot) = answer.statuses.get_mut(place) {
                *slot = status;
            }
        }
        Ok(form.write(&answer))
    }

    /// Gives hits back: the descriptor is no part of a batch.
    async fn give_back<'l>(
        &self,
        limiter: &'l Limiter<S>,
        asked: &RateLimitRequest<'_>,
        descriptor: &Descriptor<'_>,
    ) -> Result<Status<'l>, Refusal> {
        let cost = upstream::hits(asked, descriptor);
        if asked.domain == request_descriptor::DOMAIN {
            return Ok(native::give_back(limiter, &describe(&descriptor.entries)?.cost(cost)).await);
        }
        let Some(instead) = descriptor.instead else {
            let (domain, entries) = (asked.domain, &descriptor.entries[..]);
            return Ok(
                native::give_back(limiter, &DescriptorRequest { domain, entries, cost: Some(cost) }).await
            );
        };
        if Domains::of(limiter.policy()).is_some() && !self.statistics.is_covered(limiter, asked.domain) {
            return Ok(Status::default());
        }
        let (requests, unit) = (instead.requests, instead.unit()?);
        let rule = upstream::rule(None, requests, unit)?;
        let key = upstream::override_key(asked.domain, descriptor);
        let told = upstream::give_back(limiter, &rule, &key, cost).await;
        let met = ResolvedDescriptor::Override { leaf: None, rule: Box::new(rule), requests, unit };
        Ok(upstream::status(&met, &told))
    }
}
