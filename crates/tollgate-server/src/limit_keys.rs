//! `POST /v1/limits/{name}/…`: operations on one key of one limit.
//!
//! For services that choose the limit and the key themselves, and for operators that inspect or adjust
//! a key. The response covers all windows of the limit. A check follows the mode of the limit, as a
//! request does; the other operations work in every mode.

use std::borrow::Cow;

use tollgate::policy::{Grant, Key};
use tollgate::{
    KeySource, Limit, Limiter, Mode, Outcome, Policy, Quota, Rule, Span, Store, StoreError, expected_wait,
};
use tollgate_api::{KeyRequest, ResetRequest};
use tollgate_document::nearest;
use tollgate_telemetry::blocked;

use crate::access::Role;
use crate::api::Inner;
use crate::body::{quoted, read};
use crate::decision_view::{
    DecisionView, HIDDEN_KEY, NEVER_REASON, NoLimits, ViewContext, hides_named, tags_named,
};
use crate::json::{Parts, Text, Units};
use crate::problem::Problem;
use crate::query::unescaped;
use crate::reply::{Reply, json, json_of};
use crate::route::Operation;

const FIELDS: &[&str] = &["key", "cost", "plan"];
/// A reset has no cost.
const RESET_FIELDS: &[&str] = &["key", "plan"];
/// The maximum number of names that are compared with an unknown name.
const MAX_COMPARED_NAMES: usize = 200;
/// The maximum number of names that an error lists.
const MAX_LISTED_NAMES: usize = 10;

/// One key of one limit.
struct NamedKey<'l> {
    limit: &'l Limit,
    key: Key,
    plan: Option<&'l str>,
    cost: Option<u64>,
    /// Whether the caller that named the key may not see its hash.
    is_hidden: bool,
    /// Whether the caller may see its tag.
    is_tagged: bool,
}

impl<S: Store> Inner<S> {
    pub(crate) async fn named(
        &self,
        name: &str,
        operation: Operation,
        body: &[u8],
        role: Role,
    ) -> Result<Reply, Problem> {
        let request: KeyRequest<Parts<'_>, Text<'_>, Units> = if operation == Operation::Reset {
            let ResetRequest { key, plan } = read(body, RESET_FIELDS)?;
            KeyRequest { key, plan, cost: None }
        } else {
            read(body, FIELDS)?
        };
        // Clients may percent-encode any character of a path.
        let name = &*unescaped(name);
        let limiter = self.limiter.load();
        let policy = limiter.policy();
        let limit = policy.limit(name).ok_or_else(|| unknown(name, policy))?;
        let values = request.key.as_ref().map(Parts::as_strs).unwrap_or_default();
        let named = NamedKey {
            limit,
            key: key(policy, limit, &values).ok_or_else(|| wrong_key(limit))?,
            plan: request.plan.as_ref().map(Text::as_str).filter(|plan| !plan.is_empty()),
            cost: request.cost.map(Units::count).transpose()?,
            is_hidden: hides_named(policy, role),
            is_tagged: tags_named(policy, role),
        };
        if operation == Operation::Check {
            return Ok(self.check_named(&limiter, named).await);
        }
        let rules = match policy.granted(limit, &named.key, named.plan) {
            Grant::Rules(rules) => rules,
            Grant::Unlimited => return Ok(uncounted(true, None, UNLIMITED.into(), false)),
            Grant::Blocked(reason) => {
                return Ok(uncounted(false, Some(name), blocked(limit, reason).into(), false));
            }
        };
        if matches!(operation, Operation::Grant | Operation::Refund)
            && rules.iter().all(|rule| matches!(rule.quota, Quota::Concurrency(_)))
        {
            return Err(Problem::conflict(format!(
                "limit `{name}` counts slots, which are held and not spent: \
                 give one back with `/v1/release`, or all with `/v1/limits/{name}/reset`"
            )));
        }
        let outcomes = adjusted(&limiter, &named, rules, operation).await;
        if operation != Operation::Peek
            && let Some(watcher) = self.watcher.get()
        {
            // Also if the store did not answer: it may have applied the change, and an exhausted key
            // is soon detected again.
            watcher.forget_key(limit, &named.key);
        }
        match outcomes.map_err(|error| match operation {
            Operation::Grant | Operation::Refund => Problem::changed_in_doubt(&error),
            Operation::Check | Operation::Peek | Operation::Reset => Problem::outage_of_key(&error),
        })? {
            Some(outcomes) => Ok(self.state_reply(&limiter, &named, operation, rules, &outcomes)),
            // This node keeps the change until the store answers.
            None => Ok(uncounted(true, Some(name), DEFERRED.into(), true)),
        }
    }

