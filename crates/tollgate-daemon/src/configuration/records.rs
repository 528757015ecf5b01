//! The `records` section: the decision log on disk.
//!
//! It is a path, or a map with the path, the age at which records are deleted and the size of all files.
//! It is a section of its own beside `state`, because its directory grows by gigabytes and can be lost
//! without harm, and so belongs on another disk than the few kilobytes of `state`.
//!
//! The log itself is in `tollgate-records`.

use std::path::PathBuf;

use tollgate::Span;
use tollgate_document::{Kind, Node, Problems, Words};
use tollgate_records::RecordLogSettings;

const RECORDS: Words = Words {
    section: "`records`",
    known: &["dir", "keep", "max"],
    synonyms: &[
        ("dir", &["folder", "directory", "path"]),
        ("keep", &["retention", "ttl", "age", "for", "days"]),
        ("max", &["size", "max_size", "max_bytes", "bytes", "limit"]),
    ],
};

/// The shortest time: segments are closed after a 32nd of it.
const MIN_KEEP: Span = Span::from_hours(1);
/// The longest time, which bounds the counts per minute that are in memory: 48 bytes each.
const MAX_KEEP: Span = Span::from_days(90);
/// The largest size.
const MAX_BYTES: u64 = 1 << 40;

/// Parses the section.
pub(super) fn read(node: &Node, problems: &mut Problems) -> Option<RecordLogSettings> {
    let Kind::Map(_) = &node.kind else {
        let dir = node.word("`records`", problems)?.value;
        return Some(RecordLogSettings::new(dir));
    };
    let fields = node.fields(&RECORDS, problems)?;
    let keep = fields.get("keep").and_then(|it| it.span("`keep`", MIN_KEEP..=MAX_KEEP, problems));
    let range = RecordLogSettings::MIN_BYTES..=MAX_BYTES;
    let max = fields.get("max").and_then(|it| it.bytes("`max`", range, problems));
    let Some(dir) = fields.get("dir") else {
        if !fields.mentions("dir") {
            problems
                .error(fields.place(), "`records` has no `dir`")
                .help("such as `dir: /var/lib/tollgate/records`");
        }
        return None;
    };
    let mut settings = RecordLogSettings::new(PathBuf::from(dir.word("`dir`", problems)?.value));
    settings.keep = keep.map_or(settings.keep, |it| it.value);
    settings.max_bytes = max.map_or(settings.max_bytes, |it| it.value);
    Some(settings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_document::Document;

    fn check(text: &str) -> (Option<RecordLogSettings>, Vec<String>) {
        let document = Document::parse(text).unwrap();
        let mut problems = Problems::default();
        let read = read(document.root().get("records").unwrap(), &mut problems);
        let found = problems.into_diagnostics(&document);
        (read, found.iter().map(|it| it.message.clone()).collect())
    }

    #[test]
    fn a_path_is_enough() {
        let settings = RecordLogSettings::new("/r");
        assert_eq!(check("records: /r"), (Some(settings.clone()), Vec::new()));
        assert_eq!(check("records: {dir: /r}"), (Some(settings.clone()), Vec::new()));
        let settings = RecordLogSettings { keep: Span::from_days(30), max_bytes: 64 << 20, ..settings };
        assert_eq!(check("records: {dir: /r, keep: 30d, max: 64MiB}"), (Some(settings), Vec::new()));
    }

    #[test]
    fn every_mistake_is_located() {
        for (text, expected) in [
            ("records: [x]", "`records` is one value, not a list"),
            ("records: {keep: 7d}", "`records` has no `dir`"),
            ("records: {folder: /r}", "unknown word `folder` in `records`"),
            ("records: {dir: /r, keep: 5m}", "`keep` is between 1h and 90d"),
            ("records: {dir: /r, max: 1MiB}", "`max` is between 16777216 and 1099511627776 bytes"),
        ] {
            assert_eq!(check(text).1, [expected], "{text}");
        }
    }
}
