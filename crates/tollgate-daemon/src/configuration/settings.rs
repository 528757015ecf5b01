//! The sections of the server: `listen`, `gateway`, `store`, `log`, `admin`, `state`, `records`, the
//! protocols (`protocols`), and observation (`observe`).
//!
//! They use the parser of the policy, so an unknown word gets a suggestion here too.

use tollgate::policy::Lint;
use tollgate_document::{Kind, Located, Node, Problems, Synonyms, Words};
use tollgate_gateway::GatewaySettings;
use tollgate_outbound::OutboundSettings;
use tollgate_records::RecordLogSettings;

use super::observe::{ObserveSettings, Refusals};
use super::records;
use super::{
    AdminSettings, Listen, LoadPhase, RegionsSection, RespSection, RlsSection, StateSettings, StoreSettings,
};
use crate::failure::Failure;
use crate::state::State;

/// The settings of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// The address of the gateway.
    pub(crate) gateway: Listen,
    /// The address of the API.
    pub(crate) api: Listen,
    /// The address of Envoy's rate limit service.
    pub(crate) rls_listen: Listen,
    /// The address of the Redis protocol.
    pub(crate) resp_listen: Listen,
    /// The settings of Envoy's rate limit service.
    pub(crate) rls: RlsSection,
    /// The settings of the Redis protocol.
    pub(crate) resp: RespSection,
    /// The upstreams of the gateway, unparsed.
    pub(crate) upstreams: Vec<String>,
    /// The settings of the gateway.
    pub(crate) forwarding: GatewaySettings,
    /// The services that workers call through the outbound gateway.
    pub(crate) outbound: Vec<OutboundSettings>,
    /// The minimum level of the log.
    pub(crate) level: Level,
    /// The format of the log.
    pub(crate) format: LogFormat,
    /// Access to the API.
    pub(crate) admin: AdminSettings,
    /// The store of the counters.
    pub(crate) store: StoreSettings,
    /// The stores of other regions.
    pub(crate) regions: RegionsSection,
    /// The settings of observation.
    pub(crate) observing: ObserveSettings,
    /// The directory for mode overrides, their history and the usage of a store in memory.
    pub(crate) state: Option<StateSettings>,
    /// The decision log on disk.
    pub(crate) records: Option<RecordLogSettings>,
}

/// The minimum level of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Level {
    Error,
    Warn,
    #[default]
    Info,
    Debug,
}

/// The format of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Text for people.
    #[default]
    Human,
    /// One JSON object per line.
    Json,
}

const DEFAULT_GATEWAY_ADDRESS: &str = "127.0.0.1:8080";
const DEFAULT_API_ADDRESS: &str = "127.0.0.1:7070";
const DEFAULT_RLS_ADDRESS: &str = "127.0.0.1:8081";
const DEFAULT_RESP_ADDRESS: &str = "127.0.0.1:7379";

const LISTEN: Words = Words {
    section: "`listen`",
    known: &["gateway", "api", "rls", "resp"],
    synonyms: &[
        ("gateway", &["proxy", "http"]),
        ("api", &["admin"]),
        ("rls", &["grpc", "envoy"]),
        ("resp", &["redis"]),
    ],
};
const LOG: Words = Words {
    section: "`log`",
    known: &["level", "format", "refusals"],
    synonyms: &[("level", &["verbosity"]), ("refusals", &["denials", "limited", "sample"])],
};

const LEVELS: [(&str, Level); 4] =
    [("error", Level::Error), ("warn", Level::Warn), ("info", Level::Info), ("debug", Level::Debug)];
const FORMATS: [(&str, LogFormat); 2] = [("human", LogFormat::Human), ("json", LogFormat::Json)];

