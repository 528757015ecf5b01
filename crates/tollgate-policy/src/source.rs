//! The parts of a key: the words of `by`.
//!
//! The lookup of values in a request is in `identify` and `match_request`.

use std::fmt;

use tollgate_document::{Mistake, Synonyms, nearest, short, synonym};

/// One part of a key: a property of a request that identifies callers.
///
/// ```
/// # use tollgate_policy::Policy;
/// let policy = Policy::parse("limits: [{by: [ip, 'header:X-Device'], bucket: 10/minute}]")?;
/// let by: Vec<_> = policy.limits()[0].by().iter().map(ToString::to_string).collect();
/// assert_eq!(by, ["ip", "header:x-device"]);
/// # Ok::<(), tollgate_policy::Diagnostics>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum KeySource {
    /// The client address, cut to the prefix in the `client` section.
    Ip,
    /// The authenticated user.
    User,
    /// The API key.
    ApiKey,
    /// The tenant that a user or API key belongs to.
    Tenant,
    /// No property: all requests share one key.
    Global,
    /// A request header, by its name in lower case.
    Header(Box<str>),
    /// A cookie.
    Cookie(Box<str>),
    /// A parameter of the query string.
    Query(Box<str>),
    /// A `{name}` of the endpoint pattern.
    Path(Box<str>),
    /// A claim of the caller's verified token.
    Claim(Box<str>),
    /// All entries of a descriptor.
    Descriptor,
    /// The value of one entry of a descriptor.
    Entry(Box<str>),
}

const PLAIN_SOURCES: [(&str, KeySource); 6] = [
    ("ip", KeySource::Ip),
    ("user", KeySource::User),
    ("api_key", KeySource::ApiKey),
    ("tenant", KeySource::Tenant),
    ("global", KeySource::Global),
    ("descriptor", KeySource::Descriptor),
];
const NAMED_SOURCES: [&str; 6] = ["header", "cookie", "query", "path", "claim", "descriptor"];
/// Names of key sources in other tools.
const SYNONYMS: Synonyms = &[
    ("ip", &["address", "client", "client_ip", "remote_addr", "remote_address"]),
    ("api_key", &["key", "token"]),
    ("user", &["user_id"]),
    ("tenant", &["account", "org"]),
    ("global", &["everyone", "all"]),
    ("claim:NAME", &["jwt"]),
    ("path:NAME", &["param"]),
];
pub(crate) const WORDS: &str =
    "ip, user, api_key, tenant, global, header:NAME, cookie:NAME, query:NAME, path:NAME or claim:NAME";

impl KeySource {
    /// Returns the name of the path parameter, if the source is one.
    pub(crate) fn path_parameter(&self) -> Option<&str> {
        if let Self::Path(name) = self { Some(name) } else { None }
    }

    /// Whether the source is text that every client can choose: a header, a cookie or a query parameter.
    pub(crate) const fn is_claim(&self) -> bool {
        matches!(self, Self::Header(_) | Self::Cookie(_) | Self::Query(_))
    }

    /// Whether the source is a descriptor or one of its entries.
    pub(crate) const fn is_of_descriptor(&self) -> bool {
        matches!(self, Self::Descriptor | Self::Entry(_))
    }

    pub(crate) fn parse(text: &str) -> Result<Self, Mistake> {
        if let Some((_, source)) = PLAIN_SOURCES.iter().find(|(word, _)| *word == text) {
            return Ok(source.clone());
        }
        let Some((kind, name)) = text.split_once(':') else { return Err(Self::unknown(text)) };
        let name_at = kind.len() + 1..text.len();
        if !NAMED_SOURCES.contains(&kind) {
            let mistake = Mistake::new(format!("unknown key `{}`", short(text))).at(0..kind.len());
            let meant = match kind {
                "jwt" => Some("claim"),
                "param" => Some("path"),
                "entry" | "descriptors" => Some("descriptor"),
                _ => nearest(kind, NAMED_SOURCES),
            };
            let mistake = match meant {
                Some(meant) => mistake.meant(format!("{meant}:{name}")),
                None if PLAIN_SOURCES.iter().any(|(word, _)| *word == kind) => {
                    mistake.label(format!("`{kind}` takes no name"))
                }
                None => mistake,
            };
            return Err(mistake.help(format!("a key is one of {WORDS}")));
        }
        if name.is_empty() || name.len() > 128 || name.trim() != name {
            return Err(Mistake::new(format!("the name of the {kind} is missing"))
                .label(format!("write `{kind}:NAME` without blanks, NAME of at most 128 characters")));
        }
        Ok(match kind {
            "header" => Self::Header(header_name(name).map_err(|mistake| mistake.at(name_at))?),
            "cookie" if !name.bytes().all(is_token) => {
                return Err(Mistake::new("no cookie can have this name")
                    .at(name_at)
                    .label("letters, digits and !#$%&'*+-.^_`|~ only"));
            }
            "cookie" => Self::Cookie(name.into()),
            "query" => Self::Query(name.into()),
            "path" => Self::Path(name.into()),
            "descriptor" => Self::Entry(name.into()),
            _ => Self::Claim(name.into()),
        })
    }

    fn unknown(text: &str) -> Mistake {
        let mistake = Mistake::new(format!("unknown key `{}`", short(text)));
        let lower = text.to_ascii_lowercase();
        if lower.starts_with("x-") && text.bytes().all(is_token) {
            return mistake.meant(format!("header:{text}"));
        }
        let plain = PLAIN_SOURCES.iter().map(|(word, _)| *word);
        let mistake = match synonym(SYNONYMS, text).or_else(|| nearest(text, plain)) {
            Some(meant) => mistake.meant(meant),
            None if NAMED_SOURCES.contains(&lower.as_str()) => {
                mistake.label(format!("the name is missing: write `{lower}:NAME`"))
            }
            None if text.contains('-') && text.bytes().all(is_token) => {
                mistake.meant(format!("header:{text}"))
            }
            None => mistake,
        };
        mistake.help(format!("a key is one of {WORDS}"))
    }
}

/// Parses a header name and converts it to lower case, as requests expect it.
pub(crate) fn header_name(name: &str) -> Result<Box<str>, Mistake> {
    if name.is_empty() || name.len() > 128 || !name.bytes().all(is_token) {
        return Err(Mistake::new(format!("no header can be called `{}`", short(name)))
            .label("letters, digits and !#$%&'*+-.^_`|~ only"));
    }
    Ok(name.to_ascii_lowercase().into())
}

/// Whether a byte may occur in a token (RFC 9110, section 5.6.2).
pub(crate) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip => f.write_str("ip"),
            Self::User => f.write_str("user"),
            Self::ApiKey => f.write_str("api_key"),
            Self::Tenant => f.write_str("tenant"),
            Self::Global => f.write_str("global"),
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Cookie(name) => write!(f, "cookie:{name}"),
            Self::Query(name) => write!(f, "query:{name}"),
            Self::Path(name) => write!(f, "path:{name}"),
            Self::Claim(name) => write!(f, "claim:{name}"),
            Self::Descriptor => f.write_str("descriptor"),
            Self::Entry(name) => write!(f, "descriptor:{name}"),
        }
    }
}
