//! The bytes of an input, unpacked if they are packed. By what they are, not by how the file is called.

use std::io::{self, BufReader, Cursor, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How much is asked of the system at once.
const BLOCK_BYTES: usize = 128 << 10;

/// What bytes are, by how they begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compression {
    Plain,
    Gzip,
    Zstd,
}

/// The unpacked bytes of an input.
pub(super) struct Source {
    bytes: Box<dyn Read>,
    packing: Compression,
    read: Arc<AtomicU64>,
}

impl Source {
    /// Looks at how an input begins. The error of what cannot be unpacked says with which program it can.
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
                // As far back as `zstd --long=31` refers.
                decoder.window_log_max(31)?;
                Box::new(decoder)
            }
        };
        Ok(Self { bytes, packing, read })
    }

    /// Bytes read of the input so far, packed if they are.
    pub(super) fn taken(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// What went wrong, for whoever should do something about it.
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
            // A frame, or one to be skipped, with which `pzstd` begins.
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

/// Counts what is read.
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
