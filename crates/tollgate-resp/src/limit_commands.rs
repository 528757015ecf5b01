//! `TG.CHECK`, `TG.PEEK`, `TG.ACQUIRE`, `TG.RELEASE`, `TG.RENEW`, `TG.REFUND`: commands on limits of the
//! policy.
//!
//! A limit by several parts takes one argument for each part of its key, in the order of `by`; a
//! global limit takes none; a limit on descriptors takes the entries with their names. Times are in
//! milliseconds, rounded up, so that callers do not retry early.
//!
//! A limit with a queue admits requests that have to wait. The caller waits, so the wait is in the
//! reply; a caller that leaves before refunds its units.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tollgate::policy::{Grant, Key};
use tollgate::{
    Decision, Fate, KeySource, Limit, Limiter, Mode, Outcome, Owner, Policy, Quota, Rule, Span, Store,
    advised_wait, expected_wait,
};
use tollgate_document::hint;

use crate::command::Command;
use crate::exchange::Exchange;
use crate::frame::{Words, integer};
use crate::metrics::CommandResult;
use crate::pending::State;
use crate::reply::{self, Protocol};
use crate::session::{Flow, NO_REFUNDS, NO_STORE, Session, cut, decision_result, wrong};

/// The maximum number of names that are compared with an unknown name for a suggestion.
const MAX_COMPARED_NAMES: usize = 200;

/// A key of a limit, and the argument after it.
struct NamedKey<'l, 'w> {
    limit: &'l Limit,
    key: Key,
    /// The argument after the key, if there is one.
    last: Option<&'w [u8]>,
}

impl<S: Store> Session<S> {
    pub(crate) fn named(
        &mut self,
        command: Command,
        words: Words<'_>,
        exchange: &mut Exchange<'_, '_, S>,
    ) -> Result<CommandResult, Flow> {
        let named = match find(exchange.limiter.policy(), words, command) {
            Ok(named) => named,
            Err(mistake) => return Ok(exchange.error(mistake.as_bytes())),
        };
        match command {
            Command::Check => self.check(&named, exchange),
            Command::Peek => Self::peek(&named, exchange),
            Command::Acquire => self.acquire(&named, exchange),
            Command::Refund => self.refund(&named, exchange),
            Command::Renew => Self::renew(&named, exchange),
            _ => Self::release(&named, exchange),
        }
    }

