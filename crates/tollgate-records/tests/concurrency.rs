//! Readers and the writer at the same time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use tollgate::ManualClock;
use tollgate_records::RecordQuery;
use tollgate_testkit::Scratch;

use crate::support::{NOW, copies, id, open, refusal, settings};

#[test]
fn readers_find_what_was_flushed_while_segments_are_sealed_and_deleted() {
    let (dir, clock) = (Scratch::new(), ManualClock::at(NOW));
    let (log, writer) = open(settings(dir.path()), &clock);
    let (template, written) = (refusal(), AtomicU64::new(0));
    thread::scope(|scope| {
        for reader in 0..3u64 {
            let (log, written) = (log.clone(), &written);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(reader);
                loop {
                    let last = written.load(Ordering::Acquire);
                    if last >= 200_000 {
                        break;
                    }
                    if last > 0 {
                        // The last thousands are never deleted.
                        let number = rng.u64(last.saturating_sub(5_000)..last);
                        assert_eq!(log.find(id(number)).map(|it| it.seq), Some(number));
                        let page = log.search(&RecordQuery { most: 10, ..RecordQuery::default() });
                        assert_eq!(page.records.len(), 10);
                    }
                }
            });
        }
        for batch in 0..100 {
            writer.append(copies(&template, batch * 2_000, 2_000, NOW));
            writer.flush();
            written.store((batch + 1) * 2_000, Ordering::Release);
        }
    });
    assert_eq!((log.status().dropped, log.status().written), (0, 200_000));
}
