//! Determines the limits of each level: zones, servers, locations, and inheritance.
//!
//! As in nginx, a level inherits `limit_req` and `limit_conn` from the level above only if it
//! has none of its own; other directives are inherited one by one. Of the locations that match a path,
//! nginx uses one: `coverage` excludes the others from a limit.
//!
//! `nginx` writes the policy.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use tollgate_document::{Place, Problems, nearest};

use super::key::{Tables, table};
use super::location::{Endpoints, Selection, endpoints, title};
use super::tree::Directive;
use crate::output::quoted;

/// The maximum number of limits of one kind at one level.
const MAX_LIMITS_PER_LEVEL: usize = 100;

/// `limit_req_zone` or `limit_conn_zone`.
#[derive(Clone, Debug)]
pub(super) struct Zone {
    pub(super) line: u32,
    pub(super) key: String,
    /// The rate; `None` for a zone of `limit_conn`.
    pub(super) rate: Option<Rate>,
}

/// `5r/m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rate {
    pub(super) count: u64,
    pub(super) per_minute: bool,
}

impl Rate {
    /// The rate as nginx counts: in thousandths of a request a second, rounded down.
    pub(super) const fn thousandths(self) -> u64 {
        self.count * 1_000 / if self.per_minute { 60 } else { 1 }
    }
}

/// Writes the rate with the words of a policy.
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.count, if self.per_minute { "minute" } else { "second" })
    }
}

/// A use of a zone, with its numbers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Use {
    pub(super) zone: String,
    pub(super) how: LimitKind,
    pub(super) dry_run: bool,
}

/// `limit_req` or `limit_conn`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LimitKind {
    Requests { burst: u64, delay: Delay },
    Connections(u64),
}

/// The delay of requests within the burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Delay {
    None,
    /// Requests beyond this many are delayed.
    Beyond(u64),
}

/// The limits and settings of one level.
#[derive(Clone, Debug, Default)]
pub(super) struct Scope {
    /// Shared with the levels that inherit them.
    requests: Arc<[(Use, u32)]>,
    connections: Arc<[(Use, u32)]>,
    dry_requests: bool,
    dry_connections: bool,
}

impl Scope {
    /// Returns the limits of the level, each with its line.
    pub(super) fn uses(&self) -> impl Iterator<Item = (Use, u32)> + '_ {
        let dry = |(it, line): &(Use, u32), dry_run| (Use { dry_run, ..it.clone() }, *line);
        let requests = self.requests.iter().map(move |it| dry(it, self.dry_requests));
        requests.chain(self.connections.iter().map(move |it| dry(it, self.dry_connections)))
    }

    fn entered(&self, block: &[Directive], problems: &mut Problems) -> Self {
        let mut inner = self.clone();
        let named = |name: &'static str| block.iter().filter(move |it| it.name == name);
        if let Some(own) = own(named("limit_req"), limit_req, problems) {
            inner.requests = own;
        }
        if let Some(own) = own(named("limit_conn"), limit_conn, problems) {
            inner.connections = own;
        }
        let switch = |name| named(name).next_back().map(|it| it.argument(0) == Some("on"));
        inner.dry_requests = switch("limit_req_dry_run").unwrap_or(inner.dry_requests);
        inner.dry_connections = switch("limit_conn_dry_run").unwrap_or(inner.dry_connections);
        inner
    }
}

/// Returns the limits that a level defines itself; `None` if it inherits.
fn own<'d>(
    directives: impl Iterator<Item = &'d Directive>,
    read: fn(&Directive, &mut Problems) -> Option<(Use, u32)>,
    problems: &mut Problems,
) -> Option<Arc<[(Use, u32)]>> {
    let mut found = None;
    for directive in directives {
        let found: &mut Vec<(Use, u32)> = found.get_or_insert_default();
        if found.len() == MAX_LIMITS_PER_LEVEL {
            problems.error(directive.place, format!("more than {MAX_LIMITS_PER_LEVEL} limits at one place"));
            break;
        }
        found.extend(read(directive, problems));
    }
    found.map(Arc::from)
}

/// A `server`, by its names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Server {
    /// Names that a policy can express.
    pub(super) hosts: Vec<String>,
    /// Whether it serves hosts that cannot be listed.
    pub(super) others: bool,
}

/// A place in the configuration where requests are handled.
#[derive(Clone, Debug)]
pub(super) struct Site {
    pub(super) server: usize,
    pub(super) title: String,
    pub(super) line: u32,
    pub(super) endpoints: Result<Endpoints, String>,
    pub(super) selection: Selection,
    pub(super) scope: Scope,
}

