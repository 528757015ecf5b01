//! Redacts keys in responses and logs.
//!
//! The `privacy` section of the policy selects how much of a key is shown. Credentials are
//! never shown in full, regardless of that section: API keys, cookies, and the headers that
//! carry either. A redacted key is identified by its tag ([`Policy::key_tag`]): a keyed hash,
//! so a reader without the secret can neither find the key of a tag nor check a guess.
//!
//! The caller provides the secret of the hashes.

use std::fmt::Write as _;
use std::hash::{BuildHasher, Hasher as _};
use std::net::IpAddr;

use smallvec::SmallVec;

use crate::identify::Credential;
use crate::key::{Key, joint, show_part, tag};
use crate::key_display::ShownPart;
use crate::limit::Limit;
use crate::net::Net;
use crate::policy::Policy;
use crate::settings::KeyPrivacy;
use crate::source::KeySource;

/// The number of bytes of a key after which no further part is shown.
const MAX_SHOWN_BYTES: usize = 256;
/// Headers that carry credentials.
const SECRET_HEADERS: [&str; 4] = ["authorization", "proxy-authorization", "cookie", "x-api-key"];
/// Substrings of entry names that indicate credentials, without separators of words.
const SECRET_WORDS: [&str; 6] = ["apikey", "token", "authorization", "cookie", "password", "secret"];

/// One part of a key, and how it is shown.
struct PartView<'k> {
    tag: u8,
    bytes: &'k [u8],
    /// The text between this part and the one before it.
    joint: &'static str,
    /// The part is a word of the policy or the proxy, not the identity of a caller.
    is_name: bool,
    /// Only some characters may be shown, or none.
    is_redacted: bool,
}

/// The bytes that are shown as they are.
const PLAIN: [bool; 256] = {
    let (mut plain, mut byte) = ([false; 256], 0u8);
    while byte < 128 {
        plain[byte as usize] =
            byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'@' | b':');
        byte += 1;
    }
    plain
};

impl PartView<'_> {
    /// Appends the full text of the part.
    fn push_text(&self, out: &mut String) {
        let is_text = self.tag.is_ascii_lowercase() && !self.is_name && self.tag != tag::IP;
        if is_text
            && self.bytes.iter().all(|byte| PLAIN[usize::from(*byte)])
            && let Ok(text) = std::str::from_utf8(self.bytes)
        {
            out.push_str(text);
        } else {
            // Writing to a string does not fail.
            let _never = show_part(self.tag, self.bytes, out);
        }
    }
}

impl Policy {
    /// Formats a key according to the `privacy` section. `secret` keys the hash,
    /// where hashes are shown: equal secrets show equal keys as equal text.
    ///
    /// ```
    /// # use tollgate_policy::Policy;
    /// let policy = Policy::parse("limits: [{by: [user, api_key], bucket: 10/minute}]")?;
    /// let limit = &policy.limits()[0];
    /// let key = policy.key(limit, &["ann", "sk-live-51HzQ"]).expect("a user and a key");
    /// let secret = std::hash::RandomState::new();
    /// assert_eq!(policy.show_key(limit, &key, &secret), "ann, sk-l…");
    /// # Ok::<(), tollgate_policy::Diagnostics>(())
    /// ```
    pub fn show_key(&self, limit: &Limit, key: &Key, secret: &impl BuildHasher) -> String {
        let mut shown = String::with_capacity(48);
        self.show_key_to(limit, key, secret, &mut shown);
        shown
    }

    /// Appends a key to a text as [`show_key`](Self::show_key) formats it. Allocates nothing if the text has room and
    /// the key has no label.
    pub fn show_key_to(&self, limit: &Limit, key: &Key, secret: &impl BuildHasher, shown: &mut String) {
        let first = shown.len();
        if self.key_display.privacy == KeyPrivacy::Hashed {
            // Writing to a string does not fail.
            let _never = write!(shown, "hash:{:016x}", self.key_tag(limit, key, secret));
            return self.add_labels(limit, key, first, shown);
        }
        for part in self.part_views(limit, key) {
            if shown.len() - first >= MAX_SHOWN_BYTES {
                shown.push_str("...");
                break;
            }
            shown.push_str(part.joint);
            let start = shown.len();
            part.push_text(shown);
            let label = self.key_display.label(&shown[start..]);
            if part.is_redacted {
                self.key_display.part.redact(shown, start);
            }
            if let Some(label) = label {
                shown.insert_str(start, &format!("{label} ("));
                shown.push(')');
            }
        }
    }

