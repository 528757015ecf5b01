//! Lints on descriptor entries that proxies probably never send, on quotas that expire unused, on costs that
//! are reported too late to be refused, and on slots that no request owns.

use tollgate_document::{Problems, short};

use crate::file_format::limit::Limit;
use crate::lint::Lint;

pub(super) fn find_lints(limit: &Limit, problems: &mut Problems) {
    odd_entries(limit, problems);
    late_charge(limit, problems);
    slots_without_owner(limit, problems);
    if let Some(quota) = &limit.quota {
        let all = quota.value.saturating_add(1);
        problems
            .warning(Lint::QuotaAhead, quota.place, "a quota is charged when it is granted, used or not")
            .label(format!("Envoy ignores it: each of its requests is charged {all}"))
            .help("keep it if your proxy uses quotas; else remove the line");
    }
}

/// Words for amounts that are known at the end of a request.
const LATE_WORDS: [&str; 5] = ["token", "usage", "credit", "cost", "bytes"];

/// Warns about a limit that is charged on arrival, although its name or entries suggest a cost that is known
/// after the request.
fn late_charge(limit: &Limit, problems: &mut Problems) {
    let Some(descriptor) = limit.descriptor.as_ref().filter(|_| limit.slots.is_none()) else { return };
    let is_late = |text: &str| {
        let text = text.to_ascii_lowercase();
        LATE_WORDS.iter().any(|word| text.contains(word))
    };
    let named = limit.name.as_ref().filter(|name| is_late(&name.value)).map(|name| name.place);
    let has_entry = || descriptor.value.entries().iter().any(|it| is_late(&it.to_string()));
    let place = named.or_else(|| has_entry().then_some(descriptor.place));
    let Some(place) = place.filter(|_| limit.charge.is_none() && limit.cost.is_none()) else { return };
    problems
        .warning(
            Lint::LateCharge,
            place,
            "a cost that is reported late is dropped when it exceeds what is left",
        )
        .label("charged on arrival")
        .help("for `apply_on_stream_done`, write `charge: afterwards`; else write `charge: on-arrival`");
}

/// Warns about slots whose release names no request.
fn slots_without_owner(limit: &Limit, problems: &mut Problems) {
    if let (Some(_), Some(slots), None) = (&limit.descriptor, &limit.slots, &limit.owner) {
        problems
            .warning(
                Lint::SlotsWithoutOwner,
                slots.place,
                "a refused request releases the slot of another one",
            )
            .label("the end of a request names no owner")
            .help("send the id of the request as an entry, and name it: `owner: descriptor:request_id`");
    }
}

/// Warns about `plan:gold`, which is a key without a value that proxies hardly send.
fn odd_entries(limit: &Limit, problems: &mut Problems) {
    let Some(descriptor) = &limit.descriptor else { return };
    for entry in descriptor.value.entries() {
        if let (Some((key, value)), None) = (entry.key().split_once(':'), entry.written()) {
            problems
                .warning(
                    Lint::OddEntry,
                    descriptor.place,
                    format!("proxies may never send the entry `{}`", short(entry.key())),
                )
                .label(format!("did you mean `{}`?", short(&format!("{key}={}", value.trim()))))
                .help("the value of an entry follows a `=`");
        }
    }
}
