//! From what a proxy asks to what it is told: which way a domain is decided, without
//! waiting where the store needs none.

use bytes::Bytes;
use futures_util::future::join_all;
use tollgate::{Decision, Limiter, Store};
use tollgate_envoy::Domains;

use crate::added;
use crate::described::{self, describe};
use crate::grpc::{Refusal, framed};
use crate::json;
use crate::native::{self, Ahead, Batch, Costing, Described};
use crate::request::{Asked, Descriptor};
use crate::response::{Answer, Status};
use crate::service::Inner;
use crate::upstream::{self, AllTold, Met};

/// How an answer is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Protobuf, behind the prefix of gRPC.
    Framed,
    Json,
}

/// An answer as it is sent.
#[derive(Clone, Debug)]
pub(crate) struct Answered {
    pub(crate) over: bool,
    pub(crate) bytes: Bytes,
}

impl Form {
    fn write(self, answer: &Answer<'_>) -> Answered {
        let bytes = match self {
            Self::Framed => framed(|out| answer.write(out)),
            Self::Json => json::render(answer),
        };
        Answered { over: answer.over, bytes }
    }
}

/// What was found out without waiting.
pub(crate) enum AtOnce {
    Answered(Answered),
    /// There is more to wait for; this was told so far.
    Waits(AllTold),
}

impl<S: Store> Inner<S> {
    /// Decides without waiting, if the store can.
    pub(crate) fn decide_at_once(
        &self,
        limiter: &Limiter<S>,
        asked: &Asked<'_>,
        form: Form,
    ) -> Result<AtOnce, Refusal> {
        if let Some(domains) = Domains::of(limiter.policy()).filter(|it| it.knows(asked.domain)) {
            let met = upstream::meet(limiter, domains, asked)?;
            let mut told = upstream::decide_at_once(limiter, asked, &met, self.headers_upstream());
            if told.iter().any(Option::is_none) {
                return Ok(AtOnce::Waits(told));
            }
            upstream::count(&self.statistics, limiter, asked, &met, &told);
            return Ok(AtOnce::Answered(form.write(&upstream::answer(asked, &met, &mut told))));
        }
        self.statistics.count_domain(limiter, asked.domain);
        let answered = if asked.domain == described::DOMAIN {
            self.batch_at_once(limiter, asked, &Batch::described(asked)?, form)
        } else {
            self.batch_at_once(limiter, asked, &self.native(limiter, asked)?, form)
        };
        Ok(answered.map_or_else(|| AtOnce::Waits(AllTold::new()), AtOnce::Answered))
    }

    /// The descriptors that are decided as one. Beside Envoy's files, an override in a domain that nothing is about
    /// counts nothing: so does upstream.
    fn native<'m>(
        &self,
        limiter: &Limiter<S>,
        asked: &'m Asked<'_>,
    ) -> Result<Batch<Described<'m>>, Refusal> {
        let knows_files = Domains::of(limiter.policy()).is_some();
        Batch::of(asked, !knows_files || self.statistics.is_covered(limiter, asked.domain))
    }

    fn batch_at_once<R: Costing>(
        &self,
        limiter: &Limiter<S>,
        asked: &Asked<'_>,
        batch: &Batch<R>,
        form: Form,
    ) -> Option<Answered> {
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
                ahead.extend(limiter.decide_together_at_once(&more, hand_out).flatten());
            }
            let decision = after.as_ref().unwrap_or(decision);
            let mut answer = batch.answer(decision, asked.descriptors.len(), &ahead);
            added::add(&mut answer, limiter, decision, self.headers_native());
            form.write(&answer)
        })
    }

    /// Decides what is not told yet.
    pub(crate) async fn decide(
        &self,
        limiter: &Limiter<S>,
        asked: &Asked<'_>,
        told: AllTold,
        form: Form,
    ) -> Result<Answered, Refusal> {
        if let Some(domains) = Domains::of(limiter.policy()).filter(|it| it.knows(asked.domain)) {
            let met = upstream::meet(limiter, domains, asked)?;
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
        if asked.domain == described::DOMAIN {
            self.batch(limiter, asked, &Batch::described(asked)?, form).await
        } else {
            self.batch(limiter, asked, &self.native(limiter, asked)?, form).await
        }
    }

    async fn batch<R: Costing>(
        &self,
        limiter: &Limiter<S>,
        asked: &Asked<'_>,
        batch: &Batch<R>,
        form: Form,
    ) -> Result<Answered, Refusal> {
        let headers = self.headers_native();
        let looked_for = batch.overrides_looked_for();
        let mut decision = batch.decide(limiter, &looked_for).await;
        let mut ahead = Ahead::new();
        for (part, units, valid) in native::wishes(&decision, batch.parts.len()) {
            let more = [batch.parts[part].costing(units)];
            let more = limiter.decide_together(&more).await;
            if let Some(quota) = native::handed_out(limiter, &more, units, valid) {
                decision.follow(native::most(part as u64), &more);
                ahead.push((part, quota));
            }
        }
        let mut answer = batch.answer(&decision, asked.descriptors.len(), &ahead);
        added::add(&mut answer, limiter, &decision, headers);
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
        asked: &Asked<'_>,
        descriptor: &Descriptor<'_>,
    ) -> Result<Status<'l>, Refusal> {
        let cost = upstream::hits(asked, descriptor);
        if asked.domain == described::DOMAIN {
            return Ok(native::give_back(limiter, &describe(&descriptor.entries)?.cost(cost)).await);
        }
        let Some(instead) = descriptor.instead else {
            let (domain, entries) = (asked.domain, &descriptor.entries[..]);
            return Ok(native::give_back(limiter, &Described { domain, entries, cost: Some(cost) }).await);
        };
        if Domains::of(limiter.policy()).is_some() && !self.statistics.is_covered(limiter, asked.domain) {
            return Ok(Status::default());
        }
        let (requests, unit) = (instead.requests, instead.unit()?);
        let rule = upstream::rule(None, requests, unit)?;
        let key = upstream::override_key(asked.domain, descriptor);
        let told = upstream::give_back(limiter, &rule, &key, cost).await;
        let met = Met::Override { leaf: None, rule: Box::new(rule), requests, unit };
        Ok(upstream::status(&met, &told))
    }
}
