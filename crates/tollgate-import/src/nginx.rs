//! Imports `limit_req` and `limit_conn` of nginx as a policy.
//!
//! nginx counts the excess over a rate, and `burst` bounds the excess: with
//! `nodelay` that equals a bucket of `burst + 1`, request by request. Without `nodelay` nginx delays
//! requests above the rate, as a leaky queue does: `burst` is its length, and `delay` the number of its
//! free places.
//!
//! Two differences matter most. nginx selects one location and applies only its limits; a policy
//! checks every limit that matches, so other locations are excluded (`coverage`). A zone is one counter wherever it is used; each limit of a
//! policy has its own counter. Comments say where that matters.
//!
//! `tokenizer` and `tree` read the file, `scope` determines the limits of each location.

mod coverage;
mod key;
mod location;
mod scope;
mod tokenizer;
mod tree;

use std::collections::{BTreeMap, BTreeSet};

use tollgate_document::{Diagnostics, Place, Problems};

use crate::ImportedPolicy;
use crate::output::{LimitDraft, Output, quoted};
use coverage::Uncovered;
use key::Key;
use scope::{Delay, LimitConfig, LimitKind, Rate, Site, Use};

/// The maximum time that a slot is held. nginx releases it when the request ends, without a maximum.
const SLOT_TTL: &str = "10m";
/// The maximum number of limits times places, above that of any real configuration.
const MAX_WORK: usize = 20_000_000;
/// The maximum number of locations that one comment lists.
const MAX_LISTED_LOCATIONS: usize = 5;

/// Imports an nginx configuration, a part of one, or the output of `nginx -T`, as a policy.
///
/// ```
/// let wrong = tollgate_import::nginx("nginx.conf", "limit_req_zone $remote_addr zone=a:1m rate=5/s;").unwrap_err();
/// assert!(wrong.render("nginx.conf").contains("a whole number, and `r/s` or `r/m`"));
/// ```
pub fn nginx(name: &str, text: &str) -> Result<ImportedPolicy, Diagnostics> {
    let mut problems = Problems::default();
    let tree = tree::read(text, &mut problems);
    if problems.has_errors() {
        return Err(problems.about_text(text));
    }
    let found = scope::find(&tree.directives, &mut problems);
    let uses = uses(&found);
    let start = Place { source: 0, line: 1, column: 1, width: 1 };
    if uses.is_empty() && !problems.has_errors() {
        let problem = problems.error(start, "no `limit_req` or `limit_conn` is in force in this file");
        problem.help("to read all files that nginx reads: `nginx -T | tollgate import nginx -`");
        if let Some((file, place)) = tree.not_included.first() {
            problem.related(*place, format!("{} was not read", quoted(file)));
        }
    }
    let held: usize = uses.iter().map(|it| it.sites.len()).sum();
    if uses.len().saturating_mul(held.max(found.sites.len())) > MAX_WORK {
        problems.error(start, "the file has too many limits in too many places");
    }
    if problems.has_errors() {
        return Err(problems.about_text(text));
    }
    let mut out = Output::new("nginx", name);
    for (file, place) in &tree.not_included {
        out.note(format!(
            "Line {}: {} was not read. `nginx -T | tollgate import nginx -` reads all files.",
            place.line,
            quoted(file)
        ));
    }
    head(&found, &mut out);
    let drafts: Vec<_> = uses.iter().map(|used| (used, drafts(used, &found))).collect();
    for (used, group) in &drafts {
        let of_zone = |(other, _): &&(&LimitUse<'_>, Vec<LimitDraft>)| other.what.zone == used.what.zone;
        let mut in_zone: usize = drafts.iter().filter(of_zone).map(|(_, group)| group.len()).sum();
        if counts_apart(used, &found) {
            in_zone = 1;
        }
        for draft in group {
            let mut draft = draft.clone();
            if in_zone > 1 {
                draft.comment(format!(
                    "nginx has one counter for zone {}; the {in_zone} limits made of it here count separately.",
                    quoted(&used.what.zone)
                ));
            }
            out.limit(draft);
        }
    }
    Ok(out.finish())
}

/// Whether nginx also counts the imported limits separately.
fn counts_apart(used: &LimitUse<'_>, found: &LimitConfig) -> bool {
    let key = found.zones.get(&used.what.zone).and_then(|it| key::key(&it.key, &found.tables).ok());
    key.is_some_and(|it| it.per_server || it.per_host)
}

/// Writes notes about the whole file.
fn head(found: &LimitConfig, out: &mut Output) {
    let statuses: BTreeSet<_> = found.statuses.iter().map(String::as_str).collect();
    let statuses: Vec<_> = if statuses.is_empty() { vec!["503"] } else { statuses.into_iter().collect() };
    if statuses != ["429"] {
        let statuses: Vec<_> = statuses.iter().map(|it| quoted(it)).collect();
        out.note(format!("Refusals are answered with 429; nginx answers with {} here.", statuses.join(", ")));
    }
    let by_address = found.zones.values().any(|zone| zone.key.contains("remote_addr"));
    if by_address {
        out.note(
            "nginx counts each IPv6 address by itself, Tollgate those of one /64 together; \
             `client: {ipv6_prefix: 128}` does as nginx.",
        );
    }
    for (word, line) in &found.ignored {
        out.note(format!("Line {line}: {} has no equivalent in a policy.", quoted(word)));
    }
    let used: BTreeSet<_> =
        found.sites.iter().flat_map(|it| it.scope.uses()).map(|(it, _)| it.zone).collect();
    for (name, zone) in found.zones.iter().filter(|(name, _)| !used.contains(*name)) {
        out.note(format!("Line {}: zone {} is never used.", zone.line, quoted(name)));
    }
}

/// A limit of nginx, and the places where it applies.
struct LimitUse<'f> {
    what: Use,
    line: u32,
    sites: Vec<&'f Site>,
}