    /// Returns the tag of a key: a keyed hash of the parts that are not shown in full.
    ///
    /// Equal values have equal tags under every limit, regardless of other parts, so a
    /// reader recognizes a caller without seeing its key. For a key that is shown in
    /// full, the tag covers all parts.
    ///
    /// ```
    /// # use tollgate_policy::Policy;
    /// let policy = Policy::parse(
    ///     "limits: [{name: a, by: api_key, bucket: 9/s}, {name: b, by: [ip, api_key], bucket: 9/h}]",
    /// )?;
    /// let [a, b] = [&policy.limits()[0], &policy.limits()[1]];
    /// let secret = std::hash::RandomState::new();
    /// let tag = |limit, values: &[&str]| {
    ///     policy.key(limit, values).map(|key| policy.key_tag(limit, &key, &secret))
    /// };
    /// assert_eq!(tag(a, &["sk-live-51HzQ"]), tag(b, &["203.0.113.9", "sk-live-51HzQ"]));
    /// assert_ne!(tag(a, &["sk-live-51HzQ"]), tag(a, &["sk-live-52HzQ"]));
    /// # Ok::<(), tollgate_policy::Diagnostics>(())
    /// ```
    pub fn key_tag(&self, limit: &Limit, key: &Key, secret: &impl BuildHasher) -> u64 {
        let stands_for_all = self.key_display.privacy == KeyPrivacy::Hashed
            || !self.part_views(limit, key).any(|part| part.is_redacted);
        let parts = self.part_views(limit, key).filter(|part| stands_for_all || part.is_redacted);
        hash_values(parts.map(|part| part.bytes), secret)
    }

    /// Returns the tag of a client address, as for the key of a limit by address.
    pub fn address_tag(&self, address: IpAddr, secret: &impl BuildHasher) -> u64 {
        let address = address.to_canonical();
        let prefix = if address.is_ipv4() { self.client.ipv4_prefix } else { self.client.ipv6_prefix };
        match Net::around(address, prefix).address() {
            IpAddr::V4(net) => hash_values([&net.octets()[..]], secret),
            IpAddr::V6(net) => hash_values([&net.octets()[..]], secret),
        }
    }

    fn part_views<'k>(&self, limit: &Limit, key: &'k Key) -> impl Iterator<Item = PartView<'k>> {
        let mut before: Option<(u8, &[u8])> = None;
        key.parts().enumerate().map(move |(index, (tag, bytes))| {
            let joint = joint(before.map(|(tag, _)| tag));
            // The word of an entry identifies no caller: its value does.
            let word = before.replace((tag, bytes)).filter(|(tag, _)| is_word(*tag));
            let is_name = is_word(tag) || matches!(tag, tag::GLOBAL | tag::SHARED | tag::UNKNOWN);
            let is_address = matches!(tag, tag::IP | tag::INSTEAD);
            let is_secret = !is_address
                && match word {
                    Some((_, word)) => is_secret_word(word),
                    None => limit.by.get(index).is_some_and(|source| self.is_secret(source)),
                };
            let is_redacted = !is_name && (is_secret || self.key_display.privacy == KeyPrivacy::Truncated);
            PartView { tag, bytes, joint, is_name, is_redacted }
        })
    }

    /// Adds the labels of the key's parts in front of the text from `start` on, if there are any.
    fn add_labels(&self, limit: &Limit, key: &Key, start: usize, shown: &mut String) {
        if !self.key_display.has_labels() {
            return;
        }
        let labels = self.part_views(limit, key).filter_map(|part| {
            let mut text = String::new();
            part.push_text(&mut text);
            self.key_display.label(&text)
        });
        let labels: Vec<_> = labels.collect();
        if !labels.is_empty() {
            shown.insert_str(start, &format!("{} (", labels.join(", ")));
            shown.push(')');
        }
    }

    /// Whether the value of the source is a credential.
    fn is_secret(&self, source: &KeySource) -> bool {
        let holds_key = || {
            let is_it = |place: &Credential| matches!(place, Credential::Named(known) if known == source);
            self.identify.api_key.iter().any(is_it)
        };
        match source {
            KeySource::ApiKey | KeySource::Cookie(_) => true,
            KeySource::Header(name) => SECRET_HEADERS.contains(&&**name) || holds_key(),
            KeySource::Query(_) | KeySource::Claim(_) => holds_key(),
            KeySource::Entry(name) => is_secret_word(name.as_bytes()),
            KeySource::Ip
            | KeySource::User
            | KeySource::Tenant
            | KeySource::Global
            | KeySource::Path(_)
            | KeySource::Descriptor => false,
        }
    }
}

