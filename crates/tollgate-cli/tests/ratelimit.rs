//! `tollgate ratelimit` in place of envoyproxy/ratelimit: its environment, probes and configuration server.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

pub(crate) mod ads;

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::surfaces::grpc::Question;
use ads::{Ads, python};
use tollgate_testkit::{Certificate, Program, ProgramOutput, Redis, Scratch, Tollgate, free_port};

const BINARY: &str = env!("CARGO_BIN_EXE_tollgate");

const SHOP: &str =
    "name: shop\ndomain: shop\ndescriptors: [{key: user, rate_limit: {requests_per_unit: 2, unit: DAY}}]\n";

/// A running `ratelimit` with the ports that it was told.
struct Ratelimit {
    program: Program,
    files: Scratch,
    grpc: u16,
    http: u16,
    debug: u16,
    metrics: u16,
}

impl Ratelimit {
    /// Starts the binary under the name `ratelimit`, with these variables and no others.
    fn start(variables: &[(&str, &str)]) -> Self {
        let files = Scratch::new();
        let [grpc, http, debug, metrics] = [(); 4].map(|()| free_port());
        let mut program = Program::start(command(&files, [grpc, http, debug, metrics], variables));
        let healthy = || curl(&[&format!("http://127.0.0.1:{http}/healthcheck")]).stdout == "OK";
        program.wait_until("healthy", healthy);
        Self { program, files, grpc, http, debug, metrics }
    }

    #[allow(clippy::unused_self, reason = "the pages of this process")]
    fn get(&self, port: u16, path: &str) -> ProgramOutput {
        curl(&["-i", &format!("http://127.0.0.1:{port}{path}")])
    }

    /// Waits until a page contains a text.
    #[track_caller]
    fn wait_for(&mut self, port: u16, path: &str, text: &str) {
        let url = format!("http://127.0.0.1:{port}{path}");
        self.program.wait_until(text, || curl(&[&url]).stdout.contains(text));
    }

    fn log(&self) -> String {
        fs::read_to_string(self.files.path().join("stderr.log")).unwrap()
    }
}

fn command(files: &Scratch, ports: [u16; 4], variables: &[(&str, &str)]) -> Command {
    let name = files.path().join("ratelimit");
    if !name.exists() {
        symlink(BINARY, &name).unwrap();
    }
    let log = fs::File::create(files.path().join("stderr.log")).unwrap();
    let mut command = Command::new(name);
    command.env_clear().stderr(Stdio::from(log)).current_dir("/");
    let [grpc, http, debug, metrics] = ports.map(|it| it.to_string());
    for (name, value) in [("GRPC_PORT", &grpc), ("PORT", &http), ("DEBUG_PORT", &debug)] {
        command.env(name, value);
    }
    command.env("PROMETHEUS_ADDR", format!(":{metrics}")).env("USE_PROMETHEUS", "true");
    command.env("TOLLGATE_LISTEN_API", "127.0.0.1:0").envs(variables.iter().copied());
    command
}

