//! The index of a sealed segment: from the id of a decision to the offset of its record.
//!
//! | bytes | content |
//! |---|---|
//! | 64 | head: numbers of pages, records and sync points, length and times of the segment, checksum |
//! | 4096 each | pages of up to 340 entries (id and offset), chosen by a hash of the id |
//! | 4 each, 4 | sync points: offsets of frames, about one per 64 KiB, and their checksum |
//!
//! A lookup reads one page, however large the segment is. A page that is full continues in the next
//! one. Pages are three quarters full on average, so this is rare.
//!
//! The sync points let a search read a segment from its end.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use tollgate::Timestamp;

use crate::frame::read_up_to;

const MAGIC: &[u8; 8] = b"TGRECIDX";
const VERSION: u32 = 1;
const HEAD_BYTES: usize = 64;
/// The size of a page, which is the unit in which file systems read.
const PAGE_BYTES: usize = 4096;
/// An id and an offset.
const ENTRY_BYTES: usize = 12;
/// The entries that a page has room for, beside its own head.
const MAX_PAGE_ENTRIES: usize = 340;
/// The entries for which a page is planned.
const PLANNED_PAGE_ENTRIES: u64 = 256;
/// The number of entries, the mark of continuation and the checksum.
const PAGE_HEAD_BYTES: usize = 16;

/// The data about a segment that its index has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexHead {
    pages: u32,
    syncs: u32,
    /// The number of records.
    pub(crate) records: u64,
    /// The length of the segment.
    pub(crate) segment_bytes: u64,
    /// The earliest and the latest time of a record.
    pub(crate) oldest: Timestamp,
    pub(crate) newest: Timestamp,
}

/// Returns the number of bytes of an index.
pub(crate) fn size(records: u64, syncs: u64) -> u64 {
    HEAD_BYTES as u64 + records.div_ceil(PLANNED_PAGE_ENTRIES) * PAGE_BYTES as u64 + 4 * syncs + 4
}

/// The content of a segment, for its index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Content<'a> {
    pub(crate) ids: &'a [u64],
    pub(crate) offsets: &'a [u32],
    pub(crate) syncs: &'a [u32],
    pub(crate) segment_bytes: u64,
    pub(crate) oldest: Timestamp,
    pub(crate) newest: Timestamp,
}

/// Writes an index durably, and atomically: a crash leaves a complete index or none.
pub(crate) fn write(path: &Path, content: &Content<'_>) -> io::Result<()> {
    let bytes = build(content);
    let beside = path.with_extension("new");
    let mut file = crate::segment::private().create(true).truncate(true).open(&beside)?;
    file.write_all(&bytes)?;
    file.sync_all()?;
    fs::rename(&beside, path)
}

fn build(content: &Content<'_>) -> Vec<u8> {
    let pages = (content.ids.len() as u64).div_ceil(PLANNED_PAGE_ENTRIES);
    let pages_len = usize::try_from(pages).unwrap_or(0);
    let mut entries: Vec<(u64, u64, u32)> = content
        .ids
        .iter()
        .zip(content.offsets)
        .map(|(id, offset)| (page_of(*id, pages), *id, *offset))
        .collect();
    entries.sort_unstable();
    let pages_at = HEAD_BYTES;
    let syncs_at = pages_at + pages_len * PAGE_BYTES;
    let mut bytes = vec![0; syncs_at];
    let mut counts = vec![0usize; pages_len];
    for (page, id, offset) in entries {
        let mut page = usize::try_from(page).unwrap_or(0);
        while counts[page] == MAX_PAGE_ENTRIES {
            page = (page + 1) % pages_len;
        }
        let at = pages_at + page * PAGE_BYTES + PAGE_HEAD_BYTES + counts[page] * ENTRY_BYTES;
        bytes[at..at + 8].copy_from_slice(&id.to_le_bytes());
        bytes[at + 8..at + ENTRY_BYTES].copy_from_slice(&offset.to_le_bytes());
        counts[page] += 1;
    }
    for (page, count) in counts.iter().enumerate() {
        let page = &mut bytes[pages_at + page * PAGE_BYTES..][..PAGE_BYTES];
        page[..2].copy_from_slice(&u16::try_from(*count).unwrap_or(0).to_le_bytes());
        let sum = page_checksum(page);
        page[4..8].copy_from_slice(&sum.to_le_bytes());
    }
    for sync in content.syncs {
        bytes.extend_from_slice(&sync.to_le_bytes());
    }
    let sum = crc32fast::hash(&bytes[syncs_at..]);
    bytes.extend_from_slice(&sum.to_le_bytes());
    let head = head_bytes(content, pages);
    bytes[..HEAD_BYTES].copy_from_slice(&head);
    bytes
}

