//! Suggestions for misspelled words.

/// Returns the known word nearest to `word`, if it is near enough to be a useful suggestion.
///
/// A third of the letters may differ. Case, `-`, `_` and blanks are ignored.
pub fn nearest<'w>(word: &str, known: impl IntoIterator<Item = &'w str>) -> Option<&'w str> {
    // Words of the format are short, so a long one is not a misspelling.
    if word.len() > 40 {
        return None;
    }
    let bare = |word: &str| -> String {
        word.chars().filter(|c| !matches!(c, '-' | '_' | ' ')).flat_map(char::to_lowercase).collect()
    };
    let word = bare(word);
    let word_chars = word.chars().count();
    known
        .into_iter()
        .map(|known| (strsim::osa_distance(&word, &bare(known)), known))
        .filter(|(distance, known)| *distance <= known.len().max(word_chars) / 3)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known)
}

/// Formats a list for help texts: `a, b and c`.
pub fn listed<'w>(words: impl IntoIterator<Item = &'w str>) -> String {
    let words: Vec<_> = words.into_iter().collect();
    match words.split_last() {
        None => String::new(),
        Some((last, [])) => (*last).to_owned(),
        Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
    }
}

/// The maximum number of names that a hint lists.
const MAX_LISTED: usize = 8;

/// Returns a hint for an unknown name: the nearest known name, or the list of known names.
///
/// ```
/// # use tollgate_document::hint;
/// let known = ["search", "login"];
/// assert_eq!(hint("serach", "limits", known), "did you mean `search`?");
/// assert_eq!(hint("typo", "limits", known), "the limits are `search` and `login`");
/// assert_eq!(hint("typo", "limits", ["search"]), "there is only `search`");
/// assert_eq!(hint("typo", "limits", []), "there are no limits");
/// ```
pub fn hint<'w>(word: &str, what: &str, known: impl IntoIterator<Item = &'w str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    let part = |name: &&&str| word.len() >= 3 && name.contains(word);
    if let Some(meant) = nearest(word, known.iter().copied()).or_else(|| known.iter().find(part).copied()) {
        return format!("did you mean `{meant}`?");
    }
    let shown: Vec<String> = known.iter().take(MAX_LISTED).map(|name| format!("`{name}`")).collect();
    let more = known.len() - shown.len();
    match (&shown[..], more) {
        ([], _) => format!("there are no {what}"),
        ([only], 0) => format!("there is only {only}"),
        (_, 0) => format!("the {what} are {}", listed(shown.iter().map(String::as_str))),
        _ => format!("the {what} are {} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_of_the_finger_are_recognized_and_other_words_are_not() {
        let known = ["token-bucket", "gcra", "fixed-window", "minute", "month"];
        for (word, meant) in [
            ("tokenbucket", Some("token-bucket")),
            ("Token_Bucket", Some("token-bucket")),
            ("minuet", Some("minute")),
            ("gcar", Some("gcra")),
            ("banana", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, known), meant, "{word}");
        }
    }
}
