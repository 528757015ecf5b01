//! Chunked bodies (RFC 9112, 7.1).
//!
//! Extensions and trailers are read and dropped. Lines end in CRLF only, and sizes have no sign, space or prefix, and at
//! most 16 digits. Bodies are never passed on as received: their data is written in new chunks.

/// The maximum number of bytes of all extensions and trailers of a body.
const MAX_IGNORED_BYTES: usize = 16 * 1024;

/// The maximum number of digits of a size, with leading zeros.
const MAX_SIZE_DIGITS: u8 = 16;

/// The end of a chunked body without trailers.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// Appends a chunk. Nothing is appended for empty data, because an empty chunk would end the body.
pub fn write_chunk(out: &mut Vec<u8>, data: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    if data.is_empty() {
        return;
    }
    let significant = (usize::BITS - data.len().leading_zeros()).div_ceil(4);
    for digit in (0..significant).rev() {
        out.push(DIGITS[(data.len() >> (4 * digit)) & 0xf]);
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(data);
    out.extend_from_slice(b"\r\n");
}

/// The reason why a body cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChunkError {
    /// The size or the end of a chunk is malformed.
    #[error("a chunk is malformed")]
    Malformed,
    /// Extensions and trailers are too long.
    #[error("the extensions or trailers of a chunked body are too long")]
    TooLong,
}

/// The decoder of one body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkedDecoder {
    state: State,
    /// The bytes that are left of the chunk.
    left: u64,
    /// The number of digits of the size so far.
    digits: u8,
    /// The number of bytes of extensions and trailers so far.
    ignored: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before the first digit of a size.
    SizeStart,
    Size,
    Extension,
    SizeEnd,
    Data,
    DataCr,
    DataLf,
    /// At the start of a line of the trailers.
    TrailerStart,
    TrailerName,
    Trailer,
    TrailerEnd,
    /// After the carriage return of the last, empty line.
    LastLf,
    Done,
}

impl Default for ChunkedDecoder {
    fn default() -> Self {
        Self::new()
    }
}

impl ChunkedDecoder {
    /// Creates the decoder of a body.
    pub const fn new() -> Self {
        Self { state: State::SizeStart, left: 0, digits: 0, ignored: 0 }
    }

    /// Whether the body is complete.
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Whether the next byte belongs to the trailers, or to the empty line after them.
    pub const fn is_in_trailers(&self) -> bool {
        matches!(
            self.state,
            State::TrailerStart | State::TrailerName | State::Trailer | State::TrailerEnd | State::LastLf
        )
    }

    /// Decodes up to the end of the next piece of data, or up to the trailers. Returns the number of bytes that were
    /// used, and the data, which is at the end of these. Without data, all bytes were used, the trailers follow, or the
    /// body is complete.
    pub fn decode<'i>(&mut self, input: &'i [u8]) -> Result<(usize, &'i [u8]), ChunkError> {
        let mut used = 0;
        while let Some(&byte) = input.get(used).filter(|_| self.state != State::Done) {
            if self.state == State::Data {
                let rest = &input[used..];
                let count = usize::try_from(self.left).unwrap_or(usize::MAX).min(rest.len());
                self.left -= count as u64;
                if self.left == 0 {
                    self.state = State::DataCr;
                }
                return Ok((used + count, &rest[..count]));
            }
            let next = self.step(byte)?;
            let former = std::mem::replace(&mut self.state, next);
            used += 1;
            if former == State::SizeEnd && self.state == State::TrailerStart {
                break;
            }
        }
        Ok((used, &[]))
    }

    /// Returns the state after a byte that is not data.
    fn step(&mut self, byte: u8) -> Result<State, ChunkError> {
        let digit = char::from(byte).to_digit(16);
        Ok(match (self.state, byte) {
            (State::SizeStart | State::Size, _) if digit.is_some() => {
                let digit = u64::from(digit.unwrap_or_default());
                self.digits += 1;
                if self.digits > MAX_SIZE_DIGITS {
                    return Err(ChunkError::Malformed);
                }
                // At most 16 digits fit.
                self.left = (self.left << 4) | digit;
                State::Size
            }
            (State::Size | State::Extension, b'\r') => State::SizeEnd,
            (State::Size, b';') => State::Extension,
            (State::SizeEnd, b'\n') => {
                self.digits = 0;
                if self.left == 0 { State::TrailerStart } else { State::Data }
            }
            (State::DataCr, b'\r') => State::DataLf,
            (State::DataLf, b'\n') => State::SizeStart,
            (State::TrailerStart, b'\r') => State::LastLf,
            (State::LastLf, b'\n') => State::Done,
            (State::Trailer, b'\r') => State::TrailerEnd,
            (State::TrailerEnd, b'\n') => State::TrailerStart,
            (State::Extension, b' '..=b'~' | b'\t' | 0x80..) => self.ignore(State::Extension)?,
            (State::TrailerStart | State::TrailerName, _) if is_token(byte) => {
                self.ignore(State::TrailerName)?
            }
            (State::TrailerName, b':') => State::Trailer,
            (State::Trailer, b' '..=b'~' | b'\t' | 0x80..) => self.ignore(State::Trailer)?,
            _ => return Err(ChunkError::Malformed),
        })
    }

    /// Returns the length of a complete body at the start of `bytes`; `None` if it is incomplete or malformed.
    pub fn length_of(bytes: &[u8]) -> Option<usize> {
        let (mut decoder, mut used) = (Self::new(), 0);
        while used < bytes.len() && !decoder.is_done() {
            used += decoder.decode(&bytes[used..]).ok()?.0;
        }
        decoder.is_done().then_some(used)
    }

    /// Returns the number of bytes of data at the start of a body, up to its end or to the first mistake.
    pub fn data_length_of(bytes: &[u8]) -> u64 {
        let (mut decoder, mut used, mut length) = (Self::new(), 0, 0);
        while used < bytes.len() && !decoder.is_done() {
            let Ok((count, data)) = decoder.decode(&bytes[used..]) else { break };
            used += count;
            length += data.len() as u64;
        }
        length
    }

    fn ignore(&mut self, state: State) -> Result<State, ChunkError> {
        self.ignored += 1;
        if self.ignored > MAX_IGNORED_BYTES { Err(ChunkError::TooLong) } else { Ok(state) }
    }
}