fn head_bytes(content: &Content<'_>, pages: u64) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes();
    head[..8].copy_from_slice(MAGIC);
    head[8..12].copy_from_slice(&VERSION.to_le_bytes());
    head[12..16].copy_from_slice(&small(pages));
    head[16..24].copy_from_slice(&(content.ids.len() as u64).to_le_bytes());
    head[24..32].copy_from_slice(&content.segment_bytes.to_le_bytes());
    head[32..40].copy_from_slice(&content.oldest.as_micros().to_le_bytes());
    head[40..48].copy_from_slice(&content.newest.as_micros().to_le_bytes());
    head[48..52].copy_from_slice(&small(content.syncs.len() as u64));
    let sum = crc32fast::hash(&head[..HEAD_BYTES - 4]);
    head[HEAD_BYTES - 4..].copy_from_slice(&sum.to_le_bytes());
    head
}

impl IndexHead {
    /// Reads the head of an index. `None` if it is damaged, or does not have the size that it states.
    pub(crate) fn read(file: &File) -> io::Result<Option<Self>> {
        let mut head = [0; HEAD_BYTES];
        if read_up_to(file, &mut head, 0)? < HEAD_BYTES {
            return Ok(None);
        }
        let length = file.metadata()?.len();
        Ok(Self::parse(&head).filter(|it| it.size() == length))
    }

    fn parse(head: &[u8; HEAD_BYTES]) -> Option<Self> {
        let small = |at: usize| Some(u32::from_le_bytes(*head.get(at..)?.first_chunk()?));
        let large = |at: usize| Some(u64::from_le_bytes(*head.get(at..)?.first_chunk()?));
        let is_ours = head.starts_with(MAGIC) && small(8)? == VERSION;
        if !is_ours || crc32fast::hash(&head[..HEAD_BYTES - 4]) != small(HEAD_BYTES - 4)? {
            return None;
        }
        Some(Self {
            pages: small(12)?,
            syncs: small(48)?,
            records: large(16)?,
            segment_bytes: large(24)?,
            oldest: Timestamp::from_micros(large(32)?),
            newest: Timestamp::from_micros(large(40)?),
        })
    }

    fn size(&self) -> u64 {
        self.syncs_at() + 4 * u64::from(self.syncs) + 4
    }

    fn syncs_at(&self) -> u64 {
        HEAD_BYTES as u64 + u64::from(self.pages) * PAGE_BYTES as u64
    }

    /// Returns the offset of the record of a decision.
    pub(crate) fn find(&self, file: &File, id: u64) -> io::Result<Option<u32>> {
        if self.pages == 0 {
            return Ok(None);
        }
        let pages = u64::from(self.pages);
        let first = page_of(id, pages);
        let mut page = [0; PAGE_BYTES];
        for step in 0..pages {
            let at = HEAD_BYTES as u64 + (first + step) % pages * PAGE_BYTES as u64;
            file.read_exact_at(&mut page, at)?;
            let (Some(count), Some(sum)) = (page.first_chunk(), page[4..].first_chunk()) else { break };
            let (count, sum) = (usize::from(u16::from_le_bytes(*count)), u32::from_le_bytes(*sum));
            if page_checksum(&page) != sum || count > MAX_PAGE_ENTRIES {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a page of the index is damaged"));
            }
            let entries = page[PAGE_HEAD_BYTES..].chunks_exact(ENTRY_BYTES).take(count);
            for entry in entries {
                if let (Some(known), Some(offset)) = (entry.first_chunk(), entry[8..].first_chunk())
                    && u64::from_le_bytes(*known) == id
                {
                    return Ok(Some(u32::from_le_bytes(*offset)));
                }
            }
            // Only a full page continues in the next one.
            if count < MAX_PAGE_ENTRIES {
                break;
            }
        }
        Ok(None)
    }

