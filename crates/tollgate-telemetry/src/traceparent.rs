//! Parses the `traceparent` header (W3C Trace Context).
//!
//! The parser is strict: an invalid header is ignored, so that a caller cannot put arbitrary text into
//! traces.

/// The trace context of a request (W3C Trace Context).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    /// The trace id.
    pub trace: u128,
    /// The id of the caller's span.
    pub span: u64,
    /// Whether the caller samples the trace.
    pub sampled: bool,
}

/// The length in bytes: `00-`, 32 digits, `-`, 16 digits, `-`, 2 digits.
const LENGTH: usize = 55;

impl TraceParent {
    /// Parses the value of the header; `None` if it is invalid.
    ///
    /// ```
    /// # use tollgate_telemetry::TraceParent;
    /// let header = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    /// let parent = TraceParent::parse(header).expect("as the standard writes it");
    /// assert_eq!((parent.span, parent.sampled), (0x00f0_67aa_0ba9_02b7, true));
    /// assert_eq!(TraceParent::parse(b"00-0-0-01"), None);
    /// ```
    pub fn parse(value: &[u8]) -> Option<Self> {
        let (version, rest) = (value.get(..2)?, value.get(LENGTH..)?);
        // A later version may have more fields after a dash; version 00 ends here. Version `ff` is
        // invalid.
        match (version, rest) {
            (b"00", []) => {}
            (b"00" | b"ff", _) => return None,
            (_, [] | [b'-', ..]) => {}
            _ => return None,
        }
        let dashes = [2, 35, 52].iter().all(|&at| value.get(at) == Some(&b'-'));
        if !dashes {
            return None;
        }
        hex(version)?;
        let trace = hex(value.get(3..35)?)?;
        let span = u64::try_from(hex(value.get(36..52)?)?).ok()?;
        let flags = hex(value.get(53..55)?)?;
        (trace != 0 && span != 0).then_some(Self { trace, span, sampled: flags & 1 == 1 })
    }
}

/// Parses hexadecimal digits, lower case only as the standard requires.
fn hex(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0, |number: u128, &digit| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u128::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn only_a_valid_header_is_parsed() {
        let parent = TraceParent::parse(GOOD.as_bytes()).unwrap();
        assert_eq!(parent.trace, 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
        assert!(!TraceParent::parse(GOOD.replace("-01", "-02").as_bytes()).unwrap().sampled);
        assert!(TraceParent::parse(GOOD.replacen("00", "01", 1).as_bytes()).is_some());
        assert!(TraceParent::parse(format!("cc{}-what", &GOOD[2..]).as_bytes()).is_some());
        for bad in [
            String::new(),
            GOOD[..54].to_owned(),
            format!("{GOOD}-"),
            format!("{GOOD}0"),
            format!(" {GOOD}"),
            GOOD.to_uppercase(),
            GOOD.replacen("00", "ff", 1),
            GOOD.replacen("00", "0g", 1),
            GOOD.replace("00f067aa0ba902b7", "0000000000000000"),
            GOOD.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            GOOD.replace('-', "_"),
            format!("cc{}what", &GOOD[2..]),
            "é".repeat(28),
        ] {
            assert_eq!(TraceParent::parse(bad.as_bytes()), None, "{bad}");
        }
    }
}
