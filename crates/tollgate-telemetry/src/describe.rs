//! From a decision, which is gone with its request, to a record, which stays.
//!
//! What callers wrote is cut here, and keys and addresses are redacted as the policy's
//! `privacy` says, so that nothing behind this has to think of either.

use std::borrow::Cow;
use std::hash::RandomState;
use std::net::IpAddr;
use std::sync::Arc;

use tollgate::policy::{Allowance, Block, BlockReason, KeyPrivacy};
use tollgate::{
    Decision, DecisionId, Fate, Limit, LimitOutcome, Mode, Policy, Quota, Request, Rule, Span, Timestamp,
    Verdict,
};

use crate::record::{LimitRecord, Record, RecordFate, ShadowBlock};
use crate::redact::PathRedactor;
use crate::traceparent::TraceParent;

/// How much of a method, a path and a host is kept, in bytes.
const MAX_METHOD_BYTES: usize = 32;
const MAX_PATH_BYTES: usize = 256;
const MAX_HOST_BYTES: usize = 128;
/// How much of a key. More is shown only of keys that are made to be long.
const MAX_KEY_BYTES: usize = 160;

/// Who grants numbers that stand in no policy.
pub(crate) const CALL: &str = "call";

/// What a record needs besides the decision.
pub(crate) struct Describer<'a> {
    pub(crate) policy: &'a Policy,
    pub(crate) version: u64,
    pub(crate) secret: &'a RandomState,
    /// What is hidden in paths and hosts.
    pub(crate) redactor: Option<&'a PathRedactor>,
    /// The limits' names by their place; those that are missing are made.
    pub(crate) names: &'a [Arc<str>],
}

impl Describer<'_> {
    /// The record of a decision, without a name and a number yet.
    pub(crate) fn describe(
        &self,
        request: Option<&dyn Request>,
        decision: &Decision<'_>,
        at: Timestamp,
        key_hash: impl Fn(&LimitOutcome<'_>) -> u64,
    ) -> Record {
        let limiting = decision.limiting_for_retry();
        let place = limiting.and_then(|limiting| {
            decision.limits().position(|it| std::ptr::eq(it.outcome(), limiting.outcome()))
        });
        let limit = match decision.fate() {
            Fate::Blocked(block) => Some(self.name(block.limit)),
            Fate::Uncountable => decision.uncountable().next().map(|limit| self.name(limit)),
            _ => limiting.map(|limiting| self.name_of(&limiting)),
        };
        Record {
            seq: 0,
            id: DecisionId(0),
            at,
            counted_at: decision.at().unwrap_or(at),
            took: Span::ZERO,
            allowed: decision.is_allowed(),
            fate: fate(decision.fate()),
            reason: reason(decision).map(Into::into),
            policy_version: self.version,
            degraded: decision.is_degraded(),
            method: request.map_or_else(Box::default, |it| shortened(it.method(), MAX_METHOD_BYTES)),
            path: request
                .map_or_else(Box::default, |it| shortened(&path_of(it, self.redactor), MAX_PATH_BYTES)),
            host: request.and_then(Request::host).map(|host| {
                shortened(self.redactor.map_or(host, |redactor| redactor.host(host)), MAX_HOST_BYTES)
            }),
            client: request
                .and_then(Request::client)
                .map(|client| show_address(client, self.policy, self.secret).into()),
            limit,
            tag: match decision.fate() {
                Fate::Blocked(_) => self.tag_of_client(request),
                _ => limiting.map(|limiting| self.tag(&limiting)),
            },
            limiting: place,
            retry_after: decision.advised_wait(),
            limits: decision.limits().map(|it| self.limit(&it, decision, key_hash(&it))).collect(),
            shadowed: decision.shadowed().iter().map(|block| self.shadowed(block)).collect(),
            switched_off: is_off(self.policy),
            trace: request.and_then(trace_of),
        }
    }

    fn limit(&self, it: &LimitOutcome<'_>, decision: &Decision<'_>, key_hash: u64) -> LimitRecord {
        let limit = it.limit();
        LimitRecord {
            name: self.name_of(it),
            window: window(it).map(Box::from),
            key: self.key(it),
            tag: self.tag(it),
            key_hash,
            quota: it.rule().quota.clone(),
            whole: decision.is_degraded().then(|| it.policy_rule().quota.clone()),
            granted_by: self.granted_by(it).map(Into::into),
            mode: limit.mode(),
            is_candidate: limit.candidate_of().is_some(),
            count_denied: limit.count_denied() && !decision.is_allowed(),
            degraded: decision.is_degraded(),
            cost: it.cost(),
            outcome: *it.outcome(),
        }
    }

    fn shadowed(&self, block: &Block<'_>) -> ShadowBlock {
        let limit = block.limit;
        ShadowBlock {
            limit: self.name(limit),
            reason: blocked(limit, block.reason).into(),
            is_candidate: limit.candidate_of().is_some(),
        }
    }

    /// A limit's name, made once for each policy.
    pub(crate) fn name(&self, limit: &Limit) -> Arc<str> {
        match self.names.get(limit.place()) {
            Some(name) => Arc::clone(name),
            None => limit.name().into(),
        }
    }

    /// The same of a limit that was counted. A rule that stands in no policy has a name of its own.
    pub(crate) fn name_of(&self, it: &LimitOutcome<'_>) -> Arc<str> {
        self.names.get(it.limit().place()).map_or_else(|| it.name().into(), Arc::clone)
    }

    /// Whose numbers a limit answered by, if not its own.
    fn granted_by(&self, it: &LimitOutcome<'_>) -> Option<String> {
        let (limit, rule) = (it.limit(), it.policy_rule());
        if limit.name() == self.policy.ad_hoc().name() {
            return Some(CALL.to_owned());
        }
        let among = |rules: &[Rule]| rules.iter().any(|known| std::ptr::eq(known, rule));
        if among(limit.rules()) {
            return None;
        }
        let mut plans = limit.plans();
        let plan = plans.find(|(_, granted)| matches!(granted, Allowance::Rules(rules) if among(rules)));
        Some(plan.map_or_else(|| "override".to_owned(), |(name, _)| format!("plan {name}")))
    }

    /// A key, as it may be seen.
    pub(crate) fn key(&self, it: &LimitOutcome<'_>) -> Box<str> {
        shortened(&self.policy.show_key(it.limit(), it.key(), self.secret), MAX_KEY_BYTES)
    }

    /// Stands for what is not shown of a key: the same under every limit.
    pub(crate) fn tag(&self, it: &LimitOutcome<'_>) -> u64 {
        self.policy.key_tag(it.limit(), it.key(), self.secret)
    }

    /// The tag of the client of a request that a limit refuses without counting: the key is
    /// gone, or was never there.
    pub(crate) fn tag_of_client(&self, request: Option<&dyn Request>) -> Option<u64> {
        let client = request.and_then(Request::client)?;
        Some(self.policy.address_tag(client, self.secret))
    }
}

