//! Warns of claims and plans that no request through the gateway has.
//!
//! The gateway does not verify tokens and has no customer data. A limit by a claim counts callers by
//! address there, and a plan without `plans.from` never applies. `POST /v1/check` and the tower layer
//! can provide both, so a policy that is served without the gateway has no such warning.

use tollgate::Policy;
use tollgate::policy::{Credential, KeySource, Limit, Lint, Missing, Mode};
use tollgate_document::{Document, Node, Place, Problems};

use super::Settings;

/// Warns of claims and plans that no request provides.
pub(super) fn stamp(document: &Document, policy: &Policy, settings: &Settings, problems: &mut Problems) {
    if settings.gateway.address().is_none() {
        return;
    }
    claims(document.root(), policy, problems);
    plans(document.root(), policy, problems);
}

/// Returns the active limits of the file, each with its node.
fn limits<'p>(root: &'p Node, policy: &'p Policy) -> impl Iterator<Item = (&'p Node, &'p Limit)> {
    let written = root.get("limits").map_or(&[][..], Node::items);
    let live = policy.limits().iter().filter(|limit| limit.candidate_of().is_none());
    written.iter().zip(live).filter(|(_, limit)| limit.mode() != Mode::Off)
}

fn claims(root: &Node, policy: &Policy, problems: &mut Problems) {
    let is_claim = |source: &KeySource| matches!(source, KeySource::Claim(_));
    for (node, limit) in limits(root, policy).filter(|(_, limit)| limit.by().iter().any(is_claim)) {
        let effect = match limit.missing() {
            Missing::Ip => "every caller is counted by its address",
            Missing::Refuse => "every caller is refused",
            Missing::Shared => "all callers share one allowance",
            Missing::Skip => "the limit applies to no caller",
        };
        warn_of_claim(node.get("by").unwrap_or(node).place, effect, problems);
    }
    let section = |section: &str, word: &str| root.get(section)?.get(word).map(|node| node.place);
    if let (Some(place), Some(KeySource::Claim(_))) = (section("plans", "from"), policy.plan_from()) {
        warn_of_claim(place, "no request is on a plan", problems);
    }
    let identify = policy.identify();
    for (word, places) in
        [("user", &identify.user), ("api_key", &identify.api_key), ("tenant", &identify.tenant)]
    {
        let is_named = |it: &Credential| matches!(it, Credential::Named(source) if is_claim(source));
        if let Some(place) = section("identify", word)
            && !places.is_empty()
            && places.iter().all(is_named)
        {
            warn_of_claim(place, &format!("no request has a {word}"), problems);
        }
    }
    for list in ["allow", "deny"] {
        let entries = root.get(list).map_or(&[][..], Node::items);
        for entry in entries.iter().filter(|entry| reads_a_claim(entry)) {
            warn_of_claim(entry.place, "this entry matches no request", problems);
        }
    }
}

/// Whether an entry of a list has a condition on a claim.
fn reads_a_claim(entry: &Node) -> bool {
    let conditions = entry.entries("an entry", &mut Problems::default()).unwrap_or_default();
    conditions.iter().any(|it| it.name.value.trim_start().starts_with("claim:"))
}

fn warn_of_claim(place: Place, effect: &str, problems: &mut Problems) {
    problems
        .warning(Lint::UnprovidedClaim, place, "no request through the gateway has a claim: it verifies no tokens")
        .label(effect)
        .help("count by a header that your authentication sets, such as `by: user` with `identify: {user: \"header:X-User-Id\"}`")
        .help("claims come with `POST /v1/check` or the tower layer: if all requests do, `listen: {gateway: off}` or `expect: unprovided-claim`");
}

fn plans(root: &Node, policy: &Policy, problems: &mut Problems) {
    if policy.plan_from().is_some() {
        return;
    }
    let is_default = |name: &str| policy.default_plan() == Some(name);
    // Descriptors name a plan by an entry of that name.
    let on_paths = limits(root, policy).filter(|(_, limit)| limit.descriptor().is_none());
    let mut found = on_paths.filter(|(_, limit)| limit.plans().any(|(name, _)| !is_default(name)));
    let Some((node, _)) = found.next() else { return };
    let more = found.count();
    let warning = problems
        .warning(
            Lint::UnprovidedPlan,
            node.get("plans").unwrap_or(node).place,
            "no request through the gateway is on one of these plans: `plans.from` is missing",
        )
        .label(match policy.default_plan() {
            Some(default) => format!("every caller is on plan `{default}`"),
            None => "every caller gets the limit's own amount".to_owned(),
        });
    warning
        .help("say where a request names its plan, at the top of the file: `plans: {from: \"header:X-Plan\"}`")
        .help("plans come with `POST /v1/check` or the tower layer too: if all requests do, `listen: {gateway: off}` or `expect: unprovided-plan`");
    if more > 0 {
        warning.help(format!("{more} more of the limits have plans"));
    }
}
