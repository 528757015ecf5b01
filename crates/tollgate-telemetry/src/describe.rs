//! Turns a decision, which lives as long as its request, into a [`Record`] that is kept.
//!
//! Text from callers is truncated here, and keys and addresses are redacted as the policy's `privacy`
//! says, so that later stages need to do neither.

mod shed;

use std::borrow::Cow;
use std::hash::RandomState;
use std::sync::Arc;

use tollgate::policy::{Allowance, BlockReason};
use tollgate::{
    Decision, DecisionId, Fate, Limit, LimitOutcome, Mode, NotHeld, Outcome, Policy, PriorityClass, Quota,
    Rule, Shed, ShedCause, Span, Subject, Timestamp, Verdict,
};

use crate::address::show_address;
use crate::key_cache::ShownKey;
use crate::key_hash::ends;
use crate::record::{LimitRecord, Record, RecordFate, ShadowBlock};
use crate::redact::PathRedactor;
use crate::traceparent::TraceParent;

/// The bytes that are kept of a method, a path and a host.
pub(crate) const MAX_METHOD_BYTES: usize = 32;
pub(crate) const MAX_PATH_BYTES: usize = 256;
pub(crate) const MAX_HOST_BYTES: usize = 128;

/// The reason for the refusal of an ambiguous path.
pub(crate) const AMBIGUOUS_PATH: &str = "servers may take the path for different places";

/// The value of `granted_by` for a quota that the call sets and no policy contains.
pub(crate) const CALL: &str = "call";

/// The beginning of `granted_by` for the maximum of a priority class. The name of the class follows.
pub(crate) const CLASS: &str = "priority ";

/// The context that a record needs besides the decision.
pub(crate) struct Describer<'a> {
    pub(crate) policy: &'a Policy,
    pub(crate) version: u64,
    pub(crate) secret: &'a RandomState,
    /// Redacts keys in paths and hosts.
    pub(crate) redactor: Option<&'a PathRedactor>,
}