/// Whether all limits are switched off, if there are any.
fn is_off(policy: &Policy) -> bool {
    !policy.limits().is_empty() && policy.limits().iter().all(|limit| limit.mode() == Mode::Off)
}

/// The trace that a request says it belongs to.
pub(crate) fn trace_of(request: &dyn Request) -> Option<TraceParent> {
    TraceParent::parse(request.header("traceparent")?)
}

/// A rule is called by its limit, with the window behind it where there are several.
fn window<'d>(it: &LimitOutcome<'d>) -> Option<&'d str> {
    it.name().strip_prefix(it.limit().name())?.strip_prefix('/')
}

const fn fate(fate: Fate<'_>) -> RecordFate {
    match fate {
        Fate::Admitted => RecordFate::Admitted,
        Fate::Refused => RecordFate::Refused,
        Fate::AllowListed(_) => RecordFate::AllowListed,
        Fate::DenyListed(_) => RecordFate::DenyListed,
        Fate::AmbiguousPath => RecordFate::AmbiguousPath,
        Fate::Blocked(_) => RecordFate::Blocked,
        Fate::Uncountable => RecordFate::Uncountable,
    }
}

/// The first bytes of a text, whole characters only.
pub(crate) fn cut(text: &str, most: usize) -> &str {
    let mut end = most.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// A text that fits so many bytes, and whether it had to be cut for that: then there is room
/// for an ellipsis behind it.
pub(crate) fn fit(text: &str, most: usize) -> (&str, bool) {
    if text.len() <= most { (text, false) } else { (cut(text, most.saturating_sub('…'.len_utf8())), true) }
}

/// A text of so many bytes at most, which ends in an ellipsis where it was cut.
pub(crate) fn shortened(text: &str, most: usize) -> Box<str> {
    let (kept, is_cut) = fit(text, most);
    if is_cut { format!("{kept}…").into() } else { kept.into() }
}

/// The path of a request, as it may be seen.
#[inline]
pub(crate) fn path_of<'r>(request: &'r dyn Request, redactor: Option<&PathRedactor>) -> Cow<'r, str> {
    match redactor {
        None => Cow::Borrowed(without_query(request.path())),
        Some(redactor) => redactor.path(request.path()),
    }
}

/// A path that came with its query nevertheless: what is asked for is nobody's business.
pub(crate) fn without_query(path: &str) -> &str {
    path.split_once('?').map_or(path, |(path, _)| path)
}

