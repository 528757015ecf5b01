//! The metrics of the server, and their use in `integrations/` and `docs/metrics.md`, checked with the
//! real `promtool` and `prometheus`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod promtool;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::service::client::{Client, get};
use serde_json::Value;
use tollgate_testkit::{Program, Redis, Scratch, Tollgate, free_port, wait_for_port};

const BINARY: &str = env!("CARGO_BIN_EXE_tollgate");

/// Every section that has metrics, except the store.
const POLICY: &str = "
gateway: {workers: 1, throttle: on}
traces: {endpoint: 'http://127.0.0.1:9'}
outbound: [{name: partner, listen: 127.0.0.1:0, upstream: http://127.0.0.1:9}]
alerts: {webhook: 'http://127.0.0.1:9/hook'}
limits:
  - {name: api, endpoint: '/api/**', by: ip, bucket: 3/hour, soft: 50%, candidate: {bucket: 2/hour}}
  - {name: trial, endpoint: '/api/**', by: ip, bucket: 1/hour, mode: shadow}
  - {name: upstream, by: global, slots: adaptive}
shed: {node: {inflight: 100000, cpu: 100%, delay: 1m}}
";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn integration(file: &str) -> String {
    let path = root().join("integrations").join(file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Sends five requests, of which two are refused. Their paths and headers must not appear in metrics.
fn send_traffic(tollgate: &Tollgate) {
    let mut client = Client::connect(tollgate.gateway).unwrap();
    let ask = |_| {
        let request = "GET /api/x-from-a-caller HTTP/1.1\r\nHost: h\r\nX-User-Id: y-from-a-caller\r\n\r\n";
        client.ask(request).unwrap().status
    };
    let statuses: Vec<_> = (0..5).map(ask).collect();
    assert_eq!(statuses, [200, 200, 200, 429, 429]);
}

/// A limit with values of callers in its metrics, and one without.
const ENVOYS: &str = "
domain: shop
descriptors:
  - {key: user, rate_limit: {unit: year, requests_per_unit: 2}}
  - {key: guide, detailed_metric: true, rate_limit: {unit: year, requests_per_unit: 2}}
";

/// Sends three requests of a proxy for each limit, of which two are within it, and one in an unknown
/// domain.
fn ask_as_a_proxy(tollgate: &Tollgate) {
    let mut client = Client::connect(tollgate.api).unwrap();
    let mut ask = |domain: &str, key: &str, value: &str| {
        let entries = format!(r#"[{{"entries":[{{"key":"{key}","value":"{value}"}}]}}]"#);
        let body = format!(r#"{{"domain":"{domain}","descriptors":{entries}}}"#);
        let length = body.len();
        let host = tollgate.api;
        let request =
            format!("POST /json HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\n\r\n{body}");
        client.ask(&request).unwrap().status
    };
    for (key, value) in [("user", "z-from-a-caller"), ("guide", "tom \\\"\\n{}")] {
        assert_eq!([(); 3].map(|()| ask("shop", key, value)), [200, 200, 429]);
    }
    assert_eq!(ask("d-from-a-caller", "user", "ann"), 200);
}

fn metrics(api: SocketAddr) -> String {
    let answer = get(api, "/metrics");
    assert_eq!(answer.status, 200);
    String::from_utf8(answer.body).unwrap()
}

/// Returns the names of metrics that the text declares.
fn declared(text: &str) -> BTreeSet<(String, String)> {
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    types.map(|(name, kind)| (name.to_owned(), kind.to_owned())).collect()
}

#[test]
fn the_exposed_metrics_are_valid_and_match_the_document() {
    let redis = Redis::start();
    let on_redis = format!("store: {{url: '{}', deadline: 10s}}\n{POLICY}", redis.url());
    let folder = Scratch::new();
    folder.write("shop.yaml", ENVOYS);
    let mut exposed = BTreeSet::new();
    for policy in [POLICY, &on_redis] {
        let disk = Scratch::new();
        let records = format!("records={}", disk.path().join("records").display());
        let arguments = ["--envoy-config", folder.path().to_str().unwrap(), "--set", &records];
        let tollgate = Tollgate::start_with(BINARY, policy, &arguments);
        send_traffic(&tollgate);
        ask_as_a_proxy(&tollgate);
        let text = metrics(tollgate.api);
        assert_eq!(promtool::complaints(&text), "", "{text}");
        for line in [
            "tollgate_decisions_total{outcome=\"limited\"} 4",
            "tollgate_limit_decisions_total{limit=\"api\",outcome=\"allowed\"} 3",
            "tollgate_limit_decisions_total{limit=\"trial\",outcome=\"shadow_limited\"} 4",
            "tollgate_limit_soft_total{limit=\"api\"} 2",
            "tollgate_candidate_decisions_total{limit=\"api.candidate\",live=\"allowed\",candidate=\"limited\"} 1",
            "tollgate_rls_limit_hits_total{domain=\"shop\",limit=\"shop.user\",result=\"within\"} 2",
            "tollgate_rls_limit_hits_total{domain=\"shop\",limit=\"shop.user\",result=\"over\"} 1",
            "tollgate_rls_limit_hits_total{domain=\"shop\",limit=\"shop.guide_tom \\\"\u{fffd}{}\",result=\"near\"} 1",
            "tollgate_rls_domain_not_found_total 1",
            "tollgate_outbound_attempts_total{service=\"partner\"} 0",
            "tollgate_shed_level_thousandths 0",
            "tollgate_load_target{signal=\"inflight\"} 100000",
        ] {
            assert!(text.lines().any(|it| it == line), "{line} in:\n{text}");
        }
        assert!(!text.contains("from-a-caller"), "{text}");
        exposed.extend(declared(&text));
    }
    let document = fs::read_to_string(root().join("docs/metrics.md")).unwrap();
    let rows = document.lines().filter_map(|line| line.strip_prefix("| `tollgate_")?.split_once("` | "));
    let documented: BTreeSet<_> = rows
        .map(|(name, rest)| (format!("tollgate_{name}"), rest.split(' ').next().unwrap().to_owned()))
        .collect();
    let missing: Vec<_> = exposed.difference(&documented).collect();
    // Metrics of stores and servers that this test does not start: `store/counters.rs` and `config_server.rs`
    // of `tollgate-daemon` expose them.
    let is_of_another_store = |name: &str| {
        ["peers", "postgres", "region", "xds"].iter().any(|it| name.starts_with(&format!("tollgate_{it}_")))
    };
    let gone: Vec<_> =
        documented.difference(&exposed).filter(|(name, _)| !is_of_another_store(name)).collect();
    assert!(missing.is_empty() && gone.is_empty(), "not in the document: {missing:?}\nonly there: {gone:?}");
}

#[test]
fn without_observation_store_and_process_metrics_remain() {
    let tollgate = Tollgate::start(BINARY, "observe: off\nlimits: [{name: api, by: ip, bucket: 3/hour}]\n");
    let text = metrics(tollgate.api);
    assert_eq!(promtool::complaints(&text), "", "{text}");
    assert!(text.contains("tollgate_store_up 1\n") && !text.contains("tollgate_decisions_total"), "{text}");
}

#[test]
fn the_rules_pass_their_tests() {
    let folder = root().join("integrations/prometheus");
    promtool::accepts(&["check", "config", "prometheus.yml"], &folder);
    promtool::accepts(&["test", "rules", "rules.test.yml"], &folder);
}

#[test]
fn every_alert_has_a_test_a_description_and_an_action() {
    let (rules, tests) = (integration("prometheus/rules.yml"), integration("prometheus/rules.test.yml"));
    let readme = integration("prometheus/README.md");
    let alerts: Vec<_> = rules.split("- alert: ").skip(1).collect();
    assert!(alerts.len() >= 10, "only {} alerts were found", alerts.len());
    for alert in alerts {
        let name = alert.lines().next().unwrap();
        assert!(tests.contains(&format!("alertname=\"{name}\"")), "{name} is not tested");
        assert!(readme.contains(&format!("| `{name}` |")), "{name} is not in the README");
        for part in ["severity: ", "summary: ", "runbook: "] {
            assert!(alert.contains(part), "{name} has no {part}");
        }
    }
}

/// Returns the expressions of the dashboard, as Grafana sends them.
fn board_expressions() -> Vec<String> {
    fn collect(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(map) => {
                found.extend(map.get("expr").and_then(Value::as_str).map(str::to_owned));
                map.values().for_each(|value| collect(value, found));
            }
            Value::Array(values) => values.iter().for_each(|value| collect(value, found)),
            _ => {}
        }
    }
    let board: Value = serde_json::from_str(&integration("grafana/tollgate.json")).unwrap();
    let mut found = Vec::new();
    collect(&board, &mut found);
    let filled = |expr: String| {
        let filled = expr.replace("$__rate_interval", "5m").replace("$job", "tollgate");
        filled.replace("$instance", ".*").replace("$limit", ".*")
    };
    found.into_iter().map(filled).collect()
}

#[test]
fn every_expression_of_the_dashboard_is_valid() {
    let expressions = board_expressions();
    assert!(expressions.len() >= 20, "only {} expressions were found", expressions.len());
    let mut rules = "groups:\n  - name: board\n    rules:\n".to_owned();
    for (at, expression) in expressions.iter().enumerate() {
        assert!(!expression.contains('$'), "{expression}");
        let quoted = serde_json::to_string(expression).unwrap();
        writeln!(rules, "      - {{record: 'board:expression:{at}', expr: {quoted}}}").unwrap();
    }
    let files = Scratch::new();
    files.write("board.yml", &rules);
    promtool::accepts(&["check", "rules", "board.yml"], files.path());
}

#[test]
fn rules_and_dashboard_use_only_documented_metrics() {
    let document = fs::read_to_string(root().join("docs/metrics.md")).unwrap();
    let expressions = [board_expressions().join("\n"), integration("prometheus/rules.yml")].concat();
    let words = expressions.split(|it: char| !(it.is_ascii_alphanumeric() || it == '_'));
    let names: BTreeSet<_> = words.filter(|word| word.starts_with("tollgate_")).collect();
    assert!(names.len() >= 20, "only {names:?}");
    for name in names {
        let plain = ["_bucket", "_count", "_sum"].iter().find_map(|suffix| name.strip_suffix(suffix));
        let is_known = |name: &str| document.contains(&format!("| `{name}` |"));
        assert!(is_known(name) || plain.is_some_and(is_known), "{name} is not in docs/metrics.md");
    }
}

/// Returns the shipped configuration with these addresses and short intervals.
fn configuration(files: &Scratch, api: SocketAddr) -> PathBuf {
    let shipped = integration("prometheus/prometheus.yml");
    assert!(shipped.contains("127.0.0.1:7070") && shipped.contains("scrape_interval: 15s"));
    let adapted = shipped
        .replace("127.0.0.1:7070", &api.to_string())
        .replace("scrape_interval: 15s", "scrape_interval: 100ms")
        .replace("evaluation_interval: 15s", "evaluation_interval: 100ms");
    files.write("rules.yml", &integration("prometheus/rules.yml"));
    files.write("prometheus.yml", &adapted)
}

/// Uses HTTP/1.0, which has no chunked responses.
fn ask_prometheus(address: SocketAddr, path: &str) -> Value {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    serde_json::from_str(body).unwrap_or_default()
}

#[test]
fn a_real_prometheus_scrapes_the_metrics() {
    let tollgate = Tollgate::start(BINARY, POLICY);
    send_traffic(&tollgate);
    let (files, port) = (Scratch::new(), free_port());
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let mut command = Command::new("prometheus");
    command.arg(format!("--config.file={}", configuration(&files, tollgate.api).display()));
    command.arg(format!("--storage.tsdb.path={}", files.path().join("data").display()));
    command.arg(format!("--web.listen-address={address}")).arg("--log.level=error");
    command.stdout(Stdio::null()).stderr(Stdio::from(fs::File::create(files.path().join("log")).unwrap()));
    let mut prometheus = Program::start(command);
    wait_for_port(&mut prometheus, address);

    let query_api = |path: &str| ask_prometheus(address, path);
    let query = "/api/v1/query?query=sum(tollgate_limit_decisions_total%7Blimit=%22api%22%7D)";
    let value = |answer: &Value| answer["data"]["result"][0]["value"][1].as_str().map(str::to_owned);
    prometheus.wait_until("scrape", || value(&query_api(query)).is_some());
    assert_eq!(value(&query_api(query)).as_deref(), Some("5"));

    let is_well = |rule: &Value| rule["health"] == "ok";
    let rules = |answer: Value| answer["data"]["groups"][0]["rules"].as_array().cloned().unwrap_or_default();
    prometheus.wait_until("evaluation of all rules", || {
        let rules = rules(query_api("/api/v1/rules"));
        rules.len() >= 10 && rules.iter().all(is_well)
    });
    let firing = rules(query_api("/api/v1/rules")).into_iter().filter(|rule| rule["state"] == "firing");
    assert_eq!(firing.map(|rule| rule["name"].clone()).collect::<Vec<_>>(), Vec::<Value>::new());
}