impl Describer<'_> {
    /// Returns the record of a decision, without an id and a sequence number.
    pub(crate) fn describe(
        &self,
        subject: Option<Subject<'_>>,
        decision: &Decision<'_>,
        at: Timestamp,
        key_hash: impl Fn(&LimitOutcome<'_>) -> u64,
    ) -> Record {
        let limiting = decision.limiting();
        let limit = match decision.fate() {
            Fate::Blocked(block) => Some(block.limit.shared_name()),
            Fate::Uncountable => decision.uncountable().next().map(tollgate::Limit::shared_name),
            Fate::Shed(shed) => Some(shed.name().into()),
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
            priority: decision.priority().map(|class| class.name().into()),
            policy_version: self.version,
            degraded: decision.is_degraded(),
            method: subject.map_or_else(Box::default, |it| shortened(method_of(it), MAX_METHOD_BYTES)),
            path: subject
                .map_or_else(Box::default, |it| shortened(&path_of(it, self.redactor), MAX_PATH_BYTES)),
            host: subject.and_then(|it| it.request()?.host()).map(|host| {
                shortened(self.redactor.map_or(host, |redactor| redactor.host(host)), MAX_HOST_BYTES)
            }),
            client: subject
                .and_then(Subject::client)
                .map(|client| show_address(client, self.policy, self.secret).into()),
            limit,
            tag: match decision.fate() {
                Fate::Blocked(_) => self.tag_of_client(subject),
                _ => limiting.map(|limiting| self.tag(&limiting)),
            },
            limiting: limiting.and_then(|it| place_of(&it, decision)),
            retry_after: decision.advised_wait().map(Span::from),
            limits: decision.limits().map(|it| self.limit(&it, decision, key_hash(&it))).collect(),
            node_shed: match decision.fate() {
                Fate::Shed(Shed { cause: ShedCause::Node(node), .. }) => Some(Box::new(node)),
                _ => None,
            },
            shadowed: decision.shadowed().iter().map(|it| shadowed(it.limit, it.reason)).collect(),
            switched_off: is_off(self.policy),
            trace: subject.and_then(trace_of),
        }
    }

    fn limit(&self, it: &LimitOutcome<'_>, decision: &Decision<'_>, key_hash: u64) -> LimitRecord {
        let share = decision.is_degraded().then(|| it.rule());
        let (key, allowed) = (self.shown_key(it), decision.is_allowed());
        let record = self.limit_record(
            it.limit(),
            (it.policy_rule(), share),
            &key,
            key_hash,
            allowed,
            it.cost(),
            *it.outcome(),
        );
        LimitRecord { name: self.name_of(it), ..record }
    }

    /// Returns the record of a limit. `rule` is the rule of the policy, and the share of this node in it if the
    /// decision is degraded.
    #[expect(clippy::too_many_arguments, reason = "the fields of the record")]
    pub(crate) fn limit_record(
        &self,
        limit: &Limit,
        (rule, share): (&Rule, Option<&Rule>),
        key: &ShownKey,
        key_hash: u64,
        allowed: bool,
        cost: u64,
        outcome: Outcome,
    ) -> LimitRecord {
        LimitRecord {
            name: limit.shared_name(),
            window: window(limit, rule).map(Box::from),
            key: (&key.text).into(),
            tag: key.tag,
            key_hash,
            quota: share.unwrap_or(rule).quota.clone(),
            whole: share.map(|_| rule.quota.clone()),
            granted_by: self.granted_by(limit, rule).map(Into::into),
            mode: limit.mode(),
            is_candidate: limit.candidate_of().is_some(),
            count_denied: limit.count_denied() && !allowed,
            degraded: share.is_some(),
            cost,
            outcome,
        }
    }

    /// Returns the name of a counted limit. A rule outside the policy has its own name.
    pub(crate) fn name_of(&self, it: &LimitOutcome<'_>) -> Arc<str> {
        let limit = it.limit();
        if limit.name() == self.policy.ad_hoc().name() { it.name().into() } else { limit.shared_name() }
    }

    /// Returns the source of the quota, if it is not the limit itself.
    fn granted_by(&self, limit: &Limit, rule: &Rule) -> Option<String> {
        if limit.name() == self.policy.ad_hoc().name() {
            return Some(CALL.to_owned());
        }
        let among = |rules: &[Rule]| rules.iter().any(|known| std::ptr::eq(known, rule));
        if among(limit.rules()) {
            return None;
        }
        if let Some(rank) = limit.class_rules().iter().position(|known| std::ptr::eq(known, rule)) {
            let class = self.policy.priorities().get(rank)?;
            return Some(format!("{CLASS}{}", class.name()));
        }
        let mut plans = limit.plans();
        let plan = plans.find(|(_, granted)| matches!(granted, Allowance::Rules(rules) if among(rules)));
        Some(plan.map_or_else(|| "override".to_owned(), |(name, _)| format!("plan {name}")))
    }

    /// Writes the key of a limit as `privacy` shows it, and returns the tag that identifies its hidden part. The tag
    /// is the same under every limit.
    pub(crate) fn show_key(&self, it: &LimitOutcome<'_>, out: &mut String) -> u64 {
        self.policy.show_key_to(it.limit(), it.key(), self.secret, out);
        self.tag(it)
    }

    fn shown_key(&self, it: &LimitOutcome<'_>) -> ShownKey {
        ShownKey::new(&mut String::new(), |out| self.show_key(it, out))
    }

    fn tag(&self, it: &LimitOutcome<'_>) -> u64 {
        self.policy.key_tag(it.limit(), it.key(), self.secret)
    }

    /// Returns the tag of the client of a request that a limit refuses without counting, because such a
    /// refusal has no key.
    pub(crate) fn tag_of_client(&self, subject: Option<Subject<'_>>) -> Option<u64> {
        let client = subject.and_then(Subject::client)?;
        Some(self.policy.address_tag(client, self.secret))
    }
}

/// Returns the index of a limit of a decision.
pub(crate) fn place_of(limit: &LimitOutcome<'_>, decision: &Decision<'_>) -> Option<usize> {
    decision.limits().position(|it| std::ptr::eq(it.outcome(), limit.outcome()))
}

/// Returns the block of a limit in shadow mode.
pub(crate) fn shadowed(limit: &Limit, reason: BlockReason) -> ShadowBlock {
    ShadowBlock {
        limit: limit.shared_name(),
        reason: blocked(limit, reason).into(),
        is_candidate: limit.candidate_of().is_some(),
    }
}