    fn check<'l>(
        &self,
        named: &NamedKey<'l, '_>,
        exchange: &mut Exchange<'_, 'l, S>,
    ) -> Result<CommandResult, Flow> {
        match units_of(named, "TG.ACQUIRE and TG.RELEASE") {
            Ok(cost) => self.decide(Command::Check, named, cost, exchange),
            Err(mistake) => Ok(exchange.error(&mistake)),
        }
    }

    fn acquire<'l>(
        &self,
        named: &NamedKey<'l, '_>,
        exchange: &mut Exchange<'_, 'l, S>,
    ) -> Result<CommandResult, Flow> {
        match without_slots(named.limit) {
            Some(mistake) => Ok(exchange.error(mistake.as_bytes())),
            None => self.decide(Command::Acquire, named, None, exchange),
        }
    }

    /// Decides, without waiting if the store permits it.
    fn decide<'l>(
        &self,
        command: Command,
        named: &NamedKey<'l, '_>,
        cost: Option<u64>,
        exchange: &mut Exchange<'_, 'l, S>,
    ) -> Result<CommandResult, Flow> {
        let (limiter, is_slot, protocol) = (exchange.limiter, command == Command::Acquire, self.protocol);
        let (batch, out) = exchange.waiting.batch_and_end(exchange.out);
        let immediate = batch.try_decide_named(named.limit, named.key.clone(), cost, |decision| {
            write_decision(limiter, decision, is_slot, protocol, out);
            decision_result(decision.is_allowed())
        });
        immediate.map_err(|pending| {
            let Some(pending) = pending else {
                exchange.waiting.push(command, State::Batched);
                return Flow::On;
            };
            let (limiter, pending) = (Arc::clone(limiter), pending.detach());
            exchange.defer(command, async move {
                let mut out = Vec::with_capacity(96);
                let result = pending.finish(None, |decision| {
                    write_decision(&limiter, decision, is_slot, protocol, &mut out);
                    decision_result(decision.is_allowed())
                });
                let result = result.await;
                (out, result)
            })
        })
    }

    fn release(named: &NamedKey<'_, '_>, exchange: &mut Exchange<'_, '_, S>) -> Result<CommandResult, Flow> {
        let owner = match owner_of(named) {
            Ok(owner) => owner,
            Err(mistake) => return Ok(exchange.error(mistake.as_bytes())),
        };
        let (limiter, key) = (Arc::clone(exchange.limiter), named.key.clone());
        let name: Box<str> = named.limit.name().into();
        Err(exchange.defer_alone(Command::Release, async move {
            for rule in rules_of(limiter.policy(), &name, &key) {
                if matches!(rule.quota, Quota::Concurrency(_))
                    && limiter.release_slot(&name, rule, &key, owner).await.is_err()
                {
                    return confirmation(false);
                }
            }
            confirmation(true)
        }))
    }

    /// Starts the lease of a slot again. The reply is 1 if the token holds a slot, else 0.
    fn renew(named: &NamedKey<'_, '_>, exchange: &mut Exchange<'_, '_, S>) -> Result<CommandResult, Flow> {
        let owner = match owner_of(named) {
            Ok(owner) => owner,
            Err(mistake) => return Ok(exchange.error(mistake.as_bytes())),
        };
        let (limiter, key) = (Arc::clone(exchange.limiter), named.key.clone());
        let name: Box<str> = named.limit.name().into();
        Err(exchange.defer_alone(Command::Renew, async move {
            let (mut out, mut is_held) = (Vec::new(), false);
            for rule in rules_of(limiter.policy(), &name, &key) {
                match limiter.renew_slot(rule, &key, owner).await {
                    Ok(held) => is_held |= held,
                    Err(_) => return confirmation(false),
                }
            }
            reply::integer(&mut out, i64::from(is_held));
            (out, CommandResult::Ok)
        }))
    }

    /// Refunds units, and the places of a queue that they stand for.
    fn refund(
        &self,
        named: &NamedKey<'_, '_>,
        exchange: &mut Exchange<'_, '_, S>,
    ) -> Result<CommandResult, Flow> {
        if self.inner.settings.refuse_refunds {
            return Ok(exchange.error(format!("ERR {NO_REFUNDS}").as_bytes()));
        }
        let units = match units_of(named, "TG.RELEASE") {
            Ok(cost) => cost.unwrap_or(1),
            Err(mistake) => return Ok(exchange.error(&mistake)),
        };
        let (limiter, key) = (Arc::clone(exchange.limiter), named.key.clone());
        let name: Box<str> = named.limit.name().into();
        Err(exchange.defer_alone(Command::Refund, async move {
            let mut is_refunded = true;
            for rule in rules_of(limiter.policy(), &name, &key) {
                // A refund that the store does not confirm is deferred, which is no error.
                is_refunded &= limiter.grant(&name, rule, &key, units).await.is_ok();
            }
            confirmation(is_refunded)
        }))
    }

    /// Returns the answer of a check without charging.
    fn peek(named: &NamedKey<'_, '_>, exchange: &mut Exchange<'_, '_, S>) -> Result<CommandResult, Flow> {
        let cost = match cost_of(named) {
            Ok(cost) => cost.unwrap_or(1),
            Err(mistake) => return Ok(exchange.error(mistake)),
        };
        let name: Box<str> = named.limit.name().into();
        let (limiter, key) = (Arc::clone(exchange.limiter), named.key.clone());
        let is_binding = named.limit.mode() != Mode::Shadow;
        Err(exchange.defer_alone(Command::Peek, async move {
            let rules = rules_of(limiter.policy(), &name, &key);
            let Ok(outcomes) = limiter.peek(rules, &key, cost).await else {
                let mut out = Vec::new();
                let result = wrong(&mut out, NO_STORE);
                return (out, result);
            };
            let windows = outcomes.iter().zip(rules);
            let tightest = windows.min_by_key(|(outcome, _)| (outcome.is_admitted(), outcome.remaining));
            let granted = limiter.policy().limit(&name).map(|it| limiter.policy().granted(it, &key, None));
            let is_open = !matches!(granted, Some(Grant::Blocked(_)));
            let (outcome, mut out) = (tightest.map(|(outcome, _)| outcome), Vec::with_capacity(64));
            let allowed = outcome.map_or(is_open, Outcome::is_admitted);
            let wait = if allowed {
                let waits = outcomes.iter().zip(rules).map(|(outcome, rule)| expected_wait(rule, outcome));
                waits.max().filter(|_| is_binding && rules.iter().any(has_queue))
            } else {
                tightest.and_then(|(outcome, rule)| advised_wait(rule, outcome))
            };
            reply::array(&mut out, 5);
            write_outcome(outcome, allowed, wait, &mut out);
            (out, CommandResult::Ok)
        }))
    }
}

