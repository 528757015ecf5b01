//! `store: tollgate://…`: Tollgate nodes as their own store.
//!
//! URLs are parsed by `tollgate_peers::PeerSettings`.

use std::collections::HashMap;

use tollgate_document::{Fields, Kind, Node, Problems};
use tollgate_peers::{Address, PeerSettings, parse_address};

use super::server::{ServerSection, UrlFacts, refuse_words, report_url};
use super::{NO_CLIENT_CERTIFICATE, STORE};
use crate::configuration::{Listen, LoadPhase, ServedTls};
use crate::failure::Failure;
use crate::store::{PeerRemote, RemoteSettings};

/// The settings of a store in several nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PeersSection {
    /// The settings without the contents of files.
    pub(super) settings: PeerSettings,
    pub(super) server: ServerSection,
}

/// Returns the URL of the section, if it is one of peers.
pub(super) fn url(node: &Node) -> Option<&Node> {
    let url = if let Kind::Map(_) = &node.kind { node.get("url")? } else { node };
    let is_peers = |text: &str| text.starts_with("tollgate:") || text.starts_with("tollgates:");
    url.items().iter().any(|item| item.text().is_some_and(is_peers)).then_some(url)
}

impl PeersSection {
    pub(super) fn read(node: &Node, url: &Node, problems: &mut Problems) -> Option<Self> {
        let settings = parse(url, problems);
        let fields = match &node.kind {
            Kind::Map(_) => Some(node.fields(&STORE, problems)?),
            _ => None,
        };
        let mut section = Self { settings: settings?, server: ServerSection::default() };
        if let Some(fields) = &fields {
            section.take(url, fields, problems);
        }
        Some(section)
    }

    fn take(&mut self, url: &Node, fields: &Fields<'_>, problems: &mut Problems) {
        self.server = ServerSection::read(fields, &mut self.settings.deadline, problems);
        if let Some(node) = fields.get("advertise") {
            self.settings.advertise = self.advertised(node, problems);
        }
        for word in ["deny_cache", "prefix"] {
            refuse_words(fields, &[(word, "for Redis, and these are peers", "leave it out")], problems);
        }
        refuse_words(fields, &NO_CLIENT_CERTIFICATE, problems);
        let facts = UrlFacts {
            url,
            has_password: false,
            has_tls: self.settings.tls,
            without_password: "`tollgate://HOST`",
            with_tls: "`tollgates://`",
        };
        ServerSection::check(fields, &facts, problems);
    }

    /// Parses the address of this node.
    fn advertised(&self, node: &Node, problems: &mut Problems) -> Option<Address> {
        let text = node.word("`advertise`", problems)?.value;
        let Some(address) = parse_address(text) else {
            problems
                .error(
                    node.place,
                    format!("`advertise` is the address of this node, not {}", node.describe()),
                )
                .help("such as 10.0.0.1:7379");
            return None;
        };
        if self.settings.name().is_none() && !self.settings.members.contains(&address) {
            let list = &self.settings;
            problems
                .error(
                    node.place,
                    format!("the list of peers does not name this node: {address} is not in it"),
                )
                .help(format!("write it as `url` does: {list}"));
        }
        Some(address)
    }

    /// Checks that the other nodes can reach the listener of this one.
    pub(crate) fn check_listener(
        &self,
        store: &Node,
        listen: &Listen,
        tls: Option<&ServedTls>,
        problems: &mut Problems,
    ) {
        let place = url(store).and_then(|url| url.items().first()).unwrap_or(store).place;
        let (wrong, help) = if listen.address().is_none() {
            (
                "peers call each other over the Redis protocol, and `listen.resp` is off",
                "listen: {resp: \"0.0.0.0:7379\"}",
            )
        } else if listen.address().is_some_and(|it| it.ends_with(":0")) {
            (
                "peers call each other over the Redis protocol, and `listen.resp` is any free port",
                "name its port: the other nodes have it in their list",
            )
        } else if listen.is_private() && self.settings.members.iter().any(is_elsewhere) {
            (
                "the other nodes cannot reach `listen.resp`: only this machine can",
                "listen: {resp: \"0.0.0.0:7379\"}",
            )
        } else if !listen.is_private() && !self.server.has_password_file() {
            (
                "peers that other machines can reach need a password",
                "`password_file` beside `url`, the same on all nodes: without it, every client of `listen.resp` could change any count",
            )
        } else if self.settings.tls && tls.is_none() {
            (
                "the peers speak TLS, and `listen.resp` does not",
                "`resp: {tls: {certificate: FILE, key: FILE}}`, or `tollgate://`",
            )
        } else if !self.settings.tls && tls.is_some() {
            ("`listen.resp` speaks TLS, and the peers do not", "write `tollgates://`")
        } else if tls.is_some_and(ServedTls::knows_clients) {
            (
                "`resp.tls.client_ca` asks clients for a certificate, and peers have none",
                "leave `client_ca` out: peers have a password",
            )
        } else {
            return;
        };
        problems.error(place, wrong).help(help);
    }

    /// Returns the settings with the contents of the files.
    pub(super) fn load(&self, reading: LoadPhase) -> Result<RemoteSettings, Failure> {
        let mut settings = self.settings.clone();
        settings.lost_share = self.server.outage.share;
        self.server.load_password(&mut settings.password, "the password of the peers", reading)?;
        let ca = self.server.ca(reading)?;
        Ok(RemoteSettings::Peers(Box::new(PeerRemote {
            settings,
            ca,
            port: 0,
            max_keys: 0,
            lost_shares: HashMap::new(),
        })))
    }
}

