//! A process that is killed loses at most the last second.
//!
//! The test starts itself again as the process that writes, because it needs one to kill.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tollgate::SystemClock;
use tollgate_records::RecordWriter;
use tollgate_testkit::Scratch;

use crate::support::{NOW, copies, id, refusal, settings};

const DIR: &str = "TOLLGATE_TEST_DIR";

#[test]
#[ignore = "the process that is killed; the other test starts it"]
fn writes_until_it_is_killed() {
    let dir = std::env::var(DIR).unwrap();
    let (_log, writer) = RecordWriter::start(settings(dir.as_ref()), SystemClock::new()).unwrap();
    let (template, mut out) = (refusal(), std::io::stdout());
    for batch in 0.. {
        writer.append(copies(&template, batch * 20, 20, NOW));
        writeln!(out, "appended {}", batch * 20 + 19).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_killed_process_loses_at_most_the_last_second() {
    for round in 0..3u32 {
        let dir = Scratch::new();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "killed::writes_until_it_is_killed", "--ignored", "--nocapture"])
            .env(DIR, dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let started = Instant::now();
        let mut appended = Vec::new();
        while started.elapsed() < Duration::from_millis(1_500 + 137 * u64::from(round)) {
            let line = lines.next().unwrap();
            if let Some(number) = line.strip_prefix("appended ") {
                appended.push((Instant::now(), number.parse::<u64>().unwrap()));
            }
        }
        let killed = Instant::now();
        child.kill().unwrap();
        child.wait().unwrap();
        let (log, _writer) = RecordWriter::start(settings(dir.path()), SystemClock::new()).unwrap();
        let old = appended.iter().filter(|(at, _)| killed.duration_since(*at) >= Duration::from_secs(1));
        let last = old.map(|(_, number)| *number).max().unwrap();
        assert!(last > 100, "{last}");
        let missing = (0..=last).filter(|number| log.find(id(*number)).is_none()).count();
        assert_eq!((missing, log.status().failure), (0, None), "of {last}");
    }
}