/// The rules of a limit for a key.
fn rules_of<'p>(policy: &'p Policy, name: &str, key: &Key) -> &'p [Rule] {
    match policy.limit(name).map(|limit| policy.granted(limit, key, None)) {
        Some(Grant::Rules(rules)) => rules,
        _ => &[],
    }
}

fn has_slots(limit: &Limit) -> bool {
    limit.rules().iter().any(|rule| matches!(rule.quota, Quota::Concurrency(_)))
}

fn has_queue(rule: &Rule) -> bool {
    matches!(&rule.quota, Quota::Bucket(it) if it.queue().is_some())
}

/// The reply to a change.
fn confirmation(is_made: bool) -> (Vec<u8>, CommandResult) {
    let mut out = Vec::new();
    if !is_made {
        let result = wrong(&mut out, NO_STORE);
        return (out, result);
    }
    reply::simple(&mut out, "OK");
    (out, CommandResult::Ok)
}

fn without_slots(limit: &Limit) -> Option<String> {
    (!has_slots(limit)).then(|| format!("ERR limit `{}` counts units, not slots: use TG.CHECK", limit.name()))
}

/// Parses the token of a slot.
fn owner_of(named: &NamedKey<'_, '_>) -> Result<Owner, String> {
    if let Some(mistake) = without_slots(named.limit) {
        return Err(mistake);
    }
    let token = named.last.and_then(|token| std::str::from_utf8(token).ok());
    let token = token.filter(|it| it.len() == 32 && it.bytes().all(|byte| byte.is_ascii_hexdigit()));
    let owner = token.and_then(|token| u128::from_str_radix(token, 16).ok());
    owner.map(Owner).ok_or_else(|| "ERR the token of a slot is what TG.ACQUIRE answered last".to_owned())
}

/// Parses the argument after the key of a limit that counts units. `alternative`: the commands for a
/// limit that counts slots.
fn units_of(named: &NamedKey<'_, '_>, alternative: &str) -> Result<Option<u64>, Vec<u8>> {
    if has_slots(named.limit) {
        let name = named.limit.name();
        return Err(format!("ERR limit `{name}` counts slots: use {alternative}").into_bytes());
    }
    cost_of(named).map_err(<[u8]>::to_vec)
}

/// Parses the argument after the key as a cost.
fn cost_of(named: &NamedKey<'_, '_>) -> Result<Option<u64>, &'static [u8]> {
    let Some(word) = named.last else { return Ok(None) };
    let cost = integer(word).and_then(|cost| u64::try_from(cost).ok());
    cost.map(Some).ok_or(b"ERR the cost is a whole number, and not negative")
}

