//! Benchmarks how the cost of a decision grows with keys, limits and connections: one run, one table, one chart.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::{fs, io};

use tollgate_bench::contest::Contestant;
use tollgate_bench::cores::Cores;
use tollgate_bench::gateway::idle;
use tollgate_bench::growth::connections::{self, Track};
use tollgate_bench::growth::report::{self as growth_report, Measured};
use tollgate_bench::growth::{self, CONNECTIONS_RESP, Case, GrowthReport, KEYS, KEYS_HUGE_PAGES, keys};
use tollgate_bench::subject::{Offer, Subject as _, Tollgate};
use tollgate_bench::{callgrind, command_line, heap, report};

#[global_allocator]
static ALLOCATOR: heap::Counting = heap::Counting;

const USAGE: &str = "usage: growth [OPTION VALUE]...
  --tollgate PATH      the program, instead of the one beside this one
  --only CASE,...      keys, keys_batch, keys_huge_pages, limits, limits_any, limits_matching, connections_resp,
                       connections_gateway
  --max-keys N         the largest number of keys (100000000)
  --seconds N          of load on each number of connections, 1 to 20 (4)
  --instructions WORD  counts instructions with callgrind: yes or no (yes)
  --svg PATH           writes the chart there, instead of target/bench/growth.svg
growth --count CASE SIZE N sets up and makes N decisions, for callgrind and perf";

/// The least number of idle connections whose memory is measured.
const MIN_IDLE_CONNECTIONS: usize = 1_000;
/// File descriptors: a server gives each of its surfaces a part of them.
const DESCRIPTORS: usize = 60_000;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match *arguments {
        ["--count", case, size, checks] => finish(count(case, size, checks)),
        ["--time", case, size] => finish(time_alone(case, size)),
        _ => command_line::run("growth", USAGE, |arguments| {
            Options::read(arguments).and_then(|options| run(&options).map_err(|error| error.to_string()))
        }),
    }
}

fn finish(done: Result<(), String>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("growth: {message}");
            ExitCode::FAILURE
        }
    }
}

fn enter(case: &str, size: &str) -> Result<Box<dyn Contestant>, String> {
    let entered = Case::named(case).zip(size.parse().ok()).and_then(|(case, size)| case.enter(size));
    entered.ok_or_else(|| format!("no case `{case}` of size `{size}` in this process"))
}

/// Sets up a size and makes this many decisions.
fn count(case: &str, size: &str, checks: &str) -> Result<(), String> {
    let checks = checks.parse().map_err(|error| format!("`{checks}` decisions: {error}"))?;
    enter(case, size)?.run(0, checks);
    Ok(())
}

/// Sets up a size and prints the nanoseconds of a decision.
fn time_alone(case: &str, size: &str) -> Result<(), String> {
    println!("{}", growth::time(enter(case, size)?.as_mut())?);
    Ok(())
}

/// Command line options.
struct Options {
    tollgate: PathBuf,
    only: Vec<String>,
    max_keys: usize,
    seconds: u64,
    counts: bool,
    svg: Option<PathBuf>,
}

impl Options {
    fn read(arguments: &[String]) -> Result<Self, String> {
        let tollgate = std::env::current_exe().map_err(|error| error.to_string())?.with_file_name("tollgate");
        let mut options =
            Self { tollgate, only: Vec::new(), max_keys: 100_000_000, seconds: 4, counts: true, svg: None };
        command_line::read(arguments, USAGE, |option, value| {
            match option {
                "--tollgate" => options.tollgate = value.into(),
                "--only" => {
                    let names = command_line::names(value);
                    options.only = names.iter().all(|name| Case::named(name).is_some()).then_some(names)?;
                }
                "--max-keys" => options.max_keys = command_line::number(value, 1..=1_000_000_000)?,
                "--seconds" => options.seconds = command_line::number(value, 1..=20)?,
                "--instructions" => {
                    options.counts = ["no", "yes"].iter().position(|word| *word == value)? == 1;
                }
                "--svg" => options.svg = Some(value.into()),
                _ => return None,
            }
            Some(())
        })?;
        Ok(options)
    }

    fn cases(&self) -> impl Iterator<Item = &'static Case> {
        growth::ALL
            .iter()
            .filter(|case| self.only.is_empty() || self.only.iter().any(|name| name == case.name))
    }
}

fn run(options: &Options) -> io::Result<()> {
    let mut remarks = Vec::new();
    let counts = options.counts && callgrind::is_installed();
    if options.counts && !counts {
        remarks.push(callgrind::HOW_TO_INSTALL.to_owned());
    }
    let mut rows = Vec::new();
    let (in_process, of_server): (Vec<_>, Vec<_>) =
        options.cases().partition(|case| !case.name.starts_with("connections"));
    for case in in_process {
        let measured = measure_in_process(case, options.max_keys, counts, &mut remarks)?;
        rows.extend(growth_report::rows(case, &measured));
    }
    if !of_server.is_empty() {
        let track = track(options, &mut remarks)?;
        for case in of_server {
            rows.extend(growth_report::rows(case, &measure_server(&track, case, &mut remarks)?));
        }
    }
    if !options.only.is_empty() {
        remarks.push("only some cases were run".into());
    }
    let report = GrowthReport::new(rows, remarks);
    println!("{report}");
    println!("\nwritten to {}", report::write("growth", &report)?.display());
    let svg =
        options.svg.clone().map_or_else(|| Ok(report::target()?.join("bench/growth.svg")), io::Result::Ok)?;
    fs::write(&svg, growth_report::chart(&report.rows))?;
    println!("the chart is in {}", svg.display());
    Ok(())
}