const fn is_word(tag: u8) -> bool {
    tag.eq_ignore_ascii_case(&tag::WORD)
}

/// Whether the name of a descriptor entry suggests a credential. The configuration of the proxy,
/// which defines the entry, is not known here.
pub(crate) fn is_secret_word(word: &[u8]) -> bool {
    let letters = word.iter().filter(|byte| byte.is_ascii_alphanumeric());
    let plain: SmallVec<[u8; 64]> = letters.map(u8::to_ascii_lowercase).collect();
    SECRET_WORDS.iter().any(|secret| plain.windows(secret.len()).any(|part| part == secret.as_bytes()))
}

/// Hashes a list of values; the lengths make the encoding unambiguous.
fn hash_values<'v>(values: impl IntoIterator<Item = &'v [u8]>, secret: &impl BuildHasher) -> u64 {
    let mut hasher = secret.build_hasher();
    for value in values {
        hasher.write_u64(value.len() as u64);
        hasher.write(value);
    }
    hasher.finish()
}

/// Returns the first characters of a text, or nothing of a text that has no more.
pub(crate) fn begun(text: &str) -> String {
    ShownPart::Prefix.of(text)
}

#[cfg(test)]
mod tests {
    use std::hash::RandomState;

    use super::*;

    #[track_caller]
    fn check(policy: &str, values: &[&str], expected: &str) {
        let policy = Policy::parse(policy).unwrap();
        let limit = &policy.limits()[0];
        let key = policy.key(limit, values).unwrap();
        assert_eq!(policy.show_key(limit, &key, &RandomState::new()), expected, "{values:?}");
    }

    #[test]
    fn credentials_are_never_shown_in_full() {
        check("limits: [{by: api_key, bucket: 1/s}]", &["sk-live-51HzQ"], "sk-l…");
        check("limits: [{by: api_key, bucket: 1/s}]", &["abcd"], "…");
        check("limits: [{by: 'cookie:sid', bucket: 1/s}]", &["s3cr3t-cookie"], "s3cr…");
        check("limits: [{by: 'header:X-Api-Key', bucket: 1/s}]", &["sk-live-51HzQ"], "sk-l…");
        check(
            "identify: {api_key: ['query:token']}\nlimits: [{by: 'query:token', bucket: 1/s}]",
            &["sk-live-51HzQ"],
            "sk-l…",
        );
        check("limits: [{by: [user, api_key], bucket: 1/s}]", &["ann smith", "…ééé€ab"], "ann smith, …ééé…");
    }

    #[test]
    fn names_and_addresses_are_shown_unless_privacy_says_otherwise() {
        check("limits: [{by: ip, bucket: 1/s}]", &["203.0.113.9"], "203.0.113.9");
        check("limits: [{by: user, bucket: 1/s}]", &["a\nb"], "a\\nb");
        check("limits: [{by: global, bucket: 1/s}]", &[], "everyone");
        check("privacy: {keys: truncated}\nlimits: [{by: user, bucket: 1/s}]", &["annabel"], "anna…");
        check("privacy: {keys: truncated}\nlimits: [{by: global, bucket: 1/s}]", &[], "everyone");
    }

