//! Clocks that step: order, lookups and retention hold.

use tollgate::{ManualClock, Span};
use tollgate_records::{RecordLogSettings, RecordQuery};
use tollgate_testkit::Scratch;

use crate::support::{NOW, copies, id, open, refusal, settings};

#[test]
fn a_clock_that_steps_back_loses_nothing() {
    let (dir, clock) = (Scratch::new(), ManualClock::at(NOW));
    let keep = Span::from_days(7);
    let settings = RecordLogSettings { keep, ..settings(dir.path()) };
    let template = refusal();
    // Each start has another clock: right, ten days behind, right again.
    let times = [NOW, NOW.before(Span::from_days(10)), NOW + Span::from_minutes(1)];
    for (at, number) in times.into_iter().zip(0..) {
        clock.set(at);
        let (log, writer) = open(settings.clone(), &clock);
        writer.append(copies(&template, 10 * number, 10, at));
        writer.flush();
        assert!(log.find(id(10 * number)).is_some());
        // The records with the right time stay.
        assert!(log.find(id(0)).is_some(), "start {number}");
    }
    let (log, _writer) = open(settings, &clock);
    assert!(log.find(id(20)).is_some() && log.find(id(5)).is_some());
    let query = RecordQuery { since: Some(NOW), most: 100, ..RecordQuery::default() };
    let page = log.search(&query);
    let found: Vec<_> = page.records.iter().map(|it| it.seq).collect();
    assert_eq!(found, (0..30).rev().filter(|it| !(10..20).contains(it)).collect::<Vec<_>>());
}

#[test]
fn records_from_a_future_that_the_clock_has_left_expire() {
    let (dir, clock) = (Scratch::new(), ManualClock::at(NOW));
    let future = NOW + Span::from_days(3650);
    let settings = settings(dir.path());
    {
        let (_log, writer) = open(settings.clone(), &clock);
        writer.append(copies(&refusal(), 0, 10, future));
        writer.flush();
        writer.append(copies(&refusal(), 10, 10, NOW));
    }
    let (log, writer) = open(settings, &clock);
    assert!(log.find(id(3)).is_some() && log.find(id(13)).is_some());
    // The segment is sealed by its age when the next record comes.
    clock.advance(Span::from_days(1));
    writer.append(copies(&refusal(), 20, 1, NOW + Span::from_days(1)));
    writer.flush();
    clock.advance(Span::from_days(8));
    writer.flush();
    assert!(log.find(id(3)).is_none() && log.find(id(13)).is_none(), "{:?}", log.status());
}