/// Returns all limits that apply somewhere, in file order.
fn uses(found: &LimitConfig) -> Vec<LimitUse<'_>> {
    let mut uses: Vec<LimitUse<'_>> = Vec::new();
    let mut places = BTreeMap::new();
    for site in &found.sites {
        for (what, line) in site.scope.uses() {
            let at = *places.entry(what.clone()).or_insert_with(|| {
                uses.push(LimitUse { what, line, sites: Vec::new() });
                uses.len() - 1
            });
            let sites = &mut uses[at].sites;
            if !sites.last().is_some_and(|last| std::ptr::eq(*last, site)) {
                sites.push(site);
            }
        }
    }
    uses.sort_by_key(|it| it.line);
    uses
}

/// Servers with the same limit, and its endpoints.
struct Group<'f> {
    servers: Vec<usize>,
    hosts: Vec<String>,
    endpoints: Vec<String>,
    sites: Vec<&'f Site>,
}

/// Returns the limits that one limit of nginx becomes.
fn drafts(used: &LimitUse<'_>, found: &LimitConfig) -> Vec<LimitDraft> {
    let zone = found.zones.get(&used.what.zone);
    let key = zone.map(|zone| key::key(&zone.key, &found.tables));
    let mut drafts = Vec::new();
    for group in groups(used, found, key.as_ref().and_then(|it| it.as_ref().ok())) {
        let mut draft = begin(used, &group.sites, found);
        draft.list("host", &group.hosts);
        if group.endpoints != ["/**"] {
            draft.list("endpoint", &group.endpoints);
        }
        let uncovered = coverage::uncovered(&used.what, &group.endpoints, &group.servers, found);
        draft.list("except", &uncovered.excluded);
        rest_of(&mut draft, used, found, key.as_ref());
        around(&mut draft, &group, &uncovered, found);
        drafts.push(draft);
    }
    // Locations that a policy cannot express are mentioned in comments.
    for site in &used.sites {
        if let Err(why) = &site.endpoints {
            let mut draft = begin(used, &[site], found);
            draft.plain("endpoint", "/say/which/**");
            rest_of(&mut draft, used, found, key.as_ref());
            draft.hindered(format!("{} of line {}: {why}", quoted(&site.title), site.line));
            drafts.push(draft);
        }
    }
    drafts
}

