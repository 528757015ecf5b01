//! The fleet shedder: `fleet: {slots: 1000, reserve: {critical: 20%}}`.

use tollgate_document::{Located, Node, Place, Problems, Words, parse_span, short, whole_number};

use super::super::limit::{HANGUP_SYNONYMS, HANGUPS, Limit, OUTAGE_SYNONYMS, OUTAGES, mode, parsed, rate};
use super::super::sections::percent;
use crate::limit::OnOutage;
use crate::source::KeySource;

pub(crate) const WORDS: Words = Words {
    section: "`fleet` of `shed`",
    known: &["slots", "rate", "reserve", "ttl", "mode", "on_outage", "on_hangup"],
    synonyms: &[
        ("slots", &["concurrency", "max_concurrent", "inflight"]),
        ("rate", &["bucket", "limit"]),
        ("reserve", &["reserved", "reserves"]),
        ("ttl", &["lease"]),
        ("mode: shadow", &["dry_run", "shadow_mode", "shadow"]),
        ("on_outage", &["fail_open"]),
    ],
};

/// The fleet shedder: a number of concurrent requests, or a rate, of all nodes together.
#[derive(Debug)]
pub(crate) struct Fleet {
    /// The amount, and the options that it has in common with limits.
    pub(crate) limit: Limit,
    pub(crate) reserve: Vec<(Located<String>, Located<Reserve>)>,
}

/// The part of the amount that is reserved for a class and all more important ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reserve {
    Percent(u8),
    Units(u64),
}

pub(super) fn read(node: &Node, problems: &mut Problems) -> Option<Fleet> {
    let fields = node.fields(&WORDS, problems)?;
    let get = |word: &str| fields.get(word);
    let place_of = |word: &str| fields.entry(word).map(|entry| entry.name.place);
    match (place_of("slots"), place_of("rate")) {
        (Some(slots), Some(rate)) => both_amounts(slots, rate, problems),
        (None, None) if !fields.mentions("slots") && !fields.mentions("rate") => {
            problems
                .error(fields.place(), "the fleet shedder has no amount")
                .label("a line such as `slots: 1000` is missing")
                .help("`slots` is a number of concurrent requests, `rate` is a rate such as 5000/second");
        }
        _ => {}
    }
    let slots = get("slots").and_then(|it| it.whole("`slots`", 1..=65_536, problems));
    let rate = get("rate").and_then(|it| rate(it, "`rate`", problems));
    let mode = get("mode").and_then(|it| mode(it, problems));
    let on_outage = get("on_outage")
        .and_then(|it| it.choice_with_synonyms("`on_outage`", &OUTAGES, OUTAGE_SYNONYMS, problems));
    let on_hangup = get("on_hangup")
        .and_then(|it| it.choice_with_synonyms("`on_hangup`", &HANGUPS, HANGUP_SYNONYMS, problems));
    let ttl = get("ttl").and_then(|it| parsed(it, "`ttl`", parse_span, problems));
    let reserve = get("reserve").map(|it| reserves(it, problems)).unwrap_or_default();
    let amounts = ["slots", "rate"].into_iter().filter_map(|word| Some(Located::new(word, place_of(word)?)));
    let place = fields.place();
    let limit = Limit {
        place,
        amounts: amounts.collect(),
        unreadable: slots.is_some() == rate.is_some(),
        by: vec![Located::new(KeySource::Global, place)],
        slots,
        rate,
        ttl,
        mode,
        on_hangup,
        // A shedder that cannot count must not turn an outage of the store into one of the service.
        on_outage: on_outage.or(Some(Located::new(OnOutage::Allow, place))),
        ..Limit::default()
    };
    Some(Fleet { limit, reserve })
}

fn both_amounts(slots: Place, rate: Place, problems: &mut Problems) {
    problems
        .error(rate, "the fleet shedder has exactly one amount")
        .label("`rate` here")
        .related(slots, "`slots` here");
}

fn reserves(node: &Node, problems: &mut Problems) -> Vec<(Located<String>, Located<Reserve>)> {
    let entries = node.entries("`reserve`", problems).unwrap_or_default();
    entries
        .iter()
        .filter_map(|entry| {
            let what = format!("the reserve of `{}`", short(&entry.name.value));
            let word = entry.value.word(&what, problems)?;
            let reserve = match whole_number(word.value) {
                Some(units) => Reserve::Units(units),
                None => Reserve::Percent(percent(&entry.value, &what, 1..=99, problems)?),
            };
            Some((entry.name.clone(), Located::new(reserve, word.place)))
        })
        .collect()
}