fn curl(arguments: &[&str]) -> ProgramOutput {
    let mut command = Command::new("curl");
    command.args(["-sS", "--max-time", "60"]).args(arguments);
    ProgramOutput::of(command)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Returns the code of a response over TLS: 1 is OK, 2 is over the limit.
fn response_code(grpc: u16, ca: &Path, files: &Scratch) -> Option<u8> {
    let question = Question { domain: "shop", key: "user", value: "ann" };
    let server = format!("https://localhost:{grpc}");
    let finished = question.ask(&server, files, &["--http2", "--cacert", text(ca)]);
    (finished.code == Some(0)).then(|| {
        let answer = fs::read(files.path().join("answer")).unwrap();
        assert!(
            !String::from_utf8_lossy(&answer).to_lowercase().contains("ratelimit"),
            "no headers: {answer:?}"
        );
        answer[6]
    })
}

/// The environment and the probes of the Deployment that Envoy Gateway creates, with other ports and
/// folders.
#[test]
#[allow(clippy::too_many_lines, reason = "one story of one process")]
fn the_deployment_of_envoy_gateway_runs_with_its_environment() {
    let (certs, asking, redis) = (Scratch::new(), Scratch::new(), Redis::start_with_client_certificates());
    let certificate = Certificate::new(&certs);
    let mut ads = Ads::start(Some(&certificate));
    let secret = certs.path().join("secret");
    fs::create_dir(&secret).unwrap();
    let place = |certificate: &Certificate| {
        for (from, to) in
            [(&certificate.server, "tls.crt"), (&certificate.key, "tls.key"), (&certificate.ca, "ca.crt")]
        {
            fs::copy(from, secret.join(to)).unwrap();
        }
    };
    place(&certificate);
    let file = |name: &str| text(&secret.join(name)).to_owned();
    let (cert, key, ca) = (file("tls.crt"), file("tls.key"), file("ca.crt"));
    let (server, redis_url) = (format!("localhost:{}", ads.port), format!("localhost:{}", redis.port()));
    let redis_files = redis.certificate();
    let mut ratelimit = Ratelimit::start(&[
        ("RUNTIME_ROOT", "/data"),
        ("RUNTIME_SUBDIRECTORY", "ratelimit"),
        ("RUNTIME_IGNOREDOTFILES", "true"),
        ("RUNTIME_WATCH_ROOT", "false"),
        ("LOG_LEVEL", "info"),
        ("USE_STATSD", "false"),
        ("CONFIG_TYPE", "GRPC_XDS_SOTW"),
        ("CONFIG_GRPC_XDS_SERVER_URL", &server),
        ("CONFIG_GRPC_XDS_NODE_ID", "envoy-ratelimit"),
        ("GRPC_SERVER_USE_TLS", "true"),
        ("GRPC_SERVER_TLS_CERT", &cert),
        ("GRPC_SERVER_TLS_KEY", &key),
        ("GRPC_SERVER_TLS_CA_CERT", &ca),
        ("CONFIG_GRPC_XDS_SERVER_USE_TLS", "true"),
        ("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", &cert),
        ("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", &key),
        ("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", &ca),
        ("FORCE_START_WITHOUT_INITIAL_CONFIG", "true"),
        ("REDIS_SOCKET_TYPE", "tcp"),
        ("REDIS_URL", &redis_url),
        ("REDIS_TLS", "true"),
        ("REDIS_TLS_CACERT", text(&redis_files.ca)),
        ("REDIS_TLS_CLIENT_CERT", text(&redis_files.server)),
        ("REDIS_TLS_CLIENT_KEY", text(&redis_files.key)),
        ("PROMETHEUS_MAPPER_YAML", "/etc/statsd-exporter/conf.yaml"),
        ("CONFIG_GRPC_XDS_NODE_METADTA", "a=b"),
        // Not of the Deployment: a busy machine keeps this deadline.
        ("TOLLGATE_STORE_DEADLINE", "10s"),
    ]);
    let (grpc, http, metrics) = (ratelimit.grpc, ratelimit.http, ratelimit.metrics);

    let first = ads.request();
    assert_eq!(
        (&first["node"], &first["version"], &first["nonce"]),
        (&"envoy-ratelimit".into(), &"".into(), &"".into())
    );
    assert_eq!(first["names"].as_array().map(Vec::len), Some(0), "{first}");
    // Before the first configuration, calls are answered OK and counted.
    assert_eq!(response_code(grpc, &certificate.ca, &asking), Some(1));
    ratelimit.wait_for(metrics, "/metrics", "tollgate_rls_unconfigured_calls_total 1");

    let shop = certs.write("shop.yaml", SHOP);
    let answer = ads.push("1", &[&shop]);
    assert_eq!((&answer["version"], &answer["error"]), (&"1".into(), &serde_json::Value::Null), "{answer}");
    let codes: Vec<_> = (0..3).map(|_| response_code(grpc, &certificate.ca, &asking)).collect();
    assert_eq!(codes, [Some(1), Some(1), Some(2)], "{}", ratelimit.log());
    let page = ratelimit.get(metrics, "/metrics").stdout;
    for line in [
        "ratelimit_service_rate_limit_total_hits{domain=\"shop\",key1=\"user\"} 3",
        "ratelimit_service_rate_limit_over_limit{domain=\"shop\",key1=\"user\"} 1",
        "ratelimit_service_rate_limit_within_limit{domain=\"shop\",key1=\"user\"} 2",
        "ratelimit_service_total_requests{grpc_method=\"ShouldRateLimit\"} 4",
        "ratelimit_service_response_time_seconds_count{grpc_method=\"ShouldRateLimit\"} 4",
        "ratelimit_service_response_time_seconds_bucket{grpc_method=\"ShouldRateLimit\",le=\"+Inf\"} 4",
        "ratelimit_service_should_rate_limit_error{err_type=\"service_error\"} 0",
        // Decisions without Redis: a busy machine may have some.
        "ratelimit_service_should_rate_limit_error{err_type=\"redis_error\"} ",
        "ratelimit_service_config_load_success 1",
        "ratelimit_service_config_load_error 0",
        "tollgate_xds_configured 1",
    ] {
        assert!(page.contains(line), "{line} in:\n{page}");
    }
    let dump = ratelimit.get(ratelimit.debug, "/rlconfig").stdout;
    assert!(
        dump.contains("shop.user: unit=DAY requests_per_unit=2, shadow_mode: false, quota_mode: false"),
        "{dump}"
    );

    // A wrong configuration is rejected with the reason, and the old one keeps serving.
    let wrong = certs.write("wrong.yaml", "name: w\ndomain: shop\ndescriptors: [{key: user}, {key: user}]\n");
    let answer = ads.push("2", &[&wrong]);
    assert_eq!(answer["version"], "1", "{answer}");
    assert!(answer["error"].as_str().unwrap().contains("descriptor `user` is defined twice"), "{answer}");
    assert_eq!(response_code(grpc, &certificate.ca, &asking), Some(2));

    // A raised limit keeps the usage of before; refused hits were counted too, as in envoyproxy/ratelimit.
    let raised = certs.write("raised.yaml", &SHOP.replace(": 2", ": 6"));
    assert_eq!(ads.push("3", &[&raised])["version"], "3");
    let codes: Vec<_> = (0..3).map(|_| response_code(grpc, &certificate.ca, &asking)).collect();
    assert_eq!(codes, [Some(1), Some(1), Some(2)], "{}", ratelimit.log());

    // The certificate is replaced while the process runs.
    let others = Scratch::new();
    let renewed = Certificate::new(&others);
    place(&renewed);
    ratelimit
        .program
        .wait_until("the new certificate", || response_code(grpc, &renewed.ca, &asking).is_some());
    assert_eq!(response_code(grpc, &certificate.ca, &asking), None);

    // Health does not depend on Redis, and fails when the process ends.
    redis.kill();
    assert_eq!(response_code(grpc, &renewed.ca, &asking).map(drop), Some(()));
    assert!(ratelimit.get(http, "/healthcheck").stdout.ends_with("\r\n\r\nOK"));
    let held = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], grpc))).unwrap();
    let log = ratelimit.log();
    assert!(log.contains("CONFIG_GRPC_XDS_NODE_METADTA is not known"), "{log}");
    assert_eq!(log.matches("is not known").count() + log.matches("has no effect").count(), 1, "{log}");
    ratelimit.program.signal("TERM");
    let url = format!("http://127.0.0.1:{http}/healthcheck");
    ratelimit.program.wait_until("a failing health check", || {
        curl(&["-o", "/dev/null", "-w", "%{http_code}", &url]).stdout == "500"
    });
    drop(held);
    assert_eq!(ratelimit.program.wait().code(), Some(0), "{}", ratelimit.log());
}

