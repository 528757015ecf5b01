//! The syntax of `Host`.

/// Whether the text is a name or an address with an optional port. Servers interpret other texts
/// differently, and limits matched one interpretation.
pub(crate) fn is_host(text: &str) -> bool {
    if let Some(inner) = text.strip_prefix('[') {
        let Some((address, rest)) = inner.split_once(']') else { return false };
        return address.parse::<std::net::Ipv6Addr>().is_ok()
            && (rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port));
    }
    match text.bytes().position(|byte| !is_host_byte(byte)) {
        None => !text.is_empty(),
        Some(end) => end > 0 && text.as_bytes()[end] == b':' && is_port(&text[end + 1..]),
    }
}

/// Whether a byte may be in a name or an IPv4 address.
const fn is_host_byte(byte: u8) -> bool {
    const TABLE: [bool; 256] = {
        let mut table = [false; 256];
        let mut at = 0;
        while at < 128 {
            #[allow(clippy::cast_possible_truncation, reason = "less than 128")]
            let byte = at as u8;
            table[at] = byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
            at += 1;
        }
        table
    };
    TABLE[byte as usize]
}

/// Whether the text after a colon is a port, which may be empty (RFC 3986, 3.2.3).
fn is_port(text: &str) -> bool {
    let digit = |sum: u32, byte: u8| {
        // A sum that is too large stays so, and cannot overflow with the next digit.
        let sum = 10 * sum.min(u32::from(u16::MAX)) + u32::from(byte.wrapping_sub(b'0'));
        byte.is_ascii_digit().then_some(sum)
    };
    text.bytes().try_fold(0, digit).is_some_and(|port| u16::try_from(port).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_a_name_or_an_address_with_an_optional_port() {
        for host in [
            "a",
            "a.b-c_d",
            "127.0.0.1:8080",
            "a:",
            "a:0",
            "a:65535",
            "a:00080",
            "[::1]",
            "[::1]:80",
            "[::1]:",
        ] {
            assert!(is_host(host), "{host}");
        }
        for text in [
            "",
            ":",
            ":80",
            "a:65536",
            "a:100000",
            "a:655360",
            "a:99999999999999999999",
            "a:+1",
            "a:b",
            "a:1:2",
            "a b",
            "a/b",
            "a@b",
            "\u{e9}",
            "a\u{e9}",
            "[::1",
            "[a]",
            "[::1]80",
            "[]",
            "a[::1]",
        ] {
            assert!(!is_host(text), "{text}");
        }
    }
}
