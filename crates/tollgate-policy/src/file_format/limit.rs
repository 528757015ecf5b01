//! One limit as written.
//!
//! - `adaptive`: a learned number of slots.
//! - `candidate`: numbers that are evaluated beside the limit.
//! - `cost`: the cost of a request, known before it or after.
//! - `descriptor`: the descriptors of a limit, and words that only such a limit has.
//! - `queue`: the queue of requests above the rate.
//! - `rlqs`: the buckets of a limit that a quota service divides.
//! - `soft`: the threshold below the limit.
//! - `values`, `words`: the values of a limit, and its words.

mod adaptive;
pub(crate) mod candidate;
pub(crate) mod cost;
mod descriptor;
pub(crate) mod queue;
pub(crate) mod rlqs;
pub(crate) mod soft;
mod values;
mod words;

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use tollgate_core::Span;
use tollgate_document::{Fields, Kind, Located, Node, Place, Problems, RateText, parse_span};

use cost::CostText;
use queue::QueueText;
use values::{algorithm, allowances, by, windows};
pub(super) use values::{headers, method, name, parsed, patterns, rate};
#[cfg(feature = "schema")]
pub(crate) use words::METHODS;
#[cfg(feature = "schema")]
pub(super) use words::ModeWord;
pub(crate) use words::WORDS;
use words::{ALIGNS, AMOUNTS, CHARGE_SYNONYMS, CHARGES, MISSING, MISSING_SYNONYMS, SCOPE_SYNONYMS, SCOPES};
#[cfg(feature = "schema")]
use words::{AlgorithmWord, AlignWord, ChargeWord, HangupWord, MissingWord, OutageWord, ScopeWord};
pub(super) use words::{HANGUP_SYNONYMS, HANGUPS, OUTAGE_SYNONYMS, OUTAGES};
use words::{MODE_SYNONYMS, MODES};

#[cfg(feature = "schema")]
use super::OneOrMany;
use super::expect;
use super::lease::LeaseText;
#[cfg(feature = "schema")]
use super::schema::{
    AllowanceMapSchema, BucketSchema, CandidateSchema, CostSchema, DurationSchema, EndpointSchema,
    EntrySchema, HeaderMapSchema, LeaseSchema, LintSchema, NameSchema, QueueSchema, RateSchema, SlotsSchema,
    SoftSchema, SourceSchema, Whole,
};
#[cfg(feature = "schema")]
use super::sections::DialectWord;
use super::sections::dialects;
use crate::adaptive::AdaptiveSlots;
use crate::bucket_pattern::BucketPattern;
use crate::descriptor::DescriptorPattern;
use crate::limit::{ChargeTime, HeaderMatch, Missing, Mode, OnHangup, OnOutage, Scope, Soft};
use crate::lint::Lint;
use crate::pattern::{HostPattern, PathPattern};
use crate::settings::Dialect;
use crate::source::KeySource;

