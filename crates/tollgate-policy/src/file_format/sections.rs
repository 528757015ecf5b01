//! The smaller sections of the file: `plans`, `identify`, `client`, `headers`.

use std::ops::RangeInclusive;

#[cfg(feature = "schema")]
use schemars::JsonSchema;

use tollgate_document::{Located, Mistake, Node, Problems, Synonyms, Words};

#[cfg(feature = "schema")]
use super::OneOrMany;
#[cfg(feature = "schema")]
use super::schema::{CredentialSchema, NameSchema, NetSchema, PercentSchema, SourceSchema, Whole};
use crate::identify::{Credential, OnAmbiguous};
use crate::net::Net;
use crate::settings::{Dialect, ForwardedHeader, IetfHeaders, XRateLimit};
use crate::source::KeySource;

/// The source of a caller's plan.
#[derive(Debug)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(deny_unknown_fields))]
pub(crate) struct Plans {
    /// The plan of callers that name no plan.
    #[cfg_attr(feature = "schema", schemars(with = "Option<NameSchema>"))]
    pub(crate) default: Option<Located<String>>,
    /// The source of the plan, such as `header:X-Plan`. Only for headers that callers cannot forge.
    #[cfg_attr(feature = "schema", schemars(with = "Option<SourceSchema>"))]
    pub(crate) from: Option<Located<KeySource>>,
}

pub(crate) const PLANS: Words = Words {
    section: "`plans`",
    known: &["default", "from"],
    synonyms: &[("from", &["source"]), ("from: header:X-Plan", &["header"])],
};

impl Plans {
    pub(super) fn read(node: &Node, problems: &mut Problems) -> Option<Self> {
        let fields = node.fields(&PLANS, problems)?;
        let default = fields.get("default").and_then(|node| plan_name(node, problems));
        let from = fields.get("from").and_then(|node| {
            let source = source(node, "`from`", problems)?;
            let fits = !matches!(
                source.value,
                KeySource::Ip | KeySource::Global | KeySource::Path(_) | KeySource::Descriptor
            );
            if !fits {
                problems
                    .error(node.place, format!("a plan cannot be named by `{}`", source.value))
                    .help("a plan is named by a header, a cookie, a query parameter, a claim, the user, the api_key or the tenant");
            }
            fits.then_some(source)
        });
        Some(Self { default, from })
    }
}

fn plan_name(node: &Node, problems: &mut Problems) -> Option<Located<String>> {
    Some(node.word("the name of a plan", problems)?.map(str::to_owned))
}

/// Reads one key source.
pub(super) fn source(node: &Node, what: &str, problems: &mut Problems) -> Option<Located<KeySource>> {
    let word = node.word(what, problems)?;
    match KeySource::parse(word.value) {
        Ok(source) => Some(Located::new(source, word.place)),
        Err(mistake) => {
            mistake.report(node, problems);
            None
        }
    }
}

/// The places of users, API keys and tenants in a request, unless the server provides them.
#[derive(Debug)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(deny_unknown_fields))]
pub(crate) struct Identify {
    /// The places of the user. Default `header:X-User-Id`.
    #[cfg_attr(feature = "schema", schemars(with = "Option<OneOrMany<CredentialSchema>>"))]
    pub(crate) user: Option<Vec<Credential>>,
    /// The places of the API key. Default `[header:X-API-Key, bearer]`.
    #[cfg_attr(feature = "schema", schemars(with = "Option<OneOrMany<CredentialSchema>>"))]
    pub(crate) api_key: Option<Vec<Credential>>,
    /// The places of the tenant. Default `header:X-Tenant-Id`.
    #[cfg_attr(feature = "schema", schemars(with = "Option<OneOrMany<CredentialSchema>>"))]
    pub(crate) tenant: Option<Vec<Credential>>,
    /// The handling of a request that gives several different values for a credential or another
    /// part of a key: counted by client `address`, or answered 400 (`refuse`). Default `address`.
    #[cfg_attr(feature = "schema", schemars(with = "Option<AmbiguousWord>"))]
    pub(crate) ambiguous: Option<OnAmbiguous>,
}

pub(crate) const IDENTIFY: Words = Words {
    section: "`identify`",
    known: &["user", "api_key", "tenant", "ambiguous"],
    synonyms: &[("api_key", &["key"]), ("user", &["user_id"]), ("ambiguous", &["on_ambiguous"])],
};

const AMBIGUOUS: [(&str, OnAmbiguous); 2] =
    [("address", OnAmbiguous::Address), ("refuse", OnAmbiguous::Refuse)];
/// Words of other settings and tools for the same choices.
const AMBIGUOUS_SYNONYMS: Synonyms =
    &[("address", &["ip", "client", "count"]), ("refuse", &["deny", "reject", "block", "400"])];

