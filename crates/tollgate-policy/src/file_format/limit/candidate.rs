//! Numbers that are evaluated beside a limit: `candidate`.
//!
//! Only the amount may differ. Coverage, key and cost are those of the
//! limit: two limits that count different things cannot be
//! compared request by request.

use tollgate_document::{Kind, Located, Node, Problems, Words};

use super::{Algorithm, Limit, RateText, how_much, words};
use crate::limit::Mode;

pub(crate) const WORDS: Words = Words {
    section: "`candidate`",
    known: &[
        "bucket",
        "rate",
        "windows",
        "slots",
        "queue",
        "ttl",
        "algorithm",
        "align",
        "timezone",
        "parts",
        "strict",
        "count_denied",
        "plans",
        "overrides",
    ],
    synonyms: &[
        ("bucket", &["limit", "requests"]),
        ("bucket: N/unit, burst B", &["burst"]),
        ("bucket: N/unit", &["period", "unit"]),
        ("windows", &["window"]),
        ("algorithm", &["strategy"]),
        ("slots", &["concurrency", "max_concurrent"]),
        ("timezone", &["tz"]),
    ],
};

/// Returns the reason why a candidate cannot have a word of a limit.
fn why(word: &str) -> &'static str {
    match word {
        "name" => "its name is the name of its limit with `.candidate` appended",
        "by" | "missing" => "it counts by the same key as its limit, so that the two can be compared",
        "cost" | "charge" => "a request costs the same as under its limit, so that the two can be compared",
        "mode" => "it counts and never refuses; to enforce its numbers, write them into the limit",
        "on_outage" | "on_hangup" | "owner" => "it behaves like its limit",
        "lease" => "it is counted by the store for each request, so that its count is exact",
        "scope" => "it is counted for the same regions as its limit",
        "soft" | "dialects" => "it does not affect responses, so it has no threshold and no dialects",
        "quota" => "it does not affect responses, so it grants no quota",
        "candidate" => "a limit has one candidate",
        _ => "it covers the same requests as its limit, so that the two can be compared",
    }
}

/// Reads the limit that would replace `live`.
pub(super) fn read(node: &Node, live: &Limit, problems: &mut Problems) -> Option<Limit> {
    let Kind::Map(entries) = &node.kind else {
        let rate = node.text().filter(|text| RateText::parse(text).is_ok());
        problems
            .error(node.place, "`candidate` is a map of `name: value` lines")
            .label(match rate {
                Some(rate) => format!("did you mean `{{bucket: {rate}}}`?"),
                None => format!("this is {}", node.describe()),
            })
            .help("it sets an amount, like a limit: `candidate: {bucket: 10/minute}`");
        return None;
    };
    let is_the_limits = |word: &str| words::WORDS.known.contains(&word) && !WORDS.known.contains(&word);
    for entry in entries.iter().filter(|entry| is_the_limits(&entry.name.value)) {
        problems
            .error(entry.name.place, format!("`{}` does not belong to a candidate", entry.name.value))
            .label("remove this")
            .help(why(&entry.name.value))
            .help("only the amount may differ: bucket, rate, windows, slots and their options");
    }
    let own = entries.iter().filter(|entry| !is_the_limits(&entry.name.value)).cloned().collect();
    let own = Node { kind: Kind::Map(own), ..node.clone() };
    let fields = own.fields(&WORDS, problems)?;
    let amount = how_much(&fields, problems);
    if let Some(adaptive) = amount.adaptive {
        problems
            .error(adaptive.place, "a candidate cannot learn its number of slots")
            .label("write a number")
            .help("a second limit with `mode: shadow` learns beside this one");
        return None;
    }
    let holds_slots = amount.slots.is_some()
        || amount.algorithm.is_some_and(|algorithm| algorithm.value == Algorithm::Concurrency);
    Some(Limit {
        endpoint: live.endpoint.clone(),
        except: live.except.clone(),
        method: live.method.clone(),
        host: live.host.clone(),
        headers: live.headers.clone(),
        descriptor: live.descriptor.clone(),
        domain: live.domain.clone(),
        by: live.by.clone(),
        missing: live.missing,
        // Slots have neither.
        cost: live.cost.clone().filter(|_| !holds_slots),
        charge: live.charge.filter(|_| !holds_slots),
        owner: live.owner.clone().filter(|_| holds_slots),
        count_denied: amount.count_denied.or(live.count_denied.filter(|_| !holds_slots)),
        mode: Some(Located::new(Mode::Shadow, node.place)),
        on_outage: live.on_outage,
        scope: live.scope,
        on_hangup: live.on_hangup.filter(|_| holds_slots),
        ..amount
    })
}
