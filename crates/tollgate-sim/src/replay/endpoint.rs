//! Replaces ids in paths, so that `/users/17/orders` and `/users/18/orders` are one endpoint.
//!
//! Not here: the normalization of paths for matching (`tollgate::policy::path`).

/// The most segments of an endpoint.
const MAX_SEGMENTS: usize = 6;
/// The most bytes of an endpoint.
const MAX_ENDPOINT_BYTES: usize = 120;
/// The least bytes of a segment with a digit that counts as an id.
const MIN_ID_BYTES: usize = 16;

/// Returns method and path, with `{n}` for numbers and `{id}` for other ids.
pub(super) fn folded(method: &str, path: &str) -> String {
    let mut endpoint = method.chars().take(16).collect::<String>();
    endpoint.push(' ');
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let mut segments = path.split('/').filter(|segment| !segment.is_empty());
    for segment in segments.by_ref().take(MAX_SEGMENTS) {
        endpoint.push('/');
        endpoint.push_str(match kind(segment) {
            Kind::Number => "{n}",
            Kind::Id => "{id}",
            Kind::Word => segment,
        });
    }
    if segments.next().is_some() {
        endpoint.push_str("/**");
    } else if endpoint.ends_with(' ') {
        endpoint.push('/');
    }
    if endpoint.len() > MAX_ENDPOINT_BYTES {
        let end = (0..=MAX_ENDPOINT_BYTES).rev().find(|&at| endpoint.is_char_boundary(at)).unwrap_or(0);
        endpoint.truncate(end);
        endpoint.push('…');
    }
    endpoint
}

enum Kind {
    Number,
    Id,
    Word,
}

/// Classifies a segment. Numbers, UUIDs, hashes and long segments with digits are ids.
fn kind(segment: &str) -> Kind {
    let digits = segment.bytes().filter(u8::is_ascii_digit).count();
    let is_hex = segment.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    if digits == segment.len() {
        Kind::Number
    } else if digits > 0 && (segment.len() >= MIN_ID_BYTES || (is_hex && segment.len() >= 8))
        || segment.contains('@')
    {
        Kind::Id
    } else {
        Kind::Word
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_replaced_and_words_are_not() {
        for (path, expected) in [
            ("/", "GET /"),
            ("", "GET /"),
            ("/users/17/orders", "GET /users/{n}/orders"),
            ("/v1/files/550e8400-e29b-41d4-a716-446655440000", "GET /v1/files/{id}"),
            ("/blobs/da39a3ee", "GET /blobs/{id}"),
            ("/users/ann@example.com?x=1", "GET /users/{id}"),
            ("/blog/a-very-long-title-of-a-post", "GET /blog/a-very-long-title-of-a-post"),
            ("//a//b", "GET /a/b"),
            ("/1/2/3/4/5/6/7", "GET /{n}/{n}/{n}/{n}/{n}/{n}/**"),
        ] {
            assert_eq!(folded("GET", path), expected);
        }
        assert!(folded("GET", &format!("/{}", "é".repeat(500))).len() < 130);
    }
}
