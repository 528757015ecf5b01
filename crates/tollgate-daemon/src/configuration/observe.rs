//! The sections `observe`, `traces` and `alerts`, and `log.refusals`.
//!
//! Observing is in `tollgate_telemetry`, the receivers in `refusal_log`, `traces` and `webhook`.

use std::num::NonZeroU32;
use std::path::PathBuf;

use rustls::ClientConfig;
use tollgate::Span;
use tollgate_document::{Fields, Node, Problems, Words};
use tollgate_telemetry::WatchSettings;

use super::{Endpoint, LoadPhase, files, shown};
use crate::failure::Failure;

/// The settings of observation and of its receivers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ObserveSettings {
    /// The number of decisions that are recorded; `None` disables observation.
    pub(crate) records: Option<usize>,
    /// The refusals that are logged.
    pub(crate) refusals: Refusals,
    /// The receiver of spans.
    pub(crate) traces: Option<TraceSettings>,
    /// The time after which an exhausted key becomes an alert.
    pub(crate) at_zero_for: Span,
    /// The receiver of alerts.
    pub(crate) webhook: Option<Receiver>,
}

/// The refusals that are logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusals {
    /// No refusals.
    Off,
    /// At most this many per second.
    PerSecond(NonZeroU32),
    /// Every refusal.
    All,
}

/// The receiver and the sampling of spans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TraceSettings {
    /// The collector.
    pub(crate) collector: Receiver,
    /// Samples one in this many admitted requests without a sampled trace; zero samples none.
    pub(crate) one_in: u32,
    /// The service name in the collector.
    pub(crate) service: String,
}

/// A receiver of data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Receiver {
    /// Its URL.
    pub(crate) endpoint: Endpoint,
    /// The CA file for its certificate, instead of the public authorities.
    pub(crate) ca: Option<PathBuf>,
}

const OBSERVE: Words = Words {
    section: "`observe`",
    known: &["records"],
    synonyms: &[("records", &["decisions", "size", "ring", "keep"])],
};
const TRACES: Words = Words {
    section: "`traces`",
    known: &["endpoint", "sample", "service", "ca"],
    synonyms: &[
        ("endpoint", &["url", "otlp", "collector"]),
        ("sample", &["ratio", "sampling"]),
        ("service", &["service_name", "name"]),
    ],
};
const ALERTS: Words = Words {
    section: "`alerts`",
    known: &["at_zero_for", "webhook", "ca"],
    synonyms: &[("webhook", &["url"]), ("at_zero_for", &["for", "after"])],
};

/// The range of `observe.records`: bounded memory, and enough records to be useful.
const RECORDS_RANGE: std::ops::RangeInclusive<u64> = 100..=1_000_000;
const MAX_SERVICE_BYTES: usize = 255;
/// The maximum rate of log lines; `all` removes the limit.
const MAX_LINES_PER_SECOND: u32 = 100_000;

impl Default for ObserveSettings {
    fn default() -> Self {
        let watch = WatchSettings::default();
        Self {
            records: Some(watch.records),
            refusals: Refusals::default(),
            traces: None,
            at_zero_for: watch.at_zero_for,
            webhook: None,
        }
    }
}

impl Default for Refusals {
    fn default() -> Self {
        Self::PerSecond(NonZeroU32::MIN.saturating_add(9))
    }
}

