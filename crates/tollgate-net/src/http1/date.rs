//! The `date` header of responses.

use std::cell::RefCell;
use std::time::{SystemTime, UNIX_EPOCH};

/// The header line of one second.
struct DateLine {
    second: u64,
    line: String,
}

thread_local! {
    static LINE: RefCell<DateLine> = const { RefCell::new(DateLine { second: 0, line: String::new() }) };
}

/// Appends the line of the `date` header. Each thread formats a second once.
#[allow(
    clippy::disallowed_methods,
    reason = "the date of a response is the time of its server; hyper reads the same clock"
)]
pub fn write_date(out: &mut Vec<u8>) {
    let now = SystemTime::now();
    let second = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    LINE.with_borrow_mut(|cached| {
        if cached.second != second || cached.line.is_empty() {
            *cached = DateLine { second, line: format!("date: {}\r\n", httpdate::fmt_http_date(now)) };
        }
        out.extend_from_slice(cached.line.as_bytes());
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_has_the_format_of_http() {
        let mut out = Vec::new();
        write_date(&mut out);
        let line = String::from_utf8(out).unwrap();
        let date = line.strip_prefix("date: ").and_then(|it| it.strip_suffix("\r\n")).unwrap();
        assert!(httpdate::parse_http_date(date).is_ok(), "{date}");
    }
}
