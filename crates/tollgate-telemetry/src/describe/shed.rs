//! The reason in words for which this node refused a request because of overload.

use std::fmt::Write;

use tollgate::{AdaptiveShed, NodeShed, Shed, ShedCause, SignalReading, Span, ThrottleShed};

/// Returns the reason in words why this node refuses without asking the store, with the measurements.
pub(super) fn reason(shed: &Shed<'_>) -> String {
    let class = shed.priority.map_or_else(String::new, |class| format!(" of priority `{}`", class.name()));
    match shed.cause {
        ShedCause::Node(node) => by_node(&node, &class),
        ShedCause::Adaptive(adaptive) => by_adaptive(&adaptive, &class),
        ShedCause::Throttle(throttle) => by_throttle(&throttle, &class),
        _ => format!("this node is overloaded and refuses requests{class}"),
    }
}

fn by_adaptive(shed: &AdaptiveShed<'_>, class: &str) -> String {
    let AdaptiveShed { in_flight, slots, class_slots, .. } = shed;
    let mut words = format!(
        "{in_flight} requests are in flight, and the service behind is measured to serve {slots} at once"
    );
    if class_slots > slots {
        // Writing to memory does not fail.
        let _never = write!(words, "; requests{class} are admitted up to {class_slots}");
    } else if !class.is_empty() {
        let _never = write!(words, "; the request is{class}");
    }
    if let (Some(latency), Some(baseline)) = (shed.latency(), shed.baseline()) {
        let (latency, baseline) = (Span::from(latency).human(), Span::from(baseline).human());
        let _never = write!(words, "; it answers in {latency} on average, and in {baseline} without waiting");
    }
    words
}

fn by_throttle(shed: &ThrottleShed, class: &str) -> String {
    let ThrottleShed { requests, accepts, share, .. } = shed;
    let (share, which) = (tenths(u64::from(*share)), which(class));
    format!(
        "the upstream accepted {accepts} of the last {requests} requests, and {share} % of {which} are not sent to it"
    )
}

/// Returns the requests of a class in words.
fn which(class: &str) -> String {
    if class.is_empty() { "all requests".to_owned() } else { format!("the requests{class}") }
}

fn by_node(node: &NodeShed, class: &str) -> String {
    let NodeShed { level, share, signals, .. } = node;
    let (share, level, which) = (tenths(u64::from(*share)), level.thousandths(), which(class));
    let mut words = format!(
        "this node is overloaded and sheds {share} % of {which} (level {}.{:02}",
        level / 1_000,
        level % 1_000 / 10
    );
    for (name, reading) in signals.iter() {
        let SignalReading { value, target } = reading;
        // Writing to memory does not fail.
        let _never = match name {
            "cpu" => write!(words, "; {name} {} %, target {} %", tenths(value), tenths(target)),
            "delay" => write!(words, "; {name} {} ms, target {} ms", millis(value), millis(target)),
            _ => write!(words, "; {name} {value}, target {target}"),
        };
    }
    words.push(')');
    words
}

/// Returns thousandths as percent, with a decimal if it is not zero.
fn tenths(thousandths: u64) -> String {
    match (thousandths / 10, thousandths % 10) {
        (whole, 0) => whole.to_string(),
        (whole, tenth) => format!("{whole}.{tenth}"),
    }
}

/// Returns microseconds as milliseconds, with a decimal if it is not zero.
fn millis(micros: u64) -> String {
    tenths(micros / 100)
}
