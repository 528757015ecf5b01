//! Writes records on a thread of its own, fed by a bounded queue.
//!
//! ```text
//! append ─► queue ─► encode ─► write (5 times a second) ─► sync (once a second), delete what is too old or too much
//!      └ full: dropped and counted           └ refused: dropped and counted, tried again every 5 seconds
//! ```
//!
//! A write that fails leaves the segment as it was before. Serving is never affected.
//!
//! Encoding is in `codec`, the files are in `segment`, `index` and `history`.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tollgate::{Clock, Span, Timestamp};
use tollgate_telemetry::Record;

use crate::catalog::{Access, ActiveSegment, Catalog, delete, on_disk};
use crate::codec::{Encoder, RecordHead};
use crate::error::RecordLogError;
use crate::history::{HistoryFile, MinuteCounts, minute_of};
use crate::index::{self, IndexHead};
use crate::log::{RecordLog, Shared, locked};
use crate::segment::{self, SegmentMap, index_path, log_path, private};
use crate::settings::RecordLogSettings;

/// The maximum number of records in the queue: more than half a second at 50,000 refusals a second.
const MAX_QUEUED_RECORDS: usize = 32_768;
/// The maximum number of batches in the queue.
const MAX_QUEUED_BATCHES: usize = 1_024;
/// The longest time that a record waits to be written.
const WRITE_INTERVAL: Duration = Duration::from_millis(200);
/// The interval at which files are made durable, and old ones are deleted.
const SYNC_INTERVAL: Span = Span::from_millis(800);
/// The interval between attempts to write after a failure.
const RETRY_INTERVAL: Span = Span::from_secs(5);
/// The interval between two messages about dropped records.
const REPORT_INTERVAL: Span = Span::from_secs(60);
/// The size of one write.
const MAX_WRITE_BYTES: usize = 256 << 10;
/// The space for the directory, the lock and rounding to blocks.
const RESERVED_BYTES: u64 = 64 << 10;

const LOCK_FILE: &str = "lock";

/// The queue to the thread that writes a decision log.
///
/// Dropping it writes what is in the queue, and ends the thread.
pub struct RecordWriter {
    queue: Option<SyncSender<Message>>,
    queued: Arc<AtomicUsize>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

enum Message {
    Records(Vec<Arc<Record>>),
    Counts(Timestamp, MinuteCounts),
    /// Everything before is durable when the channel is dropped.
    Flush(#[allow(dead_code, reason = "dropped when the flush is done")] SyncSender<()>),
}

impl RecordWriter {
    /// Opens a directory and starts the thread.
    ///
    /// Fails if the directory belongs to another process, or if everyone may write to it. Every other
    /// failure is reported by [`RecordLog::status`], and opening is tried again.
    pub fn start(
        settings: RecordLogSettings,
        clock: impl Clock,
    ) -> Result<(RecordLog, Self), RecordLogError> {
        let shared = Arc::new(Shared::new(settings));
        let (queue, messages) = sync_channel(MAX_QUEUED_BATCHES);
        let queued = Arc::new(AtomicUsize::new(0));
        let mut worker = Worker {
            shared: Arc::clone(&shared),
            queued: Arc::clone(&queued),
            clock: Box::new(clock),
            files: None,
            retry_at: Timestamp::EPOCH,
            synced_at: Timestamp::EPOCH,
            reported: 0,
            reported_at: None,
        };
        match Files::open(&shared) {
            Ok(files) => worker.files = Some(files),
            Err(error @ RecordLogError::Io { .. }) => worker.fail(&error),
            Err(error) => return Err(error),
        }
        let thread = thread::Builder::new().name("records".to_owned()).spawn(move || worker.run(&messages));
        let thread = thread.map_err(RecordLogError::of(shared.dir()))?;
        let writer = Self { queue: Some(queue), queued, shared: Arc::clone(&shared), thread: Some(thread) };
        Ok((RecordLog(shared), writer))
    }

