//! The `store` section: the store of the counters.
//!
//! It is `memory`, a URL, a list of URLs of Redis or of peers, or a map. The files that it names (a password,
//! certificates) are read when the server starts, and by `validate`, which needs no store.
//!
//! - `peers`: Tollgate nodes as their own store.
//! - `postgres`: the section for PostgreSQL.
//! - `server`: the words that all of them have.
//! - `values`: its scalar values.
//!
//! URLs are parsed by `tollgate_redis::RedisSettings`; connecting is in `store`.

mod peers;
mod postgres;
mod server;
mod values;

use std::time::Duration;

use tollgate::{OutageSettings, Span};
use tollgate_document::{Fields, Kind, Node, Problems, Words, nearest};
use tollgate_redis::RedisSettings;

pub(crate) use self::peers::PeersSection;
use self::postgres::{PostgresSection, is_postgres};
use self::server::{ServerSection, UrlFacts, read_prefix, refuse_words, report_url};
pub(super) use self::values::or_off;
use super::LoadPhase;
use crate::failure::Failure;
use crate::store::RemoteSettings;

/// The store of the counters, as configured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum StoreSettings {
    /// In this process.
    #[default]
    Memory,
    /// In Redis.
    Redis(Box<RedisSection>),
    /// In PostgreSQL.
    Postgres(Box<PostgresSection>),
    /// In the memory of several nodes.
    Peers(Box<PeersSection>),
}

/// The settings of Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RedisSection {
    /// The settings without the contents of files.
    settings: RedisSettings,
    server: ServerSection,
}

const STORE: Words = Words {
    section: "`store`",
    // `lease` is read with the limits, which it is a default of.
    known: &[
        "url",
        "password_file",
        "ca",
        "cert",
        "key",
        "deadline",
        "deny_cache",
        "lease",
        "prefix",
        "outage",
        "advertise",
    ],
    synonyms: &[
        ("url", &["urls", "uri", "address", "host", "redis", "nodes", "kind", "type"]),
        ("password_file", &["password", "pass", "passwd", "auth"]),
        ("ca", &["cacert", "ca_file"]),
        ("cert", &["certificate", "client_cert"]),
        ("key", &["client_key", "private_key"]),
        ("url: rediss://HOST", &["tls", "ssl"]),
        ("deadline", &["timeout"]),
        ("deny_cache", &["cache"]),
        ("prefix", &["namespace", "key_prefix"]),
        ("advertise", &["self", "advertised", "announce"]),
        ("outage", &["fallback", "breaker"]),
    ],
};
/// The deadline of calls to another region, unless the file has another one.
const FAR_DEADLINE: Duration = Duration::from_secs(1);
/// The maximum time for which a refusal is cached that another node may have lifted.
const MAX_DENY_CACHE: Span = Span::from_secs(60);
/// A word for peers only, with the reason and the help.
const NO_ADVERTISE: (&str, &str, &str) = (
    "advertise",
    "for peers, and this is another store",
    "leave it out; with `url: tollgate://…` it is the address of this node in the list",
);
/// Words of client certificates, which only Redis has.
const NO_CLIENT_CERTIFICATE: [(&str, &str, &str); 2] = [
    ("cert", "a client certificate for Redis, and this is another store", "leave it out"),
    ("key", "the key of a client certificate for Redis, and this is another store", "leave it out"),
];
/// The maximum number of a database.
const MAX_DATABASE: i64 = 0x7fff_ffff;
const CHOICES: &str = "it is `memory`, a URL such as redis://127.0.0.1:6379 or postgres://USER@HOST/DATABASE, or a map with `url`";

impl StoreSettings {
    /// Parses the section.
    pub(crate) fn read(node: &Node, problems: &mut Problems) -> Self {
        if let Some(url) = peers::url(node) {
            let section = PeersSection::read(node, url, problems);
            return section.map_or(Self::Memory, |section| Self::Peers(Box::new(section)));
        }
        let section = match &node.kind {
            Kind::Map(_) => {
                let Some(fields) = node.fields(&STORE, problems) else { return Self::Memory };
                if let Some(url) = fields.get("url").filter(|url| is_postgres(url)) {
                    return Self::postgres(PostgresSection::read(url, &fields, problems));
                }
                RedisSection::read(&fields, problems)
            }
            _ if is_postgres(node) => return Self::postgres(PostgresSection::read_url(node, problems)),
            _ if node.text() == Some("memory") => None,
            _ => {
                redis(node, problems).map(RedisSection::new).inspect(|it| it.require_password(node, problems))
            }
        };
        section.map_or(Self::Memory, |section| Self::Redis(Box::new(section)))
    }

