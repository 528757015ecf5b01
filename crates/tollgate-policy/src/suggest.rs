//! The word that was probably meant.

/// The known word nearest to `word`, if near enough to be worth saying.
///
/// A third of the letters may differ; case, `-`, `_` and blanks count for nothing.
pub fn nearest<'w>(word: &str, known: impl IntoIterator<Item = &'w str>) -> Option<&'w str> {
    // Words of the format are short: a long one is nothing anybody mistyped.
    if word.len() > 40 {
        return None;
    }
    let bare = |word: &str| -> Vec<char> {
        word.chars().filter(|c| !matches!(c, '-' | '_' | ' ')).flat_map(char::to_lowercase).collect()
    };
    let word = bare(word);
    known
        .into_iter()
        .map(|known| (distance(&word, &bare(known)), known))
        .filter(|(distance, known)| *distance <= known.len().max(word.len()) / 3)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known)
}

/// How many letters to add, drop, change or swap with a neighbour.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = match (i, j) {
                (0, _) => j,
                (_, 0) => i,
                _ => {
                    let change = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                    let best = change.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
                    let swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
                    if swapped { best.min(rows[i - 2][j - 2] + 1) } else { best }
                }
            };
        }
    }
    rows[a.len()][b.len()]
}

/// `a, b and c`, for help texts.
pub(crate) fn listed<'w>(words: impl IntoIterator<Item = &'w str>) -> String {
    let words: Vec<_> = words.into_iter().collect();
    match words.split_last() {
        None => String::new(),
        Some((last, [])) => (*last).to_owned(),
        Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
    }
}

/// How many names a hint lists.
const MAX_LISTED: usize = 8;

/// What to say of a name that is not known: the nearest one, or those that there are.
///
/// ```
/// # use tollgate_policy::hint;
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
    fn slips_of_the_finger_are_recognised_and_other_words_are_not() {
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
