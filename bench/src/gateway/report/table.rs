//! Prints a run as a table.

use std::fmt;

use super::{GatewayReport, Setting};
use crate::report::Machine;
use crate::sample::Rows;

impl fmt::Display for GatewayReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Setting { machine, versions, connections, seconds, pause_ms } = &self.setting;
        let Machine { processor, cores, rustc, commit } = machine;
        writeln!(f, "{processor}, {cores} cores, {rustc}, commit {commit}")?;
        versions.iter().try_for_each(|(name, version)| writeln!(f, "{name}: {version}"))?;
        write!(f, "{connections} connections, {seconds} s in each round")?;
        match pause_ms {
            0 => writeln!(f)?,
            _ => writeln!(f, ", a pause of {pause_ms} ms before each request of a connection")?,
        }
        write!(f, "\n{}", Rows(&self.rows))?;
        self.weights(f)?;
        writeln!(f)?;
        self.remarks.iter().try_for_each(|remark| writeln!(f, "note: {remark}"))?;
        writeln!(f)?;
        self.bars.iter().try_for_each(|bar| writeln!(f, "{bar}"))
    }
}

impl GatewayReport {
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
            writeln!(
                f,
                "{:<15}{:<20}{:>18.1}{:>18.1}{:>18.1}",
                "", it.subject, it.alone, it.silent, it.active
            )
        })
    }
}
