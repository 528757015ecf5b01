//! The sections `rls` and `resp`: protocols of other limiters.

use std::path::PathBuf;
use std::time::Duration;

use tollgate::Span;
use tollgate_document::{Fields, Node, Problems, Synonyms, Words};
use tollgate_rls::Headers;

use super::served_tls::{self, ServedTls};
use super::xds::XdsSection;
use super::{Listen, LoadPhase, files};
use crate::failure::Failure;

/// The settings of Envoy's rate limit service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RlsSection {
    /// The responses that carry rate limit headers, if set.
    pub(crate) headers: Option<Headers>,
    /// The directory of envoyproxy/ratelimit files.
    pub(crate) envoy_config: Option<PathBuf>,
    /// The configuration server that limits come from.
    pub(crate) xds: Option<XdsSection>,
    /// Whether several files may share a domain.
    pub(crate) merge_domains: bool,
    /// Whether callers may refund quota, if set.
    pub(crate) refunds: Option<bool>,
    /// The longest time for which an answer is held for the queue of a limit, if set.
    pub(crate) wait: Option<Duration>,
    /// The maximum number of answers that are held at a time, if set.
    pub(crate) waiting: Option<usize>,
    /// TLS of the listener.
    pub(crate) tls: Option<ServedTls>,
}

/// The settings of the Redis protocol.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RespSection {
    /// The file with the password.
    pub(crate) password_file: Option<PathBuf>,
    /// Whether callers may refund quota, if set.
    pub(crate) refunds: Option<bool>,
    /// TLS of the listener.
    pub(crate) tls: Option<ServedTls>,
}

/// The maximum time for which an answer may be held.
const MAX_WAIT: Span = Span::from_minutes(1);
/// The maximum number of answers that may be held.
const MAX_WAITING: u64 = 1_000_000;

const RLS: Words = Words {
    section: "`rls`",
    known: &["headers", "envoy_config", "xds", "merge_domains", "refunds", "wait", "waiting", "tls"],
    synonyms: &[
        ("envoy_config", &["config", "runtime_root", "directory"]),
        ("merge_domains", &["merge_domain_config"]),
        ("headers", &["response_headers"]),
        ("refunds", &["negative_hits", "is_negative_hits"]),
        ("wait", &["max_wait", "hold"]),
        ("waiting", &["max_waiting"]),
        ("tls", &["certificate", "mtls"]),
    ],
};
const RESP: Words = Words {
    section: "`resp`",
    known: &["password_file", "refunds", "tls"],
    synonyms: &[
        ("password_file", &["password", "requirepass", "auth"]),
        ("refunds", &["negative_quantity"]),
        ("tls", &["certificate", "mtls"]),
    ],
};
const RLS_TLS: Words = served_tls::words("`rls.tls`");
const RESP_TLS: Words = served_tls::words("`resp.tls`");

const HEADERS: [(&str, Headers); 3] =
    [("all", Headers::All), ("refusals", Headers::Refusals), ("off", Headers::Off)];

impl RlsSection {
    /// Parses the section.
    pub(super) fn read(node: &Node, problems: &mut Problems) -> Self {
        let Some(fields) = node.fields(&RLS, problems) else { return Self::default() };
        let headers = fields.get("headers").and_then(|node| {
            let synonyms: Synonyms = &[("refusals", &["denials", "limited"]), ("off", &["none"])];
            node.choice_with_synonyms("`headers`", &HEADERS, synonyms, problems)
        });
        let folder = fields.get("envoy_config").and_then(|node| node.word("`envoy_config`", problems));
        let merge = fields.get("merge_domains").and_then(|node| node.boolean("`merge_domains`", problems));
        let xds = fields.get("xds");
        if let (Some(node), Some(other)) = (xds, fields.get("envoy_config")) {
            problems
                .error(node.place, "`xds` and `envoy_config` cannot be combined")
                .label("limits come from a server here")
                .related(other.place, "and from files here")
                .help("remove one of them");
        }
        let wait = fields.get("wait");
        let wait = wait.and_then(|node| node.span("`wait`", Span::from_millis(1)..=MAX_WAIT, problems));
        let waiting = fields.get("waiting");
        let waiting = waiting.and_then(|node| node.whole("`waiting`", 0..=MAX_WAITING, problems));
        Self {
            headers: headers.map(|it| it.value),
            envoy_config: folder.map(|it| it.value.into()),
            xds: xds.and_then(|node| XdsSection::read(node, problems)),
            merge_domains: merge.is_some_and(|it| it.value),
            wait: wait.map(|it| it.value.into()),
            waiting: waiting.map(|it| usize::try_from(it.value).unwrap_or(usize::MAX)),
            refunds: refunds(&fields, problems),
            tls: fields.get("tls").and_then(|node| ServedTls::read(node, &RLS_TLS, problems)),
        }
    }

    /// Whether callers must authenticate.
    pub(super) fn knows_callers(&self) -> bool {
        self.tls.as_ref().is_some_and(ServedTls::knows_clients)
    }

    /// Whether callers at this address may refund quota.
    pub(crate) fn takes_refunds(&self, listen: &Listen) -> bool {
        self.refunds.unwrap_or_else(|| listen.is_private() || self.knows_callers())
    }

    /// Checks the files that the section names, except the directory, which is read with the policy.
    pub(super) fn check_files(&self) -> Option<Failure> {
        let served = self.tls.as_ref().and_then(|it| it.load("Envoy", false).err());
        served.or_else(|| self.xds.as_ref().and_then(XdsSection::check_files))
    }
}

/// Parses whether callers may refund quota.
fn refunds(fields: &Fields<'_>, problems: &mut Problems) -> Option<bool> {
    fields.get("refunds").and_then(|node| node.boolean("`refunds`", problems)).map(|it| it.value)
}