fn begin(used: &LimitUse<'_>, sites: &[&Site], found: &LimitConfig) -> LimitDraft {
    let mut draft = LimitDraft::new(&used.what.zone);
    let lines = sites.iter().flat_map(|it| it.scope.uses()).filter(|(it, _)| *it == used.what);
    let lines: BTreeSet<_> = lines.map(|(_, line)| line).collect();
    let lines: Vec<_> = lines.into_iter().take(MAX_LISTED_LOCATIONS).map(|it| it.to_string()).collect();
    let word = if matches!(used.what.how, LimitKind::Connections(_)) { "limit_conn" } else { "limit_req" };
    let zone = found.zones.get(&used.what.zone);
    let zone = zone.map_or_else(String::new, |it| format!(" (line {}) by {}", it.line, quoted(&it.key)));
    draft.comment(format!("Line {}: `{word}`, zone {}{zone}", lines.join(", "), quoted(&used.what.zone)));
    draft
}

/// Writes all fields except the coverage.
fn rest_of(
    draft: &mut LimitDraft,
    used: &LimitUse<'_>,
    found: &LimitConfig,
    key: Option<&Result<Key, String>>,
) {
    match key {
        Some(Ok(key)) => {
            let by = if key.by.is_empty() { vec!["global".to_owned()] } else { key.by.clone() };
            draft.list("by", &by);
            if let Some(missing) = key.missing {
                draft.plain("missing", missing);
            }
            for note in &key.notes {
                draft.comment(note.as_str());
            }
        }
        Some(Err(why)) => {
            draft.plain("by", "ip").hindered(why.as_str());
        }
        None => {
            let why = format!("zone {} is not defined in this file", quoted(&used.what.zone));
            draft.plain("by", "ip").hindered(why);
        }
    }
    let rate = found.zones.get(&used.what.zone).and_then(|it| it.rate);
    match (&used.what.how, rate) {
        (LimitKind::Requests { burst, delay }, Some(rate)) => requests(draft, rate, *burst, *delay),
        (LimitKind::Requests { burst, .. }, None) => {
            draft.plain("bucket", format!("1/second, burst {}", burst + 1));
            if key.is_some() {
                draft.hindered("its zone is one of `limit_conn`, and has no rate");
            }
        }
        (LimitKind::Connections(number), _) => {
            draft.plain("slots", number.to_string()).plain("ttl", SLOT_TTL);
            draft.comment(format!(
                "The slot of a request that runs longer than {SLOT_TTL} is released early; nginx holds it to the end."
            ));
        }
    }
    if used.what.dry_run {
        draft.plain("mode", "shadow");
    }
}

fn requests(draft: &mut LimitDraft, rate: Rate, burst: u64, delay: Delay) {
    match delay {
        Delay::Beyond(free) if burst > 0 => queue(draft, rate, burst, free),
        Delay::Beyond(_) | Delay::None => bucket(draft, rate, burst),
    }
}

/// Writes a limit that refuses requests above the burst without delaying any.
fn bucket(draft: &mut LimitDraft, rate: Rate, burst: u64) {
    let Rate { count, per_minute } = rate;
    draft.plain("bucket", format!("{rate}, burst {}", burst + 1));
    let thousandths = rate.thousandths();
    if per_minute && thousandths * 60 != count * 1_000 {
        let real = thousandths * 60;
        draft.comment(format!(
            "nginx rounds {count} a minute down, to {}.{:03}; here it is {count}.",
            real / 1_000,
            real % 1_000
        ));
    }
}

/// Writes a limit that delays requests within the burst, except the first ones.
fn queue(draft: &mut LimitDraft, rate: Rate, burst: u64, free: u64) {
    let Rate { count, per_minute } = rate;
    let thousandths = rate.thousandths();
    draft.plain("algorithm", "leaky-queue");
    if per_minute && thousandths * 60 != count * 1_000 {
        // The waits of a queue add up, so its rate is that of nginx.
        let common = gcd(thousandths, 1_000);
        draft.plain("rate", format!("{}/{}s", thousandths / common, 1_000 / common));
        draft.comment(format!(
            "nginx rounds {count} a minute down to {}.{:03} a second, which is the rate here, too.",
            thousandths / 1_000,
            thousandths % 1_000
        ));
    } else {
        draft.plain("rate", rate.to_string());
    }
    let free = if free > 0 { format!(", free: {free}") } else { String::new() };
    draft.plain("queue", format!("{{length: {burst}{free}}}"));
    if 1_000_000 % thousandths != 0 || !thousandths.is_multiple_of(1_000) {
        draft.comment(
            "nginx rounds its count down to thousandths of a request, and waits to milliseconds; here both are exact.",
        );
    }
}

