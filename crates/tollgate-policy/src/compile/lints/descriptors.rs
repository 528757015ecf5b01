//! Lints on descriptor entries that proxies probably never send, and on quotas that expire unused.

use tollgate_document::{Problems, short};

use crate::file_format::limit::Limit;
use crate::lint::Lint;

pub(super) fn find_lints(limit: &Limit, problems: &mut Problems) {
    odd_entries(limit, problems);
    if let Some(quota) = &limit.quota {
        let all = quota.value.saturating_add(1);
        problems
            .warning(Lint::QuotaAhead, quota.place, "a quota is charged when it is granted, used or not")
            .label(format!("Envoy ignores it: each of its requests is charged {all}"))
            .help("keep it if your proxy uses quotas; else remove the line");
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