/// Whether other machines have to reach an address. A name other than `localhost` may resolve to any
/// address.
fn is_elsewhere(address: &Address) -> bool {
    address.ip().map_or(address.host != "localhost", |ip| !ip.to_canonical().is_loopback())
}

/// Parses a URL or a list of URLs.
fn parse(node: &Node, problems: &mut Problems) -> Option<PeerSettings> {
    let items = node.items();
    let mut urls = Vec::with_capacity(items.len());
    for item in items {
        urls.push(item.word("a URL of peers", problems)?.value);
    }
    let settings = PeerSettings::parse(&urls);
    settings.map_err(|error| report_url(node, "a list of peers", &error, problems)).ok()
}

#[cfg(test)]
mod tests {
    use tollgate_document::Document;

    use super::*;
    use crate::configuration::StoreSettings;

    fn read(text: &str, listen: &str) -> (String, Vec<String>) {
        let document = Document::parse(&format!("store: {text}")).unwrap();
        let (mut problems, store) = (Problems::default(), document.root().get("store").unwrap());
        let settings = StoreSettings::read(store, &mut problems);
        if let StoreSettings::Peers(section) = &settings {
            let listen = if listen == "off" { Listen::Off } else { Listen::On(listen.to_owned()) };
            section.check_listener(store, &listen, None, &mut problems);
        }
        let found = problems.into_diagnostics(&document);
        let said = found.iter().map(|it| format!("{} | {}", it.message, it.label)).collect();
        (settings.shown().unwrap_or_default(), said)
    }

    #[test]
    fn the_rules_of_an_outage_are_read() {
        let text = "store: {url: 'tollgate://a:7379,b:7379', outage: {failures: 3, share: 50%}}";
        let document = Document::parse(text).unwrap();
        let mut problems = Problems::default();
        let settings = StoreSettings::read(document.root().get("store").unwrap(), &mut problems);
        assert_eq!((settings.outage().failures, settings.outage().share), (3, 50));
    }

    #[test]
    fn a_store_of_peers_is_a_list_a_name_or_a_map() {
        for (text, listen, expected) in [
            ("tollgate://127.0.0.1:7379", "127.0.0.1:7379", "tollgate://127.0.0.1:7379, 50 ms"),
            (
                "[tollgate://127.0.0.1, tollgate://127.0.0.1:7400]",
                "127.0.0.1:7379",
                "tollgate://127.0.0.1:7379,127.0.0.1:7400, 50 ms",
            ),
            (
                "{url: 'tollgate://10.0.0.1,10.0.0.2', password_file: /p, advertise: 10.0.0.1, deadline: 20ms, lease: auto, outage: {share: 50%}}",
                "0.0.0.0:7379",
                "tollgate://10.0.0.1:7379,10.0.0.2:7379, 20 ms",
            ),
            (
                "{url: 'tollgate://headless', password_file: /p}",
                "0.0.0.0:7379",
                "tollgate://headless:7379, 50 ms",
            ),
        ] {
            assert_eq!(read(text, listen), (expected.to_owned(), Vec::new()), "{text}");
        }
    }

    #[test]
    fn every_mistake_is_located_and_has_a_correction() {
        let (here, all) = ("127.0.0.1:7379", "0.0.0.0:7379");
        for (text, listen, expected) in [
            ("tollgate://", here, "this is not a list of peers: an address is missing | "),
            ("'tollgate://a,a'", here, "this is not a list of peers: the list names a:7379 twice | "),
            (
                "{url: 'tollgate://127.0.0.1', password: x}",
                here,
                "unknown word `password` in `store` | did you mean `password_file`?",
            ),
            (
                "{url: 'tollgate://127.0.0.1', prefix: x}",
                here,
                "`prefix` is for Redis, and these are peers | no effect here",
            ),
            (
                "{url: 'tollgate://127.0.0.1', deny_cache: 1s}",
                here,
                "`deny_cache` is for Redis, and these are peers | no effect here",
            ),
            (
                "{url: 'tollgate://127.0.0.1', ca: x}",
                here,
                "`ca` is for TLS, and this URL does not use TLS | nothing to check",
            ),
            (
                "{url: 'tollgate://127.0.0.1', advertise: '127.0.0.1:7380'}",
                here,
                "the list of peers does not name this node: 127.0.0.1:7380 is not in it | ",
            ),
            (
                "{url: redis://h, advertise: a}",
                here,
                "`advertise` is for peers, and this is another store | no effect here",
            ),
            (
                "{url: 'tollgate://127.0.0.1', advertise: 'a b'}",
                here,
                "`advertise` is the address of this node, not `a b` | ",
            ),
            (
                "tollgate://127.0.0.1",
                "off",
                "peers call each other over the Redis protocol, and `listen.resp` is off | ",
            ),
            (
                "tollgate://127.0.0.1",
                "127.0.0.1:0",
                "peers call each other over the Redis protocol, and `listen.resp` is any free port | ",
            ),
            (
                "'tollgate://10.0.0.1,10.0.0.2'",
                here,
                "the other nodes cannot reach `listen.resp`: only this machine can | ",
            ),
            ("'tollgate://10.0.0.1,10.0.0.2'", all, "peers that other machines can reach need a password | "),
            ("tollgates://127.0.0.1", here, "the peers speak TLS, and `listen.resp` does not | "),
        ] {
            assert_eq!(read(text, listen).1, [expected], "{text}");
        }
    }
}