    /// Passes records to the thread. Drops and counts them if it cannot keep up.
    pub fn append(&self, records: Vec<Arc<Record>>) {
        let count = records.len();
        if count == 0 {
            return;
        }
        if self.queued.load(Ordering::Relaxed) + count > MAX_QUEUED_RECORDS {
            self.drop_records(count as u64);
            return;
        }
        self.queued.fetch_add(count, Ordering::Relaxed);
        if !self.send(Message::Records(records)) {
            self.queued.fetch_sub(count, Ordering::Relaxed);
            self.drop_records(count as u64);
        }
    }

    /// Adds counts of decisions to the minute of `now`.
    pub fn count(&self, now: Timestamp, counts: MinuteCounts) {
        if !counts.is_empty() {
            self.send(Message::Counts(now, counts));
        }
    }

    /// Counts records that were lost before they came here.
    pub fn drop_records(&self, count: u64) {
        self.shared.dropped.fetch_add(count, Ordering::Relaxed);
    }

    /// Waits until everything that was appended is on disk, or was dropped.
    pub fn flush(&self) {
        let (done, wait) = sync_channel(0);
        if let Some(queue) = &self.queue
            && queue.send(Message::Flush(done)).is_ok()
        {
            // An error is the end of the flush.
            let _done = wait.recv();
        }
    }

