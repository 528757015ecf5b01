//! `docs/faults.md`: the results of the fault tests as tables.
//!
//! The tests of `crates/tollgate-cli/tests/faults` write a JSON file for each row. `make faults`
//! renders the document after a run. `generate` does not, because the numbers differ from run to
//! run.
//!
//! Rows that were measured again on their own replace those of the document ([`merge`]); new ones follow them. A row is
//! known by its fault and its store.
//!
//! Measurements and assertions are in the tests.

use std::path::Path;
use std::{fs, io};

use serde_json::Value;

/// The longest recovery that meets the target, in microseconds.
const MAX_RECOVERY_US: u64 = 2_000_000;

/// Writes the document from the rows in a folder.
pub fn write(root: &Path, rows: &Path) -> io::Result<()> {
    fs::write(root.join("docs/faults.md"), render(&read(rows)?))
}

/// Replaces the rows of the document that are in a folder, and adds those that it does not have.
pub fn merge(root: &Path, rows: &Path) -> io::Result<()> {
    let path = root.join("docs/faults.md");
    let document = fs::read_to_string(&path)?;
    fs::write(path, merged(&document, &read(rows)?)?)
}

/// Renders the document with rows of an earlier one. The cascade is kept as it is.
fn merged(document: &str, rows: &[Value]) -> io::Result<String> {
    let malformed = || io::Error::other("docs/faults.md is not as `make faults` writes it");
    let (_, rest) = document.split_once(TABLE).ok_or_else(malformed)?;
    let (old, rest) = rest.split_once("\n\n").ok_or_else(malformed)?;
    let cascade = rest.split_once(CASCADE).map_or("", |(_, cascade)| cascade);
    let mut lines: Vec<String> = old.lines().map(|line| format!("{line}\n")).collect();
    for row in rows.iter().filter(|row| row.get("reached").is_none()) {
        let line = fault(row);
        let same = lines.iter().position(|it| name(it) == name(&line));
        match same {
            Some(at) => lines[at] = line,
            None => lines.push(line),
        }
    }
    let mut out = introduction(rows) + &lines.concat() + NOTES;
    if !cascade.is_empty() {
        out = out + CASCADE + cascade;
    }
    Ok(out)
}

/// Returns the cells of a line that name its row: the fault and the store.
fn name(line: &str) -> Option<(&str, &str)> {
    let mut cells = line.split(" | ");
    Some((cells.next()?, cells.next()?))
}

/// Reads all rows, in the order of their places.
fn read(folder: &Path) -> io::Result<Vec<Value>> {
    let mut rows = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|it| it == "json") {
            rows.push(serde_json::from_str::<Value>(&fs::read_to_string(path)?)?);
        }
    }
    if rows.is_empty() {
        return Err(io::Error::other("no measurements found: run `make faults`"));
    }
    rows.sort_by_key(|row| row["place"].as_u64());
    Ok(rows)
}

/// Renders the whole document.
fn render(rows: &[Value]) -> String {
    let (spikes, faults): (Vec<&Value>, Vec<&Value>) =
        rows.iter().partition(|row| row.get("reached").is_some());
    let mut out = introduction(rows);
    for row in faults {
        out.push_str(&fault(row));
    }
    out.push_str(NOTES);
    if !spikes.is_empty() {
        out.push_str(CASCADE);
        for row in spikes {
            out.push_str(&spike(row));
        }
    }
    out
}

/// Renders the text before the rows, with the head of the table.
fn introduction(rows: &[Value]) -> String {
    let any = rows.first().unwrap_or(&Value::Null);
    let machine = format!("{} cores, {}", any["cores"], text(&any["server"]));
    format!("{}\n{TABLE}", INTRODUCTION.replace("MACHINE", &machine))
}

fn fault(row: &Value) -> String {
    let allowed = &row["allowed"];
    let part = |name: &str| allowed[name].as_u64().unwrap_or(0);
    let (limit, share, lost) = (part("limit"), part("share"), part("lost"));
    let parts = [
        (limit, "limit".to_owned()),
        (share, "share".to_owned()),
        (lost, format!("({})", text(&row["why"]))),
    ];
    let parts = parts.iter().filter(|(units, _)| *units > 0);
    let sum: Vec<_> = parts.map(|(units, what)| format!("{} {what}", count(*units))).collect();
    let sum = sum.join(" + ");
    let total = limit + share + lost;
    let (before, during) = (number(&row["p99_before_us"]), number(&row["p99_during_us"]));
    let recovered = row["recovered_us"].as_u64().unwrap_or(u64::MAX);
    let degraded = number(&row["degraded"]);
    format!(
        "| {} | {}, {} | **{}** / {} = {sum} | {} of {} | {} → {}, {} | {} | {} | {} |\n",
        text(&row["fault"]),
        text(&row["store"]),
        row["nodes"],
        count(number(&row["admitted"])),
        count(total),
        count(degraded),
        count(number(&row["decisions"])),
        millis(before),
        millis(during),
        if during > before { millis(during - before) } else { "none".to_owned() },
        millis(number(&row["longest_us"])),
        row["errors"],
        match recovered {
            0 if degraded == 0 => "never degraded".to_owned(),
            0 => "at once".to_owned(),
            1..=MAX_RECOVERY_US => millis(recovered),
            _ => format!("{}, above the target", millis(recovered)),
        },
    )
}