    async fn check_named(&self, limiter: &Limiter<S>, named: NamedKey<'_>) -> Reply {
        let mut out = Vec::with_capacity(512);
        let decision = limiter.decide_named(named.limit, named.key, named.plan, named.cost).await;
        self.write_decision(limiter, &decision, &mut out);
        json(out)
    }

    /// Returns the state of the key, one entry for each window.
    fn state_reply(
        &self,
        limiter: &Limiter<S>,
        named: &NamedKey<'_>,
        operation: Operation,
        rules: &[Rule],
        outcomes: &[Outcome],
    ) -> Reply {
        let teller = ViewContext { policy: limiter.policy(), secret: self.secret() };
        // For a grant or a refund, `cost` is the amount to return and not the cost of the next
        // request.
        let wanted = if operation == Operation::Peek { named.cost.unwrap_or(1) } else { 1 };
        let limits: Vec<_> = rules
            .iter()
            .zip(outcomes)
            .map(|(rule, outcome)| {
                let wanted = if matches!(rule.quota, Quota::Concurrency(_)) { 1 } else { wanted };
                let mut view = teller.standing(named.limit, rule, &named.key, outcome);
                view.allowed = outcome.remaining >= wanted;
                if named.is_hidden {
                    view.key = Cow::Borrowed(HIDDEN_KEY);
                }
                view.tag = view.tag.filter(|_| named.is_tagged);
                view.held = limiter.holding(rule, &named.key).map(|it| it.units);
                (view, outcome.limit < wanted)
            })
            .collect();
        let tightest = limits.iter().map(|(view, _)| view).min_by_key(|view| (view.allowed, view.remaining));
        let is_enforced = named.limit.mode() == Mode::Enforce;
        let allowed = !is_enforced || limits.iter().all(|(view, _)| view.allowed);
        // The next request would have this wait, as `allowed` says whether it would be admitted.
        let waits = rules.iter().zip(outcomes).map(|(rule, outcome)| expected_wait(rule, outcome));
        let wait = waits.max().filter(|_| is_enforced && allowed).unwrap_or_default();
        let decision = DecisionView {
            id: None,
            allowed,
            limit: tightest.map(|view| view.name.clone()),
            retry_after_ms: None,
            wait_ms: Span::from(wait).as_millis_ceil(),
            degraded: false,
            priority: None,
            soft: Vec::new(),
            reason: limits.iter().any(|(_, never)| *never).then_some(NEVER_REASON.into()),
            limits: limits.iter().map(|(view, _)| view).collect::<Vec<_>>(),
        };
        json_of(&decision)
    }
}