    #[test]
    fn a_suffix_is_shown_on_request_and_never_half_of_a_secret() {
        let by = |part: &str| format!("privacy: {{show: {part}}}\nlimits: [{{by: api_key, bucket: 1/s}}]");
        check(&by("suffix"), &["sk-live-51HzQ9f3a"], "…9f3a");
        check(&by("both"), &["sk-live-51HzQ9f3a"], "sk-l…9f3a");
        check(&by("prefix"), &["sk-live-51HzQ9f3a"], "sk-l…");
        check(&by("suffix"), &["12345678"], "…");
        check(&by("both"), &["12345678"], "1234…");
        check(&by("both"), &["1234"], "…");
        check(&by("both"), &["ééééééééé"], "éééé…");
    }

    #[test]
    fn a_label_stands_before_the_key_that_it_names() {
        let labels = "labels: {sk-live-51HzQ: Acme, 203.0.113.9: the office}";
        let policy = |keys: &str, by: &str| {
            format!("privacy: {{keys: {keys}, {labels}}}\nlimits: [{{by: {by}, bucket: 1/s}}]")
        };
        check(&policy("plain", "api_key"), &["sk-live-51HzQ"], "Acme (sk-l…)");
        check(&policy("plain", "api_key"), &["sk-live-other"], "sk-l…");
        check(&policy("plain", "ip"), &["203.0.113.9"], "the office (203.0.113.9)");
        check(
            &policy("truncated", "[ip, api_key]"),
            &["203.0.113.9", "sk-live-51HzQ"],
            "the office (203.…), Acme (sk-l…)",
        );
        let policy = Policy::parse(&policy("hashed", "api_key")).unwrap();
        let key = policy.key(&policy.limits()[0], &["sk-live-51HzQ"]).unwrap();
        let shown = policy.show_key(&policy.limits()[0], &key, &RandomState::new());
        assert!(shown.starts_with("Acme (hash:") && shown.len() == 28, "{shown}");
    }

    #[test]
    fn one_caller_has_one_tag_under_every_limit_that_hides_it() {
        let policy = Policy::parse(
            "limits:
               - {name: a, by: api_key, bucket: 1/s}
               - {name: b, by: api_key, rate: 9/day, algorithm: sliding-log}
               - {name: c, by: [ip, api_key], bucket: 1/s}
               - {name: d, by: 'header:x-api-key', bucket: 1/s}",
        )
        .unwrap();
        let secret = RandomState::new();
        let tag = |limit: usize, values: &[&str]| {
            let limit = &policy.limits()[limit];
            policy.key_tag(limit, &policy.key(limit, values).unwrap(), &secret)
        };
        let ann = tag(0, &["sk-live-51HzQ"]);
        assert_eq!(tag(1, &["sk-live-51HzQ"]), ann);
        assert_eq!(tag(2, &["203.0.113.9", "sk-live-51HzQ"]), ann, "the address is shown, the key is not");
        assert_eq!(tag(3, &["sk-live-51HzQ"]), ann);
        assert_ne!(tag(0, &["sk-live-51HzR"]), ann);
        let other = RandomState::new();
        let key = policy.key(&policy.limits()[0], &["sk-live-51HzQ"]).unwrap();
        assert_ne!(policy.key_tag(&policy.limits()[0], &key, &other), ann, "it is keyed");
    }

    #[test]
    fn a_hash_only_distinguishes_keys() {
        let policy = Policy::parse("privacy: {keys: hashed}\nlimits: [{by: user, bucket: 1/s}]").unwrap();
        let limit = &policy.limits()[0];
        let secret = RandomState::new();
        let shown = |user| policy.show_key(limit, &policy.key(limit, &[user]).unwrap(), &secret);
        assert_eq!(shown("annabel"), shown("annabel"));
        assert_ne!(shown("annabel"), shown("annabell"));
        assert!(!shown("annabel").contains("ann"));
    }
}
