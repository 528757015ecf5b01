//! The `paths` section: how upstream servers interpret paths.

use tollgate_document::{Document, Kind, Located, Node, Problems, Synonyms, Words};

#[cfg(feature = "schema")]
use super::sections::word_schema;
use crate::settings::{PathReading, PathSettings};
#[cfg(feature = "schema")]
use schemars::JsonSchema;

pub(crate) const WORDS: Words = Words {
    section: "`paths`",
    known: &["reading", "ambiguous", "case"],
    synonyms: &[
        ("reading", &["readings", "read"]),
        ("ambiguous", &["ambiguity"]),
        ("case: exact", &["case_sensitive"]),
        ("case: ignore", &["ignore_case"]),
    ],
};

const READINGS: [(&str, PathReading); 4] = [
    ("any", PathReading::Any),
    ("literal", PathReading::Literal),
    ("decoded", PathReading::Decoded),
    ("servlet", PathReading::Servlet),
];
/// The words of `ambiguous`, with whether ambiguous paths are refused.
const AMBIGUOUS: [(&str, bool); 2] = [("match", false), ("refuse", true)];
/// The words of `case`, with whether case is ignored.
const CASES: [(&str, bool); 2] = [("exact", false), ("ignore", true)];
/// The words that replace the whole section.
const SHORT: [(&str, PathSettings); 5] = {
    const fn reading(reading: PathReading) -> PathSettings {
        PathSettings { reading, refuse_ambiguous: false, ignore_case: false }
    }
    [
        ("any", reading(PathReading::Any)),
        ("refuse", PathSettings { refuse_ambiguous: true, ..reading(PathReading::Any) }),
        ("literal", reading(PathReading::Literal)),
        ("decoded", reading(PathReading::Decoded)),
        ("servlet", reading(PathReading::Servlet)),
    ]
};
const READING_SYNONYMS: Synonyms = &[
    ("any", &["all"]),
    ("refuse", &["reject", "deny"]),
    ("literal", &["raw"]),
    ("decoded", &["decode", "nginx"]),
    ("servlet", &["tomcat", "java"]),
];

/// Reads the section, which may also be in `gateway`: operators look for it there, but every
/// listener uses it.
pub(super) fn read(document: &Document, problems: &mut Problems) -> Option<PathSettings> {
    let root = document.root();
    let own = root.get("paths").filter(|node| !matches!(node.kind, Kind::Null));
    let of_gateway = root.get("gateway").and_then(|node| node.get("paths"));
    if let (Some(own), Some(other)) = (own, of_gateway) {
        problems
            .error(other.place, "`paths` is defined twice")
            .label("remove this")
            .related(own.place, "every surface uses this section");
        return None;
    }
    section(own.or(of_gateway)?, problems)
}

fn section(node: &Node, problems: &mut Problems) -> Option<PathSettings> {
    if node.text().is_some() {
        let short = node.choice_with_synonyms("`paths`", &SHORT, READING_SYNONYMS, problems);
        return short.map(|it| it.value);
    }
    let fields = node.fields(&WORDS, problems)?;
    let value = |it: Option<Located<bool>>| it.is_some_and(|it| it.value);
    let reading = fields
        .get("reading")
        .and_then(|it| it.choice_with_synonyms("`reading`", &READINGS, READING_SYNONYMS, problems));
    let ambiguous = fields.get("ambiguous").and_then(|it| it.choice("`ambiguous`", &AMBIGUOUS, problems));
    let case = fields.get("case").and_then(|it| it.choice("`case`", &CASES, problems));
    Some(PathSettings {
        reading: reading.map(|it| it.value).unwrap_or_default(),
        refuse_ambiguous: value(ambiguous),
        ignore_case: value(case),
    })
}

/// Either one word or a section.
#[cfg(feature = "schema")]
#[derive(JsonSchema)]
#[schemars(untagged, inline)]
#[allow(dead_code, reason = "only its schema is used")]
pub(crate) enum PathsSchema {
    Short(#[schemars(with = "ShortWord")] ()),
    Section(Paths),
}

/// How upstream servers interpret paths.
#[cfg(feature = "schema")]
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, inline)]
#[allow(dead_code, reason = "only its schema is used")]
pub(crate) struct Paths {
    /// The characters that separate segments. Default `any`: limits apply under every reading.
    #[schemars(with = "Option<ReadingWord>")]
    reading: (),
    /// Whether paths that servers may interpret differently are refused. Default `match`: limits
    /// apply under every reading.
    #[schemars(with = "Option<AmbiguousWord>")]
    ambiguous: (),
    /// Whether `/Login` and `/login` are one path. Default `exact`: they are two.
    #[schemars(with = "Option<CaseWord>")]
    case: (),
}

#[cfg(feature = "schema")]
word_schema! {
    ShortWord: SHORT;
    ReadingWord: READINGS;
    AmbiguousWord: AMBIGUOUS;
    CaseWord: CASES;
}
