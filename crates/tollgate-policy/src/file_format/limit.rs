//! One limit as it was written.
//!
//! - `candidate`: the numbers that are tried beside it.
//! - `cost`: what a request costs, known before it or after.
//! - `descriptor`: the descriptors it covers, and what only such a limit has.
//! - `soft`: what happens before it refuses.
//! - `values`, `words`: what can stand behind a word, and the words themselves.

pub(crate) mod candidate;
pub(crate) mod cost;
mod descriptor;
pub(crate) mod soft;
mod values;
mod words;

use schemars::JsonSchema;
use tollgate_core::Span;

use cost::CostText;
pub(super) use values::patterns;
use values::{algorithm, allowances, by, headers, method, name, parsed, windows};
use words::{
    ALIGNS, AMOUNTS, AlgorithmWord, AlignWord, HANGUPS, HANGUPS_ELSEWHERE, HangupWord, MISSING,
    MISSING_SYNONYMS, MODE_SYNONYMS, MODES, MissingWord, ModeWord, OUTAGE_SYNONYMS, OUTAGES, OutageWord,
};
pub(crate) use words::{METHODS, WORDS};

use super::OneOrMany;
use super::expect;
use super::rate::{RateText, duration};
use super::schema::{
    AllowanceMapSchema, CandidateSchema, CostSchema, DurationSchema, EndpointSchema, EntrySchema,
    HeaderMapSchema, LintSchema, NameSchema, RateSchema, SoftSchema, SourceSchema, Whole,
};
use super::sections::{DialectWord, dialects};
use crate::descriptor::DescriptorPattern;
use crate::diagnostic::{Located, Place, Problems};
use crate::document::{Fields, Kind, Node};
use crate::limit::{HeaderMatch, Missing, Mode, OnHangup, OnOutage, Soft};
use crate::lint::Lint;
use crate::pattern::{HostPattern, PathPattern};
use crate::settings::Dialect;
use crate::source::KeySource;

