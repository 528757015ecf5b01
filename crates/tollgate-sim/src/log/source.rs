//! The decompressed bytes of an input. The compression is detected from the content, not from the file name.

use std::io::{self, BufReader, Cursor, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes per read.
const BLOCK_BYTES: usize = 128 << 10;

/// Compression, detected from the first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compression {
    Plain,
    Gzip,
    Zstd,
}

/// A reader of the decompressed bytes of an input.
pub(super) struct Source {
    bytes: Box<dyn Read>,
    packing: Compression,
    read: Arc<AtomicU64>,
}

impl Source {
    /// Detects the compression of an input. The error for an unsupported compression names the program that
    /// decompresses it.
    pub(super) fn open(input: Box<dyn Read + Send>) -> io::Result<Self> {
        let read = Arc::new(AtomicU64::new(0));
        let mut input = CountingReader { input, read: Arc::clone(&read) };
        let mut start = Vec::new();
        input.by_ref().take(6).read_to_end(&mut start)?;
        let packing = Compression::of(&start)?;
        let whole = BufReader::with_capacity(BLOCK_BYTES, Cursor::new(start).chain(input));
        let bytes: Box<dyn Read> = match packing {
            Compression::Plain => Box::new(whole),
            Compression::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(whole)),
            Compression::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::with_buffer(whole)?;
                // The largest window, as `zstd --long=31` uses it.
                decoder.window_log_max(31)?;
                Box::new(decoder)
            }
        };
        Ok(Self { bytes, packing, read })
    }

    /// Returns the bytes that were read of the input so far, before decompression.
    pub(super) fn taken(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// Adds advice to an error.
    fn explained(&self, error: &io::Error) -> io::Error {
        let kind = match self.packing {
            Compression::Plain => return io::Error::new(error.kind(), format!("cannot be read: {error}")),
            Compression::Gzip => "gzip",
            Compression::Zstd => "zstd",
        };
        let text = if error.kind() == io::ErrorKind::UnexpectedEof {
            format!("ends in the middle of its {kind} data: is it still being written, or was it cut off?")
        } else {
            format!("is no proper {kind} data: {error}")
        };
        io::Error::new(error.kind(), text)
    }
}

impl Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.bytes.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.explained(&error)),
                Ok(count) => return Ok(count),
            }
        }
    }
}

impl Compression {
    fn of(start: &[u8]) -> io::Result<Self> {
        let other = match start {
            [0x1f, 0x8b, ..] => return Ok(Self::Gzip),
            // A frame, or a skippable frame, with which `pzstd` output begins.
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => return Ok(Self::Zstd),
            [b'B', b'Z', b'h', b'1'..=b'9', ..] => "is packed by bzip2: unpack it with `bzip2 -dc`",
            [0xfd, b'7', b'z', b'X', b'Z', 0] => "is packed by xz: unpack it with `xz -dc`",
            [0x04, 0x22, 0x4d, 0x18, ..] => "is packed by lz4: unpack it with `lz4 -dc`",
            [b'P', b'K', 3, 4, ..] => "is a zip archive: unpack it with `unzip -p`",
            [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => {
                "is UTF-16: turn it into UTF-8 with `iconv -f UTF-16 -t UTF-8`"
            }
            _ => return Ok(Self::Plain),
        };
        let text = format!("{other}, and give the result here, as a file or as `-` through a pipe");
        Err(io::Error::new(io::ErrorKind::InvalidData, text))
    }
}

/// A reader that counts bytes.
struct CountingReader {
    input: Box<dyn Read + Send>,
    read: Arc<AtomicU64>,
}

impl Read for CountingReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(buffer)?;
        self.read.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}
