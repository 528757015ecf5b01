//! Opens the decision log on disk, and reads one without a server.

use std::path::Path;

use tollgate::SystemClock;
use tollgate_records::{RecordLog, RecordLogError, RecordLogSettings, RecordQuery, RecordWriter};
use tollgate_server::{DecisionLine, decision_line};

use crate::configuration::shown;
use crate::failure::Failure;

/// Opens the log of the settings, and starts its thread.
///
/// A directory of another process, or one that everyone may write to, is an error at the start. A
/// directory that cannot be used for another reason is reported in the log and tried again.
pub(crate) fn open(settings: &RecordLogSettings) -> Result<(RecordLog, RecordWriter), Failure> {
    RecordWriter::start(settings.clone(), SystemClock::new()).map_err(|error| {
        let name = shown(&settings.dir);
        match &error {
            RecordLogError::InUse(_) => {
                Failure::with_help(&error, "each process needs a folder of its own: --set records.dir=FOLDER")
            }
            RecordLogError::Open(_) => Failure::with_help(
                &error,
                format_args!("chmod go-w {name}, or name a folder in it: that is made for this user alone"),
            ),
            _ => Failure::new(&error),
        }
    })
}

/// Returns the latest decisions of a directory that match, the newest last, also while a server writes
/// to it.
pub fn read_decisions(dir: &Path, query: &RecordQuery) -> Result<Vec<DecisionLine>, Failure> {
    let records = RecordLog::read_dir(dir).map_err(|error| {
        Failure::with_help(&error, "`--dir` is the folder of `records: {dir: …}` in the policy of a server")
    })?;
    let (mut query, mut found) = (query.clone(), Vec::new());
    let most = query.most;
    loop {
        query.most = most - found.len();
        let page = records.search(&query);
        found.extend(page.records.iter().map(decision_line::<String>));
        match page.next {
            Some(next) if found.len() < most => query.before = Some(next),
            _ => break,
        }
    }
    found.reverse();
    Ok(found)
}
