//! Configuration of other limiters: validated, or converted into a policy.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::fs;
use std::process::Command;

use tollgate_testkit::{ProgramOutput, Scratch};

/// Runs `tollgate` in a directory with these files.
fn tollgate(files: &[(&str, &str)], arguments: &[&str]) -> ProgramOutput {
    let folder = Scratch::new();
    for (name, text) in files {
        folder.write(name, text);
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.current_dir(folder.path()).args(arguments).env_clear();
    ProgramOutput::of(command)
}

const ENVOY: &str =
    "domain: shop\ndescriptors:\n  - key: user\n    rate_limit: {unit: minute, requests_per_unit: 3}\n";

#[test]
fn a_directory_of_envoy_files_is_validated_completely() {
    let folder = Scratch::new();
    let path = folder.path().to_str().unwrap();
    let validate = || tollgate(&[], &["validate", "--envoy-config", path]);
    folder.write("shop.yaml", ENVOY);
    let good = validate();
    assert_eq!((good.code, good.stderr.as_str()), (Some(0), ""));
    assert_eq!(good.stdout, format!("{path}: 1 limit, no mistakes\n"));
    folder.write("a.yml", "domain: a\ndescriptors: [{kye: user}]\n");
    folder.write("b.yaml", "domain: b\ndescriptors: [{key: user, rate_limit: {unit: minuet}}]\n");
    let bad = validate();
    assert_eq!((bad.code, bad.stdout.as_str()), (Some(2), ""));
    for expected in ["a.yml:2", "did you mean `key`?", "b.yaml:2", "minuet"] {
        assert!(bad.stderr.contains(expected), "{expected} in {}", bad.stderr);
    }
}

#[test]
fn the_configuration_of_other_limiters_becomes_a_policy() {
    let nginx = "limit_req_zone $binary_remote_addr zone=a:1m rate=5r/m;\nserver { location = /login { limit_req zone=a burst=4 nodelay; } }\n";
    let limitador =
        "- namespace: shop\n  max_value: 10\n  seconds: 60\n  conditions: []\n  variables: [user_id]\n";
    let files = [("shop.yaml", ENVOY), ("nginx.conf", nginx), ("limits.yaml", limitador)];
    for (from, file) in [("envoy", "shop.yaml"), ("nginx", "nginx.conf"), ("limitador", "limits.yaml")] {
        let imported = tollgate(&files, &["import", from, file]);
        assert_eq!(imported.code, Some(0), "{from}: {}", imported.stderr);
        assert!(imported.stderr.lines().all(|it| it.starts_with("note: ")), "{from}: {}", imported.stderr);
        let checked = tollgate(&[("policy.yaml", &imported.stdout)], &["validate", "policy.yaml"]);
        assert_eq!(checked.code, Some(0), "{from}: {}\n{}", checked.stderr, imported.stdout);
    }
    let wrong = [("bad.yaml", "domain: [\n")];
    for (arguments, said) in [
        (vec!["import", "envoy", "bad.yaml"], "bad.yaml:"),
        (vec!["import", "envoy", "none.yaml"], "cannot read none.yaml: there is no such file"),
        (vec!["import", "nginx", "bad.yaml", "bad.yaml"], "one file at a time"),
        (vec!["import", "nginx", "bad.yaml", "--merge"], "`--merge` is for files of Envoy"),
        (vec!["import", "haproxy", "bad.yaml"], "haproxy"),
    ] {
        let finished = tollgate(&wrong, &arguments);
        assert_eq!((finished.code, finished.stdout.as_str()), (Some(2), ""), "{arguments:?}");
        assert!(finished.stderr.contains(said), "{arguments:?}: {}", finished.stderr);
    }
}

#[test]
fn an_import_never_overwrites_a_file() {
    let folder = Scratch::new();
    let (from, to) = (folder.write("shop.yaml", ENVOY), folder.path().join("policy.yaml"));
    let import = || {
        let arguments = ["import", "envoy", from.to_str().unwrap(), "--output", to.to_str().unwrap()];
        tollgate(&[], &arguments)
    };
    assert_eq!((import().code, import().code), (Some(0), Some(2)));
    assert!(import().stderr.contains("policy.yaml is there already"));
    assert!(fs::read_to_string(&to).unwrap().contains("limits:"));
}
