//! One process under one limit of Tollgate's gateway, in every dialect.

use std::error::Error;

use tollgate_testkit::Tollgate;

use crate::report::Row;
use crate::subject::Subject;
use crate::watch::Watch;

/// Units per second of the limit.
pub(crate) const RATE: f64 = 500.0;
/// Units that may be used at once.
const BURST: f64 = 50.0;

/// A dialect of the gateway.
pub(crate) struct Case {
    /// The name in the report.
    pub(crate) name: &'static str,
    /// The `headers` of the policy.
    headers: &'static str,
    /// The subjects: peers are measured once, because they read no dialect.
    subjects: &'static [Subject],
}

const OURS: &[Subject] = &[Subject::Tollgate];

/// All cases.
pub(crate) const CASES: [Case; 7] = [
    Case { name: "ietf", headers: "", subjects: &Subject::ALL },
    Case { name: "github", headers: "headers: {dialects: [github]}", subjects: OURS },
    Case { name: "discord", headers: "headers: {dialects: [discord]}", subjects: OURS },
    Case { name: "openai", headers: "headers: {dialects: [openai]}", subjects: OURS },
    Case { name: "stripe", headers: "headers: {dialects: [stripe]}", subjects: OURS },
    Case { name: "aws", headers: "headers: {dialects: [aws]}", subjects: OURS },
    Case { name: "envoy", headers: "headers: {dialects: [envoy]}", subjects: OURS },
];

/// Returns the policy of a limit.
pub(crate) fn policy(headers: &str, burst: f64) -> String {
    format!(
        "{headers}\ngateway: {{upstream: demo}}\nlimits:\n  - {{name: api, by: global, bucket: '{RATE}/second, burst {burst}'}}\n"
    )
}

/// Measures the subjects of a case, each with a new gateway.
pub(crate) fn measure(
    case: &Case,
    binary: &str,
    calls: usize,
    has_peers: bool,
) -> Result<Vec<Row>, Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let subjects = case.subjects.iter().filter(|it| has_peers || **it == Subject::Tollgate);
    let rows = subjects.map(|subject| {
        let tollgate = Tollgate::start(binary, &policy(case.headers, BURST));
        let url = format!("http://{}/", tollgate.gateway);
        let watch = Watch::new();
        let succeeded = runtime.block_on(subject.run(&url, calls, &watch));
        let row = Row::new((case.name, subject.name()), (calls, succeeded), watch.elapsed(), watch.counts());
        row.with_limit(RATE, BURST)
    });
    Ok(rows.collect())
}
