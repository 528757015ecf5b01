//! Replaces invalid UTF-8 in descriptor values.
//!
//! Values come from clients, and a header may contain any bytes. Most proxies admit a request if
//! the call fails, so a client must not be able to make the call fail. Invalid UTF-8 in values is
//! therefore read as U+FFFD.
//!
//! Keys and the domain come from the configuration of the proxy and must be valid UTF-8.
//!
//! Requests are parsed without copying. Only a request that cannot be parsed is rewritten here.

use std::str::from_utf8;

use tollgate_grpc::wire::{Reader, Value, WireError, Write as _, put_always};

/// The field path of values in a `RateLimitRequest`: descriptors, entries, value.
const VALUE_FIELD_PATH: [u32; 3] = [2, 1, 2];

/// Returns the request with valid UTF-8 in values; `None` if the values were valid.
pub(crate) fn lossy_utf8(message: &[u8]) -> Result<Option<Vec<u8>>, WireError> {
    let mut out = Vec::with_capacity(message.len() + 64);
    let changed = copy(message, &VALUE_FIELD_PATH, &mut out)?;
    Ok(changed.then_some(out))
}

/// Copies a message and replaces invalid UTF-8 at the field path. Returns whether anything was
/// replaced.
fn copy(message: &[u8], way: &[u32], out: &mut Vec<u8>) -> Result<bool, WireError> {
    let mut changed = false;
    let mut fields = Reader::new(message);
    while let Some((number, value)) = fields.next_field()? {
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
            // No field that is read has a fixed size.
            (Value::Fixed(_), _) => {}
        }
    }
    Ok(changed)
}
