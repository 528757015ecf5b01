//! Headers by which a request asks to be taken for another one.
//!
//! Frameworks let `X-Original-URL` replace the path, `X-HTTP-Method-Override` the method and
//! `X-Host` the host. Limits went by what the request line says, so such a header would lead
//! past them. They are removed before a request is counted, unless the settings keep them.
//!
//! `X-Forwarded-*` is not here: which of those are believed is decided by who sends them (`head`).

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
    // The host.
    "x-original-host",
    "x-rewrite-host",
    "x-http-host-override",
    "x-host-override",
    "x-host",
];

/// Which of these headers are passed on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum OverrideHeaders {
    /// None of them.
    #[default]
    Removed,
    /// All of them.
    Kept,
    /// Those of these names, in lower case.
    KeptOnly(Vec<Box<str>>),
}

impl OverrideHeaders {
    /// Removes the headers that are not passed on.
    pub(crate) fn strip(&self, headers: &mut HeaderMap) {
        // Most requests have none of them: look before collecting.
        if *self == Self::Kept || !headers.keys().any(|it| self.removes(it)) {
            return;
        }
        let found: SmallVec<[HeaderName; 4]> =
            headers.keys().filter(|it| self.removes(it)).cloned().collect();
        for name in found {
            headers.remove(name);
        }
    }

    fn removes(&self, name: &HeaderName) -> bool {
        let text = name.as_str();
        is_override(text)
            && match self {
                Self::Removed => true,
                Self::Kept => false,
                Self::KeptOnly(kept) => !kept.iter().any(|known| **known == *text),
            }
    }
}

/// Whether a header asks for the request to be taken for another one.
pub(crate) fn is_override(name: &str) -> bool {
    name.starts_with(['x', 's', 'p']) && NAMES.iter().any(|known| reads_as(name, known))
}

/// Whether a server that keeps headers in variables (`HTTP_X_HOST`) takes one for the other: all
/// that is no letter and no digit is one character there.
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
    fn headers_that_override_path_method_or_host_are_removed_however_they_are_written() {
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
