//! Reads `google.protobuf.Struct`, the metadata of a descriptor.

use tollgate_envoy::Metadata;
use tollgate_grpc::wire::{Reader, WireError};

use crate::resource::MAX_DEPTH;

/// Reads a `Struct`.
pub(crate) fn read_struct(message: &[u8], depth: usize) -> Result<Metadata, WireError> {
    let mut entries = Vec::new();
    let mut fields = Reader::new(message);
    while let Some((number, value)) = fields.next_field()? {
        if number == 1 {
            entries.push(entry(value.bytes()?, depth)?);
        }
    }
    // The order of a protobuf map is random.
    entries.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(Metadata::Map(entries))
}

fn entry(message: &[u8], depth: usize) -> Result<(Box<str>, Metadata), WireError> {
    let (mut name, mut content) = ("", Metadata::Null);
    let mut fields = Reader::new(message);
    while let Some((number, value)) = fields.next_field()? {
        match number {
            1 => name = value.text()?,
            2 => content = read_value(value.bytes()?, depth)?,
            _ => {}
        }
    }
    Ok((name.into(), content))
}

/// Reads a `Value`.
fn read_value(message: &[u8], depth: usize) -> Result<Metadata, WireError> {
    let depth = depth.checked_add(1).filter(|depth| *depth <= MAX_DEPTH).ok_or(WireError)?;
    let mut content = Metadata::Null;
    let mut fields = Reader::new(message);
    while let Some((number, value)) = fields.next_field()? {
        content = match number {
            1 => Metadata::Null,
            2 => number_of(value.double()?),
            3 => Metadata::Text(value.text()?.into()),
            4 => Metadata::Bool(value.varint()? != 0),
            5 => read_struct(value.bytes()?, depth)?,
            6 => read_list(value.bytes()?, depth)?,
            _ => continue,
        };
    }
    Ok(content)
}

fn read_list(message: &[u8], depth: usize) -> Result<Metadata, WireError> {
    let mut items = Vec::new();
    let mut fields = Reader::new(message);
    while let Some((number, value)) = fields.next_field()? {
        if number == 1 {
            items.push(read_value(value.bytes()?, depth)?);
        }
    }
    Ok(Metadata::List(items))
}

/// Returns a number. JSON has none for infinity.
const fn number_of(number: f64) -> Metadata {
    if number.is_finite() { Metadata::Number(number) } else { Metadata::Null }
}