/// Whether the policy has limits and all of them are switched off.
pub(crate) fn is_off(policy: &Policy) -> bool {
    !policy.limits().is_empty() && policy.limits().iter().all(|limit| limit.mode() == Mode::Off)
}

/// Returns the trace context of a request.
pub(crate) fn trace_of(subject: Subject<'_>) -> Option<TraceParent> {
    TraceParent::parse(subject.request()?.header("traceparent")?)
}

/// Returns the window of a rule. A rule is named after its limit, followed by the window if there are
/// several.
fn window<'r>(limit: &Limit, rule: &'r Rule) -> Option<&'r str> {
    rule.name.strip_prefix(limit.name())?.strip_prefix('/')
}

pub(crate) const fn fate(fate: Fate<'_>) -> RecordFate {
    match fate {
        Fate::Admitted => RecordFate::Admitted,
        Fate::AllowListed(_) => RecordFate::AllowListed,
        Fate::DenyListed(_) => RecordFate::DenyListed,
        Fate::AmbiguousPath => RecordFate::AmbiguousPath,
        Fate::Blocked(_) => RecordFate::Blocked,
        Fate::Uncountable => RecordFate::Uncountable,
        Fate::Shed(_) => RecordFate::Shed,
        _ => RecordFate::Refused,
    }
}

/// Returns the longest prefix of at most `most` bytes that ends at a character boundary.
pub(crate) fn cut(text: &str, most: usize) -> &str {
    let mut end = most.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Truncates a text so that it fits `most` bytes, and returns whether it was truncated. A truncated
/// text leaves room for an ellipsis.
#[inline]
pub(crate) fn fit(text: &str, most: usize) -> (&str, bool) {
    if text.len() <= most { (text, false) } else { (cut(text, most.saturating_sub('…'.len_utf8())), true) }
}

/// Returns a text of at most `most` bytes, which ends in an ellipsis if it was truncated.
pub(crate) fn shortened(text: &str, most: usize) -> Box<str> {
    let (kept, is_cut) = fit(text, most);
    if is_cut { format!("{kept}…").into() } else { kept.into() }
}

/// Returns the method of a request. A descriptor has none.
#[inline]
pub(crate) fn method_of(subject: Subject<'_>) -> &str {
    subject.request().map_or("", |it| it.method())
}

/// Returns the redacted path of a request. A descriptor is shown with the path `/`.
#[inline(always)]
pub(crate) fn path_of<'r>(subject: Subject<'r>, redactor: Option<&PathRedactor>) -> Cow<'r, str> {
    match redactor {
        None => Cow::Borrowed(without_query(raw_path(subject))),
        Some(redactor) => redactor.path(raw_path(subject)),
    }
}

/// Returns the path of a request as received. A descriptor has the path `/`.
#[inline]
pub(crate) fn raw_path(subject: Subject<'_>) -> &str {
    subject.request().map_or("/", |it| it.path())
}

/// Removes a query string from a path. Queries may hold secrets and are never kept.
#[inline(always)]
pub(crate) fn without_query(path: &str) -> &str {
    // Nearly every path has none, and a path is short: to test all bytes takes less than to search for the first.
    if !has_query(path.as_bytes()) {
        return path;
    }
    path.bytes().position(|byte| byte == b'?').map_or(path, |end| &path[..end])
}

/// Whether a path has a question mark.
#[inline(always)]
fn has_query(path: &[u8]) -> bool {
    match (path.first_chunk(), path.last_chunk()) {
        (Some(head), Some(tail)) if path.len() <= 32 => has_mark(head) | has_mark(tail),
        (Some(_), Some(tail)) => {
            // The last block overlaps the one before.
            let (blocks, _) = path.as_chunks();
            blocks.iter().fold(has_mark(tail), |found, block| found | has_mark(block))
        }
        _ => has_mark(&ends(path)),
    }
}

/// Whether a block has a question mark. The loop has no branches and a fixed length, so the compiler makes it a few vector
/// instructions.
#[inline(always)]
fn has_mark(block: &[u8; 16]) -> bool {
    block.iter().fold(0, |found, &byte| found | u8::from(byte == b'?')) != 0
}

const NO_PLACE: &str = "the waiting room of this server was full";
const DISPLACED: &str =
    "the waiting room of this server was full, and a more important request took its place";

