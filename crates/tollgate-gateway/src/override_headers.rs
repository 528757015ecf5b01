//! Headers that override the path, the method or the host of a request.
//!
//! Frameworks let `X-Original-URL` replace the path, `X-HTTP-Method-Override` the method and
//! `X-Host` the host. Limits match the request line, so such a header would bypass them. They are
//! removed before the decision, unless the settings keep them.
//!
//! Not here: `X-Forwarded-*`, which is trusted depending on its sender (`head`).

use http::header::{HeaderMap, HeaderName};
use smallvec::SmallVec;

/// The headers, in lower case, and where they are honored.
const NAMES: [&str; 25] = [
    // The path: IIS, Symfony, Laminas, ASP.NET, Azure, Envoy, ForgeRock, nginx set-ups.
    "x-original-url",
    "x-original-uri",
    "x-original-path",
    "x-original-request-uri",
    "x-rewrite-url",
    "x-rewrite-uri",
    "x-rewrite-path",
    "x-override-url",
    "x-override-uri",
    "x-http-path-override",
    "x-http-destinationurl",
    "x-envoy-original-path",
    "x-waws-unencoded-url",
    // The part of the path that a server takes off before it routes: gunicorn, Flask set-ups.
    "script-name",
    "x-script-name",
    "path-info",
    // The method: Rails, Symfony, Laravel, Express, Spring, OData, Google's and IBM's services.
    "x-http-method-override",
    "x-http-method",
    "x-method-override",
    "x-original-method",
    // Host.
    "x-original-host",
    "x-rewrite-host",
    "x-http-host-override",
    "x-host-override",
    "x-host",
];

/// The treatment of headers that override the path, the method or the host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum OverrideHeaders {
    /// All of them are removed.
    #[default]
    Removed,
    /// All of them are forwarded.
    Kept,
    /// Only the headers with these names, in lower case, are forwarded.
    KeptOnly(Vec<Box<str>>),
}

impl OverrideHeaders {
    /// Removes the headers that are not forwarded.
    pub(crate) fn strip(&self, headers: &mut HeaderMap) {
        // Most requests have none of these headers, so nothing is collected.
        if *self == Self::Kept || !headers.keys().any(|it| self.removes(it.as_str())) {
            return;
        }
        let found: SmallVec<[HeaderName; 4]> =
            headers.keys().filter(|it| self.removes(it.as_str())).cloned().collect();
        for name in found {
            headers.remove(name);
        }
    }

    /// Whether a header with this name, in lower case, is not forwarded.
    pub(crate) fn removes(&self, text: &str) -> bool {
        is_override(text)
            && match self {
                Self::Removed => true,
                Self::Kept => false,
                Self::KeptOnly(kept) => !kept.iter().any(|known| **known == *text),
            }
    }
}

/// The lengths of the names that begin with a letter, as a set.
const fn lengths_of(letter: u8) -> u64 {
    let (mut lengths, mut at) = (0, 0);
    while at < NAMES.len() {
        if NAMES[at].as_bytes()[0] == letter {
            lengths |= 1 << NAMES[at].len();
        }
        at += 1;
    }
    lengths
}

/// Whether a name with this first letter, in lower case, and of this length may override the path, the method or the host.
pub(crate) const fn may_override(letter: u8, length: usize) -> bool {
    const X: u64 = lengths_of(b'x');
    const S: u64 = lengths_of(b's');
    const P: u64 = lengths_of(b'p');
    let lengths = match letter {
        b'x' => X,
        b's' => S,
        b'p' => P,
        _ => 0,
    };
    length < 64 && lengths & 1 << length != 0
}

/// Whether a header overrides the path, the method or the host.
pub(crate) fn is_override(name: &str) -> bool {
    may_override(*name.as_bytes().first().unwrap_or(&0), name.len())
        && NAMES.iter().any(|known| reads_as(name, known))
}

/// Whether a server that maps headers to variables (`HTTP_X_HOST`) confuses the two names: it
/// replaces every character that is not a letter or a digit by the same character.
fn reads_as(name: &str, known: &str) -> bool {
    let same = |(one, other): (u8, u8)| one == other || (other == b'-' && !one.is_ascii_alphanumeric());
    name.len() == known.len() && name.bytes().zip(known.bytes()).all(same)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn left(settings: &OverrideHeaders, names: &[&str]) -> Vec<String> {
        let mut headers = HeaderMap::new();
        for name in names {
            headers.append(HeaderName::try_from(*name).unwrap(), HeaderValue::from_static("/x"));
        }
        settings.strip(&mut headers);
        let mut left: Vec<_> = headers.keys().map(ToString::to_string).collect();
        left.sort_unstable();
        left
    }

    #[test]
    fn every_name_is_found_by_its_letter_and_its_length() {
        assert!(NAMES.iter().all(|name| may_override(name.as_bytes()[0], name.len()) && is_override(name)));
        assert!(!may_override(b'x', "x-api-key".len()) && !may_override(b'a', "x-host".len()));
        assert!(!is_override("") && !may_override(b'x', 64));
    }

    #[test]
    fn override_headers_are_removed_in_every_spelling() {
        let names = [
            "X-Original-URL",
            "X_Original_URL",
            "x.rewrite.url",
            "X-HTTP-Method-Override",
            "X-Method_Override",
            "X-Host",
            "SCRIPT_NAME",
            "Script-Name",
            "X-Script-Name",
            "PATH_INFO",
            "X-Hostile",
            "X-Request-Id",
            "Xooriginalourl",
        ];
        let others = ["x-hostile", "x-request-id", "xooriginalourl"];
        assert_eq!(left(&OverrideHeaders::Removed, &names), others);
        assert_eq!(left(&OverrideHeaders::Kept, &names).len(), names.len());
        let only = OverrideHeaders::KeptOnly(vec!["x-http-method-override".into()]);
        assert_eq!(
            left(&only, &names),
            ["x-hostile", "x-http-method-override", "x-request-id", "xooriginalourl"]
        );
    }
}