/// The requests that one limit covers, its key, and its amount.
#[derive(Debug, Default)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(deny_unknown_fields))]
pub(crate) struct Limit {
    #[cfg_attr(feature = "schema", schemars(skip))]
    pub(crate) place: Place,
    /// The words that set the amount, valid or not.
    #[cfg_attr(feature = "schema", schemars(skip))]
    pub(crate) amounts: Vec<Located<&'static str>>,
    /// Whether algorithm or amount were present and invalid. Then their absence is not
    /// reported.
    #[cfg_attr(feature = "schema", schemars(skip))]
    pub(crate) unreadable: bool,
    /// Shown in responses and metrics; derived from endpoint and key when absent.
    #[cfg_attr(feature = "schema", schemars(with = "Option<NameSchema>"))]
    pub(crate) name: Option<Located<String>>,
    /// Paths: `/exact`, `/users/{id}`, `/files/**`; `*` is any one segment. Default `/**`, everything.
    #[cfg_attr(feature = "schema", schemars(with = "Option<OneOrMany<EndpointSchema>>"))]
    pub(crate) endpoint: Vec<Located<PathPattern>>,
    /// Paths of its endpoints that it does not cover: `[/healthz, /metrics/**]`. Default none.
    #[cfg_attr(feature = "schema", schemars(with = "Option<OneOrMany<EndpointSchema>>"))]
    pub(crate) except: Vec<Located<PathPattern>>,
    /// Methods. Default all. `GET` covers `HEAD` too.
    #[cfg_attr(feature = "schema", schemars(with = "Option<OneOrMany<String>>"))]
    pub(crate) method: Vec<Located<String>>,
    /// Hosts: `api.example.com` or `*.example.com`. Default all.
    #[cfg_attr(feature = "schema", schemars(with = "Option<OneOrMany<String>>"))]
    pub(crate) host: Vec<Located<HostPattern>>,
    /// Headers that a request must have for the limit to apply: a value, or `"*"` for any.
    #[cfg_attr(feature = "schema", schemars(with = "Option<HeaderMapSchema>"))]
    pub(crate) headers: Vec<HeaderMatch>,
    /// Descriptors that a proxy sends, by their entries in order: `plan=gold`, `user` with any
    /// value, `path=/v1/*`. Such a limit covers only descriptors.
    #[cfg_attr(feature = "schema", schemars(with = "Option<OneOrMany<EntrySchema>>"))]
    pub(crate) descriptor: Option<Located<DescriptorPattern>>,
    /// Buckets that Envoy's quota filter reports, by domain and entries; `"*"` is any value. Every distinct bucket id
    /// has a budget of its own, which is divided over the proxies by demand.
    #[cfg_attr(feature = "schema", schemars(with = "Option<BucketSchema>"))]
    pub(crate) rlqs: Option<Located<BucketPattern>>,
    /// Domains whose descriptors it covers. Default all.
    #[cfg_attr(feature = "schema", schemars(with = "Option<OneOrMany<String>>"))]
    pub(crate) domain: Vec<Located<Box<str>>>,
    /// The maximum number of additional units that an admitted response grants, for a proxy to admit locally.
    #[cfg_attr(feature = "schema", schemars(with = "Option<Whole>"))]
    pub(crate) quota: Option<Located<u64>>,
    /// The key: one property of a request, or a list of properties that form the key together. For a
    /// limit on descriptors: `descriptor` (all entries, the default), `descriptor:NAME` or `global`.
    #[cfg_attr(feature = "schema", schemars(with = "Option<OneOrMany<SourceSchema>>"))]
    pub(crate) by: Vec<Located<KeySource>>,
    /// The handling of requests that lack the key. Default `ip`: they are counted by client address.
    #[cfg_attr(feature = "schema", schemars(with = "Option<MissingWord>"))]
    pub(crate) missing: Option<Located<Missing>>,
    /// The amount: `10/minute`, or `1000/minute, burst 200`.
    #[cfg_attr(feature = "schema", schemars(with = "Option<RateSchema>"))]
    pub(crate) bucket: Option<Located<RateText>>,
    /// The same as `bucket`, for algorithms without a bucket.
    #[cfg_attr(feature = "schema", schemars(with = "Option<RateSchema>"))]
    pub(crate) rate: Option<Located<RateText>>,
    /// Several rates that must all hold: `[10/second, 1000/hour]`.
    #[cfg_attr(feature = "schema", schemars(with = "Option<Vec<RateSchema>>"))]
    pub(crate) windows: Option<Located<Vec<Located<RateText>>>>,
    /// The number of concurrent requests, for `concurrency`: a number, or `adaptive` if it is learned from
    /// the latency of the service, on each node by itself.
    #[cfg_attr(feature = "schema", schemars(with = "Option<SlotsSchema>"))]
    pub(crate) slots: Option<Located<u64>>,
    /// The bounds of a learned number of slots.
    #[cfg_attr(feature = "schema", schemars(skip))]
    pub(crate) adaptive: Option<Located<AdaptiveSlots>>,
    /// The time after which a slot that was never released is free again. Default `60s`.
    #[cfg_attr(feature = "schema", schemars(with = "Option<DurationSchema>"))]
    pub(crate) ttl: Option<Located<Span>>,
    /// The handling of a slot whose caller disconnects. Default `hold`: it is held until the service
    /// behind the gateway has answered; `release` for services that stop work when their connection is closed.
    #[cfg_attr(feature = "schema", schemars(with = "Option<HangupWord>"))]
    pub(crate) on_hangup: Option<Located<OnHangup>>,
    /// The entry that names a request, for `slots` of a limit on descriptors: `descriptor:request_id`. The
    /// end of a request then releases its own slot; else it releases the oldest slot of the key.
    #[cfg_attr(feature = "schema", schemars(with = "Option<SourceSchema>"))]
    pub(crate) owner: Option<Located<KeySource>>,
    /// The queue of requests above the rate, for `leaky-queue`: `{length: 50, wait: 2s, free: 5}`; with
    /// `slots`, the queue of requests that wait for a slot: `{length: 200, wait: 1s}`.
    #[cfg_attr(feature = "schema", schemars(with = "Option<QueueSchema>"))]
    pub(crate) queue: Option<Located<QueueText>>,
    /// The key whose values get slots in turn, for `slots` with a `queue`: `tenant`. Default: first come,
    /// first served.
    #[cfg_attr(feature = "schema", schemars(with = "Option<OneOrMany<SourceSchema>>"))]
    pub(crate) fair_by: Option<Located<Vec<KeySource>>>,
    /// The algorithm. Default `token-bucket`; `concurrency` with `slots`, `leaky-queue` with `queue`.
    #[cfg_attr(feature = "schema", schemars(with = "Option<AlgorithmWord>"))]
    pub(crate) algorithm: Option<Located<Algorithm>>,
    /// The start of fixed windows. Default `epoch`.
    #[cfg_attr(feature = "schema", schemars(with = "Option<AlignWord>"))]
    pub(crate) align: Option<Located<Align>>,
    /// The time zone of the calendar, for `align: calendar`. Default `UTC`.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub(crate) timezone: Option<Located<String>>,
    /// The maximum number of parts in which a sliding window is counted, 1 to 64. Default 1, the
    /// estimate from two counters; 7 is nearly as accurate as the log.
    #[cfg_attr(feature = "schema", schemars(with = "Option<Whole>"))]
    pub(crate) parts: Option<Located<u64>>,
    /// Whether a sliding window never admits more than its rate in any stretch, and refuses
    /// some requests early instead. Uses 16 parts unless `parts` is set. Default `false`.
    #[cfg_attr(feature = "schema", schemars(with = "Option<bool>"))]
    pub(crate) strict: Option<Located<bool>>,
    /// Whether refused requests are charged. Default `false`.
    #[cfg_attr(feature = "schema", schemars(with = "Option<bool>"))]
    pub(crate) count_denied: Option<Located<bool>>,
    /// The cost of a request: a number, `header:NAME` or `body:1KB`. Default 1. For a cost that is known
    /// afterwards, the reservation and the source of the final cost.
    #[cfg_attr(feature = "schema", schemars(with = "Option<CostSchema>"))]
    pub(crate) cost: Option<Located<CostText>>,
    /// When a limit on descriptors is charged. Default `on-arrival`; `afterwards`: a call with hits reports a
    /// cost that has been spent, and is charged even if the units are not available; a call without hits
    /// passes while something is left.
    #[cfg_attr(feature = "schema", schemars(with = "Option<ChargeWord>"))]
    pub(crate) charge: Option<Located<ChargeTime>>,
    /// Whether the limit refuses. Default `enforce`; `shadow` only counts, `off` disables the limit.
    #[cfg_attr(feature = "schema", schemars(with = "Option<ModeWord>"))]
    pub(crate) mode: Option<Located<Mode>>,
    /// Amounts by plan: `{pro: "1000/minute", enterprise: unlimited}`.
    #[cfg_attr(feature = "schema", schemars(with = "Option<AllowanceMapSchema>"))]
    pub(crate) plans: Vec<(Located<String>, Located<AllowanceText>)>,
    /// Amounts for single keys: `{key-123: 5000/minute, bad-key: blocked}`.
    #[cfg_attr(feature = "schema", schemars(with = "Option<AllowanceMapSchema>"))]
    pub(crate) overrides: Vec<(Located<String>, Located<AllowanceText>)>,
    /// The behavior while the store does not answer. Default `local`: each node counts on its own.
    #[cfg_attr(feature = "schema", schemars(with = "Option<OutageWord>"))]
    pub(crate) on_outage: Option<Located<OnOutage>>,
    /// How long a node may hold units that it took in advance and spends without asking the store: `off`,
    /// `auto`, or `10ms` to `10s`. Default: that of the store.
    #[cfg_attr(feature = "schema", schemars(with = "Option<LeaseSchema>"))]
    pub(crate) lease: Option<Located<LeaseText>>,
    /// Whom the amount is for: `region`, each region for itself, or `global`, all `regions` together. Default
    /// `region`.
    #[cfg_attr(feature = "schema", schemars(with = "Option<ScopeWord>"))]
    pub(crate) scope: Option<Located<Scope>>,
    /// Response formats of other services, for their clients: used when this limit decides.
    #[cfg_attr(feature = "schema", schemars(with = "Option<OneOrMany<DialectWord>>"))]
    pub(crate) dialects: Vec<Dialect>,
    /// The threshold from which requests are marked, such as `80%`, or also delayed, such as
    /// `{at: 80%, tarpit: 250ms}`.
    #[cfg_attr(feature = "schema", schemars(with = "Option<SoftSchema>"))]
    pub(crate) soft: Option<Soft>,
    /// Expected warnings of `tollgate validate` about this limit, by their codes.
    #[cfg_attr(feature = "schema", schemars(with = "Option<OneOrMany<LintSchema>>"))]
    pub(crate) expect: Vec<Located<Lint>>,
    /// Numbers that are evaluated beside the limit: counted, never enforced.
    #[cfg_attr(feature = "schema", schemars(with = "Option<CandidateSchema>"))]
    pub(crate) candidate: Option<Box<Self>>,
}

