//! The `store` section: the store of the counters.
//!
//! It is `memory`, a URL, a list of URLs of Redis or of peers, or a map. The files that it names (a password,
//! certificates) are read when the server starts, and by `validate`, which needs no store.
//!
//! - `peers`: Tollgate nodes as their own store.
//! - `postgres`: the section for PostgreSQL.
//! - `values`: its scalar values.
//!
//! URLs are parsed by `tollgate_redis::RedisSettings`; connecting is in `store`.

mod peers;
mod postgres;
mod values;

use std::path::{Path, PathBuf};
use std::time::Duration;

use tollgate::{OutageSettings, Span};
use tollgate_document::{Fields, Kind, Node, Problems, Words, nearest};
use tollgate_redis::{ClientCertificate, RedisSettings, SettingsError};

pub(crate) use self::peers::PeersSection;
use self::postgres::{PostgresSection, is_postgres};
pub(super) use self::values::or_off;
use self::values::{deadline, prefix, share};
use super::{LoadPhase, files, shown};
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
    password_file: Option<PathBuf>,
    ca: Option<PathBuf>,
    /// The client certificate and its key.
    client: Option<(PathBuf, PathBuf)>,
    /// The behavior while Redis does not answer.
    outage: OutageSettings,
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
const OUTAGE: Words = Words {
    section: "`outage`",
    known: &["failures", "share", "grace"],
    synonyms: &[("failures", &["after", "threshold"]), ("share", &["percent", "fraction"])],
};

/// The maximum deadline. Requests wait this long for the store.
const MAX_DEADLINE: Span = Span::from_secs(10);
/// The deadline of calls to another region, unless the file has another one.
const FAR_DEADLINE: Duration = Duration::from_secs(1);
/// The maximum time for which a refusal is cached that another node may have lifted.
const MAX_DENY_CACHE: Span = Span::from_secs(60);
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
        if let Self::Redis(section) = &mut self {
            section.settings.deny_cache = Duration::ZERO;
            if !is_written("deadline") {
                section.settings.deadline = FAR_DEADLINE;
            }
            if let (Self::Redis(near), false) = (near, is_written("prefix")) {
                section.settings.prefix.clone_from(&near.settings.prefix);
            }
        }
        self
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
        if let Some(file) = &section.password_file {
            settings.password = Some(files::password(file, "the password of Redis", reading)?);
        }
        if let (Some(file), Some(tls)) = (&section.ca, &mut settings.tls) {
            tls.ca = Some(certificates(file, "`store.ca`", reading)?);
        }
        if let (Some((cert, key)), Some(tls)) = (&section.client, &mut settings.tls) {
            let chain = certificates(cert, "`store.cert`", reading)?;
            let key = files::read(key, reading)?.into_bytes();
            tls.client = Some(ClientCertificate { chain, key });
        }
        Ok(Some(RemoteSettings::Redis(settings)))
    }

    /// Returns the address and the deadline for messages; `None` for memory.
    pub(crate) fn shown(&self) -> Option<String> {
        let section = match self {
            Self::Memory => return None,
            Self::Postgres(section) => {
                let settings = section.shown();
                return Some(format!("{settings}, {} ms", settings.deadline.as_millis()));
            }
            Self::Peers(section) => return Some(section.shown()),
            Self::Redis(section) => section,
        };
        let mut settings = section.settings.clone();
        if section.password_file.is_some() {
            // A placeholder, so that the message says that there is a password without showing it.
            settings.password = Some(String::new());
        }
        Some(format!("{settings}, {} ms", settings.deadline.as_millis()))
    }

    /// Returns the behavior during an outage. The memory store has none.
    pub(crate) fn outage(&self) -> OutageSettings {
        match self {
            Self::Memory => OutageSettings::default(),
            Self::Redis(section) => section.outage.clone(),
            Self::Postgres(section) => section.outage.clone(),
            Self::Peers(section) => section.outage.clone(),
        }
    }
}

