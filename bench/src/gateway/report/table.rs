//! A run as people read it.

use std::fmt;

use super::{GatewayReport, Row, Setting};
use crate::report::Machine;

impl fmt::Display for GatewayReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Setting { machine, versions, connections, seconds } = &self.setting;
        let Machine { processor, cores, rustc, commit } = machine;
        writeln!(f, "{processor}, {cores} cores, {rustc}, commit {commit}")?;
        versions.iter().try_for_each(|(name, version)| writeln!(f, "{name}: {version}"))?;
        writeln!(f, "{connections} connections, {seconds} s in each round")?;
        writeln!(
            f,
            "\n{:<15}{:<20}{:>9}{:>9}{:>9}{:>9}{:>9}{:>7}{:>14}{:>8}{:>12}",
            "case",
            "subject",
            "req/s",
            "CPU us",
            "kernel",
            "p50 us",
            "p99 us",
            "core",
            "instructions",
            "bytes",
            "x tollgate"
        )?;
        let mut last = "";
        for row in &self.rows {
            if row.case != last && !last.is_empty() {
                writeln!(f)?;
            }
            self.row(f, row, if row.case == last { "" } else { row.case })?;
            last = row.case;
        }
        self.weights(f)?;
        writeln!(f)?;
        self.remarks.iter().try_for_each(|remark| writeln!(f, "note: {remark}"))?;
        writeln!(f)?;
        self.bars.iter().try_for_each(|bar| writeln!(f, "{bar}"))
    }
}

impl GatewayReport {
    fn row(&self, f: &mut fmt::Formatter<'_>, row: &Row, case: &str) -> fmt::Result {
        let ours = self.rows.iter().find(|other| other.case == row.case && other.subject == "tollgate");
        let ratio = ours.map(|ours| ours.median.per_second / row.median.per_second);
        let or_dash = |number: Option<f64>, places: usize| {
            number.map_or("-".to_owned(), |number| format!("{number:.places$}"))
        };
        let it = &row.median;
        writeln!(
            f,
            "{case:<15}{:<20}{:>9.0}{:>9.2}{:>9.2}{:>9.0}{:>9.0}{:>5.0} %{:>14}{:>8}{:>12}",
            row.subject,
            it.per_second,
            it.cpu_us,
            it.system_us,
            it.p50_us,
            it.p99_us,
            it.busy * 100.0,
            or_dash(it.instructions, 0),
            it.answer_bytes,
            or_dash(ratio, 2),
        )
    }

    fn weights(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.idle.is_empty() {
            return Ok(());
        }
        writeln!(
            f,
            "\n{:<15}{:<20}{:>18}{:>18}{:>18}",
            "resident MiB", "subject", "no connection", "10,000 silent", "10,000 asked once"
        )?;
        self.idle.iter().try_for_each(|it| {
            writeln!(f, "{:<15}{:<20}{:>18.1}{:>18.1}{:>18.1}", "", it.subject, it.alone, it.silent, it.asked)
        })
    }
}
