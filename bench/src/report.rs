//! The report of the engine benchmark: a table, JSON, and bars.

mod bars;
mod machine;
mod table;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use serde::Serialize;

pub use self::bars::{Bar, Side};
pub use self::machine::Machine;

/// One subject in one case.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Name of the case.
    pub case: &'static str,
    /// Name of the subject.
    pub subject: &'static str,
    /// Wall time of one check, in nanoseconds.
    pub ns: f64,
    /// Instructions of one check.
    pub instructions: Option<f64>,
    /// Bytes held per key, with a million keys.
    pub bytes_per_key: Option<f64>,
}

/// The report of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The machine.
    pub machine: Machine,
    /// Rows in the order of the table.
    pub rows: Vec<Row>,
    /// For each case: the time of each subject relative to Tollgate's.
    pub ratios: BTreeMap<&'static str, BTreeMap<&'static str, f64>>,
    /// Targets and results.
    pub bars: Vec<Bar>,
    /// Wrong answers by subject.
    pub remarks: Vec<String>,
}

impl Report {
    /// Creates the report from its rows.
    pub fn new(rows: Vec<Row>, remarks: Vec<String>) -> Self {
        let mut ratios: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
        for row in &rows {
            if let Some(ours) = ns(&rows, row.case, "tollgate") {
                ratios.entry(row.case).or_default().insert(row.subject, row.ns / ours);
            }
        }
        Self { machine: Machine::here(), bars: bars::all(&rows), rows, ratios, remarks }
    }
}

/// Returns the `target` folder of the workspace.
pub fn target() -> io::Result<PathBuf> {
    Ok(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize()?.join("target"))
}

/// Writes a run to `target/bench/NAME.json`, and returns the path.
pub fn write(name: &str, run: &impl Serialize) -> io::Result<PathBuf> {
    let folder = target()?.join("bench");
    std::fs::create_dir_all(&folder)?;
    let path = folder.join(name).with_extension("json");
    std::fs::write(&path, serde_json::to_string_pretty(run)? + "\n")?;
    Ok(path)
}

fn ns(rows: &[Row], case: &str, subject: &str) -> Option<f64> {
    rows.iter().find(|row| row.case == case && row.subject == subject).map(|row| row.ns)
}

/// Returns the median: the middle number, or the mean of the middle two; NaN if there are none.
pub fn median(numbers: impl Iterator<Item = f64>) -> f64 {
    let mut numbers: Vec<f64> = numbers.collect();
    numbers.sort_by(f64::total_cmp);
    match numbers.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => numbers[count / 2],
        count => f64::midpoint(numbers[count / 2 - 1], numbers[count / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn the_median_is_the_middle_number() {
        let of = |numbers: &[f64]| median(numbers.iter().copied());
        assert!((of(&[3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
        assert!((of(&[4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < 1e-9);
        assert!(of(&[]).is_nan());
    }
}
