//! The JSON view of a decision.
//!
//! Waits are in milliseconds, rounded up, so that a caller that waits as long does not return early.
//! Keys are shown as the policy's `privacy` says.

use std::borrow::Cow;
use std::hash::RandomState;

use tollgate::policy::{Key, KeyPrivacy};
use tollgate::{Decision, DecisionId, Fate, Limit, LimitOutcome, Mode, Outcome, Policy, Rule, Span};
use tollgate_http::{RetryAfter, soft_limits};
use tollgate_telemetry::reason;

use crate::access::Role;
use crate::decision_json::{write_head, write_limit};
use crate::status::tag;

/// A decision that borrows its texts.
pub(crate) type DecisionView<'d, L> = tollgate_api::Decision<Cow<'d, str>, L>;

/// The outcome of one window of one limit, which borrows its texts.
pub(crate) type LimitOutcomeView<'d> = tollgate_api::LimitOutcome<Cow<'d, str>>;

/// An empty list of limits.
pub(crate) type NoLimits<'d> = [LimitOutcomeView<'d>; 0];

pub(crate) const fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Enforce => "enforce",
        Mode::Shadow => "shadow",
        Mode::Off => "off",
    }
}

/// Replaces a key or an address that a reader named, if the policy shows hashes. A reader that could
/// see the hash of a chosen key could find the owners of other hashes.
pub(crate) const HIDDEN_KEY: &str = "hash:hidden";

/// Whether keys that this caller named must be hidden, even as hashes.
pub(crate) fn hides_named(policy: &Policy, role: Role) -> bool {
    policy.privacy() == KeyPrivacy::Hashed && role < Role::Admin
}

/// Whether keys that this caller named may be shown with their tag, which is the same wherever the key
/// appears. Not for a reader if keys are hidden or shortened.
pub(crate) fn tags_named(policy: &Policy, role: Role) -> bool {
    policy.privacy() == KeyPrivacy::Plain || role == Role::Admin
}

/// The context that a view needs besides the decision.
#[derive(Clone, Copy)]
pub(crate) struct ViewContext<'a> {
    pub(crate) policy: &'a Policy,
    pub(crate) secret: &'a RandomState,
}

impl ViewContext<'_> {
    /// Writes a decision as JSON.
    pub(crate) fn write(self, decision: &Decision<'_>, id: DecisionId, out: &mut Vec<u8>) {
        let refusing = match decision.fate() {
            Fate::Blocked(block) => Some(block.limit.name()),
            Fate::Uncountable => decision.uncountable().next().map(Limit::name),
            Fate::Shed(shed) => Some(shed.name()),
            _ => None,
        };
        let digits = id.digits();
        let view = DecisionView {
            id: std::str::from_utf8(&digits).ok().map(Cow::Borrowed),
            allowed: decision.is_allowed(),
            limit: decision.limiting().map(|it| it.limit().name()).or(refusing).map(Cow::Borrowed),
            retry_after_ms: RetryAfter::of(decision, 0, 0).map(RetryAfter::millis),
            wait_ms: Span::from(decision.wait()).as_millis_ceil(),
            degraded: decision.is_degraded(),
            priority: decision.priority().map(|class| Cow::Borrowed(class.name())),
            soft: soft_limits(decision).map(Cow::Borrowed).collect(),
            reason: reason(decision),
            limits: (),
        };
        write_head(&view, out);
        // The text of every key, one after the other.
        let mut shown = String::with_capacity(64);
        for (at, counted) in decision.limits().enumerate() {
            out.push(if at == 0 { b'[' } else { b',' });
            shown.clear();
            self.policy.show_key_to(counted.limit(), counted.key(), self.secret, &mut shown);
            write_limit(&self.counted(&counted, &shown), out);
        }
        out.extend_from_slice(if decision.limits().len() == 0 { b"[]}" } else { b"]}" });
    }

    fn counted<'d>(self, it: &LimitOutcome<'d>, shown: &'d str) -> LimitOutcomeView<'d> {
        let outcome = it.outcome();
        let view = self.view(it.limit(), it.rule(), it.key(), outcome, Cow::Borrowed(shown));
        let wait = RetryAfter::of_limit(it).map(RetryAfter::millis);
        LimitOutcomeView { allowed: outcome.is_admitted(), retry_after_ms: wait, ..view }
    }

    /// Returns the state of a key without charging it.
    pub(crate) fn standing<'d>(
        self,
        limit: &'d Limit,
        rule: &'d Rule,
        key: &Key,
        outcome: &Outcome,
    ) -> LimitOutcomeView<'d> {
        let shown = self.policy.show_key(limit, key, self.secret);
        self.view(limit, rule, key, outcome, Cow::Owned(shown))
    }

    fn view<'d>(
        self,
        limit: &'d Limit,
        rule: &'d Rule,
        key: &Key,
        outcome: &Outcome,
        shown: Cow<'d, str>,
    ) -> LimitOutcomeView<'d> {
        // Most keys are ASCII, which is found out faster.
        let is_shortened = !shown.is_ascii() && shown.contains('…');
        LimitOutcomeView {
            name: Cow::Borrowed(limit.name()),
            window: window(limit, rule).map(Cow::Borrowed),
            tag: is_shortened.then(|| tag(self.policy.key_tag(limit, key, self.secret)).into()),
            key: shown,
            algorithm: Cow::Borrowed(rule.quota.algorithm()),
            allowed: outcome.remaining > 0,
            mode: Cow::Borrowed(mode(limit.mode())),
            limit: outcome.limit,
            remaining: outcome.remaining,
            retry_after_ms: None,
            reset_after_ms: outcome.reset_after.as_millis_ceil(),
            held: None,
        }
    }
}

/// Returns the window of a rule. A rule is named after its limit, followed by the window if there are
/// several.
fn window<'d>(limit: &Limit, rule: &'d Rule) -> Option<&'d str> {
    rule.name.strip_prefix(limit.name())?.strip_prefix('/')
}

/// The reason of a refusal that waiting does not resolve.
pub(crate) const NEVER_REASON: &str = "it costs more than this limit ever holds: waiting does not help";
