//! Reads JSON in a stream of server-sent events (`text/event-stream`).
//!
//! A [`Scanner`] reads the `data:` of each event as a JSON text; an empty line ends the event.
//! Other fields are skipped. Lines are not buffered.

use super::json::Scanner;

const DATA: &[u8] = b"data:";

/// The position of the next byte in a stream of events.
pub(super) struct Events {
    state: State,
    /// Whether the last byte was a carriage return: a line feed after it does not end another line.
    returned: bool,
}

#[derive(Clone, Copy)]
enum State {
    /// This many bytes of `data:` have been read since the start of the line.
    Field(usize),
    /// After the colon: one space is not part of the data.
    Colon,
    Data,
    /// In a line that is skipped.
    Other,
}

impl Events {
    pub(super) const fn new() -> Self {
        Self { state: State::Field(0), returned: false }
    }

    /// Reads the next piece.
    pub(super) fn read(&mut self, mut piece: &[u8], scanner: &mut Scanner) {
        while let Some(&byte) = piece.first() {
            let feeds = byte == b'\n' && std::mem::take(&mut self.returned);
            self.returned = byte == b'\r';
            if feeds {
                piece = &piece[1..];
                continue;
            }
            if matches!(byte, b'\r' | b'\n') {
                self.end_line(scanner);
                piece = &piece[1..];
                continue;
            }
            let line = piece.iter().position(|it| matches!(it, b'\r' | b'\n')).unwrap_or(piece.len());
            let taken = self.within(&piece[..line], scanner);
            piece = &piece[taken..];
        }
    }

    fn end_line(&mut self, scanner: &mut Scanner) {
        match self.state {
            State::Field(0) => scanner.restart(),
            // The lines of an event are joined by a line feed.
            State::Data => scanner.read(b"\n"),
            State::Field(_) | State::Colon | State::Other => {}
        }
        self.state = State::Field(0);
    }

    /// Reads bytes of one line and returns how many were consumed, at least one.
    fn within(&mut self, line: &[u8], scanner: &mut Scanner) -> usize {
        match self.state {
            State::Field(at) => {
                let fits = DATA.get(at) == line.first();
                self.state = match at + 1 {
                    _ if !fits => State::Other,
                    next if next == DATA.len() => State::Colon,
                    next => State::Field(next),
                };
                1
            }
            State::Colon => {
                self.state = State::Data;
                usize::from(line.first() == Some(&b' '))
            }
            State::Data => {
                scanner.read(line);
                line.len()
            }
            State::Other => line.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the stream in one piece, byte by byte, and with other line endings.
    #[track_caller]
    fn check(stream: &str, expected: Option<u64>) {
        for stream in [stream.to_owned(), stream.replace('\n', "\r\n"), stream.replace('\n', "\r")] {
            for size in [1, 2, 3, 7, stream.len()] {
                let mut scanner = Scanner::new(["usage", "total"].map(Box::from).into_iter().collect());
                let mut events = Events::new();
                stream.as_bytes().chunks(size).for_each(|piece| events.read(piece, &mut scanner));
                assert_eq!(scanner.found(), expected, "{stream:?} in pieces of {size}");
            }
        }
    }

    #[test]
    fn the_last_event_that_has_the_number_counts() {
        check(
            "data: {\"text\":\"a\",\"usage\":null}\n\ndata: {\"usage\":{\"total\":7}}\n\ndata: [DONE]\n\n",
            Some(7),
        );
        check("data: {\"usage\":{\"total\":1}}\n\ndata: {\"usage\":{\"total\":2}}\n\n", Some(2));
        check("data: {\"usage\":{\"total\":3}}\n\ndata: {\"text\":1}\n\n", Some(3));
    }

    #[test]
    fn only_data_fields_are_read() {
        check(": {\"usage\":{\"total\":1}}\n\n", None);
        check("event: x\nid: 5\ndata:{\"usage\":{\"total\":4}}\nretry: 1\n\n", Some(4));
        check("dat\ndata\ndatum: {\"usage\":{\"total\":1}}\n\n", None);
        check(" data: {\"usage\":{\"total\":1}}\n\n", None);
    }

    #[test]
    fn each_event_is_one_text_however_many_lines_it_has() {
        check("data: {\"usage\":\ndata: {\"total\":6}}\n\n", Some(6));
        check("data: {\"usage\":\n\ndata: {\"total\":6}}\n\n", None);
        check("data: nonsense\n\ndata: {\"usage\":{\"total\":6}}\n\n", Some(6));
    }
}