/// Returns the reason why a request was refused instead of being held for its wait.
pub(crate) const fn not_held(reason: NotHeld) -> &'static str {
    match reason {
        NotHeld::NoPlace => NO_PLACE,
        NotHeld::Displaced => DISPLACED,
        _ => "it was not held, because its caller does not wait for that long",
    }
}

/// Whether the reason of a record says that the waiting room was full.
pub(crate) fn is_room_full(reason: Option<&str>) -> bool {
    reason.is_some_and(|reason| [NO_PLACE, DISPLACED].contains(&reason))
}

/// Returns the reason of a decision in words; `None` if the numbers of the decision explain it.
pub fn reason(decision: &Decision<'_>) -> Option<Cow<'static, str>> {
    if let Some(reason) = decision.not_held() {
        return Some(not_held(reason).into());
    }
    match decision.fate() {
        Fate::Uncountable => Some(
            "the store does not answer, and this limit refuses during an outage: try again shortly".into(),
        ),
        Fate::Admitted | Fate::Refused if decision.is_degraded() => Some(
            if decision.limits().len() == 0 {
                "the store does not answer: admitted without counting, as `on_outage` says"
            } else {
                "the store does not answer: counted on this node alone, by its share of each limit"
            }
            .into(),
        ),
        Fate::Refused => {
            let limiting = decision.limiting()?;
            let rules = (limiting.policy_rule(), limiting.rule());
            reason_of_limit(decision.priority(), limiting.limit(), rules, limiting.outcome().verdict)
        }
        // The entry itself may contain a key.
        Fate::AllowListed(entry) => Some(allow_listed(entry.line()).into()),
        Fate::DenyListed(entry) => Some(deny_listed(entry.line()).into()),
        Fate::AmbiguousPath => Some(AMBIGUOUS_PATH.into()),
        Fate::Blocked(block) => Some(blocked(block.limit, block.reason).into()),
        Fate::Shed(shed) => Some(shed::reason(&shed).into()),
        _ => None,
    }
}

/// Returns the reason in words why the limiting limit refuses; `None` if its numbers explain it. The rules are that of
/// the policy and the one that was applied.
pub(crate) fn reason_of_limit(
    class: Option<&PriorityClass>,
    limit: &Limit,
    rules: (&Rule, &Rule),
    verdict: Verdict,
) -> Option<Cow<'static, str>> {
    if limit.is_shed() {
        return Some(fleet_reason(class, limit, rules).into());
    }
    let slots = matches!(rules.1.quota, Quota::Concurrency(_));
    (verdict == Verdict::Never && !slots)
        .then_some("it costs more than this limit ever holds: waiting does not help".into())
}

pub(crate) fn allow_listed(line: u32) -> String {
    format!("allow-listed in line {line} of the policy: no limit applies")
}

pub(crate) fn deny_listed(line: u32) -> String {
    format!("deny-listed in line {line} of the policy")
}

/// Returns the reason in words why the fleet shedder refuses.
fn fleet_reason(class: Option<&PriorityClass>, limit: &Limit, (rule, applied): (&Rule, &Rule)) -> String {
    let whole = limit.rules().first().map_or(0, |rule| rule.quota.capacity());
    let maximum = rule.quota.capacity();
    let class = class.map(|class| format!("priority `{}`", class.name()));
    let class = class.as_deref().unwrap_or("the fleet");
    match applied.quota {
        Quota::Concurrency(_) => {
            format!("overload: {class} may use {maximum} of {whole} slots, and {maximum} or more are in use")
        }
        _ => format!("overload: {class} may use {maximum} of {whole} requests at once, and all are spent"),
    }
}

/// Returns the reason in words why a limit refuses without counting.
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
        _ => format!("blocked: limit `{name}` is closed to this request"),
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
    fn an_address_has_the_same_hash_as_its_key() {
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
        for length in 1..100 {
            let path = format!("/{}", "a".repeat(length - 1));
            assert_eq!(without_query(&path), path);
            assert_eq!(without_query(&format!("{path}?b=?c")), path);
        }
        assert_eq!(&*shortened("abcdef", 6), "abcdef");
        assert_eq!(&*shortened("abcdefg", 6), "abc…");
        assert_eq!(&*shortened("ééé", 5), "é…");
    }
}