impl ObserveSettings {
    /// Parses the sections. `section` returns a section that has a value.
    pub(super) fn read<'d>(section: impl Fn(&str) -> Option<&'d Node>, problems: &mut Problems) -> Self {
        let mut read = Self::default();
        let observe = section("observe");
        if let Some(node) = observe {
            read.read_observe(node, problems);
        }
        if let Some(fields) = section("traces").and_then(|node| node.fields(&TRACES, problems)) {
            read.traces = TraceSettings::read(&fields, problems);
        }
        if let Some(fields) = section("alerts").and_then(|node| node.fields(&ALERTS, problems)) {
            let range = Span::from_secs(1)..=Span::from_hours(24);
            let span = fields.get("at_zero_for").and_then(|it| it.span("`at_zero_for`", range, problems));
            read.at_zero_for = span.map_or(read.at_zero_for, |it| it.value);
            read.webhook = Receiver::read(&fields, "webhook", problems);
        }
        if let (None, Some(off)) = (read.records, observe) {
            for word in ["traces", "alerts"] {
                if let Some(node) = section(word) {
                    problems
                        .error(node.place, format!("`{word}` needs observation, which is off"))
                        .label("this needs it")
                        .related(off.place, "nothing is watched")
                        .help(format!("leave `observe: off` out, or `{word}`"));
                }
            }
        }
        read
    }

    /// Returns the settings of the watcher; `None` if observation is off.
    pub(crate) fn watched(&self) -> Option<WatchSettings> {
        Some(WatchSettings {
            records: self.records?,
            at_zero_for: self.at_zero_for,
            trace_one_in: self.traces.as_ref().map_or(0, |it| it.one_in),
        })
    }

    fn read_observe(&mut self, node: &Node, problems: &mut Problems) {
        match node.text() {
            Some("off") => self.records = None,
            Some(text) => {
                let problem = problems.error(
                    node.place,
                    format!("`observe` is `off`, or a map with `records`, not {}", node.describe()),
                );
                if ["false", "no", "none", "never", "disabled"].iter().any(|it| text.eq_ignore_ascii_case(it))
                {
                    problem.label("did you mean `off`?");
                } else if text.bytes().all(|it| it.is_ascii_digit()) {
                    problem.label(format!("did you mean `{{records: {text}}}`?"));
                }
            }
            None => {
                let Some(fields) = node.fields(&OBSERVE, problems) else { return };
                let records =
                    fields.get("records").and_then(|it| it.whole("`records`", RECORDS_RANGE, problems));
                if let Some(records) = records {
                    self.records = usize::try_from(records.value).ok();
                }
            }
        }
    }
}

impl Refusals {
    /// Parses `10/second`, `all` or `off`.
    pub(super) fn read(node: &Node, problems: &mut Problems) -> Option<Self> {
        let text = node.word("`refusals`", problems)?.value;
        match text {
            "all" => return Some(Self::All),
            "off" => return Some(Self::Off),
            _ => {}
        }
        let (number, unit) = text.split_once('/').map_or((text, None), |(number, unit)| (number, Some(unit)));
        let number = number.trim().replace('_', "").parse::<u32>().ok();
        let is_second = matches!(unit.map(str::trim), Some("s" | "sec" | "second"));
        let fits = number.and_then(NonZeroU32::new).filter(|it| it.get() <= MAX_LINES_PER_SECOND);
        if let (Some(number), true) = (fits, is_second) {
            return Some(Self::PerSecond(number));
        }
        let problem = problems.error(
            node.place,
            format!("`refusals` is so many lines a second, `all` or `off`, not {}", node.describe()),
        );
        match (number, unit) {
            (Some(0), _) => problem.label("did you mean `off`?"),
            (Some(_), _) if fits.is_none() => {
                problem.label(format!("at most {MAX_LINES_PER_SECOND}/second, or `all`"))
            }
            (Some(number), None) => problem.label(format!("did you mean `{number}/second`?")),
            (Some(_), Some(_)) => problem.label("lines are counted by the second"),
            _ if ["none", "no", "false", "never"].contains(&text) => problem.label("did you mean `off`?"),
            _ => problem,
        };
        problem.help("such as 10/second; what is not logged is counted");
        None
    }
}

impl TraceSettings {
    fn read(fields: &Fields<'_>, problems: &mut Problems) -> Option<Self> {
        if fields.get("endpoint").is_none() && !fields.mentions("endpoint") {
            problems
                .error(fields.place(), "`traces` has no `endpoint`")
                .help("where the collector takes OTLP over HTTP: `endpoint: http://127.0.0.1:4318`");
        }
        let collector = Receiver::read(fields, "endpoint", problems);
        let one_in = fields.get("sample").map_or(Some(100), |node| one_in(node, problems));
        let service = fields.get("service").map_or(Some("tollgate"), |node| {
            let text = node.word("`service`", problems)?.value;
            if text.len() > MAX_SERVICE_BYTES || text.chars().any(char::is_control) {
                problems
                    .error(
                        node.place,
                        format!("`service` is a name of at most {MAX_SERVICE_BYTES} characters"),
                    )
                    .label("this is not");
                return None;
            }
            Some(text)
        });
        Some(Self { collector: collector?, one_in: one_in?, service: service?.to_owned() })
    }
}