/// What one limit covers, whom it counts, and how much it grants.
#[derive(Debug, Default, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct Limit {
    #[schemars(skip)]
    pub(crate) place: Place,
    /// Which words say how much, readable or not.
    #[schemars(skip)]
    pub(crate) amounts: Vec<Located<&'static str>>,
    /// Whether algorithm or amount were written and could not be read: then
    /// nothing follows from their absence.
    #[schemars(skip)]
    pub(crate) unreadable: bool,
    /// Shown in answers and metrics; derived from endpoint and key when absent.
    #[schemars(with = "Option<NameSchema>")]
    pub(crate) name: Option<Located<String>>,
    /// Paths: `/exact`, `/users/{id}`, `/files/**`; `*` is any one segment. Default `/**`, everything.
    #[schemars(with = "Option<OneOrMany<EndpointSchema>>")]
    pub(crate) endpoint: Vec<Located<PathPattern>>,
    /// Paths of its endpoints that it does not cover: `[/healthz, /metrics/**]`. Default none.
    #[schemars(with = "Option<OneOrMany<EndpointSchema>>")]
    pub(crate) except: Vec<Located<PathPattern>>,
    /// Methods. Default all. `GET` covers `HEAD` too.
    #[schemars(with = "Option<OneOrMany<String>>")]
    pub(crate) method: Vec<Located<String>>,
    /// Hosts: `api.example.com` or `*.example.com`. Default all.
    #[schemars(with = "Option<OneOrMany<String>>")]
    pub(crate) host: Vec<Located<HostPattern>>,
    /// Headers a request must have for the limit to apply: a value, or `"*"` for any.
    #[schemars(with = "Option<HeaderMapSchema>")]
    pub(crate) headers: Vec<HeaderMatch>,
    /// Descriptors that a proxy sends, by their entries in order: `plan=gold`, `user` with any
    /// value, `path=/v1/*`. Such a limit covers nothing else.
    #[schemars(with = "Option<OneOrMany<EntrySchema>>")]
    pub(crate) descriptor: Option<Located<DescriptorPattern>>,
    /// Domains whose descriptors it covers. Default all.
    #[schemars(with = "Option<OneOrMany<String>>")]
    pub(crate) domain: Vec<Located<Box<str>>>,
    /// How much more is handed out with an admitted answer, at most, for a proxy to admit by itself.
    #[schemars(with = "Option<Whole>")]
    pub(crate) quota: Option<Located<u64>>,
    /// Whom it counts: one property of a request, or a list that makes up the key together. Of a
    /// limit on descriptors: `descriptor` (all entries, the default), `descriptor:NAME` or `global`.
    #[schemars(with = "Option<OneOrMany<SourceSchema>>")]
    pub(crate) by: Vec<Located<KeySource>>,
    /// What happens to requests that lack the key. Default `ip`: they are counted by client address.
    #[schemars(with = "Option<MissingWord>")]
    pub(crate) missing: Option<Located<Missing>>,
    /// How much: `10/minute`, or `1000/minute, burst 200`.
    #[schemars(with = "Option<RateSchema>")]
    pub(crate) bucket: Option<Located<RateText>>,
    /// The same as `bucket`, and reads better with algorithms that have none.
    #[schemars(with = "Option<RateSchema>")]
    pub(crate) rate: Option<Located<RateText>>,
    /// Several rates that must all hold: `[10/second, 1000/hour]`.
    #[schemars(with = "Option<Vec<RateSchema>>")]
    pub(crate) windows: Option<Located<Vec<Located<RateText>>>>,
    /// How many requests at once, for `concurrency`.
    #[schemars(with = "Option<Whole>")]
    pub(crate) slots: Option<Located<u64>>,
    /// After how long a slot that was never given back is free again. Default `60s`.
    #[schemars(with = "Option<DurationSchema>")]
    pub(crate) ttl: Option<Located<Span>>,
    /// What becomes of the slot of a request whose caller hangs up. Default `hold`: it is held until the service
    /// behind the gateway has answered; `release` for services that stop work when their connection is closed.
    #[schemars(with = "Option<HangupWord>")]
    pub(crate) on_hangup: Option<Located<OnHangup>>,
    /// How it counts. Default `token-bucket`; `concurrency` where `slots` is written.
    #[schemars(with = "Option<AlgorithmWord>")]
    pub(crate) algorithm: Option<Located<Algorithm>>,
    /// Where fixed windows begin. Default `epoch`.
    #[schemars(with = "Option<AlignWord>")]
    pub(crate) align: Option<Located<Align>>,
    /// Whose calendar, for `align: calendar`. Default `UTC`.
    #[schemars(with = "Option<String>")]
    pub(crate) timezone: Option<Located<String>>,
    /// How many parts a sliding window is counted in at most, 1 to 64. Default 1, the
    /// estimate from two counters; 7 is nearly as good as the log.
    #[schemars(with = "Option<Whole>")]
    pub(crate) parts: Option<Located<u64>>,
    /// Whether a sliding window never admits more than its rate in any stretch, and refuses
    /// some requests early instead. In 16 parts, unless `parts` says otherwise. Default `false`.
    #[schemars(with = "Option<bool>")]
    pub(crate) strict: Option<Located<bool>>,
    /// Whether refused requests are charged too. Default `false`.
    #[schemars(with = "Option<bool>")]
    pub(crate) count_denied: Option<Located<bool>>,
    /// What a request costs: a number, `header:NAME` or `body:1KB`. Default 1. Where it is known
    /// afterwards, what is reserved and how it is settled.
    #[schemars(with = "Option<CostSchema>")]
    pub(crate) cost: Option<Located<CostText>>,
    /// Whether it refuses. Default `enforce`; `shadow` only counts, `off` does nothing.
    #[schemars(with = "Option<ModeWord>")]
    pub(crate) mode: Option<Located<Mode>>,
    /// Other amounts by plan: `{pro: "1000/minute", enterprise: unlimited}`.
    #[schemars(with = "Option<AllowanceMapSchema>")]
    pub(crate) plans: Vec<(Located<String>, Located<AllowanceText>)>,
    /// Other amounts for single keys: `{key-123: 5000/minute, bad-key: blocked}`.
    #[schemars(with = "Option<AllowanceMapSchema>")]
    pub(crate) overrides: Vec<(Located<String>, Located<AllowanceText>)>,
    /// What it does while its store gives no answer. Default `local`: each node counts alone.
    #[schemars(with = "Option<OutageWord>")]
    pub(crate) on_outage: Option<Located<OnOutage>>,
    /// Words of other services, for clients that read those: spoken when this limit decides.
    #[schemars(with = "Option<OneOrMany<DialectWord>>")]
    pub(crate) dialects: Vec<Dialect>,
    /// Before it refuses: from how much spent on requests are marked, such as `80%`, and held back
    /// for a while, such as `{at: 80%, tarpit: 250ms}`.
    #[schemars(with = "Option<SoftSchema>")]
    pub(crate) soft: Option<Soft>,
    /// Warnings of `tollgate validate` about this limit that are known and kept, by their codes.
    #[schemars(with = "Option<OneOrMany<LintSchema>>")]
    pub(crate) expect: Vec<Located<Lint>>,
    /// Numbers that are tried beside it: counted, never enforced.
    #[schemars(with = "Option<CandidateSchema>")]
    pub(crate) candidate: Option<Box<Self>>,
}