fn spike(row: &Value) -> String {
    let allowed = row["allowed"].as_u64().map_or_else(|| "no bound".to_owned(), count);
    format!(
        "| {} | {} | {} | **{}** / {allowed} | {} | {}, {} | {} |\n",
        text(&row["redis"]),
        text(&row["protections"]),
        count(number(&row["asked"])),
        count(number(&row["reached"])),
        row["queued"],
        millis(number(&row["median_us"])),
        millis(number(&row["longest_us"])),
        row["errors"],
    )
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("?")
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

/// Formats a number with commas between thousands.
fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut shown = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// Formats microseconds as milliseconds, to a tenth where that matters.
fn millis(micros: u64) -> String {
    if micros < 10_000 {
        let tenths = (micros + 50) / 100;
        format!("{}.{} ms", tenths / 10, tenths % 10)
    } else {
        format!("{} ms", count(micros.saturating_add(500) / 1_000))
    }
}

/// The head of the table.
const TABLE: &str = "\
| fault | store, nodes | admitted / allowed | degraded | p99 before → during, added | longest | 5xx | recovered after |
|---|---|---|--:|--:|--:|--:|--:|
";

const INTRODUCTION: &str = "\
# When Redis breaks

Generated by `make faults` from `crates/tollgate-cli/tests/faults`; do not edit. Rows may come from different runs (`make faults ONLY=leased`
replaces some). Measured on MACHINE, everything (Redis, Tollgate, callers) on that one machine, in the build of the tests (`opt-level = 1`).

Real `tollgate serve` processes on a real Redis with the default settings (deadline 50 ms, breaker after 5 failures, `on_outage: local`
with 20 %), called by eight clients with 3 ms between requests, through the API and the gateway. One fault is injected
under this load, once.

- **admitted / allowed**: 40 keys of 50 units a day are spent to the last unit, before, during and after the fault. The allowed units are
  those of the limits (40 × 50 = 2,000), those that the nodes may grant without the store (20 % of that, shared by the nodes; only where
  decisions were degraded), and the usage that the fault made Redis lose: at most the usage until then.
  Rows with a leased hot key have one key of 2,000 units and `lease: 500ms`, and the units that nodes hold count as spent when Redis forgets.
  Units that a third node spends are added. Keys of a lost peer begin with the share once more.
- **degraded**: decisions that were made without Redis and marked as such.
- **p99, longest**: the latency of API requests that need Redis, before the fault and during it.
- **5xx**: API and gateway requests with a 5xx or without an answer. The target is zero.
- **recovered after**: the time from the recovery of Redis, as probed by the test, to the last degraded decision of any node. The target
  is 2 s.
";

const NOTES: &str = "
Conclusions:

- A Redis that loses data gives the lost usage back to the callers, and no node can detect it. Prevent it with replicas, with persistence
  where a restart must not reset usage, and with `maxmemory-policy noeviction`. Under `allkeys-*` every eviction of a key resets its budget;
  `volatile-*` is no better, since all keys of Tollgate expire.
- One dead or silent primary of a cluster is an outage of its part: its requests wait for the deadline or are decided without it until its
  replica has taken over, and the p99 includes the requests that waited. The other primaries continue to serve.
- Leased units are charged when they are taken, so a node that dies with them, or wakes up after their end, adds nothing to what is admitted.
  Regions that are cut off keep their shares. Peers lose the counts of a node that dies, and nothing when their lists change or differ.
- A step of the wall clock counts as time: an hour forward refills an hour. A step back refills nothing.
";

const CASCADE: &str = "
## The cascade

A spike of 100 callers on the gateway, while every call to Redis takes 800 ms. The limit is 40 for all callers together; the origin can serve 100
requests a second. Without the protections every request waits for Redis until its timeout and is then let through uncounted, so the origin gets the whole spike.

| Redis | protections | asked | reached the origin / allowed | longest queue there | callers waited (median, longest) | 5xx |
|---|---|--:|--:|--:|--:|--:|
";

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_row_lists_the_allowed_units_and_their_reasons() {
        let row = json!({
            "fault": "`FLUSHALL`", "store": "standalone", "nodes": 2, "admitted": 3016,
            "allowed": {"limit": 2000, "share": 0, "lost": 1025}, "why": "what was spent is forgotten",
            "degraded": 0, "decisions": 5681, "p99_before_us": 1049, "p99_during_us": 12_345, "longest_us": 52_066,
            "errors": 0, "recovered_us": 0,
        });
        assert_eq!(
            fault(&row),
            "| `FLUSHALL` | standalone, 2 | **3,016** / 3,025 = 2,000 limit + 1,025 (what was spent is forgotten) \
             | 0 of 5,681 | 1.0 ms → 12 ms, 11 ms | 52 ms | 0 | never degraded |\n"
        );
    }

    #[test]
    fn rows_that_were_measured_again_replace_theirs() {
        let row = |fault: &str, store: &str, admitted: u64| {
            let allowed = json!({"limit": 9});
            json!({"fault": fault, "store": store, "nodes": 2, "admitted": admitted, "allowed": allowed, "recovered_us": 0})
        };
        let cascade = json!({"reached": 7, "redis": "well", "protections": "on", "asked": 5});
        let all = [row("kill", "standalone", 1), row("cut", "standalone", 2), cascade];
        let again = [row("cut", "standalone", 3), row("cut", "standalone, leased hot key", 4)];
        let expected = [&all[..1], &again[..], &all[2..]].concat();
        assert_eq!(merged(&render(&all), &again).unwrap(), render(&expected));
        assert_eq!(merged(&render(&all[..2]), &again).unwrap(), render(&expected[..3]));
        assert!(merged("# Other", &again).is_err());
    }

    #[test]
    fn a_recovery_above_the_target_is_marked() {
        let row =
            json!({"allowed": {"limit": 1, "share": 1, "lost": 0}, "degraded": 3, "recovered_us": 2_100_000});
        assert!(fault(&row).ends_with("| 2,100 ms, above the target |\n"), "{}", fault(&row));
    }
}