/// An address as the policy's `privacy` lets it be seen: by the same hash as the key of a
/// limit that counts by address, so that the two can be seen to be one.
pub fn show_address(address: IpAddr, policy: &Policy, secret: &RandomState) -> String {
    match (policy.privacy(), address) {
        (KeyPrivacy::Plain, _) => address.to_string(),
        (KeyPrivacy::Hashed, _) => format!("hash:{:016x}", policy.address_tag(address, secret)),
        (KeyPrivacy::Truncated, IpAddr::V4(address)) => {
            let [first, second, ..] = address.octets();
            format!("{first}.{second}.…")
        }
        (KeyPrivacy::Truncated, IpAddr::V6(address)) => {
            let [first, second, ..] = address.segments();
            format!("{first:x}:{second:x}:…")
        }
    }
}

/// What no number says about a decision, in words; `None` where the numbers say it all.
pub fn reason(decision: &Decision<'_>) -> Option<Cow<'static, str>> {
    match decision.fate() {
        Fate::Uncountable => Some(
            "the store gives no answer, and this limit would rather refuse than not count: try again shortly"
                .into(),
        ),
        Fate::Admitted | Fate::Refused if decision.is_degraded() => Some(
            if decision.limits().len() == 0 {
                "the store gives no answer: let through uncounted, as `on_outage` says"
            } else {
                "the store gives no answer: counted on this node alone, by its share of each limit"
            }
            .into(),
        ),
        Fate::Admitted => None,
        Fate::Refused => {
            let limiting = decision.limiting()?;
            let never = limiting.outcome().verdict == Verdict::Never;
            let slots = matches!(limiting.rule().quota, Quota::Concurrency(_));
            (never && !slots)
                .then_some("it costs more than this limit ever holds: waiting does not help".into())
        }
        // Not the entry itself: it may hold a key.
        Fate::AllowListed(entry) => {
            Some(format!("allow-listed in line {} of the policy: no limit applies", entry.line()).into())
        }
        Fate::DenyListed(entry) => Some(format!("deny-listed in line {} of the policy", entry.line()).into()),
        Fate::AmbiguousPath => Some("servers may take the path for different places".into()),
        Fate::Blocked(block) => Some(blocked(block.limit, block.reason).into()),
    }
}

/// Why a limit refuses without counting, in words.
pub fn blocked(limit: &Limit, reason: BlockReason) -> String {
    let name = limit.name();
    match reason {
        BlockReason::Override => format!("blocked: `overrides` of limit `{name}` closes it to this key"),
        BlockReason::Plan => format!("blocked: `plans` of limit `{name}` closes it to this plan"),
        BlockReason::MissingKey => {
            let parts: Vec<_> = limit.by().iter().map(|part| format!("`{part}`")).collect();
            let parts = parts.join(" and ");
            format!("blocked: limit `{name}` counts by {parts}, which this request does not have")
        }
        BlockReason::Ambiguous => {
            let parts: Vec<_> = limit.by().iter().map(|part| format!("`{part}`")).collect();
            let parts = parts.join(" and ");
            format!(
                "blocked: limit `{name}` counts by {parts}, and this request gives several different values \
                 for that or for its plan"
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_shown_as_privacy_says() {
        let check = |address: &str, privacy, expected: &str| {
            assert_eq!(
                show_address(address.parse().unwrap(), &policy(privacy), &RandomState::new()),
                expected
            );
        };
        check("203.0.113.9", "plain", "203.0.113.9");
        check("203.0.113.9", "truncated", "203.0.…");
        check("2001:db8::1", "truncated", "2001:db8:…");
    }

    fn policy(privacy: &str) -> Policy {
        Policy::parse(&format!("privacy: {{keys: {privacy}}}\nlimits: [{{by: ip, bucket: 1/s}}]")).unwrap()
    }

    #[test]
    fn an_address_has_the_hash_of_the_key_that_it_is() {
        let (policy, secret) = (policy("hashed"), RandomState::new());
        let limit = &policy.limits()[0];
        for address in ["203.0.113.9", "2001:db8::1", "::ffff:203.0.113.9"] {
            let shown = show_address(address.parse().unwrap(), &policy, &secret);
            assert!(shown.starts_with("hash:") && shown.len() == 21, "{shown}");
            let key = policy.key(limit, &[address]).unwrap();
            assert_eq!(shown, policy.show_key(limit, &key, &secret), "{address}");
        }
    }

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(cut("aéz", 2), "a");
        assert_eq!(cut("aéz", 3), "aé");
        assert_eq!(cut("aéz", 99), "aéz");
        assert_eq!(without_query("/a?b=?c"), "/a");
        assert_eq!(&*shortened("abcdef", 6), "abcdef");
        assert_eq!(&*shortened("abcdefg", 6), "abc…");
        assert_eq!(&*shortened("ééé", 5), "é…");
    }
}