impl RedisSection {
    fn new(settings: RedisSettings) -> Self {
        Self { settings, password_file: None, ca: None, client: None, outage: OutageSettings::default() }
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
        let path = |word: &str, problems: &mut Problems| -> Option<PathBuf> {
            Some(fields.get(word)?.word(&format!("`{word}`"), problems)?.value.into())
        };
        self.password_file = path("password_file", problems);
        self.ca = path("ca", problems);
        let (cert, key) = (path("cert", problems), path("key", problems));
        if cert.is_some() != key.is_some() {
            problems
                .error(fields.place(), "`store` has one of `cert` and `key`, and needs both")
                .help("both are PEM files; without a client certificate, leave both out");
        }
        self.client = cert.zip(key);
        let range = Span::from_millis(1)..=MAX_DEADLINE;
        let deadline = fields.get("deadline").and_then(|node| deadline(node, range, problems));
        self.settings.deadline = deadline.unwrap_or(self.settings.deadline);
        if let Some(node) = fields.get("deny_cache") {
            let range = Span::from_millis(1)..=MAX_DENY_CACHE;
            self.settings.deny_cache = or_off(node, "`deny_cache`", range, problems).unwrap_or_default();
        }
        if let Some(prefix) = fields.get("prefix").and_then(|node| prefix(node, problems)) {
            self.settings.prefix = prefix;
        }
        take_outage(&mut self.outage, fields, problems);
    }

    /// Checks that the values are consistent.
    fn check(&self, url: &Node, fields: &Fields<'_>, problems: &mut Problems) {
        if let Some(node) = fields.get("password_file").filter(|_| self.settings.password.is_some()) {
            problems
                .error(node.place, "the password is said twice")
                .label("here")
                .related(url.items().first().unwrap_or(url).place, "and in the URL")
                .help("take it out of the URL: `redis://USER@HOST` with a user, `redis://HOST` without");
        }
        for word in ["ca", "cert"] {
            let Some(node) = fields.get(word).filter(|_| self.settings.tls.is_none()) else { continue };
            problems
                .error(node.place, format!("`{word}` is for TLS, and this is spoken without"))
                .label("nothing to check")
                .related(url.items().first().unwrap_or(url).place, "no TLS here")
                .help(format!("TLS is spoken with `rediss://`; without it, leave `{word}` out"));
        }
        if let Some(node) = fields.get("advertise") {
            problems
                .error(node.place, "`advertise` is for peers, and this is Redis")
                .help("with `url: tollgate://…` it is the address of this node in the list");
        }
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

/// Reads the map `outage` of the section, if it has one.
fn take_outage(settings: &mut OutageSettings, section: &Fields<'_>, problems: &mut Problems) {
    let Some(fields) = section.get("outage").and_then(|node| node.fields(&OUTAGE, problems)) else {
        return;
    };
    if let Some(node) = fields.get("failures")
        && let Some(failures) = node.whole("`failures`", 1..=1_000_000, problems)
    {
        settings.failures = u32::try_from(failures.value).unwrap_or(u32::MAX);
    }
    if let Some(share) = fields.get("share").and_then(|node| share(node, problems)) {
        settings.share = share;
    }
    if let Some(node) = fields.get("grace") {
        let range = Span::from_millis(1)..=Span::from_hours(24);
        settings.grace = or_off(node, "`grace`", range, problems).unwrap_or_default();
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
                .help("Redis has 0 to 15, unless it was told otherwise: redis://HOST:6379/0");
            None
        }
        Ok(settings) => Some(settings),
        Err(error) => {
            let (index, wrong, expected) = match &error {
                SettingsError::Url { index, wrong, expected } => (*index, wrong.clone(), expected.as_str()),
                other => (0, other.to_string(), CHOICES),
            };
            let place = items.get(index).unwrap_or(node).place;
            let problem = problems.error(place, format!("this is not a URL of Redis: {wrong}"));
            if expected.starts_with("did you mean") {
                problem.label(expected);
            } else {
                problem.help(expected);
            }
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

fn certificates(file: &Path, word: &str, reading: LoadPhase) -> Result<Vec<u8>, Failure> {
    let text = files::read(file, reading)?;
    if !text.contains("-----BEGIN CERTIFICATE-----") {
        return Err(Failure::with_help(
            format_args!("{} holds no certificate", shown(file)),
            format_args!("{word} is a PEM file: it has a line -----BEGIN CERTIFICATE-----"),
        ));
    }
    Ok(text.into_bytes())
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
                StoreSettings::Peers(it) => it.shown(),
                StoreSettings::Redis(it) => {
                    let (at, out) = (&it.settings, &it.outage);
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
            ("store: http://u:hunter2@h", "this is not a URL of Redis: `http://` is not spoken by Redis | "),
            (
                "store: redis://:hunter2@h:x",
                "this is not a URL of Redis: a port is a number from 1 to 65535 | ",
            ),
            (
                "store: redis://:hunter2/@h",
                "this is not a URL of Redis: a `/` in a user or a password is written `%2F` | ",
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
            ("store: {url: redis://:hunter2@h, password_file: /p}", "the password is said twice | here"),
            (
                "store: {url: redis://h, ca: /p}",
                "`ca` is for TLS, and this is spoken without | nothing to check",
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
