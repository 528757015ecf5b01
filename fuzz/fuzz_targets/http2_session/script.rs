//! Reads a script of frames, most of which are valid, from arbitrary bytes.

use std::time::Duration;

use crate::model::{
    CONTINUATION, Client, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, RST_STREAM, SETTINGS,
    WINDOW_UPDATE, frame,
};
use crate::surface::PATHS;

const PADDED: u8 = 8;
const HAS_PRIORITY: u8 = 32;
/// The maximum payload of a frame.
const MAX_PAYLOAD_BYTES: usize = 16_384;

/// A step of the script.
pub(crate) enum Action {
    /// The client sends frames.
    Frames(Vec<Vec<u8>>),
    /// A part of a frame arrives, then all of it.
    Piece(Vec<u8>, usize),
    /// The tasks of the session run.
    Turn,
    /// Calls that wait are completed.
    Release,
    /// Time passes.
    Wait(Duration),
    /// The server begins to drain.
    Shutdown,
}

pub(crate) struct Script<'s> {
    input: &'s [u8],
}

impl<'s> Script<'s> {
    pub(crate) const fn new(input: &'s [u8]) -> Self {
        Self { input }
    }

    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.input.split_first() else { return 0 };
        self.input = rest;
        *first
    }

    fn number(&mut self) -> u32 {
        u32::from_be_bytes([self.byte(), self.byte(), self.byte(), self.byte()])
    }

    fn bytes(&mut self) -> &'s [u8] {
        let length = usize::from(self.byte());
        let (bytes, rest) = self.input.split_at(length.min(self.input.len()));
        self.input = rest;
        bytes
    }

    /// A stream that is open, was open, or is idle.
    fn stream(&mut self, client: &Client) -> u32 {
        let back = u32::from(self.byte() & 0x1f);
        client.next_stream().saturating_sub(2 * back)
    }

    pub(crate) fn next(&mut self, client: &Client) -> Option<Action> {
        if self.input.is_empty() {
            return None;
        }
        let action = match self.byte() {
            kind @ 0..80 => self.request(kind, client),
            80..128 => self.data(client),
            128..136 => {
                let stream = self.stream(client);
                Action::Frames(vec![frame(HEADERS, END_HEADERS | END_STREAM, stream, b"\x00\x01x\x01y")])
            }
            136..150 => {
                let stream = self.stream(client);
                Action::Frames(vec![frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])])
            }
            150..160 => self.settings(),
            160..180 => {
                let stream = self.stream(client);
                let increment = self.number() >> (self.byte() & 31);
                Action::Frames(vec![frame(WINDOW_UPDATE, 0, stream, &increment.to_be_bytes())])
            }
            180..186 => Action::Frames(vec![frame(PING, self.byte() & 1, 0, b"tollgate")]),
            186 => Action::Frames(vec![frame(GOAWAY, 0, 0, &[0; 8])]),
            187..190 => Action::Shutdown,
            190..200 => Action::Wait(Duration::from_millis(u64::from(self.byte()) * 100)),
            200..215 => Action::Turn,
            215..225 => Action::Release,
            225..235 => {
                let (flags, stream) = (END_HEADERS | self.byte() & END_STREAM, client.next_stream());
                Action::Frames(vec![frame(HEADERS, flags, stream, self.bytes())])
            }
            235..240 => {
                let stream = self.stream(client);
                let frame = frame(self.byte() % 12, self.byte(), stream, self.bytes());
                Action::Piece(frame, usize::from(self.byte()))
            }
            _ => {
                let stream = self.stream(client);
                Action::Frames(vec![frame(self.byte() % 12, self.byte(), stream, self.bytes())])
            }
        };
        Some(action)
    }

    /// A new request, with or without the rest of its body.
    fn request(&mut self, kind: u8, client: &Client) -> Action {
        let path = PATHS[usize::from(kind) % PATHS.len()];
        let options = self.byte();
        let ends = if options & 1 != 0 { END_STREAM } else { 0 };
        let method = if options & 0x40 == 0 { 0x83 } else { 0x82 };
        let mut block = vec![method, 0x86, 0x04, u8::try_from(path.len()).expect("a short path")];
        block.extend_from_slice(path.as_bytes());
        block.extend_from_slice(b"\x0f\x10\x10application/grpc");
        if options & 2 != 0 {
            let length = u16::from_be_bytes([self.byte() & 0x3f, self.byte()]).to_string();
            block.extend_from_slice(b"\x0f\x0d");
            block.push(u8::try_from(length.len()).expect("a short length"));
            block.extend_from_slice(length.as_bytes());
        }
        if options & 4 != 0 {
            block.extend_from_slice(self.bytes());
        }
        let stream = client.next_stream() + if options & 0x80 != 0 { 2 } else { 0 };
        if options & 8 != 0 {
            let cut = usize::from(self.byte()) % block.len();
            let (first, rest) = block.split_at(cut);
            return Action::Frames(vec![
                frame(HEADERS, ends, stream, first),
                frame(CONTINUATION, END_HEADERS, stream, rest),
            ]);
        }
        let (mut payload, mut flags) = (Vec::new(), END_HEADERS | ends);
        if options & 16 != 0 {
            flags |= PADDED;
            payload.push(3);
        }
        if options & 32 != 0 {
            flags |= HAS_PRIORITY;
            payload.extend_from_slice(&[0, 0, 0, 0, 16]);
        }
        payload.extend_from_slice(&block);
        if flags & PADDED != 0 {
            payload.extend_from_slice(&[0; 3]);
        }
        Action::Frames(vec![frame(HEADERS, flags, stream, &payload)])
    }

    fn data(&mut self, client: &Client) -> Action {
        let (stream, options) = (self.stream(client), self.byte());
        let length = usize::from(self.byte()) * if options & 2 == 0 { 1 } else { 64 };
        let mut payload = vec![b'x'; length.min(MAX_PAYLOAD_BYTES)];
        let mut flags = options & END_STREAM;
        if options & 4 != 0 && !payload.is_empty() {
            flags |= PADDED;
            payload[0] = self.byte();
        }
        let count = if options & 8 == 0 { 1 } else { usize::from(self.byte() & 15) };
        Action::Frames(vec![frame(DATA, flags, stream, &payload); count])
    }

    fn settings(&mut self) -> Action {
        let mut payload = Vec::new();
        for _ in 0..self.byte() & 3 {
            payload.extend_from_slice(&[0, self.byte() % 8]);
            let shift = self.byte() & 31;
            payload.extend_from_slice(&(self.number() >> shift).to_be_bytes());
        }
        Action::Frames(vec![frame(SETTINGS, 0, 0, &payload)])
    }
}
