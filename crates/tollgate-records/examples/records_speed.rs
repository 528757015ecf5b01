//! Measures the decision log: records written per second, bytes per record, and lookups by id.
//!
//! ```text
//! records_speed write DIR COUNT     writes so many records (20,000,000 take about 3 GB)
//! records_speed find DIR COUNT      looks some of them up: cached, and read from the disk
//! ```
//!
//! `make bench-records` runs both.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::error::Error;
use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tollgate::{Call, DecisionId, Limiter, Span, SystemClock, Timestamp};
use tollgate_records::{RecordLog, RecordLogSettings, RecordQuery, RecordWriter};
use tollgate_telemetry::{Record, WatchSettings, Watcher};

const BATCH: u64 = 16_384;
const LOOKUPS: u64 = 2_000;
/// The time that a lookup may take.
const MAX_LOOKUP: Duration = Duration::from_millis(50);

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["write", dir, count] => write(Path::new(dir), count.replace('_', "").parse()?),
        ["find", dir, count] => find(Path::new(dir), count.replace('_', "").parse()?),
        _ => Err("usage: records_speed write|find DIR COUNT".into()),
    }
}

/// The id of the record with a number, spread as real ids are.
fn id(number: u64) -> DecisionId {
    DecisionId(number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17))
}

/// Returns a refusal as the server records it.
fn refusal() -> Outcome<Record> {
    let watcher = Watcher::new(&WatchSettings::default());
    let policy = "{privacy: {keys: hashed}, limits: [{name: api-search, by: api_key, bucket: 1/minute}]}";
    let limiter = Limiter::from_policy(policy)?.with_observer(watcher.clone());
    let call = Call::new("GET", "/api/v1/search").ip([203, 0, 113, 9]).header("x-api-key", "k-123");
    for _ in 0..2 {
        let _recorded = limiter.check(&call);
    }
    let record = watcher.latest_records(1, true).pop().ok_or("no refusal was recorded")?;
    Ok(Record::clone(&record))
}

fn write(dir: &Path, count: u64) -> Outcome<()> {
    let settings = RecordLogSettings { max_bytes: 1 << 40, ..RecordLogSettings::new(dir) };
    let (log, writer) = RecordWriter::start(settings, SystemClock::new())?;
    let template = refusal()?;
    let started = Instant::now();
    let start = Timestamp::from_secs(1_795_000_000);
    for first in (0..count).step_by(usize::try_from(BATCH)?) {
        let copy = |number: u64| {
            let at = start + Span::from_micros(20 * number);
            Arc::new(Record { id: id(number), at, counted_at: at, seq: number, ..template.clone() })
        };
        writer.append((first..count.min(first + BATCH)).map(copy).collect());
        // The queue has room for two batches.
        if (first / BATCH) % 2 == 1 {
            writer.flush();
        }
    }
    writer.flush();
    let (took, status) = (started.elapsed(), log.status());
    println!("written            {} records, {} dropped", status.written, status.dropped);
    println!("segments           {}", status.segments);
    #[allow(clippy::cast_precision_loss, reason = "numbers for people")]
    {
        println!("speed              {:.0} records/s, with making them", count as f64 / took.as_secs_f64());
        println!("bytes per record   {:.1}, with the index", status.bytes as f64 / status.written as f64);
    }
    Ok(())
}

fn find(dir: &Path, count: u64) -> Outcome<()> {
    let started = Instant::now();
    let log = RecordLog::read_dir(dir)?;
    println!("open               {:?} for {} records", started.elapsed(), log.status().records);
    let mut rng = fastrand::Rng::with_seed(7);
    let mut random = || id(rng.u64(..count));
    measure("found, uncached", 200, || forget(dir), || log.find(random()).is_some())?;
    measure("unknown, uncached", 200, || forget(dir), || log.find(DecisionId(random().0 ^ 1)).is_none())?;
    measure("found", LOOKUPS, || Ok(()), || log.find(random()).is_some())?;
    measure("unknown", LOOKUPS, || Ok(()), || log.find(DecisionId(random().0 ^ 1)).is_none())?;
    let latest = RecordQuery { most: 100, ..RecordQuery::default() };
    measure("latest 100", 100, || Ok(()), || log.search(&latest).records.len() == 100)
}

/// Measures a call, each after `before`.
fn measure(
    name: &str,
    count: u64,
    before: impl Fn() -> Outcome<()>,
    mut call: impl FnMut() -> bool,
) -> Outcome<()> {
    let mut times = Vec::new();
    for _ in 0..count {
        before()?;
        let started = Instant::now();
        if !call() {
            return Err(format!("{name}: wrong result").into());
        }
        times.push(started.elapsed());
    }
    times.sort_unstable();
    let at = |percent: usize| times.get((times.len() * percent / 100).min(times.len() - 1)).copied();
    let [p50, p99, max] = [at(50), at(99), at(100)].map(Option::unwrap_or_default);
    println!("{name:18} p50 {p50:?}, p99 {p99:?}, max {max:?}");
    if p99 > MAX_LOOKUP {
        println!("{name:18} the 99th percentile is above {MAX_LOOKUP:?}");
    }
    Ok(())
}

/// Drops the files of a directory from the page cache.
fn forget(dir: &Path) -> Outcome<()> {
    for entry in fs::read_dir(dir)? {
        let file = File::open(entry?.path())?;
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    }
    Ok(())
}