/// The limits of a configuration.
#[derive(Debug, Default)]
pub(super) struct LimitConfig {
    pub(super) zones: BTreeMap<String, Zone>,
    pub(super) tables: Tables,
    pub(super) servers: Vec<Server>,
    pub(super) sites: Vec<Site>,
    /// The values of `limit_req_status` and `limit_conn_status`, at any level.
    pub(super) statuses: Vec<String>,
    /// Other limiting directives, which are not converted: name and line.
    pub(super) ignored: Vec<(String, u32)>,
}

/// Collects the limits of a configuration.
pub(super) fn find(directives: &[Directive], problems: &mut Problems) -> LimitConfig {
    let mut found = LimitConfig::default();
    let scope = Scope::default().entered(directives, problems);
    found.walk(directives, &scope, None, problems);
    found
}

impl LimitConfig {
    /// Processes a block within `scope`.
    fn walk(&mut self, block: &[Directive], scope: &Scope, server: Option<usize>, problems: &mut Problems) {
        let servers = self.servers.len();
        for directive in block {
            let line = directive.place.line;
            match directive.name.as_str() {
                "limit_req_zone" | "limit_conn_zone" => self.zone(directive, problems),
                "map" | "geo" => table(directive, &mut self.tables),
                "http" => {
                    let inner = scope.entered(&directive.block, problems);
                    self.walk(&directive.block, &inner, server, problems);
                }
                "server" if server.is_none() && !directive.block.is_empty() => {
                    self.server(directive, scope, problems);
                }
                "location" => {
                    let server = server.unwrap_or_else(|| self.nameless());
                    self.location(directive, scope, server, problems);
                }
                "limit_req_status" | "limit_conn_status" => {
                    self.statuses.extend(directive.argument(0).map(str::to_owned));
                }
                "limit_rate" | "limit_rate_after" | "limit_except" => {
                    self.ignored.push((directive.name.clone(), line));
                }
                "stream" | "mail" => self.ignored.push((format!("{} {{ }}", directive.name), line)),
                _ => {}
            }
        }
        // Limits for servers that are defined in another file.
        if server.is_none() && self.servers.len() == servers && scope.uses().next().is_some() {
            let server = self.nameless();
            self.rest_of(server, 1, scope);
        }
    }

    /// Adds a server that is not in the file: its names are unknown.
    fn nameless(&mut self) -> usize {
        let known = self.servers.iter().position(|it| it.hosts.is_empty());
        known.unwrap_or_else(|| {
            self.servers.push(Server { hosts: Vec::new(), others: true });
            self.servers.len() - 1
        })
    }

    fn rest_of(&mut self, server: usize, line: u32, scope: &Scope) {
        let endpoints = Ok(Endpoints { patterns: vec!["/**".to_owned()], ..Endpoints::default() });
        let (title, selection, scope) = ("server".to_owned(), Selection::Prefix, scope.clone());
        self.sites.push(Site { server, title, line, endpoints, selection, scope });
    }

    fn server(&mut self, directive: &Directive, outer: &Scope, problems: &mut Problems) {
        let block = &directive.block;
        let names = block.iter().filter(|it| it.name == "server_name").flat_map(|it| &it.arguments);
        let mut server = Server::default();
        for (name, _) in names {
            let pattern = name.starts_with(['~', '$']) || name.ends_with(".*");
            match name.as_str() {
                unlistable if pattern || matches!(unlistable, "_" | "") => server.others = true,
                _ => match name.strip_prefix('.') {
                    Some(domain) => server.hosts.extend([domain.to_owned(), format!("*.{domain}")]),
                    None => server.hosts.push(name.to_lowercase()),
                },
            }
        }
        server.others |= server.hosts.is_empty();
        server.hosts.dedup();
        self.servers.push(server);
        let number = self.servers.len() - 1;
        // nginx answers `return` before it applies limits.
        if block.iter().any(|it| it.name == "return") {
            return;
        }
        let catches_all = |it: &Directive| it.name == "location" && it.argument(0) == Some("/");
        let scope = outer.entered(block, problems);
        if !block.iter().any(catches_all) {
            self.rest_of(number, directive.place.line, &scope);
        }
        self.walk(block, &scope, Some(number), problems);
    }