impl Receiver {
    /// Returns the TLS configuration of the receiver; `None` without TLS.
    pub(crate) fn tls(&self, reading: LoadPhase) -> Result<Option<ClientConfig>, Failure> {
        if !self.endpoint.is_secure() {
            return Ok(None);
        }
        let pem = self.ca.as_deref().map(|file| files::read(file, reading)).transpose()?;
        tollgate_net::client_tls(pem.as_deref().map(str::as_bytes)).map(Some).map_err(|error| {
            let file = self.ca.as_deref().map(shown).unwrap_or_default();
            Failure::new(format_args!("the certificates in {file} cannot be used: {error}"))
        })
    }

    /// Parses a receiver: the URL under `word`, and an optional `ca`.
    fn read(fields: &Fields<'_>, word: &str, problems: &mut Problems) -> Option<Self> {
        let ca = fields.get("ca");
        let Some(node) = fields.get(word) else {
            if let Some(ca) = ca.filter(|_| !fields.mentions(word)) {
                problems
                    .error(ca.place, format!("`ca` is for a `{word}` that speaks TLS, and there is none"))
                    .label("nothing to check");
            }
            return None;
        };
        let path = ca.and_then(|it| it.word("`ca`", problems)).map(|it| PathBuf::from(it.value));
        let endpoint = Endpoint::read(node, &format!("`{word}`"), problems)?;
        if let Some(ca) = ca.filter(|_| !endpoint.is_secure()) {
            problems
                .error(ca.place, "`ca` is for TLS, and this URL does not use TLS")
                .label("nothing to check")
                .related(node.place, "no TLS here")
                .help("TLS is used with `https://`; without it, leave `ca` out");
        }
        Some(Self { endpoint, ca: path })
    }
}

/// Parses a percentage as one in N: `1%` is one in a hundred, `0%` none. Rounds to an integer N.
fn one_in(node: &Node, problems: &mut Problems) -> Option<u32> {
    /// A hundred percent in parts per million, the smallest unit that can be written.
    const WHOLE_PPM: u32 = 1_000_000;
    let text = node.word("`sample`", problems)?.value;
    let number = text.strip_suffix('%').unwrap_or(text).trim_end();
    match ten_thousandths(number) {
        Some(0) => return Some(0),
        Some(part @ 1..=WHOLE_PPM) => return Some((WHOLE_PPM + part / 2) / part),
        _ => {}
    }
    let problem = problems.error(node.place, format!("`sample` is 0% to 100%, not {}", node.describe()));
    if ["off", "no", "none", "never", "false"].contains(&text) {
        problem.label("did you mean `0%`?");
    }
    problem
        .help("such as 1%, of admitted requests; refused ones and those of a sampled trace are always sent");
    None
}

