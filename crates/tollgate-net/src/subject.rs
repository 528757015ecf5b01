//! The name in a certificate for humans: its common name, or else its first alternative name.
//!
//! It is read only from verified certificates. Lengths are still checked: a malformed certificate
//! has no name.
//!
//! Not here: whether a certificate is trusted (`tls`).

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OCTETS: u8 = 0x04;
const OBJECT: u8 = 0x06;
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
/// 2.5.4.3
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
/// 2.5.29.17
const ALTERNATIVE_NAMES: &[u8] = &[0x55, 0x1d, 0x11];
/// The tags of mail, host and URI among the alternative names; all are text.
const NAME_TAGS: [u8; 3] = [0x81, 0x82, 0x86];

/// The maximum length of a name; longer names are truncated.
const MAX_NAME_CHARS: usize = 100;

/// Returns the name in a DER certificate. It is printable and not empty.
pub(crate) fn subject(certificate: &[u8]) -> Option<String> {
    let mut outer = Reader(certificate);
    let mut certificate = Reader(outer.expect(SEQUENCE)?);
    let mut fields = Reader(certificate.expect(SEQUENCE)?);
    if fields.0.first() == Some(&VERSION) {
        fields.next()?;
    }
    // Serial number, algorithm, issuer, validity.
    for _ in 0..4 {
        fields.next()?;
    }
    let subject = fields.expect(SEQUENCE)?;
    common_name(subject).or_else(|| alternative_name(fields))
}

fn common_name(subject: &[u8]) -> Option<String> {
    let mut sets = Reader(subject);
    while let Some(set) = sets.expect(SET) {
        let mut attributes = Reader(set);
        while let Some(attribute) = attributes.expect(SEQUENCE) {
            let mut attribute = Reader(attribute);
            if attribute.expect(OBJECT)? == COMMON_NAME {
                return readable(attribute.next()?.1);
            }
        }
    }
    None
}

fn alternative_name(mut fields: Reader<'_>) -> Option<String> {
    let extensions = fields.find(EXTENSIONS)?;
    let mut extensions = Reader(Reader(extensions).expect(SEQUENCE)?);
    while let Some(extension) = extensions.expect(SEQUENCE) {
        let mut extension = Reader(extension);
        if extension.expect(OBJECT)? != ALTERNATIVE_NAMES {
            continue;
        }
        let mut names = Reader(Reader(extension.find(OCTETS)?).expect(SEQUENCE)?);
        while let Some((kind, name)) = names.next() {
            if NAME_TAGS.contains(&kind) {
                return readable(name);
            }
        }
    }
    None
}

/// Converts a name to one printable line and truncates it.
fn readable(name: &[u8]) -> Option<String> {
    let name = String::from_utf8_lossy(name);
    let is_text = |char: &char| char.is_ascii_graphic() || *char == ' ' || char.is_alphanumeric();
    let name: String = name.chars().filter(is_text).take(MAX_NAME_CHARS).collect();
    let name = name.trim();
    (!name.is_empty()).then(|| name.to_owned())
}

/// Reads consecutive DER values.
#[derive(Clone, Copy)]
struct Reader<'d>(&'d [u8]);

impl<'d> Reader<'d> {
    /// Returns the tag and the content of the next value.
    fn next(&mut self) -> Option<(u8, &'d [u8])> {
        let (&[kind, first], rest) = self.0.split_first_chunk()?;
        let (length, rest) = match first {
            0..=0x7f => (usize::from(first), rest),
            // Up to four length bytes.
            0x81..=0x84 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(first - 0x80))?;
                let length = bytes.iter().fold(0_usize, |length, byte| (length << 8) | usize::from(*byte));
                (length, rest)
            }
            _ => return None,
        };
        let (value, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((kind, value))
    }

    /// Returns the content of the next value if it has this tag.
    fn expect(&mut self, kind: u8) -> Option<&'d [u8]> {
        self.next().filter(|(found, _)| *found == kind).map(|(_, value)| value)
    }

    /// Returns the content of the first value with this tag.
    fn find(&mut self, kind: u8) -> Option<&'d [u8]> {
        loop {
            let (found, value) = self.next()?;
            if found == kind {
                return Some(value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

    fn certificate(common: Option<&str>, alternative: &[&str]) -> Vec<u8> {
        let names: Vec<_> = alternative.iter().map(|it| (*it).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "Example");
        if let Some(common) = common {
            params.distinguished_name.push(DnType::CommonName, common);
        }
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn the_name_is_the_common_name_or_the_first_alternative_name() {
        let named = |common, other: &[&str]| subject(&certificate(common, other));
        assert_eq!(named(Some("Ann Example"), &["ann.test"]).as_deref(), Some("Ann Example"));
        assert_eq!(named(None, &["192.0.2.1", "ann.test", "b.test"]).as_deref(), Some("ann.test"));
        assert_eq!(named(None, &[]), None);
        assert_eq!(named(Some("a\u{1b}[2J\r\n\u{202e}b"), &[]).as_deref(), Some("a[2Jb"));
        assert_eq!(named(Some(&"é".repeat(500)), &[]).map(|it| it.chars().count()), Some(MAX_NAME_CHARS));
    }

    #[test]
    fn damaged_certificates_have_no_name_and_do_not_panic() {
        let whole = certificate(Some("ann"), &["ann.test"]);
        for end in 0..whole.len() {
            assert_eq!(subject(&whole[..end]), None, "{end}");
        }
        for at in 0..whole.len() {
            for bits in [0x01, 0x80, 0xff] {
                let mut damaged = whole.clone();
                damaged[at] ^= bits;
                let _any = subject(&damaged);
            }
        }
    }
}
