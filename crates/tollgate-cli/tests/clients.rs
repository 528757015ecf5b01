//! Popular clients, unmodified, against the gateway: all calls succeed, no retry is early, the limit
//! holds.
//!
//! `make test` installs the packages of `clients/requirements.txt` and `clients/package-lock.json` into
//! `target/python` and `target/node`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]
#![allow(clippy::disallowed_methods, reason = "other programs keep real time")]

mod tap;
mod wire;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;
use tap::{Exchange, Tap, assert_limit_holds, assert_none_is_early};
use tollgate_testkit::{Program, Scratch, Tollgate};

/// Two at once, and one more every second: `2/2s`.
const BURST: usize = 2;
const ONE_COMES_BACK: Duration = Duration::from_secs(1);
const CALLS: usize = 3;

/// A response that every JSON client here can parse.
const JSON: &str =
    r#"{"object":"list","data":[],"has_more":false,"url":"/","TableNames":[],"session_start_limit":{}}"#;
const BUCKETS: &str = "<ListAllMyBucketsResult><Buckets></Buckets></ListAllMyBucketsResult>";
const TOPICS: &str =
    "<ListTopicsResponse><ListTopicsResult><Topics/></ListTopicsResult></ListTopicsResponse>";

/// The settings of a client.
struct Setting {
    /// The limit, as in a policy.
    dialects: &'static str,
    /// The response of the upstream.
    says: &'static str,
    /// An additional argument.
    option: &'static str,
    /// Further limits, each after a comma.
    beside: &'static str,
}

const PLAIN: Setting = Setting { dialects: "[]", says: JSON, option: "", beside: "" };

/// The result of a run.
struct Run {
    seen: Vec<Exchange>,
    printed: Value,
}

/// Runs a client that makes a few calls, the first of which finds nothing left. All calls succeed,
/// although some were refused, and the limit holds.
#[track_caller]
fn run(client: &str, setting: &Setting) -> Run {
    let run = run_once(client, setting);
    let calls = run.printed["calls"].as_array().unwrap_or_else(|| panic!("no calls in {}", run.printed));
    assert_eq!(calls.len(), CALLS);
    assert!(calls.iter().all(|call| call["error"].is_null()), "{client}: {calls:#?}");
    assert_eq!(run.seen.iter().filter(|it| it.is_admitted()).count(), BURST + CALLS, "{client}");
    run
}

#[track_caller]
fn run_once(client: &str, setting: &Setting) -> Run {
    let arrived = Arc::new(AtomicUsize::new(0));
    let upstream = service(setting.says, Arc::clone(&arrived));
    let Setting { dialects, beside, .. } = setting;
    let config = format!(
        "gateway: {{upstream: \"http://{upstream}\"}}
headers: {{dialects: {dialects}}}
limits: [{{name: a, by: global, bucket: 2/2s}}{beside}]"
    );
    let tollgate = Tollgate::start(env!("CARGO_BIN_EXE_tollgate"), &config);
    let tap = Tap::before(tollgate.gateway, BURST);
    let printed = printed_by(command(client, &format!("http://{}", tap.address), setting.option));
    let seen = tap.seen();
    assert!(seen.iter().any(Exchange::is_refusal), "{client} was never refused: {seen:#?}");
    assert_limit_holds(&seen, BURST, ONE_COMES_BACK);
    let admitted = seen.iter().filter(|it| it.is_admitted()).count();
    assert_eq!(arrived.load(Ordering::SeqCst), admitted, "{client}: a refusal does not reach the service");
    Run { seen, printed }
}

/// Like `run`, for clients that know how long to wait.
#[track_caller]
fn obeys(client: &str, setting: &Setting) -> Run {
    let run = run(client, setting);
    assert_none_is_early(&run.seen);
    run
}

/// An upstream with a fixed response that counts its requests.
fn service(says: &'static str, arrived: Arc<AtomicUsize>) -> std::net::SocketAddr {
    let content_type = if says.starts_with('<') { "text/xml" } else { "application/json" };
    wire::serve(move |_| {
        arrived.fetch_add(1, Ordering::SeqCst);
        let length = says.len();
        format!(
            "HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ncontent-length: {length}\r\n\
             connection: close\r\n\r\n{says}"
        )
        .into_bytes()
    })
}

