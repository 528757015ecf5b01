//! Measures the exactness of each algorithm on a log.

use tollgate_daemon::Failure;
use tollgate_sim::Entry;
use tollgate_sim::log::Requests as _;
use tollgate_sim::simulate::OnLog;

use super::{Report, options};
use crate::arguments::Simulate;
use crate::replay::input;

pub(super) fn report(arguments: &Simulate) -> Result<Report, Failure> {
    let by = arguments.by.as_deref().unwrap_or("ip");
    let (mut contestants, mut notes) = (Vec::new(), Vec::new());
    for rate in options::rates(arguments) {
        let (made, left_out) = options::contestants(arguments, &rate, by)?;
        let rate = made.first().map(|it| it.rate.to_string()).unwrap_or_default();
        notes.extend(left_out.into_iter().map(|note| (rate.clone(), note)));
        contestants.extend(made);
    }
    let mut log = input::open(&arguments.logs, &arguments.reading)?;
    let mut simulation = OnLog::new(contestants, arguments.max_keys as usize);
    let mut entry = Entry::default();
    while log.next(&mut entry).map_err(Failure::new)? {
        simulation.entry(&entry).map_err(Failure::new)?;
    }
    let tally = log.tally();
    if let Some(failure) = input::nothing_read(&log) {
        return Err(failure);
    }
    if tally.lines == 0 {
        return Err(Failure::new("the log is empty"));
    }
    let mut rates = simulation.rounds();
    for round in &mut rates {
        round.notes.extend(log.notes());
    }
    for (rate, note) in notes {
        rates.iter_mut().filter(|round| round.rate == rate).for_each(|round| round.notes.push(note.clone()));
    }
    Ok(Report { log: Some(tally.into()), rates })
}