impl Settings {
    /// Parses the sections of a document. Adds mistakes to `problems`, and uses defaults for missing
    /// values.
    pub(crate) fn read(root: &Node, problems: &mut Problems) -> Self {
        // A section without a value is reported by the policy, which knows all sections.
        let section = |word: &str| root.get(word).filter(|node| node.kind != Kind::Null);
        let mut settings = Self {
            gateway: Listen::On(DEFAULT_GATEWAY_ADDRESS.to_owned()),
            api: Listen::On(DEFAULT_API_ADDRESS.to_owned()),
            rls_listen: Listen::IfFree(DEFAULT_RLS_ADDRESS.to_owned()),
            resp_listen: Listen::IfFree(DEFAULT_RESP_ADDRESS.to_owned()),
            rls: section("rls").map(|node| RlsSection::read(node, problems)).unwrap_or_default(),
            resp: section("resp").map(|node| RespSection::read(node, problems)).unwrap_or_default(),
            upstreams: upstreams(root),
            level: Level::default(),
            format: LogFormat::default(),
            forwarding: GatewaySettings::read(section("gateway"), problems),
            outbound: OutboundSettings::read(section("outbound"), problems),
            admin: AdminSettings::default(),
            store: StoreSettings::default(),
            regions: RegionsSection::default(),
            observing: ObserveSettings::read(section, problems),
            state: None,
            records: None,
        };
        if let Some(node) = section("listen") {
            settings.read_listen(node, problems);
        }
        if let Some(fields) = section("log").and_then(|node| node.fields(&LOG, problems)) {
            let level = fields.get("level").and_then(|node| {
                let synonyms: Synonyms =
                    &[("warn", &["warning"]), ("debug", &["trace", "verbose"]), ("error", &["off"])];
                node.choice_with_synonyms("`level`", &LEVELS, synonyms, problems)
            });
            let format = fields.get("format").and_then(|node| {
                let synonyms: Synonyms = &[("human", &["text", "pretty", "plain"])];
                node.choice_with_synonyms("`format`", &FORMATS, synonyms, problems)
            });
            settings.level = level.map(|it| it.value).unwrap_or_default();
            settings.format = format.map(|it| it.value).unwrap_or_default();
            let refusals = fields.get("refusals").and_then(|node| Refusals::read(node, problems));
            settings.observing.refusals = refusals.unwrap_or_default();
            let is_wanted = refusals.is_some_and(|it| it != Refusals::Off);
            if let (true, None, Some(node), Some(off)) =
                (is_wanted, settings.observing.records, fields.get("refusals"), section("observe"))
            {
                problems
                    .error(node.place, "`refusals` needs observation, which is off")
                    .label("this needs it")
                    .related(off.place, "nothing is watched")
                    .help("leave `observe: off` out, or `refusals`");
            }
        }
        if let Some(node) = section("admin") {
            settings.admin = AdminSettings::read(node, problems);
        }
        if let Some(node) = section("store") {
            settings.store = StoreSettings::read(node, problems);
            if let StoreSettings::Peers(section) = &settings.store {
                // The other nodes need the listener, so it is not optional.
                if let Listen::IfFree(address) = &settings.resp_listen {
                    settings.resp_listen = Listen::On(address.clone());
                }
                section.check_listener(node, &settings.resp_listen, settings.resp.tls.as_ref(), problems);
            }
        }
        if let Some(node) = section("regions") {
            settings.regions = RegionsSection::read(node, &settings.store, problems);
        }
        if let Some(node) = section("state") {
            settings.state = StateSettings::read(node, &settings.store, problems);
        }
        if let Some(node) = section("records") {
            settings.records = records::read(node, problems);
            if let (None, Some(off)) = (settings.observing.records, section("observe")) {
                problems
                    .error(node.place, "`records` needs observation, which is off")
                    .label("this needs it")
                    .related(off.place, "nothing is watched")
                    .help("leave `observe: off` out, or `records`");
            }
        }
        settings
    }

    /// Reads the files that the settings name, as `serve` would, and discards them.
    pub(crate) fn check_files(&self) -> Result<(), Failure> {
        let mut failures = self.admin.check_files();
        failures.extend(self.rls.check_files());
        failures.extend(self.resp.check_files());
        failures.extend(self.store.load(LoadPhase::First).err());
        failures.extend(self.regions.load(LoadPhase::First).err());
        failures.extend(self.state.as_ref().and_then(|it| State::check(&it.folder).err()));
        let receivers = self.observing.traces.as_ref().map(|it| &it.collector);
        for receiver in receivers.into_iter().chain(&self.observing.webhook) {
            failures.extend(receiver.tls(LoadPhase::First).err());
        }
        if failures.is_empty() { Ok(()) } else { Err(Failure::all(&failures)) }
    }