    fn postgres(section: Option<PostgresSection>) -> Self {
        section.map_or(Self::Memory, |section| Self::Postgres(Box::new(section)))
    }

    /// Returns the same settings for the store of another region, which no request waits for. `written` is
    /// its value in the file, `near` the store of this region.
    pub(crate) fn for_another_region(mut self, near: &Self, written: &Node) -> Self {
        let is_written = |word: &str| written.get(word).is_some();
        let (deadline, prefix) = match &mut self {
            Self::Redis(section) => {
                section.settings.deny_cache = Duration::ZERO;
                (&mut section.settings.deadline, &mut section.settings.prefix)
            }
            Self::Postgres(section) => (&mut section.settings.deadline, &mut section.settings.prefix),
            Self::Memory | Self::Peers(_) => return self,
        };
        if !is_written("deadline") {
            *deadline = FAR_DEADLINE;
        }
        if let (Some(near), false) = (near.prefix(), is_written("prefix")) {
            near.clone_into(prefix);
        }
        self
    }

    /// Returns the prefix of all names in the store, if they can have one.
    fn prefix(&self) -> Option<&str> {
        match self {
            Self::Redis(section) => Some(&section.settings.prefix),
            Self::Postgres(section) => Some(&section.settings.prefix),
            Self::Memory | Self::Peers(_) => None,
        }
    }

    /// Returns the settings with the contents of the files; `None` for memory.
    pub(crate) fn load(&self, reading: LoadPhase) -> Result<Option<RemoteSettings>, Failure> {
        let section = match self {
            Self::Memory => return Ok(None),
            Self::Postgres(section) => return Ok(Some(RemoteSettings::Postgres(section.load(reading)?))),
            Self::Peers(section) => return section.load(reading).map(Some),
            Self::Redis(section) => section,
        };
        let mut settings = section.settings.clone();
        section.server.load_password(&mut settings.password, "the password of Redis", reading)?;
        if let Some(tls) = &mut settings.tls {
            tls.ca = section.server.ca(reading)?;
            tls.client = section.server.client(reading)?;
        }
        Ok(Some(RemoteSettings::Redis(settings)))
    }

    /// Returns the address and the deadline for messages; `None` for memory.
    pub(crate) fn shown(&self) -> Option<String> {
        // A placeholder, so that the message says that there is a password without showing it.
        let placeholder = |server: &ServerSection| server.has_password_file().then(String::new);
        let (url, deadline) = match self {
            Self::Memory => return None,
            Self::Redis(section) => {
                let mut settings = section.settings.clone();
                settings.password = placeholder(&section.server).or(settings.password);
                (settings.to_string(), settings.deadline)
            }
            Self::Postgres(section) => {
                let mut settings = section.settings.clone();
                settings.password = placeholder(&section.server).or(settings.password);
                (settings.to_string(), settings.deadline)
            }
            Self::Peers(section) => (section.settings.to_string(), section.settings.deadline),
        };
        Some(format!("{url}, {} ms", deadline.as_millis()))
    }

    /// Returns the behavior during an outage. The memory store has none.
    pub(crate) fn outage(&self) -> OutageSettings {
        match self {
            Self::Memory => OutageSettings::default(),
            Self::Redis(section) => section.server.outage.clone(),
            Self::Postgres(section) => section.server.outage.clone(),
            Self::Peers(section) => section.server.outage.clone(),
        }
    }
}

impl RedisSection {
    fn new(settings: RedisSettings) -> Self {
        Self { settings, server: ServerSection::default() }
    }

    fn read(fields: &Fields<'_>, problems: &mut Problems) -> Option<Self> {
        let url = fields.get("url");
        if url.is_none() && !fields.mentions("url") {
            problems
                .error(fields.place(), "`store` has no `url`")
                .help("such as `url: redis://127.0.0.1:6379`; without a server it is `store: memory`");
        }
        let settings = url.and_then(|node| redis(node, problems));
        // Parses the rest of the section even if the URL is invalid, to report its mistakes.
        let usable = settings.is_some();
        let nowhere = || RedisSettings::parse(&["redis://localhost"]).ok();
        let mut section = Self::new(settings.or_else(nowhere)?);
        section.take(fields, problems);
        if let (Some(node), true) = (url, usable) {
            section.check(node, fields, problems);
        }
        usable.then_some(section)
    }

