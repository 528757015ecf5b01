//! The dashboard of a running `tollgate serve`, and the report of a `tollgate replay`, in a real Chromium.
//!
//! Each test starts a server and runs one script of `page/` against it; the scripts define the clicks
//! and the expected content. `make test` installs Chromium and the packages of `page/package-lock.json`
//! into `target/page`.
//!
//! Durations are printed and never affect the result: scripts wait for the expected content.
//!
//! The API is tested in `tollgate-server/tests`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]
#![allow(clippy::disallowed_methods, reason = "other programs keep real time")]

use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tollgate_testkit::{Program, Redis, Scratch, Tollgate};

const BINARY: &str = env!("CARGO_BIN_EXE_tollgate");

/// A timeout that only failing tests reach.
const DEADLINE: Duration = Duration::from_secs(600);

/// Small limits, which are exhausted at once.
const POLICY: &str = "
limits:
  - name: search
    endpoint: /api/v1/search/**
    by: user
    bucket: 5/minute
    soft: 80%
    candidate: {bucket: 2/minute}
  - {name: login, endpoint: /api/v1/login, by: ip, bucket: 3/minute}
  - {name: everybody, by: global, bucket: 100000/second}
";

/// One browser at a time, because two slow each other down on a small machine.
static BROWSER: Mutex<()> = Mutex::new(());

/// A server that scripts can restart, with its Redis if it has one.
struct Server {
    config: String,
    redis: Option<Redis>,
    running: Option<Tollgate>,
    arguments: Vec<String>,
}

impl Server {
    fn start(config: &str, redis: Option<Redis>) -> Self {
        let store = redis.as_ref().map(|it| format!("store: {}\n", it.url())).unwrap_or_default();
        let config = format!("{store}{config}");
        let mut server = Self { config, redis, running: None, arguments: Vec::new() };
        server.again();
        let Tollgate { api, gateway, .. } = server.running();
        let at = |name: &str, address| ["--set".to_owned(), format!("listen.{name}={address}")];
        server.arguments = [at("api", *api), at("gateway", *gateway)].concat();
        server
    }

    fn running(&self) -> &Tollgate {
        self.running.as_ref().unwrap()
    }

    /// Restarts at the same address as the first time.
    fn again(&mut self) {
        let arguments: Vec<_> = self.arguments.iter().map(String::as_str).collect();
        self.running = Some(Tollgate::start_with(BINARY, &self.config, &arguments));
    }

    fn rewrite(&self, config: &str) {
        self.running().files.write("tollgate.yaml", config);
    }

    /// Executes an order of a script.
    fn obey(&mut self, order: &str) {
        match order {
            "stop" => {
                let mut tollgate = self.running.take().unwrap();
                tollgate.program.signal("TERM");
                tollgate.program.wait();
            }
            "start" => self.again(),
            "spoil" => self.rewrite("limits: [{name: search, by: user, bucket: 9/minuet}]"),
            "spoil-twice" => self.rewrite(
                "limits:\n  - {name: search, by: user, bucket: 9/minuet}\n  - {name: b, by: ip, bukcet: 9/minute}\n",
            ),
            "amend" => self.rewrite("limits: [{name: afresh, by: user, bucket: 9/minute}]"),
            "break" => self.redis.as_ref().unwrap().kill(),
            _ => self.redis.as_ref().unwrap().restart(),
        }
    }
}

#[track_caller]
fn run(script: &str, config: &str) {
    run_on(None, script, config);
}

/// Runs a script against a server. A script orders by creating a file, which is removed when the order
/// is done.
#[track_caller]
fn run_on(redis: Option<Redis>, script: &str, config: &str) {
    run_beside(redis, None, script, config);
}

/// Runs a script against a server, beside another server.
#[track_caller]
fn run_beside(redis: Option<Redis>, other: Option<&Tollgate>, script: &str, config: &str) {
    let _alone = BROWSER.lock().unwrap_or_else(PoisonError::into_inner);
    let files = Scratch::new();
    let state = files.path().join("state");
    fs::create_dir(&state).unwrap();
    let mut server = Server::start(&format!("state: {}\n{config}", state.display()), redis);
    let mut command = node(script, &files);
    command.env("TOLLGATE_API", server.running().api.to_string());
    command.env("TOLLGATE_GATEWAY", server.running().gateway.to_string());
    if let Some(other) = other {
        command.env("TOLLGATE_OTHER", other.api.to_string());
    }
    if let Some(rls) = server.running().rls {
        command.env("TOLLGATE_RLS", rls.to_string());
    }
    command.env("ORDERS", files.path());
    let said = files.path().join("said");
    let out = File::create(&said).unwrap();
    command.stdout(out.try_clone().unwrap()).stderr(out);
    let mut program = Program::start(command);
    let start = Instant::now();
    while program.is_running() {
        for order in ["stop", "start", "spoil", "spoil-twice", "amend", "break", "mend"] {
            let file = files.path().join(order);
            if file.exists() {
                server.obey(order);
                fs::remove_file(file).unwrap();
            }
        }
        let said = || fs::read_to_string(&said).unwrap_or_default();
        assert!(start.elapsed() < DEADLINE, "{script} does not end: {}", said());
        thread::sleep(Duration::from_millis(20));
    }
    let status = program.wait();
    let said = fs::read_to_string(&said).unwrap();
    println!("{script}:\n{said}");
    assert!(status.success(), "{script}, {status}: {said}\nthe server said: {}", server.running().log());
}

fn node(script: &str, files: &Scratch) -> Command {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new("node");
    command.arg(here.join("tests/page").join(script)).current_dir(packages(here));
    for proxy in ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
        command.env_remove(proxy);
    }
    command.env("HOME", files.path());
    command
}

#[track_caller]
fn packages(here: &Path) -> PathBuf {
    let path = here.join("../../target/page");
    assert!(path.join("node_modules").exists(), "target/page is missing: run `make test`, which installs it");
    path
}

#[test]
fn every_panel_and_dialog_works_and_a_switch_affects_the_next_request() {
    run("tour.mjs", POLICY);
}

#[test]
fn the_keyboard_suffices() {
    run("keyboard.mjs", POLICY);
}

#[test]
fn the_page_reconnects_after_a_restart() {
    run("restart.mjs", POLICY);
}

#[test]
fn alerts_reload_errors_and_new_policies_are_shown_live() {
    run("news.mjs", &format!("alerts: {{at_zero_for: 1s}}\n{POLICY}"));
}

#[test]
fn an_outage_of_the_store_is_shown_during_and_after_it() {
    run_on(Some(Redis::start()), "outage.mjs", POLICY);
}

#[test]
fn the_fleet_and_its_leases_are_shown_and_decisions_of_other_servers_explained() {
    let policy = "
limits:
  - {name: login, endpoint: /api/v1/login, by: ip, bucket: 3/day}
  - {name: everybody, endpoint: /hot, by: global, bucket: 360_000/hour, lease: 10s}
";
    let redis = Redis::start();
    let other = Tollgate::start(BINARY, &format!("store: {}\n{policy}", redis.url()));
    run_beside(Some(redis), Some(&other), "fleet.mjs", policy);
}

#[test]
fn a_page_does_not_grow_over_time_and_does_not_poll_while_hidden() {
    run("hours.mjs", POLICY);
}

#[test]
fn text_from_callers_is_shown_inert() {
    run("hostile.mjs", POLICY);
}

#[test]
fn keys_with_the_same_display_are_distinguished() {
    let policy = "limits: [{name: api, by: api_key, bucket: 2/hour, plans: {pro: 5/hour}}]";
    run("alike.mjs", policy);
}

#[test]
fn numbers_are_never_cut_off_and_whole_rows_open() {
    let policy = "
limits:
  - name: search
    endpoint: /api/v1/search
    by: api_key
    windows: [5/minute, 1000/day]
    soft: 80%
    candidate: {bucket: 2/minute}
  - name: api-search-by-plan
    endpoint: /api/v1/search
    by: user
    missing: skip
    bucket: 100/minute
    plans: {pro: '500/minute, burst 900', trial: blocked}
  - {name: exports, endpoint: /exports, by: [api_key, ip], algorithm: fixed-window, rate: 1/month, align: calendar, timezone: America/Argentina/Buenos_Aires}
  - {name: v6, endpoint: /v6, by: ip, bucket: 2/hour}
plans: {from: 'header:x-plan'}
";
    run("figures.mjs", policy);
}

#[test]
fn the_deny_list_is_named_where_it_refuses_while_everything_is_off() {
    run("denied.mjs", &format!("deny: [{{ip: 192.0.2.66}}]\n{POLICY}"));
}

#[test]
fn without_observation_the_page_says_so_and_does_not_poll() {
    run("unobserved.mjs", &format!("observe: off\n{POLICY}"));
}

#[test]
fn shedders_learned_limits_and_queues_have_a_panel_while_the_policy_has_them() {
    let policy = "
priorities: [{name: normal}, {name: bulk, headers: {x-priority: bulk}}]
shed: {node: {inflight: 1000}}
limits:
  - {name: upstream, by: global, slots: adaptive}
  - {name: reports, endpoint: /reports/**, by: global, rate: 10/second, queue: {length: 50, wait: 5s}}
";
    run("overload.mjs", policy);
}

#[test]
fn the_quotas_of_envoys_are_shown_by_limit_and_by_envoy() {
    let policy = "
listen: {rls: 127.0.0.1:0}
limits:
  - {name: edge-search, rlqs: {domain: edge, bucket: {name: search, tenant: \"*\"}}, rate: 300/second}
";
    run("quotas.mjs", policy);
}

#[test]
fn each_shedder_has_a_switch_on_its_panel() {
    let policy = "
priorities: [{name: normal}, {name: bulk, headers: {x-priority: bulk}}]
shed: {node: {inflight: 1000}, fleet: {rate: 2/hour, reserve: {normal: 50%}}}
gateway: {throttle: {mode: shadow}}
limits: [{name: upstream, by: global, slots: adaptive}]
";
    run("shedders.mjs", policy);
}

#[test]
fn the_lab_simulates_its_parameters_and_keeps_them_in_the_url() {
    run("lab.mjs", POLICY);
}

#[test]
fn the_token_determines_what_the_page_may_do() {
    let tokens = Scratch::new();
    let admin = tokens.write("admin", "token-for-everything");
    let reader = tokens.write("reader", "token-for-reading-only");
    let admin = format!("admin: {{token_file: {}, read_token_file: {}}}", admin.display(), reader.display());
    run("roles.mjs", &format!("{admin}\n{POLICY}"));
}

#[test]
fn a_thousand_limits_and_ten_thousand_keys_are_shown_correctly() {
    let mut config = "limits:\n".to_owned();
    for number in 0..1000 {
        writeln!(config, "  - {{name: limit-{number}, endpoint: /limit-{number}, by: user, bucket: 1/hour}}")
            .unwrap();
    }
    run("large.mjs", &config);
}

/// A log with a few heavy clients, some with names that need escaping.
fn hostile_log() -> String {
    let names = [
        "ada",
        "<script>window.pwned=1</script>",
        "<img src=x onerror=window.pwned=1>",
        "\u{202e}gnp.exe",
        "</script><!--",
        "\u{1b}[31mred\n",
        &"x".repeat(10_000),
    ];
    let mut log = String::new();
    for number in 0..3000_u32 {
        let time = 1_700_000_000 + number * 7;
        let user = if number % 97 == 0 { names[6] } else { names[number as usize % 6] };
        let path = if number % 5 == 0 { "/login?<b>" } else { "/users/17/posts" };
        let user = user.replace('\u{1b}', "\\u001b").replace('\n', "\\n");
        let address = number % 23;
        writeln!(log, "{{\"time\":{time},\"ip\":\"192.0.2.{address}\",\"method\":\"GET\",\"path\":\"{path}\",\"user\":\"{user}\"}}")
            .unwrap();
    }
    log + "no request\n"
}

#[test]
fn a_replay_report_uses_no_network_and_shows_the_numbers_of_its_json() {
    let _alone = BROWSER.lock().unwrap_or_else(PoisonError::into_inner);
    let files = Scratch::new();
    let policy = |rate: &str| {
        format!(
            "limits: [{{name: login, endpoint: /login, by: ip, algorithm: sliding-window, rate: 2/hour}}, {{name: each, by: user, bucket: \"{rate}\"}}]"
        )
    };
    let today = files.write("today.yaml", &policy("1/minute, burst 5"));
    let tomorrow = files.write("tomorrow.yaml", &policy("30/hour, burst 9"));
    let log = files.write("access.json", &hostile_log());
    let page = files.path().join("report.html");
    let mut replay = Command::new(BINARY);
    replay.args(["replay", "--json", "--quiet", "--suggest", "1%", "--html"]).arg(&page);
    let output = replay.arg("--policy").arg(today).arg("--policy").arg(tomorrow).arg(log).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let json = files.path().join("report.json");
    fs::write(&json, output.stdout).unwrap();
    let said = node("report.mjs", &files).env("REPORT", page).env("NUMBERS", json).output().unwrap();
    let [out, err] = [&said.stdout, &said.stderr].map(|it| String::from_utf8_lossy(it).into_owned());
    println!("report.mjs:\n{out}");
    assert!(said.status.success(), "{out}{err}");
}

#[test]
#[ignore = "takes minutes and writes files: `make screenshots`"]
fn screenshots_for_the_documents() {
    let policy = "
limits:
  - name: search
    endpoint: /api/v1/search
    by: tenant
    bucket: 20/second, burst 40
    soft: 80%
    candidate: {bucket: \"12/second, burst 24\"}
  - {name: login, endpoint: /api/v1/login, method: POST, by: ip, bucket: 30/minute}
  - {name: exports, endpoint: /api/v1/exports, by: tenant, bucket: 2/second, mode: shadow}
  - {name: posts, endpoint: /api/v1/posts, by: user, bucket: 100/second}
  - {name: uploads, endpoint: \"/files/{name}\", method: PUT, by: user, bucket: \"30/minute, burst 10\"}
  - {name: everybody, by: global, bucket: 100000/second}
";
    run_on(Some(Redis::start()), "screenshots.mjs", policy);
}