fn command(client: &str, url: &str, option: &str) -> Command {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let scripts = here.join("tests/clients");
    let calls = CALLS.to_string();
    if client.strip_suffix(".py").is_some() {
        let mut command = Command::new(installed(here, "python/bin/python"));
        command.arg("-B").arg(scripts.join("python").join(client)).args([url, &calls, option]);
        return command;
    }
    // A script that is not a file looks for packages in the current directory.
    let text = |name: &str| fs::read_to_string(scripts.join("node").join(name)).unwrap();
    let script = format!("{}\n{}", text("report.mjs"), text(client));
    let packages = installed(here, "node/node_modules");
    let mut command = Command::new("node");
    command.current_dir(packages.parent().unwrap());
    command.args(["--input-type=module", "--eval", &script, "--", url, &calls]);
    command
}

#[track_caller]
fn installed(here: &Path, what: &str) -> PathBuf {
    let path = here.join("../../target").join(what);
    assert!(path.exists(), "target/{what} is missing: run `make test`, which installs it");
    path
}

/// Returns the JSON output of a program, which runs without the settings of this machine.
#[track_caller]
fn printed_by(mut command: Command) -> Value {
    let files = Scratch::new();
    let file = |name: &str| files.path().join(name);
    for proxy in ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
        command.env_remove(proxy);
    }
    command.env("HOME", files.path()).env("AWS_EC2_METADATA_DISABLED", "true");
    command.stdout(File::create(file("out")).unwrap()).stderr(File::create(file("err")).unwrap());
    let status = Program::start(command).wait();
    let [out, err] = ["out", "err"].map(|name| fs::read_to_string(file(name)).unwrap());
    assert!(status.success(), "{status}: {err}");
    serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}{err}"))
}

#[test]
fn urllib3_waits_for_retry_after() {
    obeys("call_urllib3.py", &PLAIN);
}

#[test]
fn requests_waits_for_retry_after() {
    obeys("call_requests.py", &PLAIN);
}

#[test]
fn httpx_can_be_made_to_wait_for_retry_after() {
    obeys("call_httpx.py", &PLAIN);
}

#[test]
fn got_waits_for_retry_after() {
    obeys("call_got.mjs", &PLAIN);
}

#[test]
fn axios_retry_waits_for_retry_after() {
    obeys("call_axios.mjs", &PLAIN);
}

#[test]
fn openai_waits_to_the_millisecond_and_shows_the_decision() {
    let openai = Setting { dialects: "openai", ..PLAIN };
    obeys("call_openai.py", &openai);
    let error = run_once("call_openai_refused.py", &openai).printed;
    assert_eq!((&error["code"], &error["type"]), (&"rate_limit_exceeded".into(), &"requests".into()));
    assert_eq!(error["id"].as_str().map(str::len), Some(16), "{error}");
}

#[test]
fn boto3_is_throttled_in_json() {
    obeys("call_boto3.py", &Setting { dialects: "aws", option: "dynamodb", ..PLAIN });
}

#[test]
fn boto3_is_throttled_in_xml() {
    obeys("call_boto3.py", &Setting { dialects: "aws", option: "s3", says: BUCKETS, ..PLAIN });
}

#[test]
fn boto3_is_throttled_in_the_query_protocol() {
    obeys("call_boto3.py", &Setting { dialects: "aws", option: "sns", says: TOPICS, ..PLAIN });
}

/// It retries by its own backoff, from half a second on, which is harmless: a refusal costs nothing.
#[test]
fn stripe_retries_until_it_is_admitted() {
    run("call_stripe.py", &Setting { dialects: "stripe", ..PLAIN });
}

#[test]
fn without_its_dialect_stripe_gives_up_at_the_first_refusal() {
    let printed = run_once("call_stripe.py", &PLAIN).printed;
    let first = printed["calls"][0]["error"].as_str().unwrap_or_default();
    assert!(first.starts_with("APIError"), "it cannot even read the body: {printed}");
}

#[test]
fn octokit_waits_for_the_reset_without_a_dialect() {
    let heard = obeys("call_octokit.mjs", &PLAIN).printed["heard"].clone();
    assert!(heard.as_array().unwrap().iter().all(|kind| kind == "primary"), "{heard}");
}

#[test]
fn octokit_gets_the_kind_of_limit_in_its_dialect() {
    const DAILY: &str = ", {name: daily, by: global, bucket: 100_000/day}";
    for (beside, expected) in [("", "primary"), (DAILY, "secondary")] {
        let github = Setting { dialects: "github", beside, ..PLAIN };
        let heard = obeys("call_octokit.mjs", &github).printed["heard"].clone();
        assert!(heard.as_array().unwrap().iter().all(|kind| kind == expected), "{expected}: {heard}");
    }
}

#[test]
fn discordjs_waits_for_retry_after() {
    obeys("call_discord.mjs", &Setting { dialects: "discord", ..PLAIN });
}
