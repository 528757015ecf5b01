//! The `store` section for PostgreSQL.
//!
//! URLs are parsed by `tollgate_postgres::PostgresSettings`.

use tollgate_document::{Fields, Node, Problems};
use tollgate_postgres::PostgresSettings;

use super::server::{ServerSection, UrlFacts, read_prefix, refuse_words, report_url};
use super::{NO_ADVERTISE, NO_CLIENT_CERTIFICATE};
use crate::configuration::LoadPhase;
use crate::failure::Failure;

/// The settings of PostgreSQL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PostgresSection {
    /// The settings without the contents of files.
    pub(super) settings: PostgresSettings,
    pub(super) server: ServerSection,
}

/// Returns whether a value is meant to be a URL of PostgreSQL.
pub(super) fn is_postgres(node: &Node) -> bool {
    let text = node.items().first().and_then(Node::text).or_else(|| node.text()).unwrap_or_default();
    let scheme = text.split_once(':').map_or(text, |(scheme, _)| scheme).to_ascii_lowercase();
    matches!(scheme.as_str(), "postgres" | "postgresql" | "pg" | "psql" | "pgsql")
}

impl PostgresSection {
    /// Parses a URL alone.
    pub(super) fn read_url(node: &Node, problems: &mut Problems) -> Option<Self> {
        Some(Self { settings: postgres(node, problems)?, server: ServerSection::default() })
    }

    /// Parses a map whose `url` is of PostgreSQL.
    pub(super) fn read(url: &Node, fields: &Fields<'_>, problems: &mut Problems) -> Option<Self> {
        let section = Self::read_url(url, problems);
        // Parses the rest of the section even if the URL is invalid, to report its mistakes.
        let is_usable = section.is_some();
        let nowhere = || PostgresSettings::parse("postgres://nobody@localhost").ok();
        let mut section = match section {
            Some(section) => section,
            None => Self { settings: nowhere()?, server: ServerSection::default() },
        };
        section.take(fields, problems);
        if is_usable {
            section.check(url, fields, problems);
        }
        is_usable.then_some(section)
    }

    fn take(&mut self, fields: &Fields<'_>, problems: &mut Problems) {
        self.server = ServerSection::read(fields, &mut self.settings.deadline, problems);
        read_prefix(fields, &mut self.settings.prefix, problems);
    }

    /// Checks that the values are consistent.
    fn check(&self, url: &Node, fields: &Fields<'_>, problems: &mut Problems) {
        let facts = UrlFacts {
            url,
            has_password: self.settings.password.is_some(),
            has_tls: self.settings.tls.is_some(),
            without_password: "`postgres://USER@HOST/DATABASE`",
            with_tls: "`?sslmode=verify-full` at the end of the URL",
        };
        ServerSection::check(fields, &facts, problems);
        let deny_cache = (
            "deny_cache",
            "for Redis: refusals of PostgreSQL are not cached",
            "leave it out; `lease: auto` decides hot keys without PostgreSQL",
        );
        refuse_words(fields, &[deny_cache, NO_ADVERTISE], problems);
        refuse_words(fields, &NO_CLIENT_CERTIFICATE, problems);
    }

    /// Returns the settings with the contents of the files.
    pub(super) fn load(&self, reading: LoadPhase) -> Result<PostgresSettings, Failure> {
        let mut settings = self.settings.clone();
        self.server.load_password(&mut settings.password, "the password of PostgreSQL", reading)?;
        if let Some(tls) = &mut settings.tls {
            tls.ca = self.server.ca(reading)?;
        }
        Ok(settings)
    }
}

fn postgres(node: &Node, problems: &mut Problems) -> Option<PostgresSettings> {
    let items = node.items();
    if let [_, second, ..] = items {
        problems
            .error(second.place, "PostgreSQL has one URL")
            .help("several hosts are one URL: postgres://USER@HOST,HOST/DATABASE");
        return None;
    }
    let text = items.first().unwrap_or(node).word("a URL of PostgreSQL", problems)?.value;
    if !text.contains(':') {
        problems
            .error(node.place, format!("`store` cannot be {}", node.describe()))
            .label("did you mean `postgres://USER@127.0.0.1/DATABASE`?");
        return None;
    }
    let settings = PostgresSettings::parse(text);
    settings.map_err(|error| report_url(node, "a URL of PostgreSQL", &error, problems)).ok()
}

#[cfg(test)]
mod tests {
    use tollgate_document::Document;
    use tollgate_testkit::Scratch;

    use super::super::StoreSettings;
    use super::*;
    use crate::store::RemoteSettings;