    fn take(&mut self, fields: &Fields<'_>, problems: &mut Problems) {
        self.server = ServerSection::read(fields, &mut self.settings.deadline, problems);
        if let Some(node) = fields.get("deny_cache") {
            let range = Span::from_millis(1)..=MAX_DENY_CACHE;
            self.settings.deny_cache = or_off(node, "`deny_cache`", range, problems).unwrap_or_default();
        }
        read_prefix(fields, &mut self.settings.prefix, problems);
    }

    /// Checks that the values are consistent.
    fn check(&self, url: &Node, fields: &Fields<'_>, problems: &mut Problems) {
        let facts = UrlFacts {
            url,
            has_password: self.settings.password.is_some(),
            has_tls: self.settings.tls.is_some(),
            without_password: "`redis://USER@HOST` with a user, `redis://HOST` without",
            with_tls: "`rediss://`",
        };
        ServerSection::check(fields, &facts, problems);
        refuse_words(fields, &[NO_ADVERTISE], problems);
        if !fields.mentions("password_file") {
            self.require_password(url, problems);
        }
    }

    /// Refuses a user without a password, which Redis would not accept.
    fn require_password(&self, url: &Node, problems: &mut Problems) {
        if self.settings.username.is_some() && self.settings.password.is_none() {
            problems
                .error(url.items().first().unwrap_or(url).place, "the URL names a user and no password")
                .help("redis://USER:PASSWORD@HOST, or `password_file` beside `url`; a password alone is redis://:PASSWORD@HOST");
        }
    }
}

/// Parses a URL or a list of URLs.
fn redis(node: &Node, problems: &mut Problems) -> Option<RedisSettings> {
    let items = node.items();
    if items.is_empty() {
        problems.error(node.place, "`store` names no server").help(CHOICES);
        return None;
    }
    let mut urls = Vec::with_capacity(items.len());
    for item in items {
        let text = item.word("a URL of Redis", problems)?.value;
        if !text.contains(':') && !text.contains('.') {
            not_a_url(item, text, problems);
            return None;
        }
        urls.push(text);
    }
    match RedisSettings::parse(&urls) {
        Ok(settings) if settings.database > MAX_DATABASE => {
            problems
                .error(node.place, format!("there is no database {}", settings.database))
                .help("Redis has 0 to 15, unless it is configured otherwise: redis://HOST:6379/0");
            None
        }
        Ok(settings) => Some(settings),
        Err(error) => {
            report_url(node, "a URL of Redis", &error, problems);
            None
        }
    }
}