/// Parses a decimal number with up to four places, in ten-thousandths.
fn ten_thousandths(text: &str) -> Option<u32> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |it: &str| !it.is_empty() && it.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(part) || whole.len() > 3 || part.len() > 4 {
        return None;
    }
    Some(whole.parse::<u32>().ok()? * 10_000 + format!("{part:0<4}").parse::<u32>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_document::Document;

    fn read(text: &str) -> (ObserveSettings, Vec<String>) {
        let document = Document::parse(text).unwrap();
        let mut problems = Problems::default();
        let root = document.root();
        let observing = ObserveSettings::read(|word| root.get(word), &mut problems);
        let found = problems.into_diagnostics(&document);
        (observing, found.iter().map(|it| format!("{} | {}", it.message, it.label)).collect())
    }

    #[test]
    fn every_word_is_parsed() {
        let (read, problems) = read(
            "observe: {records: 100}\n\
             traces: {endpoint: \"https://collector:4318/otlp\", sample: 0.5%, service: shop, ca: /ca.pem}\n\
             alerts: {at_zero_for: 1s, webhook: \"http://pager/x\"}",
        );
        assert!(problems.is_empty(), "{problems:?}");
        let traces = read.traces.as_ref().unwrap();
        assert_eq!((traces.one_in, &*traces.service), (200, "shop"));
        assert_eq!(traces.collector.ca, Some("/ca.pem".into()));
        assert_eq!(traces.collector.endpoint.to_string(), "https://collector:4318/…");
        assert_eq!(read.webhook.as_ref().unwrap().endpoint.to_string(), "http://pager/…");
        let watched = read.watched().unwrap();
        assert_eq!((watched.records, watched.at_zero_for), (100, Span::from_secs(1)));
        assert_eq!(watched.trace_one_in, 200);
    }

    #[test]
    fn receivers_need_observation() {
        assert_eq!(read("observe: off").0.watched(), None);
        assert_eq!(
            read("observe: off\nalerts: {at_zero_for: 1s}").1,
            ["`alerts` needs observation, which is off | this needs it"]
        );
    }

    #[test]
    fn a_sample_is_converted_to_one_in_n() {
        for (text, expected) in [
            ("100%", 1),
            ("50%", 2),
            ("1%", 100),
            ("0.1%", 1000),
            ("0.001%", 100_000),
            ("0%", 0),
            ("2.5", 40),
        ] {
            let (read, problems) = read(&format!("traces: {{endpoint: \"http://h\", sample: {text}}}"));
            assert_eq!(read.traces.map(|it| it.one_in), Some(expected), "{text}: {problems:?}");
        }
    }

    #[test]
    fn every_mistake_has_a_suggestion() {
        for (text, expected) in [
            ("observe: no", "`observe` is `off`, or a map with `records`, not `no` | did you mean `off`?"),
            (
                "observe: 500",
                "`observe` is `off`, or a map with `records`, not `500` | did you mean `{records: 500}`?",
            ),
            ("observe: {ring: 500}", "unknown word `ring` in `observe` | did you mean `records`?"),
            ("observe: {records: 5}", "`records` is at least 100 | this is less"),
            ("traces: {sample: 1%}", "`traces` has no `endpoint` | "),
            ("traces: {url: x}", "unknown word `url` in `traces` | did you mean `endpoint`?"),
            (
                "traces: {endpoint: \"collector:4318\"}",
                "`endpoint` is a URL that begins with http:// or https:// | this does not",
            ),
            (
                "traces: {endpoint: \"http://h\", sample: off}",
                "`sample` is 0% to 100%, not `off` | did you mean `0%`?",
            ),
            (
                "traces: {endpoint: \"http://h\", ca: f}",
                "`ca` is for TLS, and this URL does not use TLS | nothing to check",
            ),
            ("alerts: {for: 5m}", "unknown word `for` in `alerts` | did you mean `at_zero_for`?"),
            ("alerts: {at_zero_for: 10ms}", "`at_zero_for` is between 1s and 1d | `10ms` is not"),
        ] {
            assert_eq!(read(text).1, [expected], "{text}");
        }
    }

    #[test]
    fn refusals_are_a_rate_all_or_off() {
        let read = |text: &str| {
            let document = Document::parse(&format!("refusals: {text}")).unwrap();
            let mut problems = Problems::default();
            let read = Refusals::read(document.root().get("refusals").unwrap(), &mut problems);
            (read, problems.into_diagnostics(&document).iter().map(|it| it.label.clone()).collect::<String>())
        };
        for (text, expected) in
            [("all", Refusals::All), ("off", Refusals::Off), ("10/s", Refusals::default())]
        {
            assert_eq!(read(text), (Some(expected), String::new()));
        }
        for (text, label) in [
            ("10", "did you mean `10/second`?"),
            ("0/second", "did you mean `off`?"),
            ("none", "did you mean `off`?"),
            ("5/minute", "lines are counted by the second"),
            ("100001/s", "at most 100000/second, or `all`"),
            ("much", ""),
        ] {
            assert_eq!(read(text), (None, label.to_owned()), "{text}");
        }
    }
}