impl Identify {
    pub(super) fn read(node: &Node, problems: &mut Problems) -> Option<Self> {
        let fields = node.fields(&IDENTIFY, problems)?;
        let mut credentials = |word| {
            fields
                .get(word)
                .map(|node| node.items().iter().filter_map(|node| credential(node, problems)).collect())
        };
        Some(Self {
            user: credentials("user"),
            api_key: credentials("api_key"),
            tenant: credentials("tenant"),
            ambiguous: fields.get("ambiguous").and_then(|node| {
                let (what, synonyms) = ("`ambiguous`", AMBIGUOUS_SYNONYMS);
                Some(node.choice_with_synonyms(what, &AMBIGUOUS, synonyms, problems)?.value)
            }),
        })
    }
}

fn credential(node: &Node, problems: &mut Problems) -> Option<Credential> {
    const CREDENTIAL_PLACES: &str =
        "places are bearer, header:NAME, cookie:NAME, query:NAME and claim:NAME; `none` is nowhere";
    let word = node.word("a place in the request", problems)?;
    match word.value {
        "bearer" => return Some(Credential::Bearer),
        "none" => return None,
        _ => {}
    }
    match KeySource::parse(word.value) {
        Ok(
            source
            @ (KeySource::Header(_) | KeySource::Cookie(_) | KeySource::Query(_) | KeySource::Claim(_)),
        ) => return Some(Credential::Named(source)),
        Ok(source) => {
            problems
                .error(node.place, format!("`{source}` is not a place in the request"))
                .help(CREDENTIAL_PLACES);
        }
        Err(mistake) => mistake.help(CREDENTIAL_PLACES).report(node, problems),
    }
    None
}

/// How the client address is determined.
#[derive(Debug)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(deny_unknown_fields))]
pub(crate) struct Client {
    /// Proxies whose forwarding header is trusted. Default none: the peer is the client.
    #[cfg_attr(feature = "schema", schemars(with = "Option<OneOrMany<NetSchema>>"))]
    pub(crate) trusted_proxies: Vec<Located<Net>>,
    /// The header that those proxies write. Default `x-forwarded-for`.
    #[cfg_attr(feature = "schema", schemars(with = "Option<ForwardedWord>"))]
    pub(crate) header: Option<ForwardedHeader>,
    /// The number of leading bits of an IPv4 address that identify a client. Default 32.
    #[cfg_attr(feature = "schema", schemars(with = "Option<Whole>"))]
    pub(crate) ipv4_prefix: Option<u8>,
    /// The number of leading bits of an IPv6 address that identify a client. Default 64, which one customer owns.
    #[cfg_attr(feature = "schema", schemars(with = "Option<Whole>"))]
    pub(crate) ipv6_prefix: Option<Located<u8>>,
}

pub(crate) const CLIENT: Words = Words {
    section: "`client`",
    known: &["trusted_proxies", "header", "ipv4_prefix", "ipv6_prefix"],
    synonyms: &[("trusted_proxies", &["trusted", "proxies"]), ("ipv6_prefix", &["ipv6_subnet"])],
};

const FORWARDED: [(&str, ForwardedHeader); 3] = [
    ("x-forwarded-for", ForwardedHeader::XForwardedFor),
    ("forwarded", ForwardedHeader::Forwarded),
    ("none", ForwardedHeader::None),
];

impl Client {
    pub(super) fn read(node: &Node, problems: &mut Problems) -> Option<Self> {
        let fields = node.fields(&CLIENT, problems)?;
        let trusted_proxies = fields.get("trusted_proxies").map_or(&[][..], Node::items);
        let trusted_proxies = trusted_proxies.iter().filter_map(|node| net(node, problems)).collect();
        let header = fields.get("header").and_then(|node| {
            // Header names are case-insensitive.
            let lower = node.text().map(str::to_ascii_lowercase);
            let known = FORWARDED.iter().find(|(word, _)| Some(*word) == lower.as_deref());
            known.map(|(_, it)| *it).or_else(|| Some(node.choice("`header`", &FORWARDED, problems)?.value))
        });
        let mut prefix = |word: &str, most| {
            let number = fields.get(word)?.whole(&format!("`{word}`"), 1..=most, problems)?;
            Some(number.map(|number| u8::try_from(number).unwrap_or(u8::MAX)))
        };
        let (ipv4_prefix, ipv6_prefix) = (prefix("ipv4_prefix", 32), prefix("ipv6_prefix", 128));
        Some(Self { trusted_proxies, header, ipv4_prefix: ipv4_prefix.map(|it| it.value), ipv6_prefix })
    }
}

pub(super) fn net(node: &Node, problems: &mut Problems) -> Option<Located<Net>> {
    let word = node.word("an address", problems)?;
    match Net::parse(word.value) {
        Ok(net) => Some(Located::new(net, word.place)),
        Err(mistake) => {
            mistake.report(node, problems);
            None
        }
    }
}

