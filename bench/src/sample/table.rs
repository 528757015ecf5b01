//! Prints rows as a table.

use std::fmt;

use super::Row;

/// The table of a run, by case.
pub struct Rows<'r>(pub &'r [Row]);

impl fmt::Display for Rows<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<15}{:<20}{:>9}{:>9}{:>9}{:>9}{:>9}{:>7}{:>14}{:>8}{:>12}",
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
        for row in self.0 {
            if row.case != last && !last.is_empty() {
                writeln!(f)?;
            }
            self.row(f, row, if row.case == last { "" } else { row.case })?;
            last = row.case;
        }
        Ok(())
    }
}

impl Rows<'_> {
    fn row(&self, f: &mut fmt::Formatter<'_>, row: &Row, case: &str) -> fmt::Result {
        let ours = self.0.iter().find(|other| other.case == row.case && other.subject == "tollgate");
        let ratio = ours.map(|ours| ours.median.per_second / row.median.per_second);
        let or_dash = |number: Option<f64>, places: usize| {
            number.filter(|it| it.is_finite()).map_or("-".to_owned(), |number| format!("{number:.places$}"))
        };
        let it = &row.median;
        writeln!(
            f,
            "{case:<15}{:<20}{:>9.0}{:>9.2}{:>9.2}{:>9}{:>9}{:>5.0} %{:>14}{:>8}{:>12}",
            row.subject,
            it.per_second,
            it.cpu_us,
            it.system_us,
            or_dash(Some(it.p50_us), 0),
            or_dash(Some(it.p99_us), 0),
            it.busy * 100.0,
            or_dash(it.instructions, 0),
            it.answer_bytes,
            or_dash(ratio, 2),
        )
    }
}