/// Reports a word that is not a URL.
fn not_a_url(node: &Node, text: &str, problems: &mut Problems) {
    const DEFAULT_REDIS_URL: &str = "redis://127.0.0.1:6379";
    let meant = match text.to_ascii_lowercase().as_str() {
        "memory" => Some("store: memory".to_owned()),
        "redis" | "valkey" => Some(DEFAULT_REDIS_URL.to_owned()),
        "localhost" => Some("redis://localhost:6379".to_owned()),
        "ram" | "local" | "in-memory" | "in_memory" | "none" | "off" => Some("memory".to_owned()),
        _ => nearest(text, ["memory"]).map(str::to_owned),
    };
    let problem = problems.error(node.place, format!("`store` cannot be {}", node.describe()));
    if let Some(meant) = meant {
        problem.label(format!("did you mean `{meant}`?"));
    }
    problem.help(CHOICES);
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_document::Document;
    use tollgate_testkit::Scratch;

    fn read(text: &str) -> (StoreSettings, Vec<String>, String) {
        let document = Document::parse(text).unwrap();
        let mut problems = Problems::default();
        let settings = StoreSettings::read(document.root().get("store").unwrap(), &mut problems);
        let found = problems.into_diagnostics(&document);
        let said = found.iter().map(|it| format!("{} | {}", it.message, it.label)).collect();
        (
            settings,
            said,
            format!(
                "{}\n{}",
                found.render("p.yaml"),
                found.brief("p.yaml", tollgate::policy::format_words())
            ),
        )
    }

    #[test]
    fn a_store_is_memory_a_url_a_list_or_a_map() {
        for (text, expected) in [
            ("store: memory", ""),
            ("store: redis://h", "redis://h:6379, 50ms, 1s, \"\", 5 20 60s"),
            ("store: 'rediss://ann:hunter2@h/1'", "rediss://ann:***@h:6379/1, 50ms, 1s, \"\", 5 20 60s"),
            ("store: redis-cluster://a,b", "redis-cluster://a:6379,b:6379, 50ms, 1s, \"\", 5 20 60s"),
            ("store: [redis://a, redis://b]", "redis-cluster://a:6379,b:6379, 50ms, 1s, \"\", 5 20 60s"),
            ("store: {url: redis://h}", "redis://h:6379, 50ms, 1s, \"\", 5 20 60s"),
            (
                "store: {url: [redis://a, redis://b], deadline: 20ms, deny_cache: off, prefix: a.b:c-1, outage: {failures: 3, share: 50%, grace: 10s}}",
                "redis-cluster://a:6379,b:6379, 20ms, 0ns, \"a.b:c-1\", 3 50 10s",
            ),
            (
                "store: {url: redis://h, outage: {share: 100, grace: off}}",
                "redis://h:6379, 50ms, 1s, \"\", 5 100 0ns",
            ),
            (
                "store: {url: redis://ann@h, password_file: /p}",
                "redis://ann@h:6379, 50ms, 1s, \"\", 5 20 60s",
            ),
        ] {
            let (settings, problems, _) = read(text);
            assert!(problems.is_empty(), "{text}: {problems:?}");
            let message = match settings {
                StoreSettings::Memory => String::new(),
                StoreSettings::Postgres(it) => panic!("{it:?}"),
                StoreSettings::Peers(it) => panic!("{it:?}"),
                StoreSettings::Redis(it) => {
                    let (at, out) = (&it.settings, &it.server.outage);
                    let (deadline, deny, prefix) = (at.deadline, at.deny_cache, &at.prefix);
                    let (failures, share, grace) = (out.failures, out.share, out.grace);
                    format!("{at}, {deadline:?}, {deny:?}, {prefix:?}, {failures} {share} {grace:?}")
                }
            };
            assert_eq!(message, expected, "{text}");
        }
    }

    #[test]
    fn every_mistake_has_a_suggestion_and_shows_no_password() {
        for (text, expected) in [
            ("store: memroy", "`store` cannot be `memroy` | did you mean `memory`?"),
            ("store: redis", "`store` cannot be `redis` | did you mean `redis://127.0.0.1:6379`?"),
            ("store: []", "`store` names no server | "),
            ("store: [{a: 1}]", "a URL of Redis is one value, not a map | write a single value here"),
            (
                "store: cache.internal:6379",
                "this is not a URL of Redis: it has no scheme | did you mean `redis://cache.internal:6379`?",
            ),
            (
                "store: http://u:hunter2@h",
                "this is not a URL of Redis: `http://` is not a scheme of Redis | ",
            ),
            (
                "store: redis://:hunter2@h:x",
                "this is not a URL of Redis: a port is a number from 1 to 65535 | ",
            ),
            (
                "store: redis://:hunter2/@h",
                "this is not a URL of Redis: `/` in a user or a password is written `%2F` | ",
            ),
            (
                "store: [redis://a, rediss://b]",
                "this is not a URL of Redis: several URLs are one cluster: TLS for one and not for the other is not | ",
            ),
            ("store: redis://ann@h", "the URL names a user and no password | "),
            ("store: {url: redis://ann@h}", "the URL names a user and no password | "),
            ("store: {deadline: 50ms}", "`store` has no `url` | "),
            ("store: {url: memory}", "`store` cannot be `memory` | did you mean `store: memory`?"),
            ("store: {kind: redis}", "unknown word `kind` in `store` | did you mean `url`?"),
            (
                "store: {url: redis://h, password: hunter2}",
                "unknown word `password` in `store` | did you mean `password_file`?",
            ),
            (
                "store: {url: redis://h, timeout: 1s}",
                "unknown word `timeout` in `store` | did you mean `deadline`?",
            ),
            ("store: {url: redis://h, deadline: 0ms}", "`deadline` is between 1ms and 10s | `0ms` is not"),
            ("store: {url: redis://h, deadline: 11s}", "`deadline` is between 1ms and 10s | `11s` is not"),
            ("store: {url: redis://h, deadline: 50}", "`50` is not a length of time | did you mean `50ms`?"),
            (
                "store: {url: redis://h, deny_cache: false}",
                "`deny_cache` is `off`, or between 1ms and 1m | did you mean `off`?",
            ),
            (
                "store: {url: redis://h, deny_cache: 0s}",
                "`deny_cache` is `off`, or between 1ms and 1m | did you mean `off`?",
            ),
            (
                "store: {url: redis://h, outage: {grace: 0}}",
                "`grace` is `off`, or between 1ms and 1d | did you mean `off`?",
            ),
            (
                "store: {url: redis://h, tls: true}",
                "unknown word `tls` in `store` | did you mean `url: rediss://HOST`?",
            ),
            ("store: redis://h/9999999999999999", "there is no database 9999999999999999 | "),
            (
                "store: {url: redis://h, passwd: hunter2}",
                "unknown word `passwd` in `store` | did you mean `password_file`?",
            ),
            (
                "store: u:hunter2@h:6379",
                "this is not a URL of Redis: a URL of Redis begins with `redis://` | ",
            ),
            ("store: {url: redis://h, deny_cache: 2m}", "`deny_cache` is between 1ms and 1m | `2m` is not"),
            ("store: {url: redis://h, prefix: 'a b'}", "`prefix` cannot hold ` ` | "),
            (
                "store: {url: redis://h, prefix: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa}",
                "`prefix` has at most 32 characters | this has 33",
            ),
            ("store: {url: redis://h, outage: {share: 0%}}", "`share` is 1% to 100%, not `0%` | "),
            (
                "store: {url: redis://h, outage: {share: 0.2}}",
                "`share` is 1% to 100%, not `0.2` | did you mean `20%`?",
            ),
            ("store: {url: redis://h, outage: {share: 101%}}", "`share` is 1% to 100%, not `101%` | "),
            ("store: {url: redis://h, outage: {failures: 0}}", "`failures` is at least 1 | this is less"),
            (
                "store: {url: redis://h, outage: {after: 1}}",
                "unknown word `after` in `outage` | did you mean `failures`?",
            ),
            ("store: {url: redis://:hunter2@h, password_file: /p}", "the password is given twice | here"),
            (
                "store: {url: redis://h, ca: /p}",
                "`ca` is for TLS, and this URL does not use TLS | nothing to check",
            ),
        ] {
            let (_, problems, message) = read(text);
            assert_eq!(problems, [expected], "{text}");
            assert!(!message.contains("hunter"), "{message}");
        }
    }

    #[test]
    fn files_are_read_when_they_are_needed() {
        let files = Scratch::new();
        let file = |name: &str, text: &str| files.write(name, text).display().to_string();
        let load = |section: &str| match read(&format!("store: {{url: 'rediss://h', {section}}}"))
            .0
            .load(LoadPhase::First)
        {
            Ok(settings) => {
                let Some(RemoteSettings::Redis(settings)) = settings else { panic!("{settings:?}") };
                format!("{:?} {:?}", settings.password, settings.tls.unwrap().ca.map(|it| it.len()))
            }
            Err(failure) => failure.to_string(),
        };
        let good = file("good", " p w \r\n");
        assert_eq!(load(&format!("password_file: {good}")), "Some(\" p w \") None");
        let pem = file("ca.pem", "-----BEGIN CERTIFICATE-----\n");
        assert_eq!(load(&format!("ca: {pem}")), "None Some(28)");
        for (section, expected) in [
            (format!("password_file: {}", file("empty", "\n")), "empty is empty"),
            (format!("password_file: {}", file("two", "a\nb\n")), "two has more than one line"),
            (format!("password_file: {good}.not"), "there is no such file"),
            (format!("ca: {good}"), "good holds no certificate"),
            (format!("ca: {good}.not"), "there is no such file"),
        ] {
            let message = load(&section);
            assert!(message.starts_with("error: ") && message.contains(expected), "{section}: {message}");
        }
        assert_eq!(StoreSettings::Memory.load(LoadPhase::First), Ok(None));
    }
}