/// The rate limit headers of responses.
#[derive(Debug)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(deny_unknown_fields))]
pub(crate) struct Headers {
    /// The format of `X-RateLimit-Reset`. Default `epoch`.
    #[cfg_attr(feature = "schema", schemars(with = "Option<XRateLimitWord>"))]
    pub(crate) x_ratelimit: Option<XRateLimit>,
    /// The version of the IETF `RateLimit` headers. Default `draft-11`.
    #[cfg_attr(feature = "schema", schemars(with = "Option<IetfWord>"))]
    pub(crate) ietf: Option<IetfHeaders>,
    /// The maximum random extension of `Retry-After`, such as `10%`. Default `0%`.
    #[cfg_attr(feature = "schema", schemars(with = "Option<PercentSchema>"))]
    pub(crate) retry_after_jitter: Option<u8>,
    /// Response formats of other services, for their clients.
    #[cfg_attr(feature = "schema", schemars(with = "Option<OneOrMany<DialectWord>>"))]
    pub(crate) dialects: Vec<Dialect>,
    /// The name of the limit that `X-RateLimit-*` describes if it applies; in a list, the first that applies. Default: the rate closest to refusing.
    #[cfg_attr(feature = "schema", schemars(with = "Option<OneOrMany<NameSchema>>"))]
    pub(crate) describe: Vec<Located<String>>,
}

pub(crate) const HEADERS: Words = Words {
    section: "`headers`",
    known: &["x_ratelimit", "ietf", "retry_after_jitter", "dialects", "describe"],
    synonyms: &[
        ("x_ratelimit", &["x-ratelimit"]),
        ("retry_after_jitter", &["jitter"]),
        ("dialects", &["dialect"]),
        ("describe", &["limit", "limits", "describes"]),
    ],
};

const X_RATELIMIT: [(&str, XRateLimit); 3] =
    [("epoch", XRateLimit::Epoch), ("delta", XRateLimit::Delta), ("off", XRateLimit::Off)];
const IETF: [(&str, IetfHeaders); 3] =
    [("draft-11", IetfHeaders::Draft11), ("draft-6", IetfHeaders::Draft6), ("off", IetfHeaders::Off)];
const DIALECTS: [(&str, Dialect); 6] = [
    ("discord", Dialect::Discord),
    ("openai", Dialect::OpenAi),
    ("stripe", Dialect::Stripe),
    ("aws", Dialect::Aws),
    ("github", Dialect::GitHub),
    ("envoy", Dialect::Envoy),
];

impl Headers {
    pub(super) fn read(node: &Node, problems: &mut Problems) -> Option<Self> {
        let fields = node.fields(&HEADERS, problems)?;
        let x_ratelimit =
            fields.get("x_ratelimit").and_then(|it| it.choice("`x_ratelimit`", &X_RATELIMIT, problems));
        let ietf = fields.get("ietf").and_then(|it| it.choice("`ietf`", &IETF, problems));
        let retry_after_jitter = fields
            .get("retry_after_jitter")
            .and_then(|it| percent(it, "`retry_after_jitter`", 0..=100, problems));
        let describe = fields.get("describe").map_or(&[][..], Node::items).iter();
        let describe = describe
            .filter_map(|node| Some(node.word("the name of a limit", problems)?.map(str::to_owned)))
            .collect();
        Some(Self {
            describe,
            dialects: fields.get("dialects").map(|it| dialects(it, problems)).unwrap_or_default(),
            x_ratelimit: x_ratelimit.map(|it| it.value),
            ietf: ietf.map(|it| it.value),
            retry_after_jitter,
        })
    }
}

/// Reads dialects, of all limits or of one.
pub(super) fn dialects(node: &Node, problems: &mut Problems) -> Vec<Dialect> {
    let mut found = Vec::new();
    for item in node.items() {
        let Some(dialect) = item.choice("a dialect", &DIALECTS, problems) else { continue };
        if !found.contains(&dialect.value) {
            found.push(dialect.value);
        }
    }
    found
}

/// Reads a percentage such as `80%`, within a range.
pub(super) fn percent(
    node: &Node,
    what: &str,
    range: RangeInclusive<u8>,
    problems: &mut Problems,
) -> Option<u8> {
    let word = node.word(what, problems)?;
    let number = |text: &str| text.trim().parse().ok().filter(|number| range.contains(number));
    let found = word.value.strip_suffix('%').and_then(number);
    if found.is_none() {
        let mistake = Mistake::new(format!("{what} is between `{}%` and `{}%`", range.start(), range.end()));
        // Accepts `80` and `0.8` for the suggestion.
        let hundredths = word.value.strip_prefix("0.").map(|digits| format!("{digits:0<2}"));
        match number(word.value).or_else(|| number(&hundredths?)) {
            Some(number) => mistake.meant(format!("{number}%")),
            None => mistake.label(format!("{} is not", node.describe())),
        }
        .report(node, problems);
    }
    found
}

/// Implements the schema of a choice from the table that the reader uses.
#[cfg(feature = "schema")]
macro_rules! word_schema {
    ($($name:ident: $table:expr;)*) => {$(
        pub(crate) struct $name;

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                let words: Vec<&str> = $table.iter().map(|(word, _)| *word).collect();
                schemars::json_schema!({"type": "string", "enum": words})
            }
        }
    )*};
}
#[cfg(feature = "schema")]
pub(super) use word_schema;

#[cfg(feature = "schema")]
word_schema! {
    AmbiguousWord: AMBIGUOUS;
    ForwardedWord: FORWARDED;
    XRateLimitWord: X_RATELIMIT;
    IetfWord: IETF;
    DialectWord: DIALECTS;
}
