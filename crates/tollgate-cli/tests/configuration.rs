//! Mistakes in a configuration are reported completely, before anything listens.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::fs;
use std::process::Command;

use tollgate_testkit::{ProgramOutput, Scratch};

const POLICY: &str = "limits:\n  - by: ip\n    bucket: 5/minute\n";

/// Runs `tollgate` in a directory with these files and variables.
fn tollgate(files: &[(&str, &str)], variables: &[(&str, &str)], arguments: &[&str]) -> ProgramOutput {
    let folder = Scratch::new();
    for (name, text) in files {
        folder.write(name, text);
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.current_dir(folder.path()).args(arguments).env_clear().envs(variables.iter().copied());
    ProgramOutput::of(command)
}

/// Checks the output of `tollgate serve` for files and arguments that it rejects.
#[track_caller]
fn refused(files: &[(&str, &str)], variables: &[(&str, &str)], arguments: &[&str], expected: &str) {
    let arguments: Vec<_> = ["serve"].iter().chain(arguments).copied().collect();
    let finished = tollgate(files, variables, &arguments);
    assert_eq!(finished.stderr, expected.trim_start_matches('\n'), "{arguments:?}");
    assert_eq!((finished.code, finished.stdout.as_str()), (Some(2), ""), "{arguments:?}");
}

/// Like `refused`, for one file.
#[track_caller]
fn refused_file(text: &str, expected: &str) {
    refused(&[("policy.yaml", text)], &[], &["--config", "policy.yaml"], expected);
}

#[test]
fn a_mistake_in_the_policy_is_shown_with_its_line() {
    refused_file(
        "limits:\n  - by: ip\n    bucket: 5/minuet\n",
        r"
error: `minuet` is not a unit of time
  --> policy.yaml:3:15
   |
 3 |     bucket: 5/minuet
   |               ^^^^^^ did you mean `minute`?
   |
   = help: the units are ms, second, minute, hour, day, week and month; s, m, h, d and w for short
",
    );
}

#[test]
fn a_mistake_in_the_settings_is_shown_in_the_same_way() {
    for (text, expected) in [
        (
            "listen: {gatway: off}\nlimits: [{by: ip, bucket: 5/minute}]\n",
            r"
error: unknown word `gatway` in `listen`
  --> policy.yaml:1:10
   |
 1 | listen: {gatway: off}
   |          ^^^^^^ did you mean `gateway`?
",
        ),
        (
            "limits: [{by: ip, bucket: 5/minute}]\nlisten:\n  api: 7070\n",
            r"
error: `listen.api` is `host:port` or `off`, not `7070`
  --> policy.yaml:3:8
   |
 3 |   api: 7070
   |        ^^^^ did you mean `127.0.0.1:7070`?
   |
   = help: such as 127.0.0.1:7070; port 0 is any free one, 0.0.0.0 every interface
",
        ),
        (
            "limits: [{by: ip, bucket: 5/minute}]\nstore: redis://ann:hunter2@localhost:http\n",
            r"
error: this is not a URL of Redis: a port is a number from 1 to 65535
  --> policy.yaml:2:8
   |
 2 | store: redis://ann:***@localhost:http
   |        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
   |
   = help: such as redis://HOST:6379, redis://USER:PASSWORD@HOST:6379/0 or rediss://HOST for TLS
",
        ),
        (
            "limits: [{by: ip, bucket: 5/minute}]\nstore: {url: redis://localhost, password: hunter2}\n",
            r"
error: unknown word `password` in `store`
  --> policy.yaml:2:33
   |
 2 | store: {url: redis://localhost, password: ***}
   |                                 ^^^^^^^^ did you mean `password_file`?
",
        ),
        (
            "listen: {gateway: off, api: off}\nlimits: [{by: ip, bucket: 5/minute}]\n",
            r"
error: there is nothing to serve
  --> policy.yaml:1:29
   |
 1 | listen: {gateway: off, api: off}
   |                   --- and so is this
   |                             ^^^ this is off
   |
   = help: give one of them an address
",
        ),
        (
            "log: {level: chatty}\nlimits: [{by: ip, bucket: 5/minute}]\n",
            r"
error: `level` cannot be `chatty`
  --> policy.yaml:1:14
   |
 1 | log: {level: chatty}
   |              ^^^^^^
   |
   = help: it can be error, warn, info or debug
",
        ),
    ] {
        refused_file(text, expected);
    }
}

#[test]
fn settings_without_a_policy_are_not_enough() {
    refused_file(
        "listen: {api: off}\n",
        r"
error: the file has no `limits`
  --> policy.yaml:1:1
   |
 1 | listen: {api: off}
   | ^
   |
   = help: the shortest policy is `limits:`, then `  - by: ip`, then `    bucket: 10/minute`
",
    );
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    refused(
        &[],
        &[],
        &["--config", "policy.yaml"],
        "error: cannot read policy.yaml: there is no such file\n  \
         = help: `tollgate init policy.yaml` writes one to begin with\n",
    );
    refused(&[], &[], &["--config", "."], "error: cannot read .: it is a directory\n");
    let folder = Scratch::new();
    let path = folder.path().join("latin1.yaml");
    fs::write(&path, b"limits:\n  - name: caf\xe9\n").unwrap();
    let path = path.to_str().unwrap();
    refused(
        &[],
        &[],
        &["--config", path],
        &format!("error: {path} is not UTF-8: see line 2\n  = help: save it as UTF-8\n"),
    );
}

#[test]
fn a_section_in_both_files_is_named_in_both() {
    refused(
        &[
            ("policy.yaml", "limits: [{by: ip, bucket: 5/m}]\nlog: {level: info}\n"),
            ("settings.yaml", "log: {level: warn}\n"),
        ],
        &[],
        &["--config", "policy.yaml", "--settings", "settings.yaml"],
        r"
error: `log` is in both files
  --> settings.yaml:1:1
   |
 1 | log: {level: warn}
   | ^^^ again here
  ::: policy.yaml:2:1
   |
 2 | log: {level: info}
   | --- and here
   |
   = help: keep it in one of them
",
    );
}

#[test]
fn a_file_of_settings_has_settings_only() {
    refused(
        &[("settings.yaml", "limits: []\nlisten_on: {api: off}\n")],
        &[],
        &["--settings", "settings.yaml"],
        r"
error: `limits` is not a setting
  --> settings.yaml:1:1
   |
 1 | limits: []
   | ^^^^^^ belongs to the policy
   |
   = help: put it into the file that `--config` names

error: unknown word `listen_on` in a file of settings
  --> settings.yaml:2:1
   |
 2 | listen_on: {api: off}
   | ^^^^^^^^^ did you mean `listen`?
",
    );
}

#[test]
fn a_mistake_on_the_command_line_is_shown_as_it_was_typed() {
    for (arguments, expected) in [
        (
            ["--set", "listen.api=7070"],
            r"
error: `listen.api` is `host:port` or `off`, not `7070`
  --> on the command line
   |
   | --set listen.api=7070
   |                  ^^^^ did you mean `127.0.0.1:7070`?
   |
   = help: such as 127.0.0.1:7070; port 0 is any free one, 0.0.0.0 every interface
",
        ),
        (
            ["--set", "listen.apii=off"],
            r"
error: unknown word `apii` in `listen`
  --> on the command line
   |
   | --set listen.apii=off
   |              ^^^^ did you mean `api`?
",
        ),
        (
            ["--set", "limits=[{by: ip, bucket: 5/minuet}]"],
            r"
error: `minuet` is not a unit of time
  --> on the command line
   |
   | --set limits=[{by: ip, bucket: 5/minuet}]
   |                                  ^^^^^^ did you mean `minute`?
   |
   = help: the units are ms, second, minute, hour, day, week and month; s, m, h, d and w for short
",
        ),
        (
            ["--listen-gateway", ":8080"],
            r"
error: `listen.gateway` is `host:port` or `off`, not `:8080`
  --> on the command line
   |
   | --listen-gateway :8080
   |                  ^^^^^ did you mean `127.0.0.1:8080`?
   |
   = help: such as 127.0.0.1:8080; port 0 is any free one, 0.0.0.0 every interface
",
        ),
        (
            ["--store", "http://ann:hunter2@localhost"],
            r"
error: this is not a URL of Redis: `http://` is not a scheme of Redis
  --> on the command line
   |
   | --store http://ann:***@localhost
   |         ^^^^^^^^^^^^^^^^^^^^^^^^
   |
   = help: such as redis://HOST:6379, redis://USER:PASSWORD@HOST:6379/0 or rediss://HOST for TLS
",
        ),
        (
            ["--set", "listen.api"],
            r"
error: `--set listen.api` sets nothing: it is --set KEY=VALUE
  = help: such as --set listen.api=127.0.0.1:0 or --set 'limits=[{by: ip, bucket: 5/minute}]'
",
        ),
    ] {
        refused(&[], &[], &arguments, expected);
    }
}

#[test]
fn a_mistake_in_a_variable_is_shown_as_it_was_set() {
    refused(
        &[],
        &[("TOLLGATE_LOG_LEVEL", "loud")],
        &[],
        r"
error: `level` cannot be `loud`
  --> in the environment
   |
   | TOLLGATE_LOG_LEVEL=loud
   |                    ^^^^
   |
   = help: it can be error, warn, info or debug
",
    );
    refused(
        &[],
        &[("TOLLGATE_STORE", "redis:ann:hunter2@localhost")],
        &[],
        r"
error: this is not a URL of Redis: a URL of Redis begins with `redis://`
  --> in the environment
   |
   | TOLLGATE_STORE=redis:***@localhost
   |                ^^^^^^^^^^^^^^^^^^^
   |
   = help: such as redis://HOST:6379, redis://USER:PASSWORD@HOST:6379/0 or rediss://HOST for TLS
",
    );
}

/// Each source names an address that is invalid in its own way, which shows the one that wins.
#[test]
fn set_wins_over_flags_flags_over_variables_and_those_over_the_file() {
    let file = [("policy.yaml", "listen: {api: 1}\nlimits: [{by: ip, bucket: 5/minute}]\n")];
    let variable = ("TOLLGATE_LISTEN_API", "2");
    let (flag, set) = (["--listen-api", "3"], ["--set", "listen.api=4"]);
    let config = ["--config", "policy.yaml"];
    for (variables, arguments, winner) in [
        (vec![], vec![config], "`1`"),
        (vec![variable], vec![config], "`2`"),
        (vec![variable], vec![config, flag], "`3`"),
        (vec![variable], vec![config, set, flag], "`4`"),
        (vec![variable, ("TOLLGATE_CONFIG", "policy.yaml")], vec![set], "`4`"),
        (vec![("TOLLGATE_CONFIG", "policy.yaml")], vec![], "`1`"),
        (vec![("TOLLGATE_CONFIG", "none.yaml"), ("TOLLGATE_LISTEN_API", "")], vec![config], "`1`"),
    ] {
        let arguments: Vec<_> = ["serve"].into_iter().chain(arguments.concat()).collect();
        let said = tollgate(&file, &variables, &arguments);
        assert_eq!(said.code, Some(2));
        assert!(said.stderr.contains(&format!("not {winner}")), "{arguments:?}: {}", said.stderr);
    }
}

#[test]
fn a_password_that_cannot_be_read_is_said_before_anything_listens() {
    for (password, expected) in [
        ("", "error: the password file secret is empty\n"),
        ("one\ntwo\n", "error: the password file secret has more than one line\n"),
    ] {
        let files = [("secret", password)];
        let said =
            tollgate(&files, &[], &["serve", "--set", "store={url: redis://h, password_file: secret}"]);
        assert_eq!(said.code, Some(2));
        assert!(said.stderr.starts_with(expected), "{}", said.stderr);
    }
    let said = tollgate(&[], &[], &["serve", "--set", "store={url: redis://h, password_file: secret}"]);
    assert_eq!(
        (said.code, said.stderr.as_str()),
        (Some(2), "error: cannot read secret: there is no such file\n")
    );
}

#[test]
fn an_api_on_a_public_address_needs_a_token() {
    let open = ["--set", "listen.api=0.0.0.0:0"];
    refused(
        &[],
        &[],
        &open,
        "error: the API would listen on 0.0.0.0:0, where other machines reach it, and has no token\n  = help: put a token into a file and write `admin: {token_file: FILE}` (head -c 24 /dev/urandom | base64 > FILE), or set TOLLGATE_ADMIN_TOKEN, or ask for certificates: `admin: {tls: {certificate: F, key: F, client_ca: F}}`, or keep it to this machine: --set listen.api=127.0.0.1:7070\n",
    );
    let short = "holds 5 characters: a token has 16 to 4096\n  = help: one can be made with: head -c 24 /dev/urandom | base64\n";
    refused(
        &[],
        &[("TOLLGATE_ADMIN_TOKEN", "short")],
        &open,
        &format!("error: TOLLGATE_ADMIN_TOKEN {short}"),
    );
    let file = ["--set", "admin.token_file=token"];
    refused(&[("token", "short\n")], &[], &file, &format!("error: the token file token {short}"));
    refused(&[], &[], &file, "error: cannot read token: there is no such file\n");
    refused(
        &[("token", " \n")],
        &[],
        &file,
        "error: the token file token is empty\n  = help: one can be made with: head -c 24 /dev/urandom | base64\n",
    );
}

#[test]
fn a_valid_file_is_reported_as_valid() {
    let validate = ["validate", "policy.yaml"];
    let good = tollgate(&[("policy.yaml", POLICY)], &[], &validate);
    assert_eq!(
        (good.code, good.stdout.as_str(), good.stderr.as_str()),
        (Some(0), "policy.yaml: 1 limit, no mistakes\n", "")
    );

    // Redis is not running, and is not needed.
    for store in
        ["redis://nowhere.invalid", "[redis://a, redis://b]", "{url: redis://a, password_file: secret}"]
    {
        let stored = format!("{POLICY}store: {store}\n");
        let stored = tollgate(&[("policy.yaml", &stored), ("secret", "hunter2\n")], &[], &validate);
        assert_eq!((stored.code, stored.stderr.as_str()), (Some(0), ""), "{store}");
    }

    let odd = format!("{POLICY}listen: {{resp: \"0.0.0.0:7379\"}}\n");
    let odd = tollgate(&[("policy.yaml", &odd)], &[], &validate);
    assert_eq!((odd.code, odd.stdout.as_str()), (Some(0), "policy.yaml: 1 limit, no mistakes, 1 warning\n"));
    let said = "warning[open-redis-protocol]: every client that can connect to the Redis protocol here can spend any allowance\n";
    assert!(odd.stderr.starts_with(said), "{}", odd.stderr);
}

#[test]
fn files_that_could_not_be_served_are_not_valid() {
    for (section, expected) in [
        ("store: {url: redis://h, password_file: none}", "error: cannot read none: there is no such file\n"),
        ("store: {url: redis://h, password_file: .}", "error: cannot read .: it is a directory\n"),
        ("store: {url: redis://h, password_file: empty}", "error: the password file empty is empty\n"),
        ("store: {url: rediss://h, ca: none}", "error: cannot read none: there is no such file\n"),
        ("store: {url: rediss://h, ca: .}", "error: cannot read .: it is a directory\n"),
        ("store: {url: rediss://h, ca: empty}", "error: empty holds no certificate\n"),
        ("store: {url: rediss://h, ca: policy.yaml}", "error: policy.yaml holds no certificate\n"),
        ("admin: {token_file: none}", "error: cannot read none: there is no such file\n"),
        ("admin: {token_file: empty}", "error: the token file empty is empty\n"),
        ("rls: {envoy_config: none}", "error: cannot read none: there is no such directory\n"),
        ("rls: {tls: {certificate: none, key: none}}", "error: cannot read none: there is no such file\n"),
        ("resp: {password_file: empty}", "error: the password file empty is empty\n"),
    ] {
        let policy = format!("{POLICY}{section}\n");
        let files = [("policy.yaml", policy.as_str()), ("empty", "\n")];
        let validated = tollgate(&files, &[], &["validate", "policy.yaml"]);
        assert_eq!((validated.code, validated.stdout.as_str()), (Some(2), ""), "{section}");
        assert!(validated.stderr.starts_with(expected), "{section}: {}", validated.stderr);
        let served = tollgate(&files, &[], &["serve", "--config", "policy.yaml"]);
        assert_eq!((served.code, &served.stderr), (Some(2), &validated.stderr), "{section}");
    }
}

#[test]
fn no_mistake_about_the_store_shows_a_password() {
    const URLS: [&str; 8] = [
        "u:hunter2@h:6379",
        "//u:hunter2@h",
        "redis:u:hunter2@h",
        "redis:/u:hunter2@h",
        "redis//u:hunter2@h",
        "redis://u:hunter2",
        "redis-sentinel://h/p?sentinel_pasword=hunter2",
        "redis://h?hunter2",
    ];
    const MAPS: [&str; 7] = [
        "{url: redis://h, pass: hunter2}",
        "{url: redis://h, passwd: hunter2}",
        "{url: redis://h, auth: hunter2}",
        "{url: redis://h, password: hunter2}",
        "{url: redis://h, credentials: [u, hunter2]}",
        "{pwrd: hunter2, url: redis://h}",
        "{u:hunter2@h}",
    ];
    let check = |files: &[(&str, &str)], variables: &[(&str, &str)], arguments: &[&str]| {
        let said = tollgate(files, variables, arguments);
        assert_eq!(said.code, Some(2), "{files:?} {variables:?} {arguments:?}: {}", said.stderr);
        assert!(!said.stderr.contains("unter2"), "{files:?} {variables:?} {arguments:?}: {}", said.stderr);
    };
    for store in URLS.iter().chain(&MAPS) {
        let policy = format!("{POLICY}store: {store}\n");
        check(&[("policy.yaml", &policy)], &[], &["validate", "policy.yaml"]);
        check(&[], &[("TOLLGATE_STORE", store)], &["serve"]);
        check(&[], &[], &["serve", "--store", store]);
        check(&[], &[], &["serve", "--set", &format!("store={store}")]);
    }
    for word in ["pass", "passwd", "auth", "password", "credentials"] {
        let policy = format!("{POLICY}store:\n  url: redis://h\n  {word}: hunter2\n");
        check(&[("policy.yaml", &policy)], &[], &["serve", "--config", "policy.yaml"]);
        let policy = format!("{POLICY}store:\n  url: redis://h\n  {word}:\n    - hunter2: [\n");
        check(&[("policy.yaml", &policy)], &[], &["serve", "--config", "policy.yaml"]);
        check(&[], &[], &["serve", "--set", &format!("store.{word}=hunter2")]);
        check(&[], &[], &["serve", "--set", &format!("store.{word}:hunter2")]);
    }
    check(&[("s.yaml", "redis: {pwrd: hunter2}\n")], &[], &["serve", "--settings", "s.yaml"]);
}

#[test]
fn an_invalid_file_is_reported_regardless_of_variables() {
    let files = [("policy.yaml", POLICY), ("settings.yaml", "listen: {api: 1}\n")];
    let variables = [("TOLLGATE_LISTEN_API", "127.0.0.1:0")];
    let bad = tollgate(&files, &variables, &["validate", "policy.yaml", "--settings", "settings.yaml"]);
    assert_eq!((bad.code, bad.stdout.as_str()), (Some(2), ""));
    assert!(bad.stderr.contains("--> settings.yaml:1:15"), "{}", bad.stderr);
}

#[test]
fn help_has_examples() {
    for (arguments, expected) in [
        (
            vec!["--help"],
            vec![
                "tollgate serve",
                "curl -i http://127.0.0.1:8080/api/v1/search",
                "tollgate init",
                "Exit status",
            ],
        ),
        (
            vec!["serve", "--help"],
            vec![
                "--set listen.gateway=0.0.0.0:8080",
                "admin: {token_file: FILE}",
                "TOLLGATE_LISTEN_API",
                "--store redis://127.0.0.1:6379",
                "SIGHUP",
            ],
        ),
        (vec!["validate", "--help"], vec!["tollgate validate policy.yaml"]),
        (vec!["import", "--help"], vec!["tollgate import envoy", "nginx -T | tollgate import nginx -"]),
        (
            vec!["check", "--help"],
            vec!["tollgate check POST /api/v1/login --ip 203.0.113.9 --user ann", "Exit status 0"],
        ),
        (vec!["peek", "--help"], vec!["tollgate peek demo-search 127.0.0.1", "by: [tenant, user]"]),
        (vec!["grant", "--help"], vec!["--cost"]),
        (vec!["reset", "--help"], vec!["TOLLGATE_API"]),
        (vec!["schema", "--help"], vec!["yaml-language-server"]),
        (vec!["completions", "--help"], vec!["bash", "zsh", "fish"]),
    ] {
        let said = tollgate(&[], &[], &arguments);
        assert_eq!(said.code, Some(0), "{arguments:?}");
        for words in expected {
            assert!(said.stdout.contains(words), "{words} in {arguments:?}:\n{}", said.stdout);
        }
    }
}

#[test]
fn invalid_arguments_exit_with_2() {
    for arguments in
        [&["--nonsense"][..], &["serve", "--confg", "x"], &["check"], &["grant", "api", "--cost", "0"], &[]]
    {
        assert_eq!(tollgate(&[], &[], arguments).code, Some(2), "{arguments:?}");
    }
}

#[test]
fn schema_and_completions_are_printed() {
    let schema = tollgate(&[], &[], &["schema"]).stdout;
    let schema: serde_json::Value = serde_json::from_str(&schema).unwrap();
    assert!(schema["properties"]["limits"].is_object());
    for shell in ["bash", "zsh", "fish"] {
        let script = tollgate(&[], &[], &["completions", shell]).stdout;
        assert!(script.contains("tollgate") && script.contains("serve"), "{shell}: {script}");
    }
}