    fn read(text: &str) -> (StoreSettings, Vec<String>, String) {
        let document = Document::parse(text).unwrap();
        let mut problems = Problems::default();
        let settings = StoreSettings::read(document.root().get("store").unwrap(), &mut problems);
        let found = problems.into_diagnostics(&document);
        let said = found.iter().map(|it| format!("{} | {}", it.message, it.label)).collect();
        (settings, said, found.render("p.yaml"))
    }

    #[test]
    fn a_store_is_a_url_or_a_map() {
        for (text, expected) in [
            ("store: postgres://ann@h/d", "postgres://ann@h:5432/d, 50ms, \"\", 5 20 60s"),
            ("store: ['postgresql://ann:hunter2@h']", "postgres://ann:***@h:5432/ann, 50ms, \"\", 5 20 60s"),
            (
                "store: {url: 'postgres://ann@h/d', deadline: 20ms, prefix: shop, lease: auto, outage: {failures: 3, share: 50%, grace: off}}",
                "postgres://ann@h:5432/d, 20ms, \"shop\", 3 50 0ns",
            ),
        ] {
            let (settings, problems, _) = read(text);
            assert!(problems.is_empty(), "{text}: {problems:?}");
            let StoreSettings::Postgres(it) = settings else { panic!("{text}: {settings:?}") };
            let (at, out) = (&it.settings, &it.server.outage);
            let (failures, share, grace) = (out.failures, out.share, out.grace);
            assert_eq!(
                format!("{at}, {:?}, {:?}, {failures} {share} {grace:?}", at.deadline, at.prefix),
                expected,
                "{text}"
            );
        }
    }

    #[test]
    fn every_mistake_has_a_suggestion_and_shows_no_password() {
        for (text, expected) in [
            (
                "store: postgres",
                "`store` cannot be `postgres` | did you mean `postgres://USER@127.0.0.1/DATABASE`?",
            ),
            ("store: postgres://h/d", "this is not a URL of PostgreSQL: it names no user | "),
            (
                "store: pg://u:hunter2@h",
                "this is not a URL of PostgreSQL: `pg://` is not a scheme of PostgreSQL | ",
            ),
            (
                "store: postgres://u:hunter2/@h",
                "this is not a URL of PostgreSQL: `/` in a user or a password is written `%2F` | ",
            ),
            (
                "store: 'postgres://u:hunter2@h?sslmode=prefer'",
                "this is not a URL of PostgreSQL: `prefer` would use TLS without verifying the server: \
                 write `sslmode=verify-full`, or `sslmode=disable` | ",
            ),
            ("store: ['postgres://u@a', 'postgres://u@b']", "PostgreSQL has one URL | "),
            (
                "store: {url: 'postgres://u@h', deny_cache: 1s}",
                "`deny_cache` is for Redis: refusals of PostgreSQL are not cached | no effect here",
            ),
            (
                "store: {url: 'postgres://u:hunter2@h', password_file: /p}",
                "the password is given twice | here",
            ),
            (
                "store: {url: 'postgres://u@h', ca: /p}",
                "`ca` is for TLS, and this URL does not use TLS | nothing to check",
            ),
            (
                "store: {url: 'postgres://u@h', advertise: 'a:1'}",
                "`advertise` is for peers, and this is another store | no effect here",
            ),
            (
                "store: {url: 'postgres://u@h', deadline: 11s}",
                "`deadline` is between 1ms and 10s | `11s` is not",
            ),
            ("store: {url: 'postgres://u@h', prefix: 'a b'}", "`prefix` cannot hold ` ` | "),
        ] {
            let (_, problems, message) = read(text);
            assert_eq!(problems, [expected], "{text}");
            assert!(!message.contains("hunter"), "{message}");
        }
    }

    #[test]
    fn files_are_read_when_they_are_needed() {
        let files = Scratch::new();
        let password = files.write("password", "s3cret\n");
        let ca = files.write("ca.pem", "-----BEGIN CERTIFICATE-----\n");
        let text = format!(
            "store: {{url: 'postgres://u@h?sslmode=verify-full', password_file: {}, ca: {}}}",
            password.display(),
            ca.display()
        );
        let settings = read(&text).0;
        assert_eq!(settings.shown().unwrap(), "postgres://u:***@h:5432/u?sslmode=verify-full, 50 ms");
        let Ok(Some(RemoteSettings::Postgres(loaded))) = settings.load(LoadPhase::First) else {
            panic!("{text}")
        };
        assert_eq!(loaded.password.as_deref(), Some("s3cret"));
        assert_eq!(loaded.tls.unwrap().ca.map(|it| it.len()), Some(28));
    }
}