    fn read_listen(&mut self, node: &Node, problems: &mut Problems) {
        let Some(fields) = node.fields(&LISTEN, problems) else { return };
        let mut read = |word: &str, default: &str| -> Option<Located<Listen>> {
            Listen::read(fields.get(word)?, &format!("`listen.{word}`"), default, problems)
        };
        let (gateway, api) = (read("gateway", DEFAULT_GATEWAY_ADDRESS), read("api", DEFAULT_API_ADDRESS));
        let (rls, resp) = (read("rls", DEFAULT_RLS_ADDRESS), read("resp", DEFAULT_RESP_ADDRESS));
        let all = [
            ("the gateway", gateway.as_ref()),
            ("the API", api.as_ref()),
            ("Envoy's rate limit service", rls.as_ref()),
            ("the Redis protocol", resp.as_ref()),
        ];
        let is_on = |it: &Option<Located<Listen>>| it.as_ref().is_some_and(|it| it.value != Listen::Off);
        if let (Some(gateway), Some(api)) = (&gateway, &api)
            && [&gateway.value, &api.value].iter().all(|it| **it == Listen::Off)
            && !is_on(&rls)
            && !is_on(&resp)
        {
            problems
                .error(api.place, "there is nothing to serve")
                .label("this is off")
                .related(gateway.place, "and so is this")
                .help("give one of them an address");
        }
        share_nothing(&all, problems);
        if let Some(resp) = resp.as_ref().filter(|it| !it.value.is_private() && !self.resp.knows_callers()) {
            problems
                .warning(
                    Lint::OpenRedisProtocol,
                    resp.place,
                    "every client that can connect to the Redis protocol here can spend any allowance",
                )
                .label("other machines reach this")
                .help("ask for a password: `resp: {password_file: FILE}`, or keep it to this machine");
        }
        if let Some(rls) = rls.as_ref().filter(|it| !it.value.is_private() && !self.rls.knows_callers()) {
            self.warn_of_refunds(rls, problems);
        }
        for (found, setting) in [
            (gateway, &mut self.gateway),
            (api, &mut self.api),
            (rls, &mut self.rls_listen),
            (resp, &mut self.resp_listen),
        ] {
            if let Some(found) = found {
                *setting = found.value;
            }
        }
    }
}

impl Settings {
    /// Warns of refunds: Envoy's protocol has negative hits, and does not identify its callers.
    fn warn_of_refunds(&self, rls: &Located<Listen>, problems: &mut Problems) {
        let (message, help) = match self.rls.refunds {
            Some(false) => return,
            Some(true) => (
                "every client that can connect to Envoy's rate limit service here can erase the spending of any key",
                "ask callers for a certificate: `rls: {tls: {client_ca: FILE}}`, or leave `refunds: true` out",
            ),
            None => (
                "callers of Envoy's rate limit service here are not authenticated, so their refunds are refused",
                "ask callers for a certificate (`rls: {tls: {client_ca: FILE}}`), or decide whether every caller may refund: `rls: {refunds: false}` or `true`",
            ),
        };
        problems.warning(Lint::OpenRefunds, rls.place, message).label("other machines reach this").help(help);
    }
}

/// Refuses two listeners on one address, except port 0, which is a new port each time.
fn share_nothing(all: &[(&str, Option<&Located<Listen>>)], problems: &mut Problems) {
    for (at, (name, listen)) in all.iter().enumerate() {
        for (other_name, other) in &all[..at] {
            let (Some(listen), Some(other)) = (listen, other) else { continue };
            let is_fixed = listen.value.address().is_some_and(|it| !it.ends_with(":0"));
            if is_fixed && listen.value == other.value {
                problems
                    .error(listen.place, format!("{other_name} and {name} cannot share an address"))
                    .label(format!("the same as {other_name}"))
                    .related(other.place, *other_name)
                    .help("give one of them another port");
            }
        }
    }
}