/// Parses the key of a limit.
fn find<'l, 'w>(policy: &'l Policy, words: Words<'w>, command: Command) -> Result<NamedKey<'l, 'w>, String> {
    let name = String::from_utf8_lossy(cut(words.get(1)));
    let limit = std::str::from_utf8(words.get(1)).ok().and_then(|name| policy.limit(name));
    let Some(limit) = limit else {
        let known = policy.limits().iter().map(Limit::name).take(MAX_COMPARED_NAMES);
        return Err(format!("ERR no limit is called `{name}`; {}", hint(&name, "limits", known)));
    };
    let texts: Option<SmallVec<[&str; 4]>> =
        words.from(2).map(|word| std::str::from_utf8(word).ok()).collect();
    let texts = texts.unwrap_or_default();
    let parts = limit.key_words(&texts);
    // A cost may follow the key; a token must follow for `TG.RELEASE` and `TG.RENEW`.
    let least = 2 + parts + usize::from(matches!(command, Command::Release | Command::Renew));
    let most = 2 + parts + usize::from(command != Command::Acquire);
    let values = texts.get(..parts).filter(|_| (least..=most).contains(&words.len()));
    let key = values.and_then(|values| policy.key(limit, values));
    let last = (words.len() > 2 + parts).then(|| words.get(2 + parts));
    match key {
        Some(key) => Ok(NamedKey { limit, key, last }),
        None => Err(wrong_key(limit, command)),
    }
}

fn wrong_key(limit: &Limit, command: Command) -> String {
    let parts: Vec<_> = match limit.by() {
        [KeySource::Global] => Vec::new(),
        [KeySource::Descriptor] => limit.entry_keys().iter().map(|key| format!(" {key}=VALUE")).collect(),
        by => by.iter().map(|part| format!(" {part}")).collect(),
    };
    let parts = parts.concat();
    let last = match command {
        Command::Release | Command::Renew => " token",
        Command::Acquire => "",
        _ => " [cost]",
    };
    let name = limit.name();
    format!(
        "ERR usage: {} {name}{parts}{last} (each part of the key not empty, an ip as an address)",
        command.label()
    )
}

/// Writes six values: whether the request is limited, the numbers of the limit, and the decision ID
/// or the slot token.
pub(crate) fn write_decision<S: Store>(
    limiter: &Limiter<S>,
    decision: &Decision<'_>,
    is_slot: bool,
    protocol: Protocol,
    out: &mut Vec<u8>,
) {
    reply::array(out, 6);
    let tightest = || decision.limits().min_by_key(|it| (it.outcome().is_admitted(), it.outcome().remaining));
    let described = decision.limiting().or_else(tightest);
    let wait = match decision.fate() {
        Fate::Refused => described.and_then(|it| it.advised_wait()),
        Fate::Admitted => {
            let is_queued = decision.limits().any(|it| it.is_binding() && has_queue(it.rule()));
            is_queued.then(|| decision.wait())
        }
        _ => decision.advised_wait(),
    };
    write_outcome(described.map(|it| it.outcome()), decision.is_allowed(), wait, out);
    match decision.owner().filter(|_| decision.is_allowed()) {
        _ if !is_slot => reply::bulk(out, &limiter.id_of(decision).digits()),
        Some(Owner(owner)) => reply::bulk(out, format!("{owner:032x}").as_bytes()),
        None => reply::null(out, protocol),
    }
}

/// Writes whether the request is limited, the limit, the remaining units, and the times. If nothing
/// is counted, the limit is -1 for an admitted and 0 for a refused request. `wait`: the time until a
/// refused request may return, or until an admitted one may start.
fn write_outcome(outcome: Option<&Outcome>, allowed: bool, wait: Option<Duration>, out: &mut Vec<u8>) {
    reply::integer(out, i64::from(!allowed));
    match outcome {
        Some(outcome) => {
            reply::count(out, outcome.limit);
            reply::count(out, outcome.remaining);
        }
        None => {
            for _ in 0..2 {
                reply::integer(out, if allowed { -1 } else { 0 });
            }
        }
    }
    match wait {
        Some(wait) => reply::count(out, Span::from(wait).as_millis_ceil()),
        None => reply::integer(out, -1),
    }
    reply::count(out, outcome.map_or(0, |it| it.reset_after.as_millis_ceil()));
}