    fn send(&self, message: Message) -> bool {
        let Some(queue) = &self.queue else { return false };
        !matches!(queue.try_send(message), Err(TrySendError::Full(_) | TrySendError::Disconnected(_)))
    }
}

impl Drop for RecordWriter {
    fn drop(&mut self) {
        drop(self.queue.take());
        if let Some(thread) = self.thread.take() {
            // An error means that the thread panicked, which needs no action.
            let _ended = thread.join();
        }
    }
}

/// The thread that writes.
struct Worker {
    shared: Arc<Shared>,
    queued: Arc<AtomicUsize>,
    clock: Box<dyn Clock>,
    /// `None` after a failure.
    files: Option<Files>,
    retry_at: Timestamp,
    synced_at: Timestamp,
    /// The number of dropped records that the log has reported, and when.
    reported: u64,
    reported_at: Option<Timestamp>,
}

impl Worker {
    fn run(mut self, messages: &Receiver<Message>) {
        loop {
            match messages.recv_timeout(WRITE_INTERVAL) {
                Ok(message) => self.handle(message, messages),
                Err(RecvTimeoutError::Timeout) => self.write(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
            let now = self.clock.now();
            if now.since(self.synced_at) >= SYNC_INTERVAL || self.synced_at > now {
                self.synced_at = now;
                self.sync(now);
            }
        }
        self.sync(self.clock.now());
    }

    /// Handles a message and those that have come meanwhile, and writes once.
    fn handle(&mut self, first: Message, messages: &Receiver<Message>) {
        let mut next = Some(first);
        let mut handled = 0;
        while let Some(message) = next {
            match message {
                Message::Records(records) => {
                    self.append(&records);
                    handled += records.len();
                    self.queued.fetch_sub(records.len(), Ordering::Relaxed);
                }
                Message::Counts(now, counts) => self.count(now, &counts),
                Message::Flush(_done) => self.sync(self.clock.now()),
            }
            // Bounded, so that files are synced in time.
            next = if handled < MAX_QUEUED_RECORDS { messages.try_recv().ok() } else { None };
        }
        self.write();
    }

    fn append(&mut self, records: &[Arc<Record>]) {
        let now = self.clock.now();
        self.reopen(now);
        let mut dropped = 0;
        for record in records {
            let Some(files) = self.files.as_mut().filter(|_| self.retry_at <= now) else {
                dropped += 1;
                continue;
            };
            if let Err(error) = files.append(&self.shared, record, now) {
                self.fail(&error);
            }
        }
        self.shared.dropped.fetch_add(dropped, Ordering::Relaxed);
    }

    fn count(&mut self, now: Timestamp, counts: &MinuteCounts) {
        let Some(files) = self.files.as_mut().filter(|_| self.retry_at <= now) else { return };
        if let Err(error) = files.count(&self.shared, now, counts) {
            self.fail(&error);
        }
    }

    fn write(&mut self) {
        let Some(files) = &mut self.files else { return };
        match files.write(&self.shared) {
            Ok(0) => {}
            Ok(_) => self.recover(),
            Err(error) => self.fail(&error),
        }
    }

    /// Makes everything durable, and deletes what is too old.
    fn sync(&mut self, now: Timestamp) {
        self.reopen(now);
        self.write();
        if let Some(files) = self.files.as_mut().filter(|_| self.retry_at <= now)
            && let Err(error) = files.sync(&self.shared, now)
        {
            self.fail(&error);
        }
        self.report(now);
    }

    /// Opens the directory again, some time after it could not be opened.
    fn reopen(&mut self, now: Timestamp) {
        if self.files.is_some() || now < self.retry_at {
            return;
        }
        match Files::open(&self.shared) {
            Ok(files) => {
                self.files = Some(files);
                self.recover();
            }
            Err(error) => self.fail(&error),
        }
    }

    /// Notes a failure. The first one is logged.
    fn fail(&mut self, error: &RecordLogError) {
        self.shared.failures.fetch_add(1, Ordering::Relaxed);
        self.retry_at = self.clock.now() + RETRY_INTERVAL;
        if let Some(files) = &mut self.files
            && !files.roll_back(&self.shared)
        {
            self.files = None;
        }
        let text = error.to_string();
        let before = locked(&self.shared.failure).replace(text.clone());
        if before.is_none() {
            tracing::error!(
                "decisions are not written to the decision log: {text}; serving goes on, lost decisions are \
                 counted (tollgate_records_dropped_total), and writing is tried again every {} s",
                RETRY_INTERVAL.as_secs_ceil()
            );
        }
    }

    /// Notes the end of a failure.
    fn recover(&mut self) {
        if locked(&self.shared.failure).take().is_some() {
            tracing::info!("decisions are written to the decision log again");
        }
    }

    /// Logs that records are dropped although the disk is writable, once a minute.
    fn report(&mut self, now: Timestamp) {
        let dropped = self.shared.dropped.load(Ordering::Relaxed);
        let is_due = self.reported_at.is_none_or(|at| now.since(at) >= REPORT_INTERVAL);
        if dropped == self.reported || !is_due || locked(&self.shared.failure).is_some() {
            return;
        }
        let more = dropped - self.reported;
        (self.reported, self.reported_at) = (dropped, Some(now));
        tracing::warn!(
            "{more} decisions were not written to the decision log, because they came faster than it writes \
             (tollgate_records_dropped_total)"
        );
    }
}

/// The open files of a directory.
struct Files {
    /// Released when the process ends.
    _lock: File,
    history: HistoryFile,
    segment: Option<File>,
    encoder: Encoder,
    /// The time at which the segment was opened.
    opened_at: Option<Timestamp>,
    /// The length of the segment.
    start: u64,
    /// Encoded frames that are not written yet, and their records.
    buffer: Vec<u8>,
    added: Vec<(RecordHead, u64)>,
    dirty: bool,
}

impl Files {
    /// Opens and locks a directory.
    fn open(shared: &Shared) -> Result<Self, RecordLogError> {
        let dir = shared.dir();
        let io = |error| RecordLogError::Io { path: dir.to_owned(), error };
        if !dir.is_dir() {
            DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(io)?;
        }
        check_owner(dir)?;
        let lock = private().create(true).truncate(false).open(dir.join(LOCK_FILE)).map_err(io)?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => RecordLogError::InUse(dir.to_owned()),
            TryLockError::Error(error) => io(error),
        })?;
        let catalog = Catalog::open(dir, Access::Write)?;
        let (history, minutes) = HistoryFile::open(dir).map_err(io)?;
        let segment = match &catalog.active {
            Some(active) => {
                let path = log_path(dir, active.number);
                Some(append_to(&path).map_err(RecordLogError::of(&path))?)
            }
            None => None,
        };
        let opened_at = catalog.active.as_ref().filter(|it| !it.map.ids.is_empty()).map(|it| it.map.oldest);
        *shared.catalog() = catalog;
        *shared.minutes() = minutes;
        Ok(Self {
            _lock: lock,
            history,
            segment,
            encoder: Encoder::default(),
            opened_at,
            start: 0,
            buffer: Vec::with_capacity(MAX_WRITE_BYTES + (16 << 10)),
            added: Vec::new(),
            dirty: false,
        })
    }

