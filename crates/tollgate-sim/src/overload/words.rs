//! The summary of a protection in words.

use super::report::ProtectionReport;

/// Goodput above this share of the possible is described as kept.
const KEPT: f64 = 0.9;

/// Describes the results of a protection. `after` is the time from the last overload to the end, in seconds.
pub(super) fn describe(report: &ProtectionReport, after: f64) -> String {
    let goodput = percent(report.goodput);
    let first = if report.goodput >= KEPT {
        format!("Answered {goodput} of what was possible in time, with a p99 of {} ms.", report.p99_ms)
    } else {
        format!("Answered only {goodput} of what was possible in time, with a p99 of {} ms.", report.p99_ms)
    };
    let important = report.classes.first().map(|class| {
        let success = percent(class.success);
        format!(" {success} of {} calls succeeded.", class.name)
    });
    let routes = report.routes.as_ref().and_then(|it| it.get(1)).map(|others| {
        let success = percent(others.success);
        format!(" Of the calls to other routes, {success} succeeded.")
    });
    let recovery = match report.recovered_after_s {
        None => format!(
            " It had not recovered {after:.0} s after the overload: {} of the calls succeeded.",
            percent(report.success_after)
        ),
        Some(time) if time <= 0.0 => " It recovered at once.".to_owned(),
        Some(time) => format!(" It recovered within {time:.1} s."),
    };
    [Some(first), important, routes, Some(recovery)].into_iter().flatten().collect()
}

/// Formats a share so that only all is 100 %.
pub(super) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent >= 99.95 && share < 1.0 {
        "99.9 %".to_owned()
    } else if percent >= 99.0 && share < 1.0 {
        format!("{percent:.1} %")
    } else {
        format!("{percent:.0} %")
    }
}