impl Limit {
    /// Returns every path pattern of the limit.
    pub(crate) fn patterns_mut(&mut self) -> impl Iterator<Item = &mut PathPattern> {
        self.endpoint.iter_mut().chain(&mut self.except).map(|it| &mut it.value)
    }
}

/// The amount of a plan or an override, as written.
#[derive(Clone, Debug)]
pub(crate) enum AllowanceText {
    Rates(Vec<Located<RateText>>),
    Slots(u64),
    Unlimited,
    Blocked,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Algorithm {
    TokenBucket,
    Gcra,
    LeakyQueue,
    FixedWindow,
    SlidingWindow,
    SlidingLog,
    Concurrency,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    Epoch,
    FirstRequest,
    Calendar,
}

pub(super) fn read(node: &Node, problems: &mut Problems) -> Option<Limit> {
    let fields = node.fields(&WORDS, problems)?;
    let items = |word: &str| fields.get(word).map_or(&[][..], Node::items);
    for word in ["endpoint", "method", "host", "domain"] {
        if let Some(node) =
            fields.get(word).filter(|node| matches!(&node.kind, Kind::List(items) if items.is_empty()))
        {
            problems
                .error(node.place, format!("`{word}` is an empty list"))
                .label("covers nothing")
                .help("remove the line to cover everything");
        }
    }
    let endpoint = patterns(items("endpoint"), "`endpoint`", problems);
    let except = patterns(items("except"), "`except`", problems);
    let method = items("method").iter().filter_map(|it| method(it, problems)).collect();
    let host =
        items("host").iter().filter_map(|it| parsed(it, "`host`", HostPattern::parse, problems)).collect();
    let get = |word: &str| fields.get(word);
    let rlqs = rlqs::read(&fields, problems);
    // Words that conflict with `rlqs` have been reported; the key is the bucket id.
    let described = if fields.mentions("rlqs") {
        let by = rlqs.iter().map(|it| Located::new(KeySource::Descriptor, it.place)).collect();
        descriptor::DescriptorText { by: Some(by), ..Default::default() }
    } else {
        descriptor::read(&fields, problems)
    };
    let mut limit = Limit {
        name: get("name").and_then(|it| name(it, problems)),
        endpoint,
        except,
        method,
        host,
        headers: get("headers").map(|it| headers(it, "`headers` of a limit", problems)).unwrap_or_default(),
        by: described.by.unwrap_or_else(|| by(&fields, problems)),
        descriptor: described.pattern,
        rlqs,
        domain: described.domains,
        quota: described.quota,
        missing: get("missing")
            .and_then(|it| it.choice_with_synonyms("`missing`", &MISSING, MISSING_SYNONYMS, problems)),
        cost: get("cost").and_then(|it| cost::read(it, problems)),
        charge: get("charge")
            .and_then(|it| it.choice_with_synonyms("`charge`", &CHARGES, CHARGE_SYNONYMS, problems)),
        owner: get("owner").and_then(|it| values::owner(it, problems)),
        mode: get("mode").and_then(|it| mode(it, problems)),
        on_outage: get("on_outage")
            .and_then(|it| it.choice_with_synonyms("`on_outage`", &OUTAGES, OUTAGE_SYNONYMS, problems)),
        on_hangup: get("on_hangup")
            .and_then(|it| it.choice_with_synonyms("`on_hangup`", &HANGUPS, HANGUP_SYNONYMS, problems)),
        lease: get("lease").and_then(|it| super::lease::read(it, problems)),
        scope: get("scope")
            .and_then(|it| it.choice_with_synonyms("`scope`", &SCOPES, SCOPE_SYNONYMS, problems)),
        fair_by: get("fair_by").and_then(|it| values::fair_by(it, problems)),
        dialects: get("dialects").map(|it| dialects(it, problems)).unwrap_or_default(),
        soft: get("soft").and_then(|it| soft::read(it, problems)),
        expect: get("expect").map(|it| expect::of_limit(it, problems)).unwrap_or_default(),
        ..how_much(&fields, problems)
    };
    limit.candidate = get("candidate").and_then(|it| candidate::read(it, &limit, problems)).map(Box::new);
    Some(limit)
}

/// Reads the mode of a limit or of a shedder.
pub(super) fn mode(node: &Node, problems: &mut Problems) -> Option<Located<Mode>> {
    node.choice_with_synonyms("`mode`", &MODES, MODE_SYNONYMS, problems)
}

/// Reads the words that a candidate also has, into an otherwise empty limit.
fn how_much(fields: &Fields<'_>, problems: &mut Problems) -> Limit {
    let get = |word: &str| fields.get(word);
    let amounts = AMOUNTS.iter().filter_map(|word| Some(Located::new(*word, fields.entry(word)?.name.place)));
    let amounts: Vec<_> = amounts.collect();
    let algorithm = get("algorithm").and_then(|it| algorithm(it, problems));
    let bucket = get("bucket").and_then(|it| rate(it, "`bucket`", problems));
    let rate = get("rate").and_then(|it| rate(it, "`rate`", problems));
    let windows = get("windows").and_then(|it| windows(it, problems));
    let (learned, counted) = match get("slots") {
        Some(node) if adaptive::is_adaptive(node) => (Some(node), None),
        node => (None, node),
    };
    let adaptive = learned.and_then(|it| adaptive::read(it, problems));
    let slots = counted.and_then(|it| it.whole("`slots`", 1..=adaptive::MAX_SLOTS, problems));
    let queue = get("queue").and_then(|it| queue::read(it, problems));
    let amount_read =
        bucket.is_some() || rate.is_some() || windows.is_some() || slots.is_some() || adaptive.is_some();
    let unreadable = (fields.mentions("algorithm") && algorithm.is_none())
        || (fields.mentions("queue") && queue.is_none())
        || (AMOUNTS.iter().any(|word| fields.mentions(word)) && !amount_read);
    Limit {
        place: fields.place(),
        amounts,
        unreadable,
        bucket,
        rate,
        windows,
        slots,
        adaptive,
        queue,
        ttl: get("ttl").and_then(|it| parsed(it, "`ttl`", parse_span, problems)),
        algorithm,
        align: get("align").and_then(|it| it.choice("`align`", &ALIGNS, problems)),
        timezone: get("timezone").and_then(|it| Some(it.word("`timezone`", problems)?.map(str::to_owned))),
        parts: get("parts").and_then(|it| it.whole("`parts`", 1..=64, problems)),
        strict: get("strict").and_then(|it| it.boolean("`strict`", problems)),
        count_denied: get("count_denied").and_then(|it| it.boolean("`count_denied`", problems)),
        plans: get("plans").map(|it| allowances(it, "`plans`", problems)).unwrap_or_default(),
        overrides: get("overrides").map(|it| allowances(it, "`overrides`", problems)).unwrap_or_default(),
        ..Limit::default()
    }
}