/// Applies an operation, and returns the resulting state of each window, or `None` if the store gave no
/// answer and the change is deferred.
async fn adjusted<S: Store>(
    limiter: &Limiter<S>,
    named: &NamedKey<'_>,
    rules: &[Rule],
    operation: Operation,
) -> Result<Option<Vec<Outcome>>, StoreError> {
    let (key, units) = (&named.key, named.cost.unwrap_or(1));
    let mut outcomes = Vec::with_capacity(rules.len());
    match operation {
        Operation::Check | Operation::Peek => {
            return Ok(Some(limiter.peek(rules, key, 0).await?.to_vec()));
        }
        Operation::Grant | Operation::Refund => {
            // The time of the refunded charge is unknown, so a refund cannot target it: like a grant,
            // it returns the newest charges that still count.
            let (mut is_deferred, mut failure) = (false, None);
            for rule in rules {
                match limiter.grant(named.limit.name(), rule, key, units).await {
                    Ok(Some(outcome)) => outcomes.push(outcome),
                    Ok(None) => is_deferred = true,
                    Err(error) => failure = failure.or(Some(error)),
                }
            }
            return failure.map_or(Ok((!is_deferred).then_some(outcomes)), Err);
        }
        Operation::Reset => {
            for rule in rules {
                outcomes.push(limiter.reset(rule, key).await?);
            }
        }
    }
    Ok(Some(outcomes))
}

const DEFERRED: &str = "the store gives no answer: the change is kept on this node and made when it answers, so do not repeat it";

const UNLIMITED: &str = "unlimited: this limit does not count this key";

/// Returns a reply without numbers.
fn uncounted(allowed: bool, limit: Option<&str>, reason: Cow<'static, str>, degraded: bool) -> Reply {
    json_of(&DecisionView {
        id: None,
        allowed,
        limit: limit.map(Into::into),
        retry_after_ms: None,
        wait_ms: 0,
        degraded,
        priority: None,
        soft: Vec::new(),
        reason: Some(reason),
        limits: NoLimits::default(),
    })
}

pub(crate) fn unknown(name: &str, policy: &Policy) -> Problem {
    let names = || policy.limits().iter().map(Limit::name);
    let meant = match nearest(name, names().take(MAX_COMPARED_NAMES)) {
        Some(meant) => format!("did you mean `{meant}`? "),
        None => String::new(),
    };
    let listed: Vec<_> = names().take(MAX_LISTED_NAMES).map(|name| format!("`{name}`")).collect();
    let listed = match listed.len() {
        0 => "the policy has no limits".to_owned(),
        MAX_LISTED_NAMES => format!("among others there are {}", listed.join(", ")),
        _ => format!("there are {}", listed.join(", ")),
    };
    Problem::not_found(format!("no limit is called `{}`; {meant}{listed}", quoted(name)))
}

/// Returns the key, if a request can have it.
fn key(policy: &Policy, limit: &Limit, values: &[&str]) -> Option<Key> {
    // A key for `by: global` would be accepted without meaning, and would appear to be counted.
    if limit.by() == [KeySource::Global] && !values.is_empty() {
        return None;
    }
    policy.key(limit, values)
}

/// Returns the error for a key that no request can have.
fn wrong_key(limit: &Limit) -> Problem {
    let name = limit.name();
    let parts: Vec<_> = limit.by().iter().map(ToString::to_string).collect();
    Problem::not_found(match parts.as_slice() {
        [only] if only == "global" => format!("limit `{name}` has one key for all callers: leave out `key`"),
        [only] if only == "ip" => {
            format!("limit `{name}` counts by ip: `key` must be an address such as \"203.0.113.9\"")
        }
        [only] if only == "descriptor" => match limit.descriptor() {
            Some(pattern) => format!(
                "limit `{name}` counts by the entries {pattern}: `key` must be a list with a value for each of \
                 them, in this order"
            ),
            None => format!(
                "limit `{name}` counts by the entries of a descriptor: `key` must be a list of them, such as \
                 [\"plan=gold\", \"user=ann\"]"
            ),
        },
        [only] => format!("limit `{name}` counts by {only}: `key` must be a string that is not empty"),
        several => format!(
            "limit `{name}` counts by {}: `key` must be a list of {} strings in this order, none empty, \
             an ip as an address",
            several.join(", "),
            several.len()
        ),
    })
}
