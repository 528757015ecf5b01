//! Prints a run as a table.

use std::fmt;

use tollgate_sim::plot::number;

use super::{GrowthReport, Row, case_of};
use crate::report::Machine;

impl fmt::Display for GrowthReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Machine { processor, cores, rustc, commit } = &self.machine;
        writeln!(f, "{processor}, {cores} cores, {rustc}, commit {commit}\n")?;
        writeln!(
            f,
            "{:<21}{:>13} {:<18}{:>10}{:>12}{:>14}{:>12}{:>8}",
            "case", "size", "", "ns", "x smallest", "instructions", "x smallest", "bytes"
        )?;
        let mut last = "";
        for row in &self.rows {
            if row.case != last && !last.is_empty() {
                writeln!(f)?;
            }
            line(f, row, if row.case == last { "" } else { row.case })?;
            last = row.case;
        }
        writeln!(f)?;
        self.remarks.iter().try_for_each(|remark| writeln!(f, "note: {remark}"))?;
        writeln!(f)?;
        self.bars.iter().try_for_each(|bar| writeln!(f, "{bar}"))
    }
}

fn line(f: &mut fmt::Formatter<'_>, row: &Row, case: &str) -> fmt::Result {
    let or_dash = |number: Option<f64>, digits: usize| {
        number.map_or_else(|| "-".to_owned(), |number| format!("{number:.digits$}"))
    };
    writeln!(
        f,
        "{case:<21}{:>13} {:<18}{:>10.1}{:>12.2}{:>14}{:>12}{:>8}",
        number::count(row.size as u64),
        case_of(row).map_or("", |case| case.unit),
        row.ns,
        row.ratio,
        or_dash(row.instructions, 1),
        or_dash(row.instructions_ratio, 3),
        or_dash(row.bytes, 0),
    )
}