    fn location(&mut self, directive: &Directive, outer: &Scope, server: usize, problems: &mut Problems) {
        let scope = outer.entered(&directive.block, problems);
        let answered = directive.block.iter().any(|it| it.name == "return");
        self.sites.push(Site {
            server,
            title: title(directive),
            line: directive.place.line,
            endpoints: endpoints(directive),
            selection: Selection::of(directive),
            scope: if answered { Scope::default() } else { scope.clone() },
        });
        self.walk(&directive.block, &scope, Some(server), problems);
    }

    fn zone(&mut self, directive: &Directive, problems: &mut Problems) {
        let wants_rate = directive.name == "limit_req_zone";
        let example = if wants_rate {
            "`limit_req_zone $binary_remote_addr zone=name:10m rate=10r/s;`"
        } else {
            "`limit_conn_zone $binary_remote_addr zone=name:10m;`"
        };
        let (mut name, mut rate) = (None, None);
        for (argument, place) in directive.arguments.iter().skip(1) {
            match argument.split_once('=') {
                Some(("zone", value)) => name = value.split(':').next().filter(|it| !it.is_empty()),
                Some(("rate", value)) if wants_rate => {
                    rate = parse_rate(value);
                    if rate.is_none() {
                        problems
                            .error(*place, format!("{} is not a rate of nginx", quoted(value)))
                            .label("a whole number, and `r/s` or `r/m`")
                            .help(example);
                        return;
                    }
                }
                _ if argument == "sync" => {}
                _ => unknown(argument, *place, &["zone=", "rate=", "sync"], problems),
            }
        }
        let (Some(key), Some(name)) = (directive.argument(0), name) else {
            problems
                .error(directive.place, format!("`{}` needs a key and a zone", directive.name))
                .help(example);
            return;
        };
        if wants_rate && rate.is_none() {
            problems.error(directive.place, "`limit_req_zone` needs a rate").help(example);
            return;
        }
        let zone = Zone { line: directive.place.line, key: key.to_owned(), rate };
        self.zones.insert(name.to_owned(), zone);
    }
}

fn unknown(argument: &str, place: Place, known: &[&'static str], problems: &mut Problems) {
    let problem = problems.error(place, format!("nginx has no {} here", quoted(argument)));
    if let Some(meant) = nearest(argument, known.iter().copied()) {
        problem.label(format!("did you mean `{meant}`?"));
    }
}

fn parse_rate(text: &str) -> Option<Rate> {
    let (count, per_minute) = match text.strip_suffix("r/s") {
        Some(count) => (count, false),
        None => (text.strip_suffix("r/m")?, true),
    };
    let count = count.parse().ok().filter(|it| (1..=1_000_000_000).contains(it))?;
    Some(Rate { count, per_minute })
}

fn limit_req(directive: &Directive, problems: &mut Problems) -> Option<(Use, u32)> {
    let (mut zone, mut burst, mut delay) = (None, 0, Delay::Beyond(0));
    for (argument, place) in &directive.arguments {
        let number = |value: &str, problems: &mut Problems| {
            let number = value.parse::<u64>().ok().filter(|it| *it <= 1_000_000_000);
            if number.is_none() {
                problems.error(*place, format!("{} is not a number of requests", quoted(value)));
            }
            number
        };
        match argument.split_once('=') {
            Some(("zone", name)) => zone = Some(name.to_owned()),
            Some(("burst", value)) => burst = number(value, problems)?,
            Some(("delay", value)) => delay = Delay::Beyond(number(value, problems)?),
            _ if argument == "nodelay" => delay = Delay::None,
            _ => unknown(argument, *place, &["zone=", "burst=", "delay=", "nodelay"], problems),
        }
    }
    if let Delay::Beyond(beyond) = delay
        && beyond >= burst
    {
        delay = Delay::None;
    }
    let Some(zone) = zone else {
        problems
            .error(directive.place, "`limit_req` needs a zone")
            .help("`limit_req zone=name burst=5 nodelay;`");
        return None;
    };
    Some((Use { zone, how: LimitKind::Requests { burst, delay }, dry_run: false }, directive.place.line))
}

fn limit_conn(directive: &Directive, problems: &mut Problems) -> Option<(Use, u32)> {
    let number = directive.argument(1).and_then(|it| it.parse::<u64>().ok());
    let number = number.filter(|it| (1..=65_535).contains(it));
    let (Some(zone), Some(number)) = (directive.argument(0), number) else {
        problems
            .error(directive.place, "`limit_conn` needs a zone and a number from 1 to 65535")
            .help("`limit_conn name 10;`");
        return None;
    };
    let zone = zone.to_owned();
    Some((Use { zone, how: LimitKind::Connections(number), dry_run: false }, directive.place.line))
}
