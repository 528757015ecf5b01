//! Writes the JSON of decisions: the same bytes as `serde_json`, from prepared names of fields.
//!
//! Every check writes a decision, and most of its bytes are constant. serde passes each name and each value through a
//! call of its own, which took a fifth of the instructions of a check.
//!
//! Not here: the choice of what a caller sees (`decision_view`).
//!
//! Invariant: the bytes are those of `serde_json` for the types of `tollgate_api`. The tests compare them, and a new
//! field does not compile, because the functions take the types apart completely.

use tollgate_api::Throttled;
use tollgate_http::{write_json_string, write_plain_json_string};

use crate::decision_view::{DecisionView, LimitOutcomeView};

/// Appends a decision up to the value of its last field, the list of limits.
pub(crate) fn write_head<L>(view: &DecisionView<'_, L>, out: &mut Vec<u8>) {
    let DecisionView {
        id,
        allowed,
        limit,
        retry_after_ms,
        wait_ms,
        degraded,
        priority,
        soft,
        reason,
        limits: _,
    } = view;
    out.push(b'{');
    if let Some(id) = id {
        out.extend_from_slice(b"\"id\":");
        // Hexadecimal digits.
        write_plain_json_string(out, id);
        out.push(b',');
    }
    out.extend_from_slice(if *allowed {
        b"\"allowed\":true,\"limit\":".as_slice()
    } else {
        b"\"allowed\":false,\"limit\":"
    });
    write_optional_text(limit.as_deref(), out);
    out.extend_from_slice(b",\"retry_after_ms\":");
    write_optional_number(*retry_after_ms, out);
    out.extend_from_slice(b",\"wait_ms\":");
    write_number(*wait_ms, out);
    out.extend_from_slice(if *degraded {
        b",\"degraded\":true,\"priority\":".as_slice()
    } else {
        b",\"degraded\":false,\"priority\":"
    });
    write_optional_text(priority.as_deref(), out);
    out.extend_from_slice(b",\"soft\":[");
    for (at, name) in soft.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write_json_string(out, name);
    }
    out.push(b']');
    if let Some(reason) = reason {
        out.extend_from_slice(b",\"reason\":");
        write_json_string(out, reason);
    }
    out.extend_from_slice(b",\"limits\":");
}

/// Appends the outcome of one window of one limit.
pub(crate) fn write_limit(view: &LimitOutcomeView<'_>, out: &mut Vec<u8>) {
    let LimitOutcomeView {
        name,
        window,
        key,
        tag,
        algorithm,
        allowed,
        mode,
        limit,
        remaining,
        retry_after_ms,
        reset_after_ms,
        held,
    } = view;
    out.extend_from_slice(b"{\"name\":");
    write_json_string(out, name);
    out.extend_from_slice(b",\"window\":");
    write_optional_text(window.as_deref(), out);
    out.extend_from_slice(b",\"key\":");
    write_json_string(out, key);
    if let Some(tag) = tag {
        out.extend_from_slice(b",\"tag\":");
        write_json_string(out, tag);
    }
    out.extend_from_slice(b",\"algorithm\":");
    write_plain_json_string(out, algorithm);
    out.extend_from_slice(if *allowed {
        b",\"allowed\":true,\"mode\":".as_slice()
    } else {
        b",\"allowed\":false,\"mode\":"
    });
    write_plain_json_string(out, mode);
    out.extend_from_slice(b",\"limit\":");
    write_number(*limit, out);
    out.extend_from_slice(b",\"remaining\":");
    write_number(*remaining, out);
    out.extend_from_slice(b",\"retry_after_ms\":");
    write_optional_number(*retry_after_ms, out);
    out.extend_from_slice(b",\"reset_after_ms\":");
    write_number(*reset_after_ms, out);
    if let Some(held) = held {
        out.extend_from_slice(b",\"held\":");
        write_number(*held, out);
    }
    out.push(b'}');
}

