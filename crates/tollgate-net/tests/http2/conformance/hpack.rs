//! Header compression (RFC 7541).

use super::Outcome::{Answered, ConnectionError};
use super::*;

/// The Huffman codes of `user-agent`, and of `no-cache`.
const USER_AGENT: &[u8] = b"\x87\xb5\x05\xb1\x61\xcc\x5a\x93";
const NO_CACHE: &[u8] = b"\x86\xa8\xeb\x10\x64\x9c\xbf";

/// A request whose headers end with these bytes.
fn with(rest: &[u8]) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | END_STREAM, 1, &[b"\x82\x86\x84", rest].concat())
}

fn invalid(number: &'static str, name: &'static str, rest: &[u8]) -> Case {
    Case::new(number, name, &[with(rest)], ConnectionError(COMPRESSION_ERROR))
}

fn valid(number: &'static str, name: &'static str, rest: &[u8]) -> Case {
    Case::new(number, name, &[with(rest)], Answered(1))
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = representations();
    cases.extend(invalid_blocks());
    cases
}

fn representations() -> Vec<Case> {
    let huffman = |first: u8| [&[first], USER_AGENT, NO_CACHE].concat();
    let resized = |sizes: &[u8]| {
        let block = [sizes, b"\x82\x86\x84"].concat();
        frame(HEADERS, END_HEADERS | END_STREAM, 1, &block)
    };
    vec![
        valid("generic/5/1", "an indexed header is decoded", b"\x90"),
        valid("generic/5/2", "an indexed name with a value that enters the table is decoded", b"\x7a\x02ok"),
        valid("generic/5/3", "the same with a Huffman code is decoded", &[b"\x7a", NO_CACHE].concat()),
        valid("generic/5/4", "a new name with a value that enters the table is decoded", b"\x40\x01x\x02ok"),
        valid(
            "generic/5/5",
            "a new name and a value as Huffman codes that enter the table are decoded",
            &huffman(0x40),
        ),
        valid("generic/5/6", "an indexed name with a value outside the table is decoded", b"\x0f\x2b\x02ok"),
        valid(
            "generic/5/7",
            "the same as a Huffman code outside the table is decoded",
            &[b"\x0f\x2b", NO_CACHE].concat(),
        ),
        valid("generic/5/8", "a new name outside the table is decoded", b"\x00\x01x\x02ok"),
        valid("generic/5/9", "a new name as a Huffman code outside the table is decoded", &huffman(0)),
        valid("generic/5/10", "an indexed name that never enters a table is decoded", b"\x1f\x2b\x02ok"),
        valid(
            "generic/5/11",
            "the same as a Huffman code that never enters a table is decoded",
            &[b"\x1f\x2b", NO_CACHE].concat(),
        ),
        valid("generic/5/12", "a new name that never enters a table is decoded", b"\x10\x01x\x02ok"),
        valid(
            "generic/5/13",
            "a new name as a Huffman code that never enters a table is decoded",
            &huffman(0x10),
        ),
        Case::new("generic/5/14", "the table may be resized", &[resized(b"\x20")], Answered(1)),
        Case::new(
            "generic/5/15",
            "the table may be resized twice",
            &[resized(b"\x20\x3f\xe1\x1f")],
            Answered(1),
        ),
        valid("", "an entry of the table is decoded", b"\x40\x01x\x02ok\xbe\x7e\x02no\xbe\xbf"),
        valid("", "an empty value as a Huffman code is decoded", b"\x40\x01x\x80"),
        valid(
            "",
            "an entry that does not fit empties the table",
            &[&b"\x40\x01x\x7f\x81\x1f"[..], &[b'y'; 4_096]].concat(),
        ),
    ]
}

fn invalid_blocks() -> Vec<Case> {
    vec![
        invalid("hpack/2.3.3/1", "an index beyond the tables is invalid", b"\xc6"),
        invalid("hpack/2.3.3/2", "a name beyond the tables is invalid", b"\x7f\x07\x05empty"),
        invalid("hpack/4.2/1", "a size update at the end is invalid", b"\x3f\x81\x1f"),
        invalid(
            "hpack/5.2/1",
            "padding of more than 7 bits is invalid",
            b"\x00\x85\xf2\xb2\x4a\x84\xff\x84\x49\x50\x9f\xff",
        ),
        invalid(
            "hpack/5.2/2",
            "padding with zeros is invalid",
            b"\x00\x85\xf2\xb2\x4a\x84\xff\x83\x49\x50\x90",
        ),
        invalid(
            "hpack/5.2/3",
            "the end of string is invalid",
            b"\x00\x85\xf2\xb2\x4a\x84\xff\x88\x49\x52\x7f\xff\xff\xff\xd4\x9f",
        ),
        invalid("hpack/6.1/1", "an index of zero is invalid", b"\x80"),
        Case::new(
            "hpack/6.3/1",
            "a table above the maximum is invalid",
            &[frame(HEADERS, END_HEADERS | END_STREAM, 1, b"\x3f\xe2\x1f\x82\x86\x84")],
            ConnectionError(COMPRESSION_ERROR),
        ),
        invalid("", "an index of 2^63 is invalid", b"\xff\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01"),
        invalid(
            "",
            "an integer that overflows is invalid",
            b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
        ),
        invalid(
            "",
            "a length that overflows is invalid",
            b"\x00\x7f\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
        ),
        invalid("", "an integer without its end is invalid", b"\xff\x80"),
        invalid("", "a string of more bytes than the block is invalid", b"\x00\x05abc"),
        invalid("", "a literal without a value is invalid", b"\x00\x01x"),
        invalid("", "an index of an evicted entry is invalid", b"\x40\x01x\x02ok\xbf"),
    ]
}

#[test]
fn header_blocks_are_decoded_as_the_standard_says() {
    check(&cases());
}

#[test]
fn the_table_belongs_to_the_connection() {
    let server = Server::start(Caps::default());
    let mut client = RawClient::connect(server.address);
    // The path enters the table with the first request, and the others refer to it.
    let path = [&[0x83, 0x86, 0x44, u8::try_from(ECHO.len()).unwrap()], ECHO.as_bytes()].concat();
    let first = [&path[..], b"\x5f\x10application/grpc"].concat();
    for (stream, block) in [(1, &first[..]), (3, b"\x83\x86\xbf\xbe"), (5, b"\x83\x86\xbf\xbe")] {
        client.send(&frame(HEADERS, END_HEADERS, stream, block));
        client.send(&end(stream, b"hello"));
        assert_eq!(client.response(stream).1, b"hello");
    }
    // Another connection has another table.
    let mut other = RawClient::connect(server.address);
    other.send(&frame(HEADERS, END_HEADERS, 1, b"\x83\x86\xbf\xbe"));
    assert_eq!(other.error(), COMPRESSION_ERROR);
    server.stop((client, other));
}
