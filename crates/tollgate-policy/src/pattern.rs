//! Endpoint and host patterns of the policy file.
//!
//! `matcher` matches many patterns in one pass.

use std::fmt;
use std::net::Ipv6Addr;

use tollgate_document::{Mistake, short};

use crate::path;

/// The maximum number of segments of a pattern. It bounds the recursion of the matcher.
pub(crate) const MAX_SEGMENTS: usize = 64;

/// The paths that an endpoint covers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PathPattern {
    text: Box<str>,
    pub(crate) segments: Vec<Segment>,
    /// Whether the pattern ends in `/**`.
    pub(crate) tail: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Segment {
    /// This segment, in normal form.
    Literal(Box<str>),
    /// Any one segment: `*`, or `{name}`.
    One(Option<Box<str>>),
}

impl PathPattern {
    /// Returns `/**`.
    pub(crate) fn everything() -> Self {
        Self { text: "/**".into(), segments: Vec::new(), tail: true }
    }

    pub(crate) fn parse(text: &str) -> Result<Self, Mistake> {
        if matches!(text, "*" | "**" | "/*" | "all" | "any") && text != "/*" {
            return Err(Mistake::new(format!("`{text}` is not an endpoint")).meant("/**"));
        }
        if let Some((_, rest)) = text.split_once("://") {
            let meant = rest.find('/').map_or("/**", |at| &rest[at..]);
            return Err(Mistake::new("an endpoint is a path, without scheme and host")
                .meant(meant)
                .help("`host: example.com` limits by host"));
        }
        if let Some(at) = text.find(['?', '#']) {
            return Err(Mistake::new("an endpoint is a path, without a query")
                .at(at..text.len())
                .label("remove this")
                .help("`by: query:NAME` counts by a parameter"));
        }
        if let Some((method, path)) = text.split_once(' ')
            && method.bytes().all(|byte| byte.is_ascii_uppercase())
        {
            return Err(Mistake::new("the method has its own line")
                .at(0..method.len())
                .label(format!("write `endpoint: {}` and `method: {method}`", path.trim())));
        }
        if let Some(at) = text.find(|it: char| it.is_whitespace() || it.is_control()) {
            let several = text.split([',', ' ', '\n']).filter(|it| it.starts_with('/')).collect::<Vec<_>>();
            let mistake = Mistake::new("an endpoint has no blanks").at(at..at + 1);
            return Err(if several.len() > 1 {
                mistake
                    .label("several endpoints are a list")
                    .help(format!("endpoint: [{}]", several.join(", ")))
            } else {
                mistake.label("remove this").help("a blank in a path is written `%20`")
            });
        }
        if let Some(at) = text.find(['|', '\\', '^']).or_else(|| text.find(".+")).or_else(|| text.find(".*"))
        {
            return Err(Mistake::new("an endpoint is not a regular expression")
                .at(at..at + 1)
                .label("this would be taken literally")
                .help("`*` or `{name}` stands for one segment, `/**` at the end for all below; several endpoints are a list"));
        }
        if !text.starts_with('/') {
            return Err(Mistake::new("an endpoint begins with `/`").meant(format!("/{text}")));
        }
        let mut pattern = Self { text: text.into(), segments: Vec::new(), tail: false };
        let mut at = 1;
        for written in text[1..].split('/') {
            pattern.segment(written, at)?;
            at += written.len() + 1;
        }
        if pattern.segments.len() > MAX_SEGMENTS {
            return Err(Mistake::new(format!("an endpoint has at most {MAX_SEGMENTS} segments")));
        }
        Ok(pattern)
    }

