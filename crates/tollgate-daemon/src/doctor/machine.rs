//! Checks the machine: clock, file limits and kernel settings.

use std::fs;
use std::path::Path;

use rustix::process::{Resource, getrlimit};

use super::{Finding, Severity};

/// The number of open files below which a node with many connections runs short.
const MIN_OPEN_FILES: u64 = 65_536;
/// The backlog of the listeners; the kernel caps it at `net.core.somaxconn`.
const LISTEN_BACKLOG: u64 = 4_096;
/// The number of local ports below which connections to upstreams run short.
const MIN_LOCAL_PORTS: u64 = 20_000;

/// Services that keep the clock, by the name of their process.
const TIME_SERVICES: [&str; 6] = ["systemd-timesyn", "chronyd", "ntpd", "ntpsec", "openntpd", "ptp4l"];

/// Returns the findings about this machine.
pub(super) fn findings() -> Vec<Finding> {
    let read = |path: &str| fs::read_to_string(path).ok();
    let source = read("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    let mut findings = vec![time_service(is_time_kept(Path::new("/proc")))];
    findings.extend(source.and_then(|it| clock_source(it.trim())));
    findings.push(open_files(getrlimit(Resource::Nofile).maximum));
    findings.extend(read("/proc/sys/net/core/somaxconn").and_then(|it| backlog(it.trim())));
    findings.extend(read("/proc/sys/net/ipv4/ip_local_port_range").and_then(|it| local_ports(&it)));
    findings
}

/// Whether a process keeps the clock.
fn is_time_kept(proc: &Path) -> bool {
    let Ok(entries) = fs::read_dir(proc) else { return false };
    entries.flatten().any(|entry| {
        let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        TIME_SERVICES.contains(&name.trim())
    })
}

fn time_service(is_kept: bool) -> Finding {
    if is_kept {
        return Finding::new("clock", Severity::Ok, "a service keeps the clock");
    }
    Finding::new("clock", Severity::Note, "no service that keeps the clock was found").help(
        "calendar windows and the times in the log are those of this clock: install systemd-timesyncd or chrony; in a container and on most virtual machines, the host does it",
    )
}

/// A request reads the clock, so a source that leaves the processor is slow.
fn clock_source(name: &str) -> Option<Finding> {
    matches!(name, "hpet" | "acpi_pm" | "pit" | "jiffies").then(|| {
        Finding::new("clock", Severity::Warning, format!("the kernel reads its clock from `{name}`, which is slow"))
            .help("use tsc or the clock of the hypervisor: see `available_clocksource` beside `current_clocksource` in /sys")
    })
}

fn open_files(maximum: Option<u64>) -> Finding {
    match maximum {
        Some(maximum) if maximum < MIN_OPEN_FILES => Finding::new(
            "files",
            Severity::Warning,
            format!("at most {maximum} files and connections can be open"),
        )
        .help("LimitNOFILE=1048576 in the unit, or `ulimit -Hn 1048576` as root before the start"),
        Some(maximum) => {
            Finding::new("files", Severity::Ok, format!("up to {maximum} files and connections can be open"))
        }
        None => Finding::new("files", Severity::Ok, "any number of files and connections can be open"),
    }
}

fn backlog(somaxconn: &str) -> Option<Finding> {
    let value: u64 = somaxconn.parse().ok()?;
    Some(if value < LISTEN_BACKLOG {
        Finding::new(
            "kernel",
            Severity::Warning,
            format!("net.core.somaxconn is {value}: bursts of connections are dropped"),
        )
        .help(format!(
            "sysctl -w net.core.somaxconn={LISTEN_BACKLOG}, and a file in /etc/sysctl.d to keep it"
        ))
    } else {
        Finding::new("kernel", Severity::Ok, format!("net.core.somaxconn is {value}"))
    })
}

fn local_ports(range: &str) -> Option<Finding> {
    let mut bounds = range.split_whitespace().map(str::parse::<u64>);
    let (first, last) = (bounds.next()?.ok()?, bounds.next()?.ok()?);
    let ports = last.saturating_sub(first) + 1;
    Some(if ports < MIN_LOCAL_PORTS {
        let message = format!("{ports} local ports: a busy gateway runs out of connections to its upstream");
        Finding::new("kernel", Severity::Warning, message)
            .help("sysctl -w net.ipv4.ip_local_port_range='15000 65000'")
    } else {
        Finding::new("kernel", Severity::Ok, format!("{ports} local ports for connections to upstreams"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_are_too_small_are_warned_of_with_a_remedy() {
        let small = [
            clock_source("hpet"),
            Some(open_files(Some(1_024))),
            backlog("128"),
            local_ports("32768\t33000\n"),
        ];
        for finding in small.map(Option::unwrap) {
            assert_eq!(finding.severity, Severity::Warning, "{finding:?}");
            assert!(finding.help.is_some(), "{finding:?}");
        }
        let enough = [
            Some(open_files(None)),
            Some(open_files(Some(1 << 20))),
            backlog("4096"),
            local_ports("15000 65000"),
        ];
        assert!(enough.into_iter().all(|it| it.unwrap().severity == Severity::Ok));
        assert_eq!(clock_source("kvm-clock"), None);
        assert_eq!((backlog("many"), local_ports("1")), (None, None));
    }

    #[test]
    fn a_time_service_is_found_by_the_name_of_its_process() {
        let proc = tollgate_testkit::Scratch::new();
        assert!(!is_time_kept(proc.path()));
        fs::create_dir(proc.path().join("7")).unwrap();
        proc.write("7/comm", "chronyd\n");
        assert!(is_time_kept(proc.path()));
    }
}
