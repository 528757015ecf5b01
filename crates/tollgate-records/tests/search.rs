//! Searches by time, limit and key, in pages.

use tollgate::{ManualClock, Span};
use tollgate_records::{RecordLog, RecordQuery};
use tollgate_telemetry::Record;
use tollgate_testkit::Scratch;

use crate::support::{NOW, copies, open, records_of, refusal, settings};

/// Returns the numbers of all pages, and the number of pages.
fn search(log: &RecordLog, query: &RecordQuery) -> (Vec<u64>, usize) {
    let (mut query, mut all, mut pages) = (query.clone(), Vec::new(), 0);
    loop {
        let page = log.search(&query);
        assert!(page.records.len() <= query.most);
        all.extend(page.records.iter().map(|it| it.seq));
        pages += 1;
        match page.next {
            Some(next) => query.before = Some(next),
            None => return (all, pages),
        }
    }
}

#[test]
fn pages_have_every_record_once_the_latest_first() {
    let (dir, clock) = (Scratch::new(), ManualClock::at(NOW));
    let (log, writer) = open(settings(dir.path()), &clock);
    for batch in 0..20 {
        writer.append(copies(&refusal(), batch * 1_000, 1_000, NOW));
        writer.flush();
    }
    for most in [1_000, 999, 20_000, 50_000] {
        let (all, pages) = search(&log, &RecordQuery { most, ..RecordQuery::default() });
        assert!(all.iter().copied().eq((0..20_000).rev()), "{most}");
        assert!(pages <= 20_000 / most + 1, "{pages}");
    }
    drop((log, writer));
    let log = RecordLog::read_dir(dir.path()).unwrap();
    assert_eq!(search(&log, &RecordQuery { most: 777, ..RecordQuery::default() }).0.len(), 20_000);
}

#[test]
fn conditions_hold_together() {
    let (dir, clock) = (Scratch::new(), ManualClock::at(NOW));
    let (log, writer) = open(settings(dir.path()), &clock);
    let others = records_of("limits: [{name: other, by: api_key, bucket: 1/minute}]");
    let other = others.iter().find(|it| !it.allowed).unwrap();
    let admitted = Record { allowed: true, ..other.clone() };
    writer.append(copies(&refusal(), 0, 100, NOW));
    writer.append(copies(other, 100, 100, NOW + Span::from_hours(1)));
    writer.append(copies(&admitted, 200, 1, NOW + Span::from_hours(2)));
    writer.flush();
    let all = RecordQuery { most: 1_000, ..RecordQuery::default() };
    let key = other.limits[0].key.to_string();
    let tag = format!("{:016x}", other.limits[0].tag);
    for (query, expected) in [
        (all.clone(), 201),
        (RecordQuery { since: Some(NOW + Span::from_minutes(30)), ..all.clone() }, 101),
        (RecordQuery { until: Some(NOW + Span::from_minutes(30)), ..all.clone() }, 100),
        (RecordQuery { limit: Some("other".to_owned()), ..all.clone() }, 101),
        (RecordQuery { limit: Some("other".to_owned()), refused: true, ..all.clone() }, 100),
        (RecordQuery { key: Some(key), ..all.clone() }, 101),
        (RecordQuery { key: Some(tag), ..all.clone() }, 101),
        (
            RecordQuery { key: Some("203.0.113.9".to_owned()), limit: Some("api".to_owned()), ..all.clone() },
            100,
        ),
        (RecordQuery { key: Some("nobody".to_owned()), ..all }, 0),
    ] {
        assert_eq!(search(&log, &query).0.len(), expected, "{query:?}");
    }
}