    fn append(&mut self, shared: &Shared, record: &Record, now: Timestamp) -> Result<(), RecordLogError> {
        if self.buffer.is_empty() {
            self.begin(shared, now)?;
        }
        match self.encoder.put(&mut self.buffer, self.start, record) {
            Some(offset) => self.added.push((RecordHead { id: record.id.0, at: record.at }, offset)),
            None => _ = shared.dropped.fetch_add(1, Ordering::Relaxed),
        }
        if self.buffer.len() >= MAX_WRITE_BYTES {
            self.write(shared)?;
        }
        Ok(())
    }

    /// Makes sure that there is a segment with room.
    fn begin(&mut self, shared: &Shared, now: Timestamp) -> Result<(), RecordLogError> {
        let is_full = |it: &ActiveSegment| it.map.bytes >= shared.settings.segment_bytes();
        let (has_records, is_full) = {
            let catalog = shared.catalog();
            let active = catalog.active.as_ref();
            (active.is_some_and(|it| !it.map.ids.is_empty()), active.is_some_and(is_full))
        };
        // A clock that steps back ends the segment too, so that the times of a segment are close.
        let span = shared.settings.segment_span();
        let is_old = self.opened_at.is_some_and(|at| now.since(at) >= span || at.since(now) >= span);
        if is_full || (is_old && has_records) {
            self.seal(shared)?;
        }
        if self.segment.is_none() {
            self.create(shared)?;
        }
        self.opened_at.get_or_insert(now);
        self.start = shared.catalog().active.as_ref().map_or(0, |it| it.map.bytes);
        Ok(())
    }

    fn create(&mut self, shared: &Shared) -> Result<(), RecordLogError> {
        self.make_room(shared, segment::HEAD_BYTES as u64)?;
        let number = shared.catalog().next_number();
        let path = log_path(shared.dir(), number);
        let create = || {
            let mut file = private().create_new(true).append(true).open(&path)?;
            file.write_all(&segment::head(number))?;
            sync_dir(shared.dir())?;
            Ok(file)
        };
        let file = create().map_err(|error| {
            // Without a head, the file would be damaged.
            let _removed = fs::remove_file(&path);
            RecordLogError::Io { path: path.clone(), error }
        })?;
        self.segment = Some(file);
        self.encoder = Encoder::default();
        self.opened_at = None;
        shared.catalog().active = Some(ActiveSegment { number, map: SegmentMap::new() });
        Ok(())
    }

    /// Writes the index of the segment, and closes it.
    fn seal(&mut self, shared: &Shared) -> Result<(), RecordLogError> {
        // Only this thread changes the active segment, so a copy of its map stays valid.
        let Some((number, map)) = shared.catalog().active.as_ref().map(|it| (it.number, it.map.clone()))
        else {
            return Ok(());
        };
        let (log, path) = (log_path(shared.dir(), number), index_path(shared.dir(), number));
        if let Some(file) = &self.segment {
            file.sync_data().map_err(RecordLogError::of(&log))?;
        }
        let write = || {
            index::write(&path, &map.content())?;
            sync_dir(shared.dir())?;
            IndexHead::read(&File::open(&path)?)
        };
        let head = write().map_err(RecordLogError::of(&path))?;
        shared.catalog().seal(head);
        (self.segment, self.opened_at, self.dirty) = (None, None, false);
        Ok(())
    }

    /// Writes the buffer, and returns the number of records.
    fn write(&mut self, shared: &Shared) -> Result<usize, RecordLogError> {
        if self.buffer.is_empty() {
            return Ok(0);
        }
        self.make_room(shared, self.buffer.len() as u64)?;
        let number = shared.catalog().active.as_ref().map_or(0, |it| it.number);
        let Some(file) = &mut self.segment else { return Ok(0) };
        file.write_all(&self.buffer).map_err(RecordLogError::of(&log_path(shared.dir(), number)))?;
        let count = self.added.len();
        if let Some(active) = &mut shared.catalog().active {
            active.map.bytes += self.buffer.len() as u64;
            self.added.drain(..).for_each(|(head, offset)| active.map.add(head, offset));
        }
        self.buffer.clear();
        self.dirty = true;
        shared.written.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }

