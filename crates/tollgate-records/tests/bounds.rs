//! The log never exceeds its size, and keeps no record for longer than configured.

use tollgate::{ManualClock, Span};
use tollgate_records::{MinuteCounts, RecordLogSettings};
use tollgate_testkit::Scratch;

use crate::support::{NOW, copies, disk_space, files, id, open, refusal, settings};

#[test]
fn the_disk_space_never_exceeds_its_bound() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let (dir, clock) = (Scratch::new(), ManualClock::at(NOW));
    let max = settings(dir.path()).max_bytes;
    let (mut log, mut writer) = open(settings(dir.path()), &clock);
    let (template, mut next, mut largest) = (refusal(), 0, 0);
    while next < 400_000 {
        let count = rng.u64(1..8_000);
        writer.append(copies(&template, next, count, clock_now(&clock)));
        writer.count(clock_now(&clock), MinuteCounts { refused: count, ..MinuteCounts::default() });
        writer.flush();
        next += count;
        clock.advance(Span::from_secs(rng.u64(0..100)));
        let space = disk_space(dir.path());
        largest = largest.max(space);
        assert!(space <= max, "{space} after {next} records");
        assert!(log.status().bytes <= max);
        if rng.u8(..20) == 0 {
            drop((log, writer));
            (log, writer) = open(settings(dir.path()), &clock);
        }
    }
    // The bound is used, the last records are there, and the first ones are not.
    assert!(largest > max * 9 / 10, "{largest}");
    assert!(log.find(id(next - 1)).is_some() && log.find(id(0)).is_none());
    assert_eq!(log.status().dropped, 0);
    // A flood does not shorten the history.
    let history = log.history(NOW..=clock_now(&clock), 1);
    assert_eq!(history.steps.iter().map(|it| it.refused).sum::<u64>(), next);
}

fn clock_now(clock: &ManualClock) -> tollgate::Timestamp {
    tollgate::Clock::now(clock)
}

#[test]
fn records_are_kept_for_their_time_and_no_longer() {
    let (dir, clock) = (Scratch::new(), ManualClock::at(NOW));
    let keep = Span::from_hours(32);
    let (log, writer) = open(RecordLogSettings { keep, ..settings(dir.path()) }, &clock);
    let template = refusal();
    for hour in 0..80 {
        let at = NOW + Span::from_hours(hour);
        clock.set(at);
        writer.append(copies(&template, hour, 1, at));
        writer.flush();
        for number in 0..=hour {
            let age = hour - number;
            let is_found = log.find(id(number)).is_some();
            // Deleted up to a 32nd of the time early.
            assert!(age < 31 || !is_found || age == 31, "{age} h old at {hour} h");
            assert!(age > 30 || is_found, "{age} h old at {hour} h");
        }
    }
    // Without new records, too.
    clock.advance(Span::from_hours(33));
    writer.flush();
    assert_eq!((log.status().records, files(dir.path(), "log").len()), (0, 0));
}

#[test]
fn a_queue_that_is_full_drops_and_counts() {
    let (dir, clock) = (Scratch::new(), ManualClock::at(NOW));
    let (log, writer) = open(settings(dir.path()), &clock);
    let batch = copies(&refusal(), 0, 40_000, NOW);
    writer.append(batch);
    writer.flush();
    assert_eq!((log.status().dropped, log.status().written), (40_000, 0));
    writer.drop_records(2);
    assert_eq!(log.status().dropped, 40_002);
}
