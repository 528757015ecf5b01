//! Parsing does not depend on how the bytes are split, and memory is bounded.

use super::{FrameError, Frames, MAX_FRAME_BYTES, MAX_LINE_BYTES, Step};

/// A seeded xorshift generator.
struct Rng(u64);

impl Rng {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % sides
    }
}

type Commands = Vec<Vec<Vec<u8>>>;

/// Parses bytes that arrive in pieces; returns the commands and the error that ended them.
fn read(bytes: &[u8], mut piece: impl FnMut() -> usize) -> (Commands, Option<FrameError>) {
    let (mut frames, mut commands) = (Frames::default(), Commands::new());
    let (mut start, mut arrived) = (0, 0);
    loop {
        match frames.next(&bytes[start..arrived], false) {
            Ok(Step::Incomplete) if arrived == bytes.len() => return (commands, None),
            Ok(Step::Incomplete) => {
                let held = arrived - start;
                assert!(held <= MAX_FRAME_BYTES + MAX_LINE_BYTES, "a frame of {held} bytes is not complete");
                arrived = (arrived + piece().max(1)).min(bytes.len());
            }
            Ok(Step::Nothing(length)) => start += length,
            Ok(Step::Command(length)) => {
                let words = frames.words(&bytes[start..]);
                commands.push(words.from(0).map(<[u8]>::to_vec).collect());
                start += length;
            }
            Err(malformed) => return (commands, Some(malformed)),
        }
        assert!(start <= arrived && frames.words.len() <= super::MAX_ARGUMENTS);
    }
}

fn valid(rng: &mut Rng) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..=rng.roll(4) {
        match rng.roll(6) {
            0 => bytes.extend_from_slice(b"PING\r\n"),
            1 => bytes.extend_from_slice(b"\r\n*0\r\n*-1\r\necho \"a \\x41\" 'b'\n"),
            _ => {
                let count = 1 + rng.roll(6);
                bytes.extend_from_slice(format!("*{count}\r\n").as_bytes());
                for _ in 0..count {
                    let length = rng.roll(30);
                    bytes.extend_from_slice(format!("${length}\r\n").as_bytes());
                    bytes.extend((0..length).map(|_| u8::try_from(rng.roll(256)).unwrap()));
                    bytes.extend_from_slice(b"\r\n");
                }
            }
        }
    }
    bytes
}

fn damaged(rng: &mut Rng) -> Vec<u8> {
    let mut bytes = valid(rng);
    for _ in 0..rng.roll(4) {
        let at = rng.roll(bytes.len().max(1)).min(bytes.len().saturating_sub(1));
        match rng.roll(4) {
            0 if !bytes.is_empty() => bytes[at] = b"*$-+:\r\n0129x\""[rng.roll(13)],
            1 if !bytes.is_empty() => drop(bytes.drain(at..)),
            2 => {
                let more =
                    [&b"$1073741824\r\n"[..], b"*2147483647\r\n", b"$-1\r\n", b"*3\r\n*1\r\n", b"\"", b"\0"];
                let more = more[rng.roll(more.len())];
                drop(bytes.splice(at..at, more.iter().copied()));
            }
            _ => bytes.insert(at, u8::try_from(rng.roll(256)).unwrap()),
        }
    }
    bytes
}

/// Checks that every split yields the same result.
fn check(bytes: &[u8], rng: &mut Rng) {
    let whole = read(bytes, || usize::MAX >> 1);
    assert_eq!(read(bytes, || 1), whole, "byte by byte: {:?}", bytes.escape_ascii().to_string());
    for first in 0..bytes.len() {
        let mut pieces = [first, bytes.len()].into_iter();
        let cut = read(bytes, || pieces.next().unwrap_or(bytes.len()));
        assert_eq!(cut, whole, "cut at {first}: {}", bytes.escape_ascii());
    }
    assert_eq!(read(bytes, || rng.roll(7)), whole, "{}", bytes.escape_ascii());
}

