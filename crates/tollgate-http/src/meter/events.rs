//! A stream of events (`text/event-stream`), and the JSON in them.
//!
//! What stands behind `data:` is JSON for a [`Scanner`], event by event: an empty line ends
//! one. The other fields are passed over. Nothing is kept of a line.

use super::json::Scanner;

const DATA: &[u8] = b"data:";

/// Where in a stream of events the next byte is.
pub(super) struct Events {
    state: State,
    /// Whether the last byte was a carriage return: a line feed behind it ends no line.
    returned: bool,
}

#[derive(Clone, Copy)]
enum State {
    /// So much of `data:` has come since the line began.
    Field(usize),
    /// Right behind the colon: one blank is not part of the data.
    Colon,
    Data,
    /// In a line that is not looked at.
    Other,
}

impl Events {
    pub(super) const fn new() -> Self {
        Self { state: State::Field(0), returned: false }
    }

    /// Looks at the next piece.
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
            // Lines of one event are joined by a line feed.
            State::Data => scanner.read(b"\n"),
            State::Field(_) | State::Colon | State::Other => {}
        }
        self.state = State::Field(0);
    }

    /// Looks at bytes of one line; how many of them. There is at least one.
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

    /// As it comes in one piece, byte by byte, and with the line ends of others.
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
    fn only_data_is_looked_at() {
        check(": {\"usage\":{\"total\":1}}\n\n", None);
        check("event: x\nid: 5\ndata:{\"usage\":{\"total\":4}}\nretry: 1\n\n", Some(4));
        check("dat\ndata\ndatum: {\"usage\":{\"total\":1}}\n\n", None);
        check(" data: {\"usage\":{\"total\":1}}\n\n", None);
    }

    #[test]
    fn an_event_of_several_lines_is_one_text_and_the_next_event_another() {
        check("data: {\"usage\":\ndata: {\"total\":6}}\n\n", Some(6));
        check("data: {\"usage\":\n\ndata: {\"total\":6}}\n\n", None);
        check("data: nonsense\n\ndata: {\"usage\":{\"total\":6}}\n\n", Some(6));
    }
}