impl RespSection {
    /// Parses the section.
    pub(super) fn read(node: &Node, problems: &mut Problems) -> Self {
        let Some(fields) = node.fields(&RESP, problems) else { return Self::default() };
        let password = fields.get("password_file").and_then(|node| node.word("`password_file`", problems));
        Self {
            password_file: password.map(|it| it.value.into()),
            refunds: refunds(&fields, problems),
            tls: fields.get("tls").and_then(|node| ServedTls::read(node, &RESP_TLS, problems)),
        }
    }

    /// Whether callers must authenticate.
    pub(super) fn knows_callers(&self) -> bool {
        self.password_file.is_some() || self.tls.as_ref().is_some_and(ServedTls::knows_clients)
    }

    /// Whether callers at this address may refund quota.
    pub(crate) fn takes_refunds(&self, listen: &Listen) -> bool {
        self.refunds.unwrap_or_else(|| listen.is_private() || self.knows_callers())
    }

    /// Reads the password, if there is one.
    pub(crate) fn password(&self, reading: LoadPhase) -> Result<Option<String>, Failure> {
        let meant = "the password of `resp`";
        self.password_file.as_deref().map(|file| files::password(file, meant, reading)).transpose()
    }

    /// Checks the files that the section names.
    pub(super) fn check_files(&self) -> Vec<Failure> {
        let tls = self.tls.as_ref().and_then(|it| it.load("clients of Redis", false).err());
        self.password(LoadPhase::First).err().into_iter().chain(tls).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_document::Document;

    fn read(text: &str) -> (RlsSection, RespSection, Vec<String>) {
        let document = Document::parse(text).unwrap();
        let (root, mut problems) = (document.root(), Problems::default());
        let rls = root.get("rls").map(|node| RlsSection::read(node, &mut problems));
        let resp = root.get("resp").map(|node| RespSection::read(node, &mut problems));
        let found = problems.into_diagnostics(&document);
        let found = found.iter().map(|it| format!("{} | {}", it.message, it.label)).collect();
        (rls.unwrap_or_default(), resp.unwrap_or_default(), found)
    }

    #[test]
    fn every_word_is_parsed() {
        let (rls, resp, problems) = read(
            "rls: {headers: refusals, envoy_config: /etc/rl, merge_domains: true, refunds: true, wait: 2s, waiting: 500, tls: {certificate: c, key: k}}\n\
             resp: {password_file: p, refunds: false, tls: {certificate: c, key: k, client_ca: a}}\n",
        );
        assert_eq!(problems, [""; 0]);
        assert_eq!(
            (rls.headers, rls.envoy_config, rls.merge_domains),
            (Some(Headers::Refusals), Some("/etc/rl".into()), true)
        );
        assert_eq!((rls.refunds, resp.refunds), (Some(true), Some(false)));
        assert_eq!((rls.wait, rls.waiting), (Some(Duration::from_secs(2)), Some(500)));
        assert!(rls.tls.is_some_and(|it| !it.knows_clients()));
        assert_eq!(resp.password_file, Some("p".into()));
        assert!(resp.tls.is_some_and(|it| it.knows_clients()));
    }

    #[test]
    fn remote_refunds_need_authentication_or_an_explicit_setting() {
        let here = Listen::On("127.0.0.1:8081".to_owned());
        let everywhere = Listen::On("0.0.0.0:8081".to_owned());
        let tls = "tls: {certificate: c, key: k, client_ca: a}";
        for (section, at_home, abroad) in [
            ("{headers: all}".to_owned(), true, false),
            ("{refunds: true}".to_owned(), true, true),
            ("{refunds: false}".to_owned(), false, false),
            (format!("{{{tls}}}"), true, true),
            ("{tls: {certificate: c, key: k}}".to_owned(), true, false),
        ] {
            let (rls, _, problems) = read(&format!("rls: {section}"));
            assert_eq!(problems, [""; 0]);
            assert_eq!(
                (rls.takes_refunds(&here), rls.takes_refunds(&everywhere)),
                (at_home, abroad),
                "{section}"
            );
        }
        for (section, abroad) in [("{}", false), ("{password_file: p}", true), ("{refunds: true}", true)] {
            let (_, resp, _) = read(&format!("resp: {section}"));
            assert_eq!(
                (resp.takes_refunds(&here), resp.takes_refunds(&everywhere)),
                (true, abroad),
                "{section}"
            );
        }
    }

    #[test]
    fn every_mistake_has_a_suggestion() {
        for (text, expected) in [
            ("rls: {config: d}", "unknown word `config` in `rls` | did you mean `envoy_config`?"),
            ("rls: {headers: denials}", "`headers` cannot be `denials` | did you mean `refusals`?"),
            ("rls: {negative_hits: true}", "unknown word `negative_hits` in `rls` | did you mean `refunds`?"),
            ("rls: {max_wait: 2s}", "unknown word `max_wait` in `rls` | did you mean `wait`?"),
            ("rls: {wait: 2m}", "`wait` is between 1ms and 1m | `2m` is not"),
            ("rls: {waiting: 1_000_001}", "`waiting` is at most 1000000 | this is more"),
            ("rls: {tls: {key: k}}", "`rls.tls` has no `certificate` | "),
            ("resp: {password: x}", "unknown word `password` in `resp` | did you mean `password_file`?"),
            (
                "resp: {tls: {cert: c, key: k}}",
                "unknown word `cert` in `resp.tls` | did you mean `certificate`?",
            ),
        ] {
            assert_eq!(read(text).2, [expected], "{text}");
        }
    }
}