#[test]
fn parsing_does_not_depend_on_how_bytes_are_split() {
    for seed in 1..=400 {
        let mut rng = Rng(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
        let bytes = valid(&mut rng);
        check(&bytes, &mut rng);
        assert_eq!(read(&bytes, || 1).1, None, "seed {seed}");
        check(&damaged(&mut rng), &mut rng);
        let noise: Vec<u8> = (0..rng.roll(60)).map(|_| u8::try_from(rng.roll(256)).unwrap()).collect();
        check(&noise, &mut rng);
    }
}

#[test]
fn protocol_errors_have_the_messages_of_redis() {
    let long = format!("*1\r\n$10\r\n{}\r\n", "x".repeat(11));
    let many = "*129\r\n".to_owned();
    let endless = format!("${}", "1".repeat(40));
    for (bytes, said) in [
        ("*3\r\n*1\r\n", "expected '$', got '*'"),
        ("*1\r\n:1\r\n", "expected '$', got ':'"),
        ("*1\r\n\u{1b}[2J", "expected '$', got ' '"),
        ("*1\r\n$1073741824\r\n", "invalid bulk length"),
        ("*1\r\n$-1\r\n", "invalid bulk length"),
        ("*1\r\n$99999999999999999999\r\n", "invalid bulk length"),
        ("*1\r\n$ 1\r\n", "invalid bulk length"),
        ("*1\r\n$01\r\n", "invalid bulk length"),
        (&long, "invalid bulk length"),
        ("*1073741824\r\n", "invalid multibulk length"),
        ("*x\r\n", "invalid multibulk length"),
        ("*\r\n", "invalid multibulk length"),
        (&many, "invalid multibulk length"),
        (&format!("*{}", "1".repeat(40)), "too big mbulk count string"),
        (&format!("*1\r\n{endless}"), "too big bulk count string"),
        ("ping \"a\n", "unbalanced quotes in request"),
        (&"x".repeat(MAX_LINE_BYTES + 1), "too big inline request"),
        (
            &format!("*3\r\n{}$1\r\n", format!("$65536\r\n{}\r\n", "x".repeat(65_536)).repeat(2)),
            "too big request",
        ),
    ] {
        let (_, malformed) = read(bytes.as_bytes(), || usize::MAX >> 1);
        assert_eq!(malformed.map(|it| it.to_string()).as_deref(), Some(said), "{bytes:.60}");
    }
}

#[test]
fn bounds_are_smaller_before_authentication() {
    let read = |bytes: &[u8]| Frames::default().next(bytes, true);
    assert_eq!(read(b"*2\r\n$4\r\nAUTH\r\n$1\r\nx\r\n"), Ok(Step::Command(21)));
    assert_eq!(read(b"*11\r\n"), Err(FrameError::UnauthenticatedCount));
    assert_eq!(read(b"*1\r\n$16385\r\n"), Err(FrameError::UnauthenticatedLength));
}

#[test]
fn the_key_of_the_next_command_is_found_if_it_begins_as_this_one() {
    let check = |bytes: &[u8], expected: Option<&[u8]>| {
        let mut frames = Frames::default();
        let Ok(Step::Command(length)) = frames.next(bytes, false) else { panic!("not a command") };
        let key = frames.words(bytes).key_of_next(length);
        assert_eq!(key, expected, "{:?}", String::from_utf8_lossy(bytes));
    };
    let one = b"*2\r\n$4\r\nECHO\r\n$3\r\nann\r\n";
    check(one, None);
    check(&[&one[..], b"*2\r\n$4\r\nECHO\r\n$5\r\nbobby\r\n"].concat(), Some(b"bobby"));
    check(&[&one[..], b"*2\r\n$4\r\nECHO\r\n$5\r\nbobby"].concat(), Some(b"bobby"));
    for other in [
        &b"*2\r\n$4\r\nECHO\r\n$5\r\nbobb"[..],
        b"*2\r\n$4\r\nECHO\r\n$",
        b"*2\r\n$4\r\nECHO\r\n$-1\r\n",
        b"*2\r\n$4\r\nECHO\r\n$99999999999999999999\r\n",
        b"*2\r\n$4\r\nECHO\r\n:5\r\nbobby\r\n",
        b"*3\r\n$4\r\nECHO\r\n$5\r\nbobby\r\n",
        b"ECHO ann\r\n",
    ] {
        check(&[&one[..], other].concat(), None);
    }
    check(b"ECHO ann\r\nECHO bob\r\n", None);
}
