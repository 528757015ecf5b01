//! The JSON Schema of test files, for editors.

use serde_json::Value;

/// Returns the JSON Schema of test files.
///
/// ```
/// assert!(tollgate_policy_test::schema()["properties"]["tests"].is_object());
/// ```
pub fn schema() -> Value {
    serde_json::from_str(include_str!("tests.schema.json")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use tollgate_document::Words;

    use crate::file_format::{self, expect, step};

    #[test]
    fn the_schema_and_the_parser_accept_the_same_words() {
        let schema = super::schema();
        let check = |at: &str, words: &Words| {
            let section = schema.pointer(at).unwrap_or(&Value::Null);
            let properties = section["properties"].as_object().unwrap();
            let mut found: Vec<_> = properties.keys().map(String::as_str).collect();
            let mut known = words.known.to_vec();
            found.sort_unstable();
            known.sort_unstable();
            assert_eq!(found, known, "{}", words.section);
            assert_eq!(section["additionalProperties"], false, "{}", words.section);
            for (word, entry) in properties {
                let target = entry["$ref"].as_str().and_then(|it| schema.pointer(&it[1..]));
                let described = |it: &Value| it["description"].is_string();
                assert!(described(entry) || target.is_some_and(described), "{word} of {}", words.section);
            }
            for (here, _) in words.synonyms {
                assert!(known.contains(here), "{here} is a word of {}", words.section);
            }
        };
        check("", &file_format::FILE);
        check("/$defs/Test", &file_format::TEST);
        check("/$defs/Defaults", &file_format::DEFAULTS);
        check("/$defs/Step", &step::WORDS);
        check("/$defs/Expect", &expect::WORDS);
    }
}