    /// Reads the sync points. `None` if they are damaged.
    pub(crate) fn syncs(&self, file: &File) -> io::Result<Option<Vec<u32>>> {
        let mut bytes = vec![0; usize::try_from(4 * u64::from(self.syncs) + 4).unwrap_or(0)];
        file.read_exact_at(&mut bytes, self.syncs_at())?;
        let Some((points, sum)) = bytes.split_last_chunk() else { return Ok(None) };
        if crc32fast::hash(points) != u32::from_le_bytes(*sum) {
            return Ok(None);
        }
        let points = points.chunks_exact(4).filter_map(|it| it.first_chunk());
        Ok(Some(points.map(|it| u32::from_le_bytes(*it)).collect()))
    }
}

/// Returns the page of an id.
fn page_of(id: u64, pages: u64) -> u64 {
    // The ids of a process are spread evenly; those of others might not be.
    let hash = id.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let hash = hash ^ (hash >> 32);
    let page = (u128::from(hash.wrapping_mul(0xd6e8_feb8_6659_fd93)) * u128::from(pages)) >> 64;
    // Less than `pages`.
    u64::try_from(page).unwrap_or(0)
}

/// Returns the checksum of a page, except the checksum itself.
fn page_checksum(page: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&page[..4]);
    hasher.update(&page[8..]);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_testkit::Scratch;

    fn written(ids: &[u64]) -> (Scratch, File, IndexHead) {
        let files = Scratch::new();
        let path = files.path().join("1.idx");
        let offsets: Vec<u32> = (0..).step_by(7).take(ids.len()).collect();
        let content = Content {
            ids,
            offsets: &offsets,
            syncs: &[32, 70_000],
            segment_bytes: 99,
            oldest: Timestamp::from_secs(1),
            newest: Timestamp::from_secs(2),
        };
        write(&path, &content).unwrap();
        let file = File::open(&path).unwrap();
        let head = IndexHead::read(&file).unwrap().unwrap();
        assert_eq!(file.metadata().unwrap().len(), size(ids.len() as u64, 2));
        (files, file, head)
    }

    #[test]
    fn every_id_is_found_and_no_other_one() {
        for count in [0, 1, 2, 255, 256, 257, 5_000] {
            let mut rng = fastrand::Rng::with_seed(count);
            let ids: Vec<_> = (0..count).map(|_| rng.u64(..)).collect();
            let (_files, file, head) = written(&ids);
            for (at, id) in ids.iter().enumerate() {
                assert_eq!(head.find(&file, *id).unwrap(), u32::try_from(7 * at).ok(), "{count}");
                assert_eq!(head.find(&file, id ^ 1).unwrap(), None);
            }
            assert_eq!((head.records, head.syncs(&file).unwrap()), (count, Some(vec![32, 70_000])));
        }
    }

    #[test]
    fn pages_that_are_full_continue_in_the_next_one() {
        // All on the first page of two.
        let ids: Vec<_> = (0..).filter(|id| page_of(*id, 2) == 0).take(400).collect();
        let (_files, file, head) = written(&ids);
        assert!(ids.iter().all(|id| head.find(&file, *id).unwrap().is_some()));
    }

    #[test]
    fn a_damaged_index_is_noticed() {
        let (files, file, head) = written(&[1, 2, 3]);
        let (path, bytes) = (files.path().join("1.idx"), fs::read(files.path().join("1.idx")).unwrap());
        drop((file, head));
        // Every byte of the head and of the end, and some of the page.
        for at in (0..100).chain((100..4_100).step_by(97)).chain(4_100..bytes.len()) {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            fs::write(&path, &changed).unwrap();
            let file = File::open(&path).unwrap();
            let noticed = match IndexHead::read(&file).unwrap() {
                None => true,
                Some(head) => head.find(&file, 2).is_err() || head.syncs(&file).unwrap().is_none(),
            };
            assert!(noticed, "changed at {at}");
            fs::write(&path, &bytes[..at]).unwrap();
            assert_eq!(IndexHead::read(&File::open(&path).unwrap()).unwrap(), None, "cut at {at}");
        }
    }
}
