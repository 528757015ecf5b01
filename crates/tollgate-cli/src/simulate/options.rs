//! Parses the arguments of `simulate`.

use tollgate::Span;
use tollgate_daemon::Failure;
use tollgate_document::nearest;
use tollgate_document::sanitize::Printable;
use tollgate_sim::simulate::{
    About, Choice, Contestant, ContestantError, MAX_NODES, Network, Question, Routing, Stores, length,
};
use tollgate_sim::traffic::{By, Retry, Shape, Traffic};

use crate::arguments::{Route, Simulate};

/// The maximum number of requests of one algorithm: some seconds of work.
const MAX_EVENTS: u64 = 5_000_000;

const DEFAULT_RATE: &str = "10/minute";

/// Returns one question for each rate.
pub(super) fn questions(arguments: &Simulate) -> Result<Vec<Question>, Failure> {
    let shape = match arguments.traffic.as_deref() {
        None => Shape::Edge,
        Some(word) => Shape::of(word).ok_or_else(|| {
            let words = Shape::ALL.map(Shape::word);
            unknown("--traffic", word, "shape of traffic", &words)
        })?,
    };
    if !shape.retries()
        && (arguments.no_jitter || arguments.ignore_retry_after || arguments.attempts.is_some())
    {
        return Err(Failure::with_help(
            format_args!("clients do not retry in `{}` traffic", shape.word()),
            "--no-jitter, --ignore-retry-after and --attempts are for --traffic retry-storm",
        ));
    }
    let by = match arguments.by.as_deref() {
        None => Traffic::new(shape, tollgate::Rate::per_minute(1)).by,
        Some(word) => By::of(word).ok_or_else(|| {
            Failure::with_help(
                format_args!("`--by {}` is nothing that a shape of traffic has", Printable(word)),
                "`ip` counts each client, `global` all of them together; other keys come with --log",
            )
        })?,
    };
    let network = network(arguments)?;
    let each = |rate: &String| -> Result<Question, Failure> {
        let (contestants, notes) = contestants(arguments, rate, by.word())?;
        let Some(first) = contestants.first() else {
            return Err(Failure::new(format_args!("no algorithm takes the rate {}", Printable(rate))));
        };
        let traffic = traffic(arguments, Traffic { by, ..Traffic::new(shape, first.rate) })?;
        Ok(Question { traffic, contestants, network, most_events: MAX_EVENTS, notes })
    };
    rates(arguments).iter().map(each).collect()
}

/// Returns the given rates, or the default one.
pub(super) fn rates(arguments: &Simulate) -> Vec<String> {
    if arguments.rates.is_empty() { vec![DEFAULT_RATE.to_owned()] } else { arguments.rates.clone() }
}

/// Returns the named algorithms with this rate. `all` omits algorithms that do not support it, with a
/// note.
pub(super) fn contestants(
    arguments: &Simulate,
    rate: &str,
    by: &str,
) -> Result<(Vec<Contestant>, Vec<String>), Failure> {
    if arguments.algorithm.trim() == "all" {
        return Contestant::all(rate, arguments.burst, by).map_err(as_failure);
    }
    let mut chosen = Vec::new();
    for word in arguments.algorithm.split(',').map(str::trim) {
        let choice = Choice::of(word).map_err(as_failure)?;
        if !chosen.contains(&choice) {
            chosen.push(choice);
        }
    }
    let made = chosen.into_iter().map(|choice| Contestant::new(choice, rate, arguments.burst, by));
    made.collect::<Result<_, _>>().map(|made| (made, Vec::new())).map_err(as_failure)
}

fn traffic(arguments: &Simulate, usual: Traffic) -> Result<Traffic, Failure> {
    let duration = time("--duration", arguments.duration.as_deref(), usual.duration)?;
    Ok(Traffic {
        load: arguments.load.unwrap_or(usual.load),
        clients: arguments.clients.unwrap_or(usual.clients),
        seed: arguments.seed.unwrap_or(usual.seed),
        duration,
        retry: Retry {
            jitter: !arguments.no_jitter,
            honours_retry_after: !arguments.ignore_retry_after,
            attempts: arguments.attempts.unwrap_or(usual.retry.attempts),
        },
        ..usual
    })
}

/// Returns the failure for an algorithm, a key or a rate that cannot be simulated.
#[allow(clippy::needless_pass_by_value, reason = "for `map_err`")]
pub(super) fn as_failure(error: ContestantError) -> Failure {
    let flag = match error.about {
        About::Algorithm => "--algorithm",
        About::Key => "--by",
        About::Rate => "--rate",
    };
    match error.help() {
        "" => Failure::new(format_args!("{flag}: {}", error.message())),
        help => Failure::with_help(format_args!("{flag}: {}", error.message()), help),
    }
}

/// Parses a length of time, if it is given.
pub(super) fn time(flag: &str, text: Option<&str>, usual: Span) -> Result<Span, Failure> {
    let Some(text) = text else { return Ok(usual) };
    length(text).map_err(|error| Failure::new(format_args!("`{flag} {}`: {error}", Printable(text))))
}

fn network(arguments: &Simulate) -> Result<Network, Failure> {
    let nodes = arguments.nodes.unwrap_or(1);
    if !(1..=MAX_NODES).contains(&nodes) {
        return Err(Failure::new(format_args!("--nodes: there are 1 to {MAX_NODES}, not {nodes}")));
    }
    let store = match arguments.store.as_deref() {
        None | Some("memory") => Stores::Memory,
        Some("shared") => Stores::Shared,
        Some("outage") => Stores::Outage,
        Some(url) if url.starts_with("postgres") => {
            return Err(Failure::with_help(
                "PostgreSQL decides by its own clock, and a simulation has a clock of its own",
                "--store shared decides as PostgreSQL does; `tollgate serve --store postgres://…` is the real one",
            ));
        }
        Some(url) if url.starts_with("redis") => {
            return Err(Failure::with_help(
                "Redis decides by its own clock, and a simulation has a clock of its own",
                "--store shared decides as Redis does; `tollgate serve --store redis://…` is the real one",
            ));
        }
        Some(word) => return Err(unknown("--store", word, "store", &["memory", "shared", "outage"])),
    };
    let routing = match arguments.routing {
        None | Some(Route::RoundRobin) => Routing::RoundRobin,
        Some(Route::Sticky) => Routing::Sticky,
    };
    Ok(Network { nodes, store, routing })
}

/// Parses names that are separated by commas, without repetitions. `None` for all of them.
pub(super) fn chosen<T: PartialEq>(
    (flag, what): (&str, &str),
    names: Option<&str>,
    known: &[&str],
    parse: fn(&str) -> Option<T>,
) -> Result<Option<Vec<T>>, Failure> {
    let Some(names) = names.map(str::trim).filter(|it| *it != "all") else { return Ok(None) };
    let mut chosen = Vec::new();
    for name in names.split(',').map(str::trim) {
        let it = parse(name).ok_or_else(|| unknown(flag, name, what, known))?;
        if !chosen.contains(&it) {
            chosen.push(it);
        }
    }
    Ok(Some(chosen))
}

/// Returns the failure for an unknown word.
pub(super) fn unknown(flag: &str, word: &str, what: &str, words: &[&str]) -> Failure {
    let meant = nearest(word, words.iter().copied());
    let meant = meant.map(|it| format!("did you mean `{it}`? ")).unwrap_or_default();
    Failure::with_help(
        format_args!("{flag}: no {what} is called `{}`", Printable(word)),
        format_args!("{meant}there are {}", words.join(", ")),
    )
}