const fn gcd(mut one: u64, mut other: u64) -> u64 {
    while other > 0 {
        (one, other) = (other, one % other);
    }
    one
}

/// Groups the servers in which a limit covers the same endpoints.
fn groups<'f>(used: &LimitUse<'f>, found: &LimitConfig, key: Option<&Key>) -> Vec<Group<'f>> {
    let mut groups: Vec<Group<'f>> = Vec::new();
    let mut servers: BTreeMap<usize, Vec<&'f Site>> = BTreeMap::new();
    for site in &used.sites {
        servers.entry(site.server).or_default().push(site);
    }
    for (number, sites) in servers {
        let covered = sites.iter().filter_map(|it| it.endpoints.as_ref().ok()).flat_map(|it| &it.patterns);
        let mut known = BTreeSet::new();
        let mut endpoints: Vec<_> = covered.filter(|it| known.insert(*it)).cloned().collect();
        if endpoints.iter().any(|it| it == "/**") {
            endpoints = vec!["/**".to_owned()];
        }
        if endpoints.is_empty() {
            continue;
        }
        let apart = key.is_some_and(|it| it.per_server || it.per_host);
        let same = groups.iter_mut().find(|it| !apart && it.endpoints == endpoints);
        match same {
            Some(group) => {
                group.servers.push(number);
                group.sites.extend(sites);
            }
            None => groups.push(Group { servers: vec![number], hosts: Vec::new(), endpoints, sites }),
        }
    }
    for group in &mut groups {
        let everywhere = group.servers.len() == found.servers.len();
        let named = !group.servers.iter().any(|it| found.servers[*it].others);
        if named && (!everywhere || key.is_some_and(|it| it.per_host)) {
            let hosts: BTreeSet<_> = group.servers.iter().flat_map(|it| &found.servers[*it].hosts).collect();
            group.hosts = hosts.into_iter().cloned().collect();
        }
    }
    if !key.is_some_and(|it| it.per_host) {
        return groups;
    }
    // One limit per host counts by host.
    let each = |group: Group<'f>| -> Vec<Group<'f>> {
        let alone = |host: &String| Group {
            hosts: vec![host.clone()],
            servers: group.servers.clone(),
            endpoints: group.endpoints.clone(),
            sites: group.sites.clone(),
        };
        if group.hosts.len() < 2 { vec![group] } else { group.hosts.iter().map(alone).collect() }
    };
    groups.into_iter().flat_map(each).collect()
}

/// Writes comments on differences in coverage.
fn around(draft: &mut LimitDraft, group: &Group<'_>, uncovered: &Uncovered<'_>, found: &LimitConfig) {
    let differs: BTreeSet<_> =
        group.sites.iter().filter_map(|it| it.endpoints.as_ref().ok()).flat_map(|it| &it.differs).collect();
    for note in differs {
        draft.comment(note.as_str());
    }
    let others = group.servers.iter().any(|it| found.servers[*it].others);
    if others && found.servers.len() > 1 && group.servers.len() < found.servers.len() {
        draft.comment("Its server answers hosts that cannot be listed, so it covers all hosts here.");
    }
    let overlapping = uncovered.overlapping.iter();
    let mut names: Vec<_> =
        overlapping.map(|it| format!("{} (line {})", quoted(&it.title), it.line)).collect();
    if names.is_empty() {
        return;
    }
    if names.len() > MAX_LISTED_LOCATIONS {
        let more = names.len() - MAX_LISTED_LOCATIONS;
        names.truncate(MAX_LISTED_LOCATIONS);
        names.push(format!("{more} more"));
    }
    draft.comment(format!("nginx does not apply it in {}; here it applies there too.", names.join(", ")));
}
