//! `tollgate validate`: what it says, in which form, and with which status.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::process::Command;

use serde_json::{Value, json};
use tollgate_testkit::{Finished, Scratch};

const GOOD: &str = "limits: [{by: ip, bucket: 5/minute}]\n";
const ODD: &str = "limits:\n  - by: ip\n    rate: 5/minute\n    algorithm: fixed-window\n";
const BAD: &str = "limits: [{by: ip, bucket: 5/minuet}]\n";

/// `tollgate validate` in a folder with a good, an odd and a bad file.
fn validate(arguments: &[&str]) -> Finished {
    let folder = Scratch::new();
    for (name, text) in [("good.yaml", GOOD), ("odd.yaml", ODD), ("bad.yaml", BAD)] {
        folder.write(name, text);
    }
    folder.write("user.yaml", "limits: [{by: user, bucket: 10000/day}]\n");
    folder.write(
        "resp.yaml",
        &format!("expect: open-redis-protocol\nlisten: {{resp: '0.0.0.0:7379'}}\n{GOOD}"),
    );
    let many = |at| format!("  - {{endpoint: /e{at}, by: ip, rate: 5/minute, algorithm: fixed-window}}\n");
    folder.write("many.yaml", &format!("limits:\n{}", (0..8).map(many).collect::<String>()));
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.current_dir(folder.path()).arg("validate").args(arguments).env_clear();
    Finished::of(command)
}

#[test]
fn the_status_says_how_bad_it_is() {
    for (arguments, status) in [
        (&["good.yaml"][..], 0),
        (&["odd.yaml"], 0),
        (&["odd.yaml", "--strict"], 1),
        (&["odd.yaml", "--strict", "--allow", "fixed-window-alone"], 0),
        (&["good.yaml", "--strict"], 0),
        (&["good.yaml", "bad.yaml"], 2),
        (&["odd.yaml", "bad.yaml", "--strict", "--json"], 2),
        (&["odd.yaml", "good.yaml", "--strict", "--json"], 1),
        (&["user.yaml", "--strict"], 0),
        (&["user.yaml", "--strict", "--capacity", "500/second"], 1),
        (&["user.yaml", "--capacity", "lots"], 2),
        (&["user.yaml", "--capacity", "5/second, burst 9"], 2),
        (&["resp.yaml", "--strict"], 0),
        (&["none.yaml"], 2),
        (&[], 2),
    ] {
        let finished = validate(arguments);
        assert_eq!(finished.code, Some(status), "{arguments:?}: {}{}", finished.stdout, finished.stderr);
    }
}

#[test]
fn every_file_is_told_of_answers_on_one_side_and_complaints_on_the_other() {
    let finished = validate(&["bad.yaml", "odd.yaml", "good.yaml"]);
    assert_eq!(
        finished.stdout,
        "odd.yaml: 1 limit, no mistakes, 1 warning\ngood.yaml: 1 limit, no mistakes\n"
    );
    for said in [
        "error: `minuet` is not a unit of time\n --> bad.yaml:1:29\n",
        "warning[fixed-window-alone]: a fixed window admits up to twice its rate around its border\n --> odd.yaml:4:16\n",
        "`tollgate validate --explain CODE` says what happens",
    ] {
        let bare = finished.stderr.replace("  -->", " -->");
        assert!(bare.contains(said), "{bare}");
    }
}

#[test]
fn json_has_an_object_for_each_file() {
    let finished = validate(&["odd.yaml", "bad.yaml", "none.yaml", "--json"]);
    assert_eq!(finished.stderr, "");
    let objects: Vec<Value> = finished.stdout.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
    let [odd, bad, none] = &objects[..] else { panic!("{}", finished.stdout) };
    assert_eq!(
        *odd,
        json!({"file": "odd.yaml", "valid": true, "limits": 1, "errors": [], "left_out": 0, "warnings": [{
            "code": "fixed-window-alone", "file": "odd.yaml", "line": 4, "column": 16,
            "message": "a fixed window admits up to twice its rate around its border",
            "label": "the end of one window and the start of the next",
            "help": ["`sliding-window` does not, at the same price; or add a shorter limit beside it"],
            "others": []}]})
    );
    assert_eq!((&bad["valid"], &bad["limits"], &bad["warnings"]), (&json!(false), &json!(null), &json!([])));
    assert_eq!(bad["errors"][0]["message"], "`minuet` is not a unit of time");
    assert_eq!(
        (&bad["errors"][0]["line"], &bad["errors"][0]["label"]),
        (&json!(1), &json!("did you mean `minute`?"))
    );
    assert_eq!(none["errors"][0]["message"], "cannot read none.yaml: there is no such file");
}

#[test]
fn json_has_every_place_of_those_told_of_once() {
    let finished = validate(&["many.yaml", "--json"]);
    let told: Value = serde_json::from_str(&finished.stdout).unwrap();
    let [warning] = &told["warnings"].as_array().unwrap()[..] else { panic!("{told}") };
    assert_eq!((&warning["line"], &warning["column"]), (&json!(2), &json!(56)));
    let others: Vec<_> =
        (3..10).map(|line| json!({"file": "many.yaml", "line": line, "column": 56})).collect();
    assert_eq!(warning["others"], json!(others));
}

#[test]
fn a_code_is_explained_and_all_are_listed() {
    for code in ["never-fires", "[never-fires]", "warning[never-fires]:"] {
        let page = validate(&["--explain", code]);
        assert_eq!((page.code, page.stderr.as_str()), (Some(0), ""), "{code}");
        assert!(
            page.stdout.starts_with("# never-fires\n") && page.stdout.contains("**Fix.**"),
            "{}",
            page.stdout
        );
    }
    let all = validate(&["--explain"]);
    assert_eq!(all.code, Some(0));
    assert!(all.stdout.lines().count() > 20, "{}", all.stdout);
    assert!(all.stdout.lines().any(|it| it.starts_with("unbounded-key  ")), "{}", all.stdout);
    for (wrong, said) in [("never-fire", "did you mean `never-fires`?"), ("tomato", "lists them all")] {
        let finished = validate(&["--explain", wrong]);
        assert_eq!((finished.code, finished.stdout.as_str()), (Some(2), ""), "{wrong}");
        assert!(finished.stderr.contains(said), "{}", finished.stderr);
    }
}