#[test]
fn files_of_a_config_map_are_watched_and_served_on_all_ports() {
    let data = Scratch::new();
    let (folder, versions) = (data.path().join("ratelimit/config"), data.path().join("versions"));
    fs::create_dir_all(&folder).unwrap();
    for (version, limit) in [("one", "2"), ("two", "5")] {
        fs::create_dir_all(versions.join(version)).unwrap();
        let text = format!(
            "domain: shop\ndescriptors: [{{key: user, rate_limit: {{unit: day, requests_per_unit: {limit}}}}}]\n"
        );
        fs::write(versions.join(version).join("config.yaml"), text).unwrap();
    }
    symlink(versions.join("one"), folder.join("..data")).unwrap();
    symlink("..data/config.yaml", folder.join("config.yaml")).unwrap();
    let mut ratelimit = Ratelimit::start(&[
        ("HOST", "::"),
        ("GRPC_HOST", "::"),
        ("RUNTIME_ROOT", text(data.path())),
        ("RUNTIME_SUBDIRECTORY", "ratelimit"),
        ("RUNTIME_WATCH_ROOT", "false"),
        ("RUNTIME_IGNOREDOTFILES", "true"),
        ("USE_STATSD", "false"),
    ]);
    let question = Question { domain: "shop", key: "user", value: "ann" };
    let grpc = SocketAddr::from(([127, 0, 0, 1], ratelimit.grpc));
    assert_eq!(question.admitted(grpc, 3), 2);
    let body = r#"{"domain": "shop", "descriptors": [{"entries": [{"key": "user", "value": "ann"}]}]}"#;
    let url = format!("http://127.0.0.1:{}/json", ratelimit.http);
    let refused = curl(&["-w", "%{http_code}", "--data", body, &url]).stdout;
    assert!(refused.contains("OVER_LIMIT") && refused.ends_with("429"), "{refused}");
    symlink(versions.join("two"), folder.join("..data_tmp")).unwrap();
    fs::rename(folder.join("..data_tmp"), folder.join("..data")).unwrap();
    let debug = ratelimit.debug;
    ratelimit.wait_for(debug, "/rlconfig", "requests_per_unit=5");
    assert_eq!(question.admitted(grpc, 3), 1);
}

