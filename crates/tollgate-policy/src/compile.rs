//! Compiles the typed file into a policy.
//!
//! This step finds mistakes that involve more than one value: options of another algorithm, keys
//! that no request can have, names that collide.
//!
//! - `adaptive`: limits that learn their number of slots.
//! - `amount`: the amounts that a limit grants.
//! - `descriptor`: the keys and overrides of a limit on descriptors.
//! - `lease`: how long a node may hold units of a limit.
//! - `limit`: one limit and its rules.
//! - `name`: names for limits that have none.
//! - `node_shed`: the shedder of a node.
//! - `priorities`, `fleet_shed`: the priority classes, and the shedder that counts by them.
//! - `regions`: limits that regions share.
//! - `lints`: warnings about valid files.

mod adaptive;
mod amount;
mod descriptor;
mod fleet_shed;
mod lease;
mod limit;
mod lints;
mod name;
mod node_shed;
mod priorities;
mod regions;

use tollgate_document::{Diagnostics, Document, Problems, hint};

use crate::file_format::priorities::Class;
use crate::file_format::regions::RegionsText;
use crate::file_format::{self, File, privacy, sections};
use crate::identify::Identify;
use crate::lists::{Condition, List, ListKind};
use crate::pattern::PathPattern;
use crate::policy::Policy;
use crate::settings::{ClientAddress, HeaderSettings};

/// Compiles a document, or returns all of its problems. `problems` are
/// the problems found by earlier steps.
pub(crate) fn compile(document: &Document, mut problems: Problems) -> Result<Policy, Diagnostics> {
    let mut file = File::read(document, &mut problems);
    let client = file.client.take();
    let written_client = client;
    let client = written_client.as_ref().map(client_address).unwrap_or_default();
    let paths = file.paths.unwrap_or_default();
    if paths.ignore_case {
        fold_case(&mut file);
    }
    let lease = file_format::lease::of_store(document, &mut problems);
    let regions = RegionsText::read(document, &mut problems);
    let settings = limit::KeySettings { client, paths, regions };
    let mut drafts = Vec::with_capacity(file.limits.len());
    for limit in &file.limits {
        let live = limit::draft(limit, &settings, &mut problems);
        let candidate = limit.candidate.as_deref();
        let candidate = candidate.and_then(|it| limit::draft_candidate(it, &settings, &mut problems));
        drafts.extend(live.map(|live| (live, candidate)));
    }
    let identify = file.identify.take().map(identify).unwrap_or_default();
    let plan_from = file.plans.as_mut().and_then(|it| it.from.take()).map(|it| it.value);
    let origins = priorities::Origins { identify: &identify, plan_from: plan_from.as_ref() };
    let classes = priorities::classes(&file.priorities, &origins, &mut problems);
    let fleet = fleet_shed::fleet(&file, &classes, &settings, &mut problems);
    let node_shed = node_shed::settings(&file, &classes, &mut problems);
    let names = name::all(&file.limits, &mut problems);
    if !problems.has_errors() {
        described_limits(file.headers.as_ref(), &names, &mut problems);
    }
    if problems.has_errors() {
        return Err(problems.errors().into_diagnostics(document));
    }
    let mut limits = Vec::with_capacity(drafts.len());
    for ((live, candidate), name) in drafts.into_iter().zip(names) {
        let place = limits.len();
        let regions = &settings.regions;
        limits.push(live.finish(&name, None, lease.map(|it| it.value), regions));
        // A candidate is compared with the limit, so it is counted for each request.
        limits.extend(candidate.map(|it| it.finish(&name::of_candidate(&name), Some(place), None, regions)));
    }
    limits.extend(fleet.map(fleet_shed::FleetDraft::finish));
    lints::find_of_classes(&file, &origins, &mut problems);
    lints::find(document, &file, written_client.as_ref(), &settings.regions, &limits, &mut problems);
    let expected = file.expect.iter().map(|it| it.value).collect();
    let default_plan = file.plans.and_then(|it| it.default);
    let list = |kind, entries: Vec<crate::file_format::lists::Entry>| {
        List::new(kind, entries.into_iter().map(|entry| (entry.meaning, entry.conditions)).collect())
    };
    let policy = Policy {
        limits: limits.into(),
        allow: list(ListKind::Allow, file.allow),
        deny: list(ListKind::Deny, file.deny),
        priorities: classes,
        identify,
        default_plan: default_plan.map(|it| it.value.into()),
        plan_from,
        client: settings.client,
        paths,
        headers: file.headers.map(header_settings).unwrap_or_default(),
        node_shed,
        throttle_mode: None,
        is_throttle_frozen: false,
        key_display: file.privacy.map(privacy::Privacy::into_display).unwrap_or_default(),
        warnings: problems.into_diagnostics(document),
        expected,
        ..Policy::default()
    };
    Ok(match file.max_keys {
        Some(max_keys) => Policy { max_keys: max_keys.value, ..policy },
        None => policy,
    }
    .indexed())
}

/// Reports names in `headers.describe` that no limit has.
fn described_limits(headers: Option<&sections::Headers>, names: &[String], problems: &mut Problems) {
    for described in headers.iter().flat_map(|it| &it.describe) {
        if names.contains(&described.value) {
            continue;
        }
        problems.error(described.place, format!("no limit is called `{}`", described.value)).help(hint(
            &described.value,
            "limits",
            names.iter().map(String::as_str),
        ));
    }
}

/// Folds the case of every path pattern, as is done for the paths of requests.
fn fold_case(file: &mut File) {
    for limit in &mut file.limits {
        limit.patterns_mut().for_each(PathPattern::fold_case);
        if let Some(candidate) = &mut limit.candidate {
            candidate.patterns_mut().for_each(PathPattern::fold_case);
        }
    }
    file.priorities.iter_mut().flat_map(Class::patterns_mut).for_each(PathPattern::fold_case);
    for condition in file.allow.iter_mut().chain(&mut file.deny).flat_map(|entry| &mut entry.conditions) {
        if let Condition::Endpoint(patterns) = condition {
            patterns.iter_mut().for_each(PathPattern::fold_case);
        }
    }
}

fn client_address(written: &sections::Client) -> ClientAddress {
    let default = ClientAddress::default();
    ClientAddress {
        trusted_proxies: written.trusted_proxies.iter().map(|net| net.value).collect(),
        header: written.header.unwrap_or(default.header),
        ipv4_prefix: written.ipv4_prefix.unwrap_or(default.ipv4_prefix),
        ipv6_prefix: written.ipv6_prefix.map_or(default.ipv6_prefix, |it| it.value),
    }
}

fn identify(written: sections::Identify) -> Identify {
    let default = Identify::default();
    Identify {
        user: written.user.unwrap_or(default.user),
        api_key: written.api_key.unwrap_or(default.api_key),
        tenant: written.tenant.unwrap_or(default.tenant),
        ambiguous: written.ambiguous.unwrap_or(default.ambiguous),
    }
}

fn header_settings(written: sections::Headers) -> HeaderSettings {
    let default = HeaderSettings::default();
    HeaderSettings {
        x_ratelimit: written.x_ratelimit.unwrap_or(default.x_ratelimit),
        ietf: written.ietf.unwrap_or(default.ietf),
        retry_after_jitter: written.retry_after_jitter.unwrap_or(default.retry_after_jitter),
        dialects: written.dialects,
        describe: written.describe.into_iter().map(|it| it.value.into()).collect(),
    }
}