/// Whether a byte may be in the name of a header (RFC 9110, 5.6.2).
const fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^'..=b'`' | b'|' | b'~')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decodes a body that arrives in pieces of `size` bytes. Returns the data and the rest after the body.
    fn decoded(body: &[u8], size: usize) -> Result<(Vec<u8>, usize, bool), ChunkError> {
        let (mut decoder, mut data, mut used) = (ChunkedDecoder::new(), Vec::new(), 0);
        for piece in body.chunks(size) {
            let mut at = 0;
            while at < piece.len() && !decoder.is_done() {
                let (count, some) = decoder.decode(&piece[at..])?;
                data.extend_from_slice(some);
                at += count;
            }
            used += at;
        }
        Ok((data, used, decoder.is_done()))
    }

    #[test]
    fn pieces_of_any_size_give_the_same_data() {
        let body = b"5\r\nhello\r\nA;x=\"y\"\r\n, world!!!\r\n0\r\nx: y\r\nz: \xff\r\n\r\nNEXT";
        for size in 1..=body.len() {
            let (data, used, is_done) = decoded(body, size).unwrap();
            assert_eq!((&*data, used, is_done), (&b"hello, world!!!"[..], body.len() - 4, true), "{size}");
        }
    }

    #[test]
    fn malformed_chunks_are_errors() {
        for body in [
            "x\r\n",
            "-5\r\n",
            "+5\r\n",
            " 5\r\n",
            "5 \r\n",
            "0x5\r\n",
            "\r\n",
            ";x\r\n",
            "5\nhello",
            "5\rhello",
            "5\r\nhello0\r\n",
            "5\r\nhello\n",
            "5;\x01\r\n",
            "fffffffffffffffff\r\n",
            "00000000000000005\r\nhello\r\n",
            "0\r\nx\ny\r\n\r\n",
            "0\r\n\n",
            "0\r\nbad trailer\r\n\r\n",
            "0\r\nx\r\n\r\n",
            "0\r\n x: y\r\n\r\n",
            "0\r\n: y\r\n\r\n",
            "0\r\nx: y\r\n z\r\n\r\n",
            "0\r\n\rx",
        ] {
            assert_eq!(decoded(body.as_bytes(), 1024), Err(ChunkError::Malformed), "{body:?}");
        }
        let long = format!("5;{}", "x".repeat(MAX_IGNORED_BYTES + 1));
        assert_eq!(decoded(long.as_bytes(), 1024), Err(ChunkError::TooLong));
        assert_eq!(decoded(b"ffffffffffffffff\r\n", 1024).map(|it| it.2), Ok(false));
    }

    #[test]
    fn written_chunks_are_decoded_to_the_same_data() {
        for size in [1, 9, 10, 15, 16, 17, 255, 256, 4_096, 70_000] {
            let (data, mut body) = (vec![b'x'; size], Vec::new());
            write_chunk(&mut body, &data);
            write_chunk(&mut body, b"");
            write_chunk(&mut body, b"end");
            body.extend_from_slice(LAST_CHUNK);
            assert_eq!(ChunkedDecoder::length_of(&body), Some(body.len()));
            assert_eq!(ChunkedDecoder::length_of(&body[..body.len() - 1]), None);
            assert_eq!(ChunkedDecoder::data_length_of(&body), size as u64 + 3);
            assert_eq!(decoded(&body, 1_000), Ok(([&*data, b"end"].concat(), body.len(), true)), "{size}");
        }
    }
}
