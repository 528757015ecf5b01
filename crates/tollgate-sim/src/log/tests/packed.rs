//! Compressed inputs, truncated inputs, and unusual line ends.

use std::io::Write as _;

use super::*;

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).unwrap()
}

fn log(from: u64, to: u64) -> Vec<u8> {
    (from..to).map(|second| line(second, "/")).collect::<String>().into_bytes()
}

fn failure(bytes: Vec<u8>) -> String {
    read(one(bytes), &ReadOptions::default()).unwrap_err().to_string()
}

#[test]
fn compression_is_detected_from_the_content() {
    let halves = (log(0, 2_000), log(2_000, 4_000));
    let packed = [
        [halves.0.clone(), halves.1.clone()].concat(),
        [gzip(&halves.0), gzip(&halves.1)].concat(),
        [zstd(&halves.0), zstd(&halves.1)].concat(),
        // The file begins with a skippable frame.
        [vec![0x50, 0x2a, 0x4d, 0x18, 2, 0, 0, 0, 9, 9], zstd(&halves.0), zstd(&halves.1)].concat(),
    ];
    for bytes in packed {
        let size = bytes.len() as u64;
        let seen = read(one(bytes), &ReadOptions::default()).unwrap();
        assert_eq!((seen.entries.len(), seen.tally.lines, seen.tally.skipped), (4_000, 4_000, 0));
        assert_eq!(seen.tally.bytes, size, "progress is of the file as it is");
    }
}

#[test]
fn a_truncated_input_is_an_error_that_names_the_line() {
    for (pack, name) in [(gzip as fn(&[u8]) -> Vec<u8>, "gzip"), (zstd, "zstd")] {
        let mut bytes = pack(&log(0, 20_000));
        bytes.truncate(bytes.len() / 2);
        let error = failure(bytes);
        assert!(error.starts_with(&format!("a.log ends in the middle of its {name} data")), "{error}");
        assert!(error.contains("(after line "), "{error}");
    }
    let mut bytes = gzip(&log(0, 20_000));
    let middle = bytes.len() / 2;
    bytes[middle..middle + 64].fill(0xff);
    assert!(failure(bytes).starts_with("a.log is no proper gzip data"));
}

#[test]
fn an_unsupported_compression_names_the_program_to_use() {
    let cases: [(&[u8], &str); 5] = [
        (b"BZh91AY&SY", "bzip2 -dc"),
        (b"\xfd7zXZ\0\0", "xz -dc"),
        (b"\x04\x22\x4d\x18", "lz4 -dc"),
        (b"PK\x03\x04\x14", "unzip -p"),
        (b"\xff\xfe1\x002\x00", "iconv -f UTF-16"),
    ];
    for (bytes, expected) in cases {
        let error = failure(bytes.to_vec());
        assert!(error.starts_with("a.log is ") && error.contains(expected), "{error}");
    }
}

#[test]
fn line_ends_byte_order_marks_and_nuls_are_not_part_of_a_line() {
    let line = line(1, "/a");
    let bare = line.trim_end();
    let logs = [
        format!("{bare}\r\n\r\n\n{bare}"),
        format!("\u{feff}{bare}\n\n{bare}\n"),
        format!("{}{bare}\n\0\0\n{bare}\0\n", "\0".repeat(3 << 20)),
    ];
    for log in logs {
        let seen = read(one(log), &ReadOptions::default()).unwrap();
        assert_eq!((seen.entries.len(), seen.tally.lines, seen.tally.skipped), (2, 2, 0));
        assert!(seen.entries.iter().all(|it| it.header("user-agent") == Some(b"curl")));
    }
    for nothing in ["", "\n\r\n", "\0\0", "\u{feff}"] {
        let seen = read(one(nothing), &ReadOptions::default()).unwrap();
        assert_eq!((seen.entries.len(), seen.tally.lines), (0, 0));
    }
}

#[test]
fn a_line_that_is_too_long_is_skipped_and_the_next_one_is_read() {
    let log =
        [line(1, "/a"), "x".repeat(5 << 20), "\n".to_owned(), line(2, "/b"), line(3, &"y".repeat(1 << 20))]
            .concat();
    let seen = read(one(log), &ReadOptions::default()).unwrap();
    let paths: Vec<_> = seen.entries.iter().map(|it| it.path().to_owned()).collect();
    assert_eq!(paths, ["/a", "/b"]);
    assert_eq!((seen.tally.lines, seen.tally.skipped), (4, 2));
    let skipped = seen.skipped.unwrap();
    assert_eq!(
        (skipped.input.as_str(), skipped.line, skipped.text.as_str()),
        ("a.log", 2, "(longer than 1 MiB)")
    );
}

#[test]
fn the_first_skipped_line_is_reported_with_its_number() {
    let log =
        [line(1, "/a"), "\n".into(), "what is this?\n".into(), "and this?\n".into(), line(2, "/b")].concat();
    let seen = read(one(log), &ReadOptions::default()).unwrap();
    let skipped = seen.skipped.unwrap();
    assert_eq!((skipped.line, skipped.text.as_str()), (3, "what is this?"));
    assert_eq!((seen.tally.lines, seen.tally.skipped), (4, 2));
}

#[test]
fn paths_that_are_not_utf8_stay_different() {
    let paths = |byte: u8| {
        let log = line(1, "/a") + &line(1, "/x");
        let log: Vec<u8> = log.bytes().map(|it| if it == b'x' { byte } else { it }).collect();
        let seen = read(one(log), &ReadOptions::default()).unwrap();
        seen.entries.iter().map(|it| it.path().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(paths(0xfe), ["/a", "/%FE"]);
    assert_eq!(paths(0xff), ["/a", "/%FF"]);
}

/// A reader that returns some bytes and then fails.
struct Broken(io::Cursor<Vec<u8>>);

impl io::Read for Broken {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.0.read(buffer)? {
            0 => Err(io::Error::other("the disk is gone")),
            count => Ok(count),
        }
    }
}

#[test]
fn a_read_error_names_the_input_and_the_line() {
    let broken = Broken(io::Cursor::new(log(0, 10_000)));
    let error = read(vec![Input::new("b.log", broken)], &ReadOptions::default()).unwrap_err().to_string();
    assert!(error.starts_with("b.log cannot be read: the disk is gone (after line "), "{error}");
}