fn measure_in_process(
    case: &Case,
    max_keys: usize,
    counts: bool,
    remarks: &mut Vec<String>,
) -> io::Result<Vec<(usize, Measured)>> {
    let mut measured = Vec::new();
    for &size in case.sizes {
        if case.unit == KEYS.unit {
            if size > max_keys {
                remarks.push(format!("{} stops before {size}: --max-keys is {max_keys}", case.name));
                break;
            }
            if let Some(why) = keys::does_not_fit(size)? {
                remarks.push(format!("{} stops before {size}: {why}", case.name));
                break;
            }
        }
        let parts = whole(case.parts(size));
        let ns = timed(case, size)? / parts;
        let instructions = if counts && size <= case.max_counted {
            Some(callgrind::instructions(case.name, &size.to_string())? / parts)
        } else {
            None
        };
        // The store allocates its table when it is created, and never grows.
        let bytes = (*case == KEYS).then(|| heap::held_by(|| Tollgate::new(Offer::Ample, size)).1).map(whole);
        eprintln!("{}, {size} {}: {ns:.1} ns", case.name, case.unit);
        measured.push((size, Measured { ns, instructions, bytes: bytes.map(|bytes| bytes / whole(size)) }));
    }
    if counts && case.sizes.iter().any(|size| *size > case.max_counted) && case.max_counted > 0 {
        remarks.push(format!(
            "{}: instructions are counted up to {}, because callgrind takes minutes to set more up",
            case.name, case.max_counted
        ));
    }
    Ok(measured)
}

/// Returns the nanoseconds of a decision, in a process of its own: the heap of one size does not affect the next.
fn timed(case: &Case, size: usize) -> io::Result<f64> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--time", case.name, &size.to_string()]);
    if *case == KEYS_HUGE_PAGES {
        // The C library asks for transparent huge pages then.
        command.env("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1");
    }
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    let ns = said.trim().parse().ok().filter(|_| output.status.success());
    ns.ok_or_else(|| io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()))
}

fn track(options: &Options, remarks: &mut Vec<String>) -> io::Result<Track> {
    // Without the right to it, fewer connections are measured.
    let _ = idle::make_room_for(DESCRIPTORS);
    let cores = Cores::shared_out()?;
    cores.move_aside()?;
    let folder = report::target()?.join("bench/growth");
    fs::create_dir_all(&folder)?;
    let program = options.tollgate.clone();
    remarks.push(format!(
        "of servers: {} on core {}, the load on the other",
        shown(&program),
        cores.contestant
    ));
    Ok(Track { cores, program, folder, seconds: options.seconds })
}

fn shown(program: &Path) -> String {
    program.file_name().unwrap_or(program.as_os_str()).to_string_lossy().into_owned()
}

fn measure_server(
    track: &Track,
    case: &Case,
    remarks: &mut Vec<String>,
) -> io::Result<Vec<(usize, Measured)>> {
    let mut measured = Vec::new();
    for &size in case.sizes {
        if let Some(why) = connections::exceeds_descriptors(case, size)? {
            remarks.push(format!("{} stops before {size}: {why}", case.name));
            break;
        }
        let sample = track.measure(case, size)?;
        if sample.is_disturbed() {
            remarks.push(format!(
                "{}, {size} {}: the machine was busy, others used {:.2} cores; run it again",
                case.name, case.unit, sample.others
            ));
        }
        let is_large = size >= MIN_IDLE_CONNECTIONS;
        let mut bytes = None;
        if is_large {
            match track.idle_bytes(case, size) {
                Ok(idle) => bytes = Some(idle),
                Err(error) => remarks.push(format!(
                    "{}, {size} {}: idle memory is not measured: {error}",
                    case.name, case.unit
                )),
            }
        }
        eprintln!("{}, {size} {}: {:.2} us of CPU", case.name, case.unit, sample.cpu_us);
        measured.push((size, Measured { ns: sample.cpu_us * 1e3, instructions: None, bytes }));
    }
    let kind = if *case == CONNECTIONS_RESP { "RESP" } else { "gateway" };
    remarks.push(format!("{kind}: bytes are resident memory per connection that asked once and is idle"));
    Ok(measured)
}

#[allow(clippy::cast_precision_loss, reason = "counts and bytes are far below 2^52")]
fn whole(number: usize) -> f64 {
    number as f64
}