impl Limit {
    /// Every path pattern in it.
    pub(crate) fn patterns_mut(&mut self) -> impl Iterator<Item = &mut PathPattern> {
        self.endpoint.iter_mut().chain(&mut self.except).map(|it| &mut it.value)
    }
}

/// What a plan or an override grants, as it was written.
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
                .help("leave the line out to cover everything");
        }
    }
    let endpoint = patterns(items("endpoint"), "`endpoint`", problems);
    let except = patterns(items("except"), "`except`", problems);
    let method = items("method").iter().filter_map(|it| method(it, problems)).collect();
    let host =
        items("host").iter().filter_map(|it| parsed(it, "`host`", HostPattern::parse, problems)).collect();
    let get = |word: &str| fields.get(word);
    let described = descriptor::read(&fields, problems);
    let mut limit = Limit {
        name: get("name").and_then(|it| name(it, problems)),
        endpoint,
        except,
        method,
        host,
        headers: get("headers").map(|it| headers(it, problems)).unwrap_or_default(),
        by: described.by.unwrap_or_else(|| by(&fields, problems)),
        descriptor: described.pattern,
        domain: described.domains,
        quota: described.quota,
        missing: get("missing")
            .and_then(|it| it.choice_with_synonyms("`missing`", &MISSING, &MISSING_SYNONYMS, problems)),
        cost: get("cost").and_then(|it| cost::read(it, problems)),
        mode: get("mode").and_then(|it| it.choice_with_synonyms("`mode`", &MODES, &MODE_SYNONYMS, problems)),
        on_outage: get("on_outage")
            .and_then(|it| it.choice_with_synonyms("`on_outage`", &OUTAGES, &OUTAGE_SYNONYMS, problems)),
        on_hangup: get("on_hangup")
            .and_then(|it| it.choice_with_synonyms("`on_hangup`", &HANGUPS, &HANGUPS_ELSEWHERE, problems)),
        dialects: get("dialects").map(|it| dialects(it, problems)).unwrap_or_default(),
        soft: get("soft").and_then(|it| soft::read(it, problems)),
        expect: get("expect").map(|it| expect::of_limit(it, problems)).unwrap_or_default(),
        ..how_much(&fields, problems)
    };
    limit.candidate = get("candidate").and_then(|it| candidate::read(it, &limit, problems)).map(Box::new);
    Some(limit)
}

/// A limit of which only that is known: the words that a candidate has too.
fn how_much(fields: &Fields<'_>, problems: &mut Problems) -> Limit {
    let get = |word: &str| fields.get(word);
    let amounts = AMOUNTS.iter().filter_map(|word| Some(Located::new(*word, fields.entry(word)?.name.place)));
    let amounts: Vec<_> = amounts.collect();
    let algorithm = get("algorithm").and_then(|it| algorithm(it, problems));
    let bucket = get("bucket").and_then(|it| values::rate(it, "`bucket`", problems));
    let rate = get("rate").and_then(|it| values::rate(it, "`rate`", problems));
    let windows = get("windows").and_then(|it| windows(it, problems));
    let slots = get("slots").and_then(|it| it.whole("`slots`", 1..=65_536, problems));
    let amount_read = bucket.is_some() || rate.is_some() || windows.is_some() || slots.is_some();
    let unreadable = (fields.mentions("algorithm") && algorithm.is_none())
        || (AMOUNTS.iter().any(|word| fields.mentions(word)) && !amount_read);
    Limit {
        place: fields.place(),
        amounts,
        unreadable,
        bucket,
        rate,
        windows,
        slots,
        ttl: get("ttl").and_then(|it| parsed(it, "`ttl`", duration, problems)),
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
