//! Keys as those who read answers and logs may see them.
//!
//! The policy's `privacy` says how much of a key is shown. What opens doors is
//! never shown whole, whatever it says: API keys, cookies, and the headers that
//! carry either.
//!
//! Not here: the secret that hashes are keyed with, which the caller brings.

use std::hash::BuildHasher;

use crate::identify::Credential;
use crate::key::{Key, joint, show_part, tag};
use crate::limit::Limit;
use crate::policy::Policy;
use crate::settings::KeyPrivacy;
use crate::source::KeySource;

/// How much of a secret is shown: enough to recognise one's own.
const SHOWN: usize = 4;
/// How much of a key is shown to people, in bytes, but for a last part that passes it.
const MOST_SHOWN: usize = 256;
/// Headers that open doors, whoever reads them.
const SECRET_HEADERS: [&str; 4] = ["authorization", "proxy-authorization", "cookie", "x-api-key"];
/// What stands in the names of entries that open doors, without what joins words.
const SECRET_WORDS: [&str; 6] = ["apikey", "token", "authorization", "cookie", "password", "secret"];

impl Policy {
    /// A key as the policy's `privacy` lets it be seen. `secret` keys the hash,
    /// where hashes are shown: the same secret shows the same key as the same text.
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
        if self.privacy == KeyPrivacy::Hashed {
            return format!("hash:{:016x}", secret.hash_one(key.as_bytes()));
        }
        let mut shown = String::with_capacity(48);
        let mut before: Option<(u8, &[u8])> = None;
        for (index, (tag, bytes)) in key.parts().enumerate() {
            if shown.len() >= MOST_SHOWN {
                shown.push_str("...");
                break;
            }
            shown.push_str(joint(before.map(|(tag, _)| tag)));
            // The word of an entry names nobody: its value does.
            let word = before.replace((tag, bytes)).filter(|(tag, _)| is_word(*tag));
            let is_name = is_word(tag) || matches!(tag, tag::GLOBAL | tag::SHARED | tag::UNKNOWN);
            let is_address = matches!(tag, tag::IP | tag::INSTEAD);
            let is_secret = !is_address
                && match word {
                    Some((_, word)) => is_secret_word(word),
                    None => limit.by.get(index).is_some_and(|source| self.is_secret(source)),
                };
            let start = shown.len();
            if bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.@:".contains(byte))
                && tag.is_ascii_lowercase()
                && !is_name
                && !is_address
            {
                shown.extend(bytes.iter().map(|&byte| char::from(byte)));
            } else {
                // Writing to memory does not fail.
                let _never = show_part(tag, bytes, &mut shown);
            }
            if !is_name && (is_secret || self.privacy == KeyPrivacy::Truncated) {
                cut(&mut shown, start);
            }
        }
        shown
    }

    /// Whether whoever has the value has what it stands for.
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

/// Whether the entry of a descriptor with this word opens doors: nobody but the proxy's own
/// file says what it is, so its name has to do.
pub(crate) fn is_secret_word(word: &[u8]) -> bool {
    let plain: String =
        word.iter().filter(|byte| byte.is_ascii_alphanumeric()).map(|byte| char::from(*byte)).collect();
    let plain = plain.to_ascii_lowercase();
    SECRET_WORDS.iter().any(|secret| plain.contains(secret))
}

/// Leaves the first characters of the last part; none of one that has no more.
fn cut(shown: &mut String, start: usize) {
    let rest = begun(&shown[start..]);
    shown.truncate(start);
    shown.push_str(&rest);
}

/// The first characters of a text; none of one that has no more.
pub(crate) fn begun(text: &str) -> String {
    let keep = text.char_indices().nth(SHOWN).map_or(0, |(at, _)| at);
    format!("{}…", &text[..keep])
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
    fn what_opens_doors_is_never_shown_whole() {
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
    fn a_hash_tells_keys_apart_and_nothing_else() {
        let policy = Policy::parse("privacy: {keys: hashed}\nlimits: [{by: user, bucket: 1/s}]").unwrap();
        let limit = &policy.limits()[0];
        let secret = RandomState::new();
        let shown = |user| policy.show_key(limit, &policy.key(limit, &[user]).unwrap(), &secret);
        assert_eq!(shown("annabel"), shown("annabel"));
        assert_ne!(shown("annabel"), shown("annabell"));
        assert!(!shown("annabel").contains("ann"));
    }
}