    /// Deletes the oldest segments until `bytes` more fit, with their part of the index.
    fn make_room(&self, shared: &Shared, bytes: u64) -> Result<(), RecordLogError> {
        // An entry of an index takes 16 bytes on average; a page more for rounding.
        let wanted = on_disk(bytes) + on_disk(16 * self.added.len() as u64) + RESERVED_BYTES;
        let other = self.other_space(shared);
        loop {
            let oldest = {
                let catalog = shared.catalog();
                if catalog.space() + other + wanted <= shared.settings.max_bytes {
                    return Ok(());
                }
                catalog.sealed.first().map(|it| it.number)
            };
            match oldest {
                Some(number) => remove(shared, number)?,
                // The segment being written is a fraction of the whole.
                None => return Ok(()),
            }
        }
    }

    fn other_space(&self, shared: &Shared) -> u64 {
        let space = on_disk(self.history.size());
        shared.other_space.store(space, Ordering::Relaxed);
        space
    }

    fn count(
        &mut self,
        shared: &Shared,
        now: Timestamp,
        counts: &MinuteCounts,
    ) -> Result<(), RecordLogError> {
        let added = self.history.add(minute_of(now), counts, &mut shared.minutes());
        added.map_err(RecordLogError::of(shared.dir()))
    }

    /// Makes the files durable, and deletes what is too old.
    fn sync(&mut self, shared: &Shared, now: Timestamp) -> Result<(), RecordLogError> {
        if let Some(file) = &self.segment
            && std::mem::take(&mut self.dirty)
        {
            file.sync_data().map_err(RecordLogError::of(shared.dir()))?;
        }
        self.history.sync().map_err(RecordLogError::of(shared.dir()))?;
        self.expire(shared, now)
    }

    fn expire(&mut self, shared: &Shared, now: Timestamp) -> Result<(), RecordLogError> {
        let (keep, span) = (shared.settings.keep, shared.settings.segment_span());
        // The first record of a segment is up to `span` older than its last one.
        let age = Span::from_micros(keep.as_micros().saturating_sub(span.as_micros()));
        let is_old = shared.catalog().active.as_ref().is_some_and(|it| {
            !it.map.ids.is_empty() && it.map.newest <= now && now.since(it.map.newest) >= age
        });
        if is_old {
            self.write(shared)?;
            self.seal(shared)?;
        }
        loop {
            let old = shared.catalog().sealed.iter().find(|it| it.is_older(age, now)).map(|it| it.number);
            let Some(number) = old else { break };
            remove(shared, number)?;
        }
        let first = minute_of(now.before(keep));
        let expired = self.history.expire(first, &mut shared.minutes());
        self.other_space(shared);
        expired.map_err(RecordLogError::of(shared.dir()))
    }

    /// Drops what was not written, and restores the segment. Returns whether the files are usable.
    fn roll_back(&mut self, shared: &Shared) -> bool {
        shared.dropped.fetch_add(self.added.len() as u64, Ordering::Relaxed);
        self.buffer.clear();
        self.added.clear();
        // Its definitions may not have been written.
        self.encoder = Encoder::default();
        let bytes = shared.catalog().active.as_ref().map(|it| it.map.bytes);
        match (&self.segment, bytes) {
            (Some(file), Some(bytes)) => file.set_len(bytes).is_ok(),
            _ => true,
        }
    }
}

/// Deletes a segment, first from the list.
fn remove(shared: &Shared, number: u64) -> Result<(), RecordLogError> {
    delete(shared.dir(), number)?;
    shared.catalog().sealed.retain(|it| it.number != number);
    Ok(())
}

/// Checks that no other user may write to the directory.
fn check_owner(dir: &Path) -> Result<(), RecordLogError> {
    let metadata = fs::metadata(dir).map_err(RecordLogError::of(dir))?;
    let (mode, owner, us) = (metadata.mode(), metadata.uid(), rustix::process::geteuid().as_raw());
    let is_open = mode & 0o002 != 0 || (mode & 0o020 != 0 && owner != us && owner != 0);
    if is_open { Err(RecordLogError::Open(dir.to_owned())) } else { Ok(()) }
}

fn append_to(path: &Path) -> io::Result<File> {
    let flags = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
    fs::OpenOptions::new().append(true).custom_flags(flags).open(path)
}

/// Makes new and deleted names durable.
fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}
