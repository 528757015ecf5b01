//! The policy file as written: typed, with places, and not yet checked as a whole.
//!
//! This step checks single values: whether a text is a rate, or a method. `compile` finds mistakes
//! that involve two values (a burst on a fixed window, a key that no
//! endpoint has). The JSON Schema for editors is generated from
//! these structs, so it has no words that the reader does not know.
//!
//! Invariant: a section reads exactly the words of its struct. Tested by
//! `schema::tests::every_word_is_in_the_schema_and_every_word_of_the_schema_is_read`.

mod expect;
#[cfg(feature = "schema")]
mod format_words;
pub(crate) mod lease;
pub(crate) mod limit;
pub(crate) mod lists;
pub(crate) mod paths;
pub(crate) mod priorities;
pub(crate) mod privacy;
pub(crate) mod regions;
#[cfg(feature = "schema")]
mod schema;
pub(crate) mod sections;
pub(crate) mod shed;

#[cfg(feature = "schema")]
use schemars::JsonSchema;

#[cfg(feature = "schema")]
pub use format_words::format_words;
#[cfg(feature = "schema")]
pub use schema::schema;

use tollgate_document::{Document, Kind, Located, Problems, Words};

use crate::lint::Lint;
use crate::settings::PathSettings;

/// A list, or a single item that stands for a list of one.
#[cfg(feature = "schema")]
#[derive(JsonSchema)]
#[schemars(untagged)]
#[allow(dead_code, reason = "only its schema is used")]
pub(crate) enum OneOrMany<T> {
    One(T),
    Many(Vec<T>),
}

/// A Tollgate policy: the limits, their keys and their amounts.
#[derive(Debug, Default)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "Policy", deny_unknown_fields))]
pub(crate) struct File {
    /// The limits. Every limit that matches a request is checked; all are charged, or none.
    pub(crate) limits: Vec<limit::Limit>,
    /// The source of a caller's plan.
    pub(crate) plans: Option<sections::Plans>,
    /// Requests that no limit applies to. All conditions of an entry must hold.
    #[cfg_attr(feature = "schema", schemars(with = "Option<Vec<lists::EntrySchema>>"))]
    pub(crate) allow: Vec<lists::Entry>,
    /// Requests that are refused. Takes precedence over `allow`.
    #[cfg_attr(feature = "schema", schemars(with = "Option<Vec<lists::EntrySchema>>"))]
    pub(crate) deny: Vec<lists::Entry>,
    /// The priority classes of requests, the most important first. The first class whose conditions
    /// hold is the class of a request; a class without conditions is everything else.
    #[cfg_attr(feature = "schema", schemars(with = "Option<Vec<schema::PrioritySchema>>"))]
    pub(crate) priorities: Vec<priorities::Class>,
    /// The places of users, API keys and tenants in a request.
    pub(crate) identify: Option<sections::Identify>,
    /// How the client address is determined.
    pub(crate) client: Option<sections::Client>,
    /// How upstream servers interpret paths: limits apply under every reading that they may use.
    #[cfg_attr(feature = "schema", schemars(with = "Option<paths::PathsSchema>"))]
    pub(crate) paths: Option<PathSettings>,
    /// The rate limit headers of responses.
    pub(crate) headers: Option<sections::Headers>,
    /// Shedders, which refuse the least important requests while the service is overloaded.
    pub(crate) shed: Option<shed::Shed>,
    /// How keys appear in logs and records.
    pub(crate) privacy: Option<privacy::Privacy>,
    /// Expected warnings of `tollgate validate`, by their codes.
    #[cfg_attr(feature = "schema", schemars(with = "Option<OneOrMany<schema::LintSchema>>"))]
    pub(crate) expect: Vec<Located<Lint>>,
    /// The maximum number of keys in the in-memory store. Default 1,000,000.
    #[cfg_attr(feature = "schema", schemars(with = "Option<schema::Whole>"))]
    pub(crate) max_keys: Option<Located<u64>>,
}

/// Sections of the same file that other crates read.
#[cfg(feature = "schema")]
pub(crate) const SERVER_SECTIONS: [&str; 15] = [
    "listen", "gateway", "rls", "resp", "store", "regions", "log", "observe", "traces", "alerts", "admin",
    "state", "records", "tests", "outbound",
];

