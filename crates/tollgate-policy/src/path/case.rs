//! Case folding of paths, for servers that ignore case.

use super::decoding::{escape, is_plain_in_segment, push_escape};

/// Whether [`fold`] would change a path of ASCII characters.
pub(crate) fn has_upper_case(path: &[u8]) -> bool {
    path.iter().fold(false, |found, byte| found | byte.is_ascii_uppercase())
}

/// Folds the case of a path: to upper case, then to lower case, so that letters with
/// several lower-case forms (`s` and `ſ`) become equal. Escaped non-ASCII letters are
/// folded too.
///
/// The characters of the path and of the result are normalized; hexadecimal digits of escapes
/// are upper case in both.
pub(crate) fn fold(path: &str) -> String {
    let bytes = path.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    let mut out = String::with_capacity(bytes.len());
    while at < bytes.len() {
        match escape(&bytes[at..]) {
            // A run of non-ASCII bytes is decoded as letters.
            Some(byte) if !byte.is_ascii() => {
                decoded.push(byte);
                at += 3;
            }
            found => {
                push_folded(&mut out, &std::mem::take(&mut decoded));
                if let Some(byte) = found {
                    push_escape(&mut out, byte);
                    at += 3;
                } else {
                    out.push(char::from(bytes[at].to_ascii_lowercase()));
                    at += 1;
                }
            }
        }
    }
    push_folded(&mut out, &decoded);
    out
}

/// Folds the case of a text.
pub(crate) fn fold_text(text: &str) -> String {
    text.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect()
}

/// Appends non-ASCII text, folded and escaped again.
fn push_folded(out: &mut String, bytes: &[u8]) {
    let push = |out: &mut String, bytes: &[u8]| {
        for &byte in bytes {
            if is_plain_in_segment(byte) { out.push(char::from(byte)) } else { push_escape(out, byte) }
        }
    };
    for chunk in bytes.utf8_chunks() {
        push(out, fold_text(chunk.valid()).as_bytes());
        push(out, chunk.invalid());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_lose_their_case_and_escapes_keep_theirs() {
        for (path, folded) in [
            ("/Login", "/login"),
            ("/A%2FB%20", "/a%2Fb%20"),
            ("/CAF%C3%89", "/caf%C3%A9"),
            ("/%E2%84%AA", "/k"),
            ("/%C5%BF", "/s"),
            ("/%FF%C3%89", "/%FF%C3%A9"),
        ] {
            assert_eq!(fold(path), folded, "{path}");
            assert_eq!(fold(folded), folded, "{folded}");
        }
    }
}