    fn segment(&mut self, written: &str, at: usize) -> Result<(), Mistake> {
        let here = at..at + written.len();
        if self.tail && !written.is_empty() {
            return Err(Mistake::new("`**` is allowed only at the end of an endpoint")
                .at(here)
                .label("nothing can follow it")
                .help("`*` or `{name}` stands for one segment in the middle"));
        }
        match written {
            "" | "." => {}
            ".." => return Err(Mistake::new("an endpoint cannot contain `..`").at(here)),
            "**" => self.tail = true,
            "*" => self.segments.push(Segment::One(None)),
            _ if written.starts_with('{') && written.ends_with('}') => {
                let name = &written[1..written.len() - 1];
                if name.is_empty()
                    || !name.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'_' || it == b'-')
                {
                    return Err(Mistake::new(format!("`{}` is not a parameter", short(written)))
                        .at(here)
                        .label("letters, digits, `_` and `-` between the braces")
                        .help("`/**` at the end matches everything below"));
                }
                if self.names().any(|known| known == name) {
                    return Err(Mistake::new(format!("`{{{name}}}` occurs twice in one endpoint"))
                        .at(here)
                        .label("give it another name"));
                }
                self.segments.push(Segment::One(Some(name.into())));
            }
            _ if written.starts_with([':', '<']) => {
                let name = written.trim_matches([':', '<', '>']);
                return Err(Mistake::new(format!("`{}` is not a parameter", short(written)))
                    .at(here)
                    .meant(format!("{{{name}}}")));
            }
            _ if written.contains(['*', '{', '}']) => {
                return Err(Mistake::new("a wildcard stands for a whole segment")
                    .at(here)
                    .label("write `*` or `{name}` for it")
                    .help("part of a segment cannot be matched"));
            }
            _ => {
                let literal = path::normal(written);
                self.segments.push(Segment::Literal(literal.trim_start_matches('/').into()));
            }
        }
        Ok(())
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.segments.iter().filter_map(|segment| match segment {
            Segment::One(name) => name.as_deref(),
            Segment::Literal(_) => None,
        })
    }

    /// Returns the index of the segment `{name}`.
    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        self.segments.iter().position(|segment| matches!(segment, Segment::One(Some(it)) if &**it == name))
    }

    /// Whether the pattern covers one reading of a path. A trailing slash is ignored.
    pub(crate) fn covers(&self, path: &str) -> bool {
        let mut rest = path::segments(path.strip_suffix('/').unwrap_or(path));
        let fits = |wanted: &Segment, found: &str| match wanted {
            Segment::Literal(text) => **text == *found,
            Segment::One(_) => !found.is_empty(),
        };
        self.segments.iter().all(|wanted| rest.next().is_some_and(|found| fits(wanted, found)))
            && (self.tail || rest.next().is_none())
    }

    /// Whether the pattern covers every path that another pattern covers.
    pub(crate) fn covers_all_of(&self, inner: &Self) -> bool {
        let fits = |(wide, narrow): (&Segment, &Segment)| match (wide, narrow) {
            (Segment::One(_), _) => true,
            (Segment::Literal(wide), Segment::Literal(narrow)) => wide == narrow,
            (Segment::Literal(_), Segment::One(_)) => false,
        };
        let (wide, narrow) = (self.segments.len(), inner.segments.len());
        let long_enough = if self.tail { narrow >= wide } else { narrow == wide && !inner.tail };
        long_enough && self.segments.iter().zip(&inner.segments).all(fits)
    }

    /// Folds the case of the pattern, for servers that ignore case.
    pub(crate) fn fold_case(&mut self) {
        for segment in &mut self.segments {
            if let Segment::Literal(text) = segment {
                *text = path::fold(text).into();
            }
        }
    }

    /// Returns words for a derived name: `users-id`.
    pub(crate) fn words(&self) -> impl Iterator<Item = &str> {
        let segments = self.segments.iter().map(|segment| match segment {
            Segment::Literal(text) => &**text,
            Segment::One(Some(name)) => name,
            Segment::One(None) => "any",
        });
        let end = match (self.segments.is_empty(), self.tail) {
            (true, true) => Some("everything"),
            (true, false) => Some("root"),
            (false, true) => Some("all"),
            (false, false) => None,
        };
        segments.chain(end)
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The hosts that a limit covers, in lower case and without a port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HostPattern {
    /// This host.
    Exact(Box<str>),
    /// Every host below this one: `*.example.com`, not `example.com` itself.
    Below(Box<str>),
}

impl HostPattern {
    pub(crate) fn parse(text: &str) -> Result<Self, Mistake> {
        if let Some((_, rest)) = text.split_once("://") {
            let meant = rest.split('/').next().unwrap_or("");
            return Err(Mistake::new("a host has no scheme").meant(meant));
        }
        let bare = without_port(text);
        if bare.len() != text.len() {
            return Err(Mistake::new("a limit ignores ports")
                .at(bare.len()..text.len())
                .label(format!("write `{bare}`")));
        }
        let (below, host) = match text.strip_prefix("*.") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        if host.contains(':') && !host.starts_with('[') {
            return Err(Mistake::new("an IPv6 address needs brackets").meant(format!("[{host}]")));
        }
        let fits = |byte: u8| {
            byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b'[' | b']' | b':')
        };
        if host.is_empty() || host.len() > 253 || !host.bytes().all(fits) {
            return Err(Mistake::new(format!("`{}` is not a host", short(text)))
                .label("a name such as `api.example.com`, or `*.example.com`")
                .help("`*` is allowed only at the front, for one or more labels; other scripts are written as xn--..."));
        }
        Ok(if below { Self::Below(host.into()) } else { Self::Exact(host.into()) })
    }

    /// Whether the pattern covers the host of a request, in any case, with or without a port.
    pub(crate) fn covers(&self, host: &str) -> bool {
        let host = without_port(host.trim()).trim_end_matches('.');
        match self {
            Self::Exact(known) => known.eq_ignore_ascii_case(host),
            Self::Below(parent) => {
                let below = host.len().checked_sub(parent.len()).filter(|&at| at > 1);
                let below = below.and_then(|at| Some((host.get(..at)?, host.get(at..)?)));
                below.is_some_and(|(label, end)| label.ends_with('.') && parent.eq_ignore_ascii_case(end))
            }
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(host) => f.write_str(host),
            Self::Below(host) => write!(f, "*.{host}"),
        }
    }
}

/// Removes the port: `example.com` of `example.com:8080`, `[::1]` of `[::1]:80`. An address without
/// brackets has no port. Any other text after the colon is removed too, because some servers
/// ignore it.
///
/// ```
/// # use tollgate_policy::without_port;
/// assert_eq!(without_port("example.com:8080"), "example.com");
/// assert_eq!(without_port("example.com:80:x"), "example.com");
/// assert_eq!(without_port("[::1]:80"), "[::1]");
/// assert_eq!(without_port("::1"), "::1");
/// ```
pub fn without_port(host: &str) -> &str {
    if let (true, Some(end)) = (host.starts_with('['), host.find(']')) {
        return &host[..=end];
    }
    match host.find(':') {
        Some(at) if host.parse::<Ipv6Addr>().is_err() => &host[..at],
        _ => host,
    }
}
