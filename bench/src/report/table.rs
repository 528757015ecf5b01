//! Prints a run as a table.

use std::fmt;

use super::bars::Side;
use super::{Bar, Machine, Report, Row};
use crate::subject;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Machine { processor, cores, rustc, commit } = &self.machine;
        writeln!(f, "{processor}, {cores} cores, {rustc}, commit {commit}\n")?;
        writeln!(
            f,
            "{:<26}{:<23}{:>9}{:>14}{:>12}{:>12}",
            "case", "subject", "ns/check", "instructions", "bytes/key", "x tollgate"
        )?;
        let mut last = "";
        for row in &self.rows {
            if row.case != last && !last.is_empty() {
                writeln!(f)?;
            }
            self.row(f, row, if row.case == last { "" } else { row.case })?;
            last = row.case;
        }
        writeln!(f)?;
        let mut names: Vec<_> = self.rows.iter().map(|row| row.subject).collect();
        names.sort_unstable();
        names.dedup();
        names.iter().try_for_each(|name| writeln!(f, "{name}: {}", subject::remark(name)))?;
        writeln!(f)?;
        self.remarks.iter().try_for_each(|remark| writeln!(f, "note: {remark}"))?;
        writeln!(f)?;
        self.bars.iter().try_for_each(|bar| writeln!(f, "{bar}"))
    }
}

impl Report {
    fn row(&self, f: &mut fmt::Formatter<'_>, row: &Row, case: &str) -> fmt::Result {
        let or_dash = |number: Option<f64>| number.map_or("-".to_owned(), |number| format!("{number:.1}"));
        let ratio = self.ratios.get(row.case).and_then(|ratios| ratios.get(row.subject));
        writeln!(
            f,
            "{case:<26}{:<23}{:>9.1}{:>14}{:>12}{:>12}",
            row.subject,
            row.ns,
            or_dash(row.instructions),
            or_dash(row.bytes_per_key),
            ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}")),
        )
    }
}

impl fmt::Display for Bar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = match self.good {
            Side::AtLeast => "at least",
            Side::AtMost => "at most",
        };
        let (mark, got) = match (self.met, self.got) {
            (Some(true), Some(got)) => ("met   ", format!("{got:.2}")),
            (Some(false), Some(got)) => ("MISSED", format!("{got:.2}")),
            _ => ("-     ", "not measured".to_owned()),
        };
        write!(f, "{mark} {:<48} {got:>6}, {side} {}", self.what, self.bound)
    }
}
