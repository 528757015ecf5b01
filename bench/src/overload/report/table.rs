//! Prints a run as a table.

use std::fmt;

use super::{OverloadReport, Row, Setting};
use crate::overload::figures::Figures;
use crate::report::Machine;

impl fmt::Display for OverloadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Setting { machine, versions, workers, service_ms, service_time, capacity, seconds } =
            &self.setting;
        let Machine { processor, cores, rustc, commit } = machine;
        writeln!(f, "{processor}, {cores} cores, {rustc}, commit {commit}")?;
        versions.iter().try_for_each(|(name, version)| writeln!(f, "{name}: {version}"))?;
        writeln!(
            f,
            "{workers} workers of {service_ms} ms ({service_time}): {capacity} requests/s; {seconds} s of overload\n"
        )?;
        writeln!(
            f,
            "{:<10}{:<28}{:>8}{:>9}{:>8}{:>8}{:>10}{:>8}{:>7}{:>7}{:>8}{:>7}{:>7}{:>11}{:>8}",
            "case",
            "subject",
            "offered",
            "goodput",
            "p50 ms",
            "p99 ms",
            "critical",
            "normal",
            "bulk",
            "lost",
            "refusal",
            "cores",
            "MiB",
            "recovered",
            "late"
        )?;
        let mut last = "";
        for row in &self.rows {
            if row.case != last && !last.is_empty() {
                writeln!(f)?;
            }
            write_row(f, row, if row.case == last { "" } else { row.case })?;
            last = row.case;
        }
        writeln!(
            f,
            "\n{:<38}{:>8}{:>16}{:>11}",
            "learned limit, halved capacity", "limit", "x Little's law", "settled"
        )?;
        for row in self.rows.iter().filter(|row| row.median.limit.is_some()) {
            let it = &row.median;
            let settled = seconds_or_never(it.settled_s);
            let (limit, over) = (or_dash(it.limit, 0), or_dash(it.limit_over_little, 2));
            writeln!(f, "{:<10}{:<28}{limit:>8}{over:>16}{settled:>11}", "", row.subject)?;
        }
        writeln!(f)?;
        self.remarks.iter().try_for_each(|remark| writeln!(f, "note: {remark}"))?;
        writeln!(f)?;
        self.bars.iter().try_for_each(|bar| writeln!(f, "{bar}"))
    }
}

fn write_row(f: &mut fmt::Formatter<'_>, row: &Row, case: &str) -> fmt::Result {
    let it: &Figures = &row.median;
    let recovered = if row.case == "recovery" { seconds_or_never(it.recovered_s) } else { "-".to_owned() };
    writeln!(
        f,
        "{case:<10}{:<28}{:>8.0}{:>7.1} %{:>8.1}{:>8.1}{:>8.2} %{:>6.1} %{:>5.1} %{:>5.1} %{:>8}{:>7}{:>7}{recovered:>11}{:>8.1}",
        row.subject,
        it.offered_per_second,
        it.goodput * 100.0,
        it.p50_ms,
        it.p99_ms,
        it.success.critical * 100.0,
        it.success.normal * 100.0,
        it.success.bulk * 100.0,
        it.lost * 100.0,
        or_dash(it.refusal_p50_ms, 1),
        or_dash(it.cores, 2),
        or_dash(it.resident_mib, 0),
        it.late_p99_ms,
    )
}

fn or_dash(number: Option<f64>, places: usize) -> String {
    number.map_or("-".to_owned(), |number| format!("{number:.places$}"))
}

fn seconds_or_never(seconds: Option<f64>) -> String {
    seconds.map_or("never".to_owned(), |seconds| format!("{seconds:.2} s"))
}
