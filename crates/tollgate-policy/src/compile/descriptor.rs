//! The keys and overrides of a limit on descriptors.

use tollgate_document::{Located, Problems, nearest, short};

use crate::cost::Cost;
use crate::descriptor::{DescriptorPattern, EntryPattern};
use crate::file_format::limit::Limit;
use crate::file_format::limit::cost::CostText;
use crate::key::Key;
use crate::source::KeySource;

/// The key of the descriptor entry that holds the client address.
const REMOTE_ADDRESS_KEY: &str = "remote_address";

/// Reports keys that no descriptor of the limit, or no request, can have.
pub(super) fn keys_exist(limit: &Limit, problems: &mut Problems) {
    let Some(descriptor) = &limit.descriptor else {
        for part in limit.by.iter().filter(|part| part.value.is_of_descriptor()) {
            problems
                .error(part.place, format!("no request to a path has the key `{}`", part.value))
                .label("only descriptors have it, which proxies send")
                .help("`descriptor: [plan=gold, user]` selects the descriptors of a limit");
        }
        return;
    };
    for part in &limit.by {
        match &part.value {
            KeySource::Descriptor | KeySource::Global => {}
            KeySource::Entry(name) => entry_exists(descriptor, name, part, problems),
            other => {
                let problem = problems.error(part.place, format!("no descriptor has the key `{other}`"));
                let meant = meant(other);
                if descriptor.value.count(meant) > 0 {
                    problem.label(format!("did you mean `descriptor:{meant}`?"));
                }
                problem.related(descriptor.place, "these are its entries");
                problem.help(
                    "a limit on descriptors counts by `descriptor` (all entries), `descriptor:NAME` or `global`",
                );
            }
        }
    }
    if let Some(owner) = &limit.owner {
        owner_fits(limit, descriptor, owner, problems);
    }
    if let Some(cost) = &limit.cost {
        cost_is_fixed(&cost.value, descriptor, problems);
    }
}

/// Reports an owner that no descriptor has, that all descriptors share, or that is a part of the key.
fn owner_fits(
    limit: &Limit,
    descriptor: &Located<DescriptorPattern>,
    owner: &Located<KeySource>,
    problems: &mut Problems,
) {
    let KeySource::Entry(name) = &owner.value else { return };
    entry_exists(descriptor, name, owner, problems);
    let is_fixed = |it: &EntryPattern| it.key() == &**name && !it.is_open();
    if descriptor.value.entries().iter().any(is_fixed) {
        problems
            .error(owner.place, format!("all requests have the same value of `{}`", short(name)))
            .label("does not tell requests apart")
            .related(descriptor.place, "it has one value here");
    }
    let counts_by = |it: &&Located<KeySource>| it.value == owner.value || it.value == KeySource::Descriptor;
    if let Some(part) = limit.by.iter().find(counts_by) {
        problems
            .error(owner.place, "the owner of a slot is a part of the key")
            .label("each request has slots of its own")
            .related(part.place, "the key")
            .help("count by the other entries: `by: descriptor:user`");
    }
}

/// Reports costs that depend on a request or a response: descriptors contain neither.
fn cost_is_fixed(cost: &CostText, descriptor: &Located<DescriptorPattern>, problems: &mut Problems) {
    let lacking = match cost.reserve.as_ref().map(|it| (&it.value, it.place)) {
        Some((Cost::Header(_), place)) => Some(("headers", place)),
        Some((Cost::Body(_), place)) => Some(("body", place)),
        Some((Cost::Fixed(_), _)) | None => None,
    };
    if let Some((what, place)) = lacking {
        problems
            .error(place, format!("a descriptor has no {what} to take a cost from"))
            .label("a whole number")
            .help("a proxy can send the cost of a request (`hits_addend`)");
    }
    if let Some(settle) = &cost.settle {
        problems
            .error(settle.place, "`settle` cannot be combined with `descriptor`")
            .label("a proxy does not send the response")
            .related(descriptor.place, "a proxy sends these")
            .help("a proxy that reports the cost at the end of a stream (`apply_on_stream_done`) needs `charge: afterwards`");
    }
}

fn entry_exists(
    descriptor: &Located<DescriptorPattern>,
    name: &str,
    part: &Located<KeySource>,
    problems: &mut Problems,
) {
    let keys = || descriptor.value.entries().iter().map(crate::descriptor::EntryPattern::key);
    match descriptor.value.count(name) {
        0 => {
            let problem = problems
                .error(part.place, format!("no descriptor of this limit has an entry `{}`", short(name)));
            match nearest(name, keys()) {
                Some(meant) => problem.label(format!("did you mean `descriptor:{meant}`?")),
                None => problem.label("not among its entries"),
            };
            problem.related(descriptor.place, "these are its entries");
        }
        1 => {}
        _ => {
            problems
                .error(part.place, format!("several entries are called `{}`", short(name)))
                .label("the entry to count by is ambiguous")
                .related(descriptor.place, "these are its entries")
                .help("`by: descriptor` counts by all entries together");
        }
    }
}

/// Returns the usual descriptor key for a property of requests.
fn meant(source: &KeySource) -> &str {
    match source {
        KeySource::Ip => REMOTE_ADDRESS_KEY,
        KeySource::User => "user",
        KeySource::ApiKey => "api_key",
        KeySource::Tenant => "tenant",
        KeySource::Header(name)
        | KeySource::Cookie(name)
        | KeySource::Query(name)
        | KeySource::Path(name)
        | KeySource::Claim(name)
        | KeySource::Entry(name) => name,
        KeySource::Global | KeySource::Descriptor => "",
    }
}

/// Returns the key of an override, for a limit that counts by all entries. Exactly one entry is
/// open, and the name of the override is its value.
pub(super) fn key_of(
    descriptor: &Located<DescriptorPattern>,
    name: &Located<String>,
    problems: &mut Problems,
) -> Option<Key> {
    let open: Vec<_> = descriptor.value.entries().iter().filter(|entry| entry.is_open()).collect();
    let [only] = &open[..] else {
        let (message, help) = if open.is_empty() {
            (
                "all descriptors of this limit share one key, so there is nothing to override",
                "change the limit itself",
            )
        } else {
            (
                "several entries are open, so a value does not name one key",
                "overrides need a `by` with a single part, such as `by: descriptor:NAME`; `plans` work with any",
            )
        };
        problems.error(name.place, message).related(descriptor.place, "these are its entries").help(help);
        return None;
    };
    let key = descriptor.value.typed(&[&name.value]).filter(|_| !name.value.is_empty()).map(Key::of_entries);
    if key.is_none() {
        problems
            .error(name.place, format!("no descriptor of this limit has the value `{}`", short(&name.value)))
            .label(format!("does not fit `{only}`"))
            .related(descriptor.place, "these are its entries");
    }
    key
}