#[test]
fn wrong_values_are_named_and_end_the_process_with_2() {
    let files = Scratch::new();
    for (name, value, message) in [
        ("GRPC_SERVER_USE_TLS", "yes", "the variable GRPC_SERVER_USE_TLS is true or false, not `yes`"),
        ("GRPC_SERVER_USE_TLS", "true", "GRPC_SERVER_USE_TLS needs the variable GRPC_SERVER_TLS_CERT"),
        ("CONFIG_TYPE", "consul", "the variable CONFIG_TYPE is FILE or GRPC_XDS_SOTW, not `consul`"),
        ("REDIS_URL", "a b", "REDIS_URL="),
        ("RUNTIME_ROOT", "/nowhere", "/nowhere/config: there is no such directory"),
    ] {
        let mut program = Program::start(command(&files, [0; 4], &[(name, value)]));
        let code = program.wait().code();
        let said = fs::read_to_string(files.path().join("stderr.log")).unwrap();
        assert_eq!(code, Some(2), "{name}: {said}");
        assert!(said.contains(message), "{said}");
    }
}

#[test]
fn pairs_of_envoy_gateway_are_decided_as_their_rules_say() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut command = python("pairs.py");
    command.arg("--tollgate").arg(BINARY).arg("--envoy").arg(root.join("../../target/envoy/envoy"));
    command.arg(root.join("tests/ratelimit/pairs"));
    let finished = ProgramOutput::of(command);
    assert_eq!(finished.code, Some(0), "{}{}", finished.stdout, finished.stderr);
    assert_eq!(finished.stdout.matches("as the model says").count(), 3, "{}", finished.stdout);
    assert_eq!(finished.stdout.matches(" 0 refused").count(), 0, "{}", finished.stdout);
}

#[test]
fn a_policy_has_limits_of_its_own_beside_those_of_a_configuration_server() {
    let (files, mut ads) = (Scratch::new(), Ads::start(None));
    let policy = |own: &str| {
        format!(
            "limits: [{{name: own, domain: mine, descriptor: [user], by: \"descriptor:user\", algorithm: fixed-window, rate: {own}/day}}]\n\
             rls: {{headers: off, xds: {{server: \"127.0.0.1:{}\", node: n1, metadata: {{zone: a}}}}}}\n",
            ads.port
        )
    };
    let (one, two) = (policy("1"), policy("2"));
    let mut tollgate = Tollgate::start_with(BINARY, &one, &["--listen-rls=127.0.0.1:0"]);
    let rls = tollgate.rls.unwrap();
    let first = ads.request();
    assert_eq!((&first["node"], &first["metadata"]["zone"]), (&"n1".into(), &"a".into()), "{first}");
    let shop = files.write("shop.yaml", SHOP);
    assert_eq!(ads.push("7", &[&shop])["version"], "7");
    let (own, sent) = (
        Question { domain: "mine", key: "user", value: "ann" },
        Question { domain: "shop", key: "user", value: "ann" },
    );
    assert_eq!((own.admitted(rls, 2), sent.admitted(rls, 3)), (1, 2));
    // A reload of the file keeps the limits of the server, and a new stream brings them again.
    tollgate.files.write("tollgate.yaml", &two);
    let api = tollgate.api;
    let listed = move || curl(&[&format!("http://{api}/v1/limits")]).stdout;
    tollgate.program.wait_until("the reload", || own.admitted(rls, 1) == 1);
    assert_eq!(sent.admitted(rls, 1), 0);
    assert!(listed().contains("shop.user"), "{}", listed());
    ads.close();
    assert_eq!(ads.request()["version"], "");
    assert_eq!(ads.request()["version"], "7");
    // No resources are no limits.
    assert_eq!(ads.push("8", &[])["version"], "8");
    assert_eq!(sent.admitted(rls, 3), 3);
    drop(shop);
}