/// Appends the response to a throttle call.
pub(crate) fn write_throttled(throttled: &Throttled, out: &mut Vec<u8>) {
    let Throttled { allowed, limit, remaining, reset_after, retry_after } = *throttled;
    out.extend_from_slice(if allowed {
        b"{\"allowed\":true,\"limit\":".as_slice()
    } else {
        b"{\"allowed\":false,\"limit\":"
    });
    write_number(limit, out);
    out.extend_from_slice(b",\"remaining\":");
    write_number(remaining, out);
    out.extend_from_slice(b",\"reset_after\":");
    write_number(reset_after, out);
    out.extend_from_slice(b",\"retry_after\":");
    write_number(retry_after, out);
    out.push(b'}');
}

fn write_optional_text(text: Option<&str>, out: &mut Vec<u8>) {
    match text {
        Some(text) => write_json_string(out, text),
        None => out.extend_from_slice(b"null"),
    }
}

fn write_optional_number(number: Option<u64>, out: &mut Vec<u8>) {
    match number {
        Some(number) => write_number(number, out),
        None => out.extend_from_slice(b"null"),
    }
}

fn write_number(number: u64, out: &mut Vec<u8>) {
    if let Ok(digit @ 0..=9) = u8::try_from(number) {
        return out.push(b'0' + digit);
    }
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;

    /// Texts with and without characters that JSON escapes, of many lengths.
    fn texts() -> Vec<String> {
        let mut texts: Vec<String> = (0..20).map(|length| "x".repeat(length)).collect();
        for special in
            ['"', '\\', '\n', '\u{8}', '\u{c}', '\u{1}', '\u{1f}', ' ', '!', '\u{7f}', 'é', '…', '😀']
        {
            for (before, after) in [(0, 0), (0, 9), (3, 2), (7, 0), (7, 1), (8, 8), (15, 0), (17, 30)] {
                texts.push(format!("{}{special}{}", "a".repeat(before), "b".repeat(after)));
            }
        }
        texts
    }

    #[test]
    fn decisions_are_written_as_by_serde() {
        for (at, text) in texts().iter().enumerate() {
            let some = |bit: usize| (at >> bit & 1 == 1).then_some(Cow::Borrowed(&**text));
            let number = |bit: usize| (at >> bit & 1 == 1).then_some(u64::MAX >> (at % 64));
            let view = DecisionView {
                id: (at % 2 == 1).then_some(Cow::Borrowed("0123456789abcdef")),
                allowed: at % 2 == 0,
                limit: some(1),
                retry_after_ms: number(2),
                wait_ms: at as u64,
                degraded: at % 3 == 0,
                priority: some(3),
                soft: vec![Cow::Borrowed(&**text); at % 4],
                reason: some(2),
                limits: Vec::<()>::new(),
            };
            let mut out = Vec::new();
            write_head(&view, &mut out);
            out.extend_from_slice(b"[]}");
            assert_eq!(String::from_utf8(out).unwrap(), serde_json::to_string(&view).unwrap());
            let limit = LimitOutcomeView {
                name: Cow::Borrowed(text),
                window: some(0),
                key: Cow::Borrowed(text),
                tag: some(1),
                algorithm: Cow::Borrowed("bucket"),
                allowed: at % 3 == 0,
                mode: Cow::Borrowed("enforce"),
                limit: u64::MAX >> (at % 64),
                remaining: at as u64,
                retry_after_ms: number(3),
                reset_after_ms: 1 << (at % 64),
                held: number(0),
            };
            let mut out = Vec::new();
            write_limit(&limit, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), serde_json::to_string(&limit).unwrap());
        }
    }

    #[test]
    fn throttle_calls_are_written_as_by_serde() {
        for at in 0..64 {
            let throttled = Throttled {
                allowed: at % 2 == 0,
                limit: u64::MAX >> at,
                remaining: at,
                reset_after: 10 * at,
                retry_after: 1 << at,
            };
            let mut out = Vec::new();
            write_throttled(&throttled, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), serde_json::to_string(&throttled).unwrap());
        }
    }
}
