//! Values that are no text.
//!
//! Values come from clients, and a header may hold any bytes; a call that fails for them is one
//! that most proxies let pass. So what is no text in them is read as U+FFFD.
//!
//! Keys and the domain come from the proxy's own settings, and must be text.
//!
//! A request is read without copying; only one that cannot be read is looked at here, and written
//! anew if that helps.

use std::str::from_utf8;

use crate::wire::{Reader, Value, WireError, Write as _, put_always};

/// Where values are in a `RateLimitRequest`: descriptors, their entries, the entries' values.
const VALUE_FIELD_PATH: [u32; 3] = [2, 1, 2];

/// The request with text for values; `None` where that is what they were.
pub(crate) fn lossy_utf8(message: &[u8]) -> Result<Option<Vec<u8>>, WireError> {
    let mut out = Vec::with_capacity(message.len() + 64);
    let changed = copy(message, &VALUE_FIELD_PATH, &mut out)?;
    Ok(changed.then_some(out))
}

/// Copies a message, with text at the end of this way. Whether there was something else.
fn copy(message: &[u8], way: &[u32], out: &mut Vec<u8>) -> Result<bool, WireError> {
    let mut changed = false;
    let mut fields = Reader::new(message);
    while let Some((number, value)) = fields.next()? {
        match (value, way) {
            (Value::Bytes(bytes), [at]) if *at == number => {
                changed |= from_utf8(bytes).is_err();
                let text = String::from_utf8_lossy(bytes);
                out.put_message(number, |out| out.extend_from_slice(text.as_bytes()));
            }
            (Value::Bytes(bytes), [at, rest @ ..]) if *at == number => {
                let mut copied = Ok(false);
                out.put_message(number, |out| copied = copy(bytes, rest, out));
                changed |= copied?;
            }
            (Value::Bytes(bytes), _) => out.put_message(number, |out| out.extend_from_slice(bytes)),
            (Value::Varint(it), _) => put_always(out, number, it),
            // Nothing that is read has any.
            (Value::Fixed, _) => {}
        }
    }
    Ok(changed)
}
