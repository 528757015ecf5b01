//! A writer for the Prometheus text format (0.0.4).

use std::fmt::{Display, Write as _};

use crate::histogram::{LATENCY, Scale, Spread, UNBOUNDED};
use crate::latency::LatencyHistogram;

/// Writes metrics in the Prometheus text format: the header of each metric once, then its values.
///
/// ```
/// use tollgate_telemetry::{Exposition, MetricKind};
///
/// let mut out = String::new();
/// let mut exposition = Exposition::new(&mut out);
/// exposition.one("tollgate_nodes", MetricKind::Gauge, "Nodes that share the store.", 3);
/// exposition
///     .family("tollgate_decisions_total", MetricKind::Counter, "Decisions.")
///     .value(&[("outcome", "allowed")], 7);
/// assert_eq!(out, "\
/// ## HELP tollgate_nodes Nodes that share the store.
/// ## TYPE tollgate_nodes gauge
/// tollgate_nodes 3
/// ## HELP tollgate_decisions_total Decisions.
/// ## TYPE tollgate_decisions_total counter
/// tollgate_decisions_total{outcome=\"allowed\"} 7
/// ");
/// ```
#[derive(Debug)]
pub struct Exposition<'o> {
    out: &'o mut String,
}

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// A value that only grows.
    Counter,
    /// A value that goes up and down.
    Gauge,
}

/// Writes the values of one metric.
#[derive(Debug)]
pub struct Family<'o> {
    out: &'o mut String,
    name: &'static str,
}

impl<'o> Exposition<'o> {
    /// Creates a writer that appends to `out`.
    pub const fn new(out: &'o mut String) -> Self {
        Self { out }
    }

    /// Writes a metric with a single value.
    pub fn one(&mut self, name: &'static str, kind: MetricKind, help: &'static str, value: impl Display) {
        self.family(name, kind, help).value(&[], value);
    }

    /// Writes the header of a metric that has one value for each set of labels.
    pub fn family(&mut self, name: &'static str, kind: MetricKind, help: &'static str) -> Family<'_> {
        let kind = match kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
        };
        self.begin(name, kind, help)
    }

    /// Writes a histogram of latencies, in seconds.
    pub fn latencies(
        &mut self,
        name: &'static str,
        help: &'static str,
        labels: &[(&str, &str)],
        latencies: &LatencyHistogram,
    ) {
        self.histogram(name, help).spread(labels, &LATENCY, &latencies.spread());
    }

    /// Writes the header of a histogram.
    pub(crate) fn histogram(&mut self, name: &'static str, help: &'static str) -> Family<'_> {
        self.begin(name, "histogram", help)
    }

    fn begin(&mut self, name: &'static str, kind: &str, help: &'static str) -> Family<'_> {
        // Writing to a string does not fail.
        let _never = writeln!(self.out, "# HELP {name} {help}\n# TYPE {name} {kind}");
        Family { out: self.out, name }
    }
}

impl Family<'_> {
    /// Writes one value. Labels must not contain text from callers, which would make their number
    /// unbounded.
    pub fn value(&mut self, labels: &[(&str, &str)], value: impl Display) -> &mut Self {
        self.sample("", labels, None, value);
        self
    }

    pub(crate) fn spread<const N: usize>(
        &mut self,
        labels: &[(&str, &str)],
        scale: &Scale<N>,
        spread: &Spread<N>,
    ) {
        let mut so_far = 0;
        for (&bound, bucket) in scale.bounds.iter().zip(spread.buckets) {
            so_far += bucket;
            if bound != UNBOUNDED {
                self.sample("_bucket", labels, Some(&Decimal(bound, scale.per_one)), so_far);
            }
        }
        self.sample("_bucket", labels, Some(&"+Inf"), so_far);
        self.sample("_sum", labels, None, Decimal(spread.sum, scale.per_one));
        self.sample("_count", labels, None, so_far);
    }

    fn sample(
        &mut self,
        suffix: &str,
        labels: &[(&str, &str)],
        bound: Option<&dyn Display>,
        value: impl Display,
    ) {
        let Self { out, name } = self;
        let _never = write!(out, "{name}{suffix}");
        let mut separator = '{';
        for (label, value) in labels {
            let _never = write!(out, "{separator}{label}=\"{}\"", EscapedLabel(value));
            separator = ',';
        }
        if let Some(bound) = bound {
            let _never = write!(out, "{separator}le=\"{bound}\"");
            separator = ',';
        }
        let _never = writeln!(out, "{} {value}", if separator == ',' { "}" } else { "" });
    }
}

/// The value of a label, with quotes, backslashes and line breaks escaped.
struct EscapedLabel<'s>(&'s str);

impl Display for EscapedLabel<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.chars().try_for_each(|char| match char {
            '\\' => f.write_str("\\\\"),
            '"' => f.write_str("\\\""),
            '\n' => f.write_str("\\n"),
            char => f.write_char(char),
        })
    }
}

/// The exact quotient of two numbers; the divisor is a power of ten.
struct Decimal(u64, u64);

impl Display for Decimal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self(units, per_one) = *self;
        write!(f, "{}", units / per_one)?;
        let rest = units % per_one;
        if rest == 0 {
            return Ok(());
        }
        let digits = per_one.ilog10() as usize;
        let fraction = format!("{rest:0digits$}");
        write!(f, ".{}", fraction.trim_end_matches('0'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::{Histogram, SHARE};
    use crate::stripes::Adder;

    #[test]
    fn decimals_are_exact_and_short() {
        let shown =
            [0, 1, 25, 1_000_000, 1_500_000, 86_400_000_000].map(|it| Decimal(it, 1_000_000).to_string());
        assert_eq!(shown, ["0", "0.000001", "0.000025", "1", "1.5", "86400"]);
    }

    #[test]
    fn a_histogram_counts_the_values_at_or_below_each_bound() {
        let histogram = Histogram::default();
        for value in [0, 50, 1000] {
            histogram.put(&SHARE, value, Adder::SHARED);
        }
        let mut out = String::new();
        let spread = Spread::of([&histogram].into_iter());
        Exposition::new(&mut out).histogram("left", "Left.").spread(&[("limit", "a\"b")], &SHARE, &spread);
        assert!(out.starts_with(
            "# HELP left Left.\n# TYPE left histogram\nleft_bucket{limit=\"a\\\"b\",le=\"0\"} 1\n"
        ));
        assert!(out.contains("le=\"0.1\"} 2\n"), "{out}");
        assert!(out.ends_with(
            "le=\"1\"} 3\nleft_bucket{limit=\"a\\\"b\",le=\"+Inf\"} 3\nleft_sum{limit=\"a\\\"b\"} 1.05\nleft_count{limit=\"a\\\"b\"} 3\n"
        ), "{out}");
    }
}