pub(crate) const WORDS: Words = Words {
    section: "a policy",
    known: &[
        "limits",
        "plans",
        "allow",
        "deny",
        "priorities",
        "identify",
        "client",
        "paths",
        "headers",
        "shed",
        "privacy",
        "expect",
        "max_keys",
        "listen",
        "gateway",
        "rls",
        "resp",
        "store",
        "regions",
        "log",
        "observe",
        "traces",
        "alerts",
        "admin",
        "state",
        "records",
        "tests",
        "outbound",
    ],
    synonyms: &[
        ("limits", &["rules", "policies", "rate_limits", "descriptors"]),
        ("allow", &["whitelist", "allowlist"]),
        ("deny", &["blacklist", "denylist", "blocklist"]),
        ("priorities", &["priority", "classes"]),
        ("shed", &["shedding", "load_shedding", "overload"]),
        ("listen", &["server"]),
        ("store", &["redis"]),
        ("regions", &["region", "multi_region"]),
        ("gateway", &["upstream"]),
        ("outbound", &["egress"]),
        ("rls", &["envoy", "grpc"]),
        ("log", &["logging"]),
        ("traces", &["tracing", "otlp"]),
        ("observe", &["metrics"]),
        ("alerts", &["alerting", "webhook"]),
    ],
};

const EXAMPLE: &str = "the shortest policy is `limits:`, then `  - by: ip`, then `    bucket: 10/minute`";

impl File {
    pub(crate) fn read(document: &Document, problems: &mut Problems) -> Self {
        let mut file = Self::default();
        let root = document.root();
        match &root.kind {
            Kind::Map(_) => {}
            Kind::Null => {
                problems.error(root.place, "the policy is empty").help(EXAMPLE);
                return file;
            }
            Kind::Scalar { .. } => {
                problems
                    .error(root.place, "this is not a policy")
                    .label("a policy is a map of `name: value` lines; is a colon missing?")
                    .help(EXAMPLE);
                return file;
            }
            Kind::List(_) => {
                problems
                    .error(root.place, "a policy does not begin with a list")
                    .label("put `limits:` on a line above")
                    .help(EXAMPLE);
                return file;
            }
        }
        let Some(fields) = root.fields(&WORDS, problems) else { return file };
        if let Some(node) = fields.get("limits") {
            match &node.kind {
                Kind::List(items) => {
                    file.limits = items.iter().filter_map(|item| limit::read(item, problems)).collect();
                }
                _ => {
                    problems
                        .error(node.place, format!("`limits` is a list, not {}", node.describe()))
                        .label("begin each limit with `- `")
                        .help(EXAMPLE);
                }
            }
        } else if !["limits", "deny", "shed"].iter().any(|word| fields.mentions(word)) {
            problems.error(fields.place(), "the file has no `limits`").help(EXAMPLE);
        }
        let section = |word| fields.get(word);
        file.plans = section("plans").and_then(|node| sections::Plans::read(node, problems));
        file.allow = section("allow").map(|node| lists::read("`allow`", node, problems)).unwrap_or_default();
        file.deny = section("deny").map(|node| lists::read("`deny`", node, problems)).unwrap_or_default();
        file.priorities =
            section("priorities").map(|node| priorities::read(node, problems)).unwrap_or_default();
        file.identify = section("identify").and_then(|node| sections::Identify::read(node, problems));
        file.client = section("client").and_then(|node| sections::Client::read(node, problems));
        file.paths = paths::read(document, problems);
        file.headers = section("headers").and_then(|node| sections::Headers::read(node, problems));
        file.shed = section("shed").and_then(|node| shed::Shed::read(node, problems));
        file.privacy = section("privacy").and_then(|node| privacy::Privacy::read(node, problems));
        file.expect = section("expect").map(|node| expect::read(node, problems)).unwrap_or_default();
        file.max_keys =
            section("max_keys").and_then(|node| node.whole("`max_keys`", 1..=1_000_000_000, problems));
        file
    }
}