/// Returns the upstreams unparsed; the gateway parses them.
fn upstreams(root: &Node) -> Vec<String> {
    let node = root.get("gateway").and_then(|node| node.get("upstream"));
    node.map_or(&[][..], Node::items).iter().filter_map(Node::text).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_document::Document;

    fn read(text: &str) -> (Settings, Vec<String>) {
        let document = Document::parse(text).unwrap();
        let mut problems = Problems::default();
        let settings = Settings::read(document.root(), &mut problems);
        let found = problems.into_diagnostics(&document);
        (settings, found.iter().map(|it| format!("{} | {}", it.message, it.label)).collect())
    }

    #[test]
    fn everything_has_a_default() {
        let (settings, problems) = read("limits: []");
        assert_eq!(
            (settings.gateway.address(), settings.api.address()),
            (Some(DEFAULT_GATEWAY_ADDRESS), Some(DEFAULT_API_ADDRESS))
        );
        assert_eq!((settings.level, settings.format), (Level::Info, LogFormat::Human));
        assert_eq!(settings.rls_listen, Listen::IfFree(DEFAULT_RLS_ADDRESS.to_owned()));
        assert_eq!(settings.resp_listen, Listen::IfFree(DEFAULT_RESP_ADDRESS.to_owned()));
        assert!(problems.is_empty(), "{problems:?}");
    }

    #[test]
    fn every_word_is_parsed() {
        let (settings, problems) = read(
            "listen: {gateway: off, api: 127.0.0.1:0, rls: off}\nlog: {level: warn, format: json, refusals: all}\nadmin: {token_file: /run/token}\nstate: /var/lib/tollgate\nstore: memory\ngateway: {upstream: [http://a, http://b]}\n",
        );
        assert!(problems.is_empty(), "{problems:?}");
        assert_eq!((settings.gateway, settings.api.address()), (Listen::Off, Some("127.0.0.1:0")));
        assert_eq!((settings.level, settings.format), (Level::Warn, LogFormat::Json));
        assert_eq!(settings.admin.token_file, Some("/run/token".into()));
        assert_eq!(settings.observing.refusals, Refusals::All);
        let state = StateSettings { folder: "/var/lib/tollgate".into(), usage: None };
        assert_eq!(settings.state, Some(state));
        assert_eq!(settings.upstreams, ["http://a", "http://b"]);
    }

    #[test]
    fn authenticated_refunds_cause_no_warning() {
        for rls in ["refunds: false", "tls: {certificate: c, key: k, client_ca: a}"] {
            let (_, problems) = read(&format!("{{listen: {{rls: \"0.0.0.0:8081\"}}, rls: {{{rls}}}}}"));
            assert_eq!(problems, [""; 0], "{rls}");
        }
        assert_eq!(read("{listen: {rls: \"127.0.0.1:8081\"}, rls: {refunds: true}}").1, [""; 0]);
    }

    #[test]
    fn logging_refusals_needs_observation() {
        let mistake = ["`refusals` needs observation, which is off | this needs it"];
        for (refusals, expected) in [("10/second", &mistake[..]), ("all", &mistake[..]), ("off", &[])] {
            let (_, problems) = read(&format!("observe: off\nlog: {{refusals: {refusals}}}\n"));
            assert_eq!(problems, expected, "{refusals}");
        }
        assert!(read("observe: off\nlog: {level: warn}\n").1.is_empty());
    }

    #[test]
    fn every_mistake_has_a_suggestion() {
        for (text, expected) in [
            ("listen: {gatway: off}", "unknown word `gatway` in `listen` | did you mean `gateway`?"),
            ("listen: 8080", "`listen` is a map of `name: value` lines | this is `8080`"),
            (
                "listen: {api: 7070}",
                "`listen.api` is `host:port` or `off`, not `7070` | did you mean `127.0.0.1:7070`?",
            ),
            ("listen: {api: off, gateway: off}", "there is nothing to serve | this is off"),
            (
                "listen: {api: \"a:1\", gateway: \"a:1\"}",
                "the gateway and the API cannot share an address | the same as the gateway",
            ),
            (
                "listen: {rls: \"127.0.0.1:1\", gateway: \"127.0.0.1:1\"}",
                "the gateway and Envoy's rate limit service cannot share an address | the same as the gateway",
            ),
            (
                "listen: {resp: \"0.0.0.0:7379\"}",
                "every client that can connect to the Redis protocol here can spend any allowance | other machines reach this",
            ),
            (
                "listen: {rls: \"0.0.0.0:8081\"}",
                "callers of Envoy's rate limit service here are not authenticated, so their refunds are refused | other machines reach this",
            ),
            (
                "{listen: {rls: \"0.0.0.0:8081\"}, rls: {refunds: true}}",
                "every client that can connect to Envoy's rate limit service here can erase the spending of any key | other machines reach this",
            ),
            ("store: {kind: redis}", "unknown word `kind` in `store` | did you mean `url`?"),
            ("store: memroy", "`store` cannot be `memroy` | did you mean `memory`?"),
            ("log: {level: warning}", "`level` cannot be `warning` | did you mean `warn`?"),
            ("log: {format: text}", "`format` cannot be `text` | did you mean `human`?"),
            ("admin: {token: abc}", "unknown word `token` in `admin` | did you mean `token_file`?"),
            ("log: {denials: all}", "unknown word `denials` in `log` | did you mean `refusals`?"),
            ("state: [x]", "`state` is one value, not a list | write a single value here"),
        ] {
            assert_eq!(read(text).1, [expected], "{text}");
        }
    }

    /// Returns the words of a section, from the message for an unknown word.
    fn words(path: &[&str]) -> Vec<String> {
        let text = path
            .iter()
            .rev()
            .fold("{qqqqqqqqqqqq: 1}".to_owned(), |inner, word| format!("{{{word}: {inner}}}"));
        let document = Document::parse(&text).unwrap();
        let mut problems = Problems::default();
        Settings::read(document.root(), &mut problems);
        let found = problems.into_diagnostics(&document);
        let unknown = found.iter().find(|it| it.message.contains("qqqqqqqqqqqq"));
        let unknown = unknown.unwrap_or_else(|| panic!("{path:?}: {found:?}"));
        let (_, listed) = unknown.help[0].split_once(" has ").unwrap();
        let mut words: Vec<_> = listed.replace(" and ", ", ").split(", ").map(str::to_owned).collect();
        words.sort();
        words
    }

    #[test]
    fn the_json_schema_has_the_words_of_the_parser() {
        let schema = tollgate::policy::schema();
        for path in [
            &["listen"][..],
            &["log"],
            &["admin"],
            &["admin", "tls"],
            &["rls"],
            &["rls", "tls"],
            &["rls", "xds"],
            &["rls", "xds", "tls"],
            &["resp"],
            &["resp", "tls"],
            &["traces"],
            &["alerts"],
            &["gateway"],
            &["gateway", "tls"],
            &["gateway", "timeouts"],
            &["gateway", "caps"],
            &["gateway", "eject"],
        ] {
            let section = path.iter().fold(&schema, |at, word| &at["properties"][word]);
            let mut known: Vec<_> = section["properties"].as_object().unwrap().keys().cloned().collect();
            known.sort();
            assert_eq!(known, words(path), "{path:?}");
            assert_eq!(section["additionalProperties"], false, "{path:?}");
        }
        let stores = schema["properties"]["store"]["anyOf"].as_array().unwrap();
        let store = stores.iter().find(|it| it["type"] == "object").unwrap();
        for (section, path) in [
            (store, &["store"][..]),
            (&store["properties"]["outage"], &["store", "outage"]),
            (&schema["properties"]["observe"]["anyOf"][1], &["observe"]),
        ] {
            let mut known: Vec<_> = section["properties"].as_object().unwrap().keys().cloned().collect();
            known.sort();
            assert_eq!(known, words(path), "{path:?}");
            assert_eq!(section["additionalProperties"], false, "{path:?}");
        }
    }
}
