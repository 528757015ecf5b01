//! Benchmarks the engine against its peers: one run, one table, one JSON file.
//!
//! ```text
//! engine                          everything
//! engine --only CASE...           some cases, without counting instructions
//! engine --count CASE SUBJECT N   sets up and makes N checks, for callgrind and perf
//! ```

use std::process::ExitCode;

use tollgate_bench::case::{self, Case, Field};
use tollgate_bench::contest::{self, Entry};
use tollgate_bench::report::{self, Report, Row};
use tollgate_bench::subject::{self, Offer, Subject, Visitor};
use tollgate_bench::{callgrind, heap, stream::Stream as _};

#[global_allocator]
static ALLOCATOR: heap::Counting = heap::Counting;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match *arguments {
        [] => run(&[]),
        ["--count", case, subject, checks] => count(case, subject, checks),
        ["--only", ref cases @ ..] if cases.iter().all(|name| Case::named(name).is_some()) => run(cases),
        _ => Err("usage: engine [--only CASE... | --count CASE SUBJECT CHECKS]".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("engine: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Sets up a subject and makes this many checks.
fn count(case: &str, subject: &str, checks: &str) -> Result<(), String> {
    let checks = checks.parse().map_err(|error| format!("`{checks}` checks: {error}"))?;
    let field = Field::small();
    let entered = Case::named(case).and_then(|case| case.enter(subject, &field));
    entered.ok_or_else(|| format!("no case `{case}` for `{subject}`"))?.run(0, checks);
    Ok(())
}

/// Measures the named cases, or all of them.
fn run(only: &[&str]) -> Result<(), String> {
    let cases: Vec<Case> =
        case::ALL.into_iter().filter(|case| only.is_empty() || only.contains(&case.name)).collect();
    let field = Field::full();
    let (mut rows, mut remarks) = (Vec::new(), Vec::new());
    for group in cases.chunk_by(|one, other| one.contest == other.contest) {
        eprintln!("timing {}", group[0].contest);
        time(group, &field, &mut rows, &mut remarks);
    }
    for row in rows.iter_mut().filter(|row| ["zipf_1m", "zipf_1m_default_sketch"].contains(&row.case)) {
        eprintln!("weighing {}", row.subject);
        row.bytes_per_key = subject::visit(row.subject, BytesPerKey(&field));
        remarks.extend(subject::visit(row.subject, FirstRequests(&field)).flatten());
    }
    if !only.is_empty() {
        remarks.push("only some cases were run, and instructions were not counted".into());
    } else if callgrind::is_installed() {
        count_instructions(&mut rows)?;
    } else {
        remarks.push(callgrind::HOW_TO_INSTALL.into());
    }
    let report = Report::new(rows, remarks);
    println!("{report}");
    let path =
        report::write("engine", &report).map_err(|error| format!("the report cannot be written: {error}"))?;
    println!("\nwritten to {}", path.display());
    Ok(())
}

/// Times the subjects of all these cases in turns.
fn time(group: &[Case], field: &Field, rows: &mut Vec<Row>, remarks: &mut Vec<String>) {
    let names = group.iter().flat_map(|case| case.subjects.iter().map(move |subject| (case, *subject)));
    let entries = names.clone().filter_map(|(case, subject)| {
        let contestant = case.enter(subject, field)?;
        Some(Entry { subject, contestant })
    });
    let scores = contest::hold(entries.collect(), group[0].plan());
    for ((case, subject), score) in names.zip(scores) {
        let wrong = score.wrong * 100.0;
        assert!(!subject.starts_with("tollgate") || wrong == 0.0, "{}: {wrong} % wrong", case.name);
        if wrong > 0.0 {
            remarks.push(format!("{subject} answered {wrong:.1} % of {} wrongly", case.name));
        }
        if score.waited > contest::MAX_WAITING_SHARE {
            let waited = score.waited * 100.0;
            remarks.push(format!(
                "{}, {subject}: the machine was busy, threads waited for a core {waited:.0} % of the time; \
                 with less contention than they should have had, this number is too good",
                case.name
            ));
        }
        rows.push(Row { case: case.name, subject, ns: score.ns, instructions: None, bytes_per_key: None });
    }
}

fn count_instructions(rows: &mut [Row]) -> Result<(), String> {
    for row in rows {
        if Case::named(row.case).is_some_and(Case::is_countable) {
            eprintln!("counting {} {}", row.case, row.subject);
            let counted = callgrind::instructions(row.case, row.subject);
            row.instructions = Some(counted.map_err(|error| error.to_string())?);
        }
    }
    Ok(())
}

/// Bytes that a subject holds per key, after it has seen all keys.
struct BytesPerKey<'f>(&'f Field);

impl Visitor for BytesPerKey<'_> {
    type Out = f64;

    #[allow(clippy::cast_precision_loss, reason = "bytes are far below 2^52")]
    fn visit<S: Subject>(self) -> f64 {
        let known = self.0.each();
        let (subject, bytes) = heap::held_by(|| {
            let subject = S::new(Offer::Ample, known.len());
            case::acquire(&subject, Offer::Ample, known);
            subject
        });
        drop(subject);
        bytes as f64 / known.len() as f64
    }
}

/// The number of wrong answers to the first requests of a million keys.
struct FirstRequests<'f>(&'f Field);

impl Visitor for FirstRequests<'_> {
    type Out = Option<String>;

    #[allow(clippy::cast_precision_loss, reason = "keys are far below 2^52")]
    fn visit<S: Subject>(self) -> Option<String> {
        let known = self.0.each();
        let refused = case::acquire(&S::new(Offer::Spent, known.len()), Offer::Spent, known);
        let share = refused as f64 * 100.0 / known.len() as f64;
        (refused > 0).then(|| {
            format!(
                "{} refused {refused} of {} keys ({share:.3} %) on their first request",
                S::NAME,
                known.len()
            )
        })
    }
}
