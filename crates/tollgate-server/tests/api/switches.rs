//! Mode overrides at run time.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::json;
use tollgate::Policy;
use tollgate_server::{Access, MAX_CHANGES, ModeOverrides, SavedOverrides, Switch};

use crate::support::{Subject, subject, watched};

const POLICY: &str = "
limits:
  - {name: api, by: ip, bucket: 2/minute}
  - {name: tried, by: global, bucket: 1/minute, mode: shadow}
  - {name: silent, by: global, bucket: 1/minute, mode: off}
";

/// Whether one more request is admitted.
fn passes(subject: &Subject) -> bool {
    subject.ask("/v1/check", r#"{"path":"/","ip":"203.0.113.9"}"#)["allowed"] == true
}

/// The modes in force, in the order of the policy.
fn modes(subject: &Subject) -> Vec<String> {
    let limits = subject.get("/v1/limits").json();
    limits["limits"].as_array().unwrap().iter().map(|it| it["mode"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn an_override_is_in_force_at_once_and_keeps_the_counts() {
    let subject = subject(POLICY);
    assert!(passes(&subject) && passes(&subject) && !passes(&subject));
    let response = subject.put("/v1/limits/api/mode", r#"{"mode":"shadow","reason":"launch","by":"ann"}"#);
    let expected =
        json!({"name": "api", "mode": "shadow", "before": "enforce", "persisted": null, "warning": null});
    assert_eq!((response.status.as_u16(), response.json()), (200, expected));
    assert!(passes(&subject));
    let limit = subject.get("/v1/limits").json()["limits"][0].clone();
    assert_eq!(
        (&limit["mode"], &limit["policy_mode"], &limit["switched"]),
        (&json!("shadow"), &json!("enforce"), &json!(true))
    );
    assert_eq!(subject.put("/v1/limits/api/mode", r#"{"mode":"policy"}"#).json()["mode"], "enforce");
    assert!(!passes(&subject), "earlier usage still counts");
}

#[test]
fn the_mode_of_everything_only_weakens() {
    let subject = subject(POLICY);
    for (said, expected) in [
        ("shadow", ["shadow", "shadow", "off"]),
        ("off", ["off", "off", "off"]),
        ("enforce", ["enforce", "shadow", "off"]),
    ] {
        let response = subject.put("/v1/mode", &json!({"mode": said}).to_string());
        assert_eq!((response.status.as_u16(), &response.json()["mode"]), (200, &json!(said)), "{said}");
        assert_eq!(modes(&subject), expected, "{said}");
        assert_eq!(subject.get("/v1/mode").json(), json!({"mode": said, "limits": []}));
        assert_eq!(subject.get("/v1/overview").json()["mode"], said);
    }
}

#[test]
fn an_override_hidden_by_everything_causes_a_warning() {
    let subject = subject(POLICY);
    subject.put("/v1/mode", r#"{"mode":"off"}"#);
    let response = subject.put("/v1/limits/tried/mode", r#"{"mode":"enforce"}"#).json();
    assert_eq!(response["mode"], "off");
    assert!(response["warning"].as_str().unwrap().contains("everything is switched to `off`"), "{response}");
    assert_eq!(
        subject.get("/v1/mode").json()["limits"],
        json!([{"name": "tried", "mode": "off", "policy_mode": "shadow", "switch": "enforce"}])
    );
    subject.put("/v1/mode", r#"{"mode":"enforce"}"#);
    assert_eq!(modes(&subject), ["enforce", "enforce", "off"]);
}

#[test]
fn the_journal_lists_actual_changes_the_newest_first() {
    let subject = subject(POLICY);
    subject.put("/v1/limits/api/mode", r#"{"mode":"off","reason":"tests","by":"ann"}"#);
    subject.put("/v1/limits/api/mode", r#"{"mode":"off","reason":"again","by":"bob"}"#);
    subject.put("/v1/mode", r#"{"mode":"enforce"}"#);
    subject.put("/v1/limits/tried/mode", r#"{"mode":"policy"}"#);
    subject.put("/v1/mode", r#"{"mode":"shadow"}"#);
    assert_eq!(
        subject.get("/v1/changes").json(),
        json!({"changes": [
            {"at": "2026-03-01T12:00:00Z", "what": "everything", "limit": null, "from": "enforce", "to": "shadow",
             "reason": "", "by": "", "role": "admin", "peer": "127.0.0.1", "certificate": null},
            {"at": "2026-03-01T12:00:00Z", "what": "limit", "limit": "api", "from": "policy", "to": "off",
             "reason": "tests", "by": "ann", "role": "admin", "peer": "127.0.0.1", "certificate": null},
        ]})
    );
}

#[test]
fn unknown_modes_and_limits_get_a_helpful_error() {
    let subject =
        subject(&format!("{POLICY}  - {{name: live, by: ip, bucket: 9/s, candidate: {{bucket: 5/s}}}}\n"));
    for (path, body, status, detail) in [
        ("/v1/mode", r#"{"mode":"on"}"#, 422, "`mode` must be `enforce`, `shadow` or `off`, not `on`"),
        ("/v1/mode", r#"{"mode":"policy"}"#, 422, "`enforce`, `shadow` or `off`"),
        ("/v1/mode", r#"{"mode":7}"#, 400, "expected a string"),
        ("/v1/mode", "{}", 400, "missing field `mode`"),
        ("/v1/mode", r#"{"mode":"off","why":"x"}"#, 400, "unknown field `why`"),
        ("/v1/mode", "", 400, "the body is empty; send a JSON object with `mode`, `reason` and `by`"),
        ("/v1/limits/api/mode", r#"{"mode":"OFF"}"#, 422, "`off`, `frozen` or `policy`, not `OFF`"),
        ("/v1/limits/apj/mode", r#"{"mode":"off"}"#, 404, "no limit is called `apj`; did you mean `api`?"),
        (
            "/v1/limits/live.candidate/mode",
            r#"{"mode":"enforce"}"#,
            422,
            "tried beside `live` and never refuses",
        ),
    ] {
        let answer = subject.put(path, body);
        assert_eq!(answer.status, status, "{path} {body}: {}", answer.text());
        assert!(answer.problem().contains(detail), "{path} {body}: {}", answer.text());
    }
    assert_eq!(subject.get("/v1/changes").json(), json!({"changes": []}));
    assert_eq!(subject.put("/v1/limits/live.candidate/mode", r#"{"mode":"off"}"#).status, 200);
}

#[test]
fn operator_text_is_cleaned_and_bounded() {
    let subject = subject(POLICY);
    let body =
        json!({"mode": "off", "by": "a\u{1b}[31m\n".repeat(14), "reason": "<script>\u{0}\"".repeat(30)});
    assert_eq!(subject.put("/v1/mode", &body.to_string()).status, 200);
    let change = subject.get("/v1/changes").json()["changes"][0].clone();
    let (by, reason) = (change["by"].as_str().unwrap(), change["reason"].as_str().unwrap());
    assert_eq!((by.chars().count(), reason.chars().count()), (14 * 5, 30 * 9));
    assert!(!by.chars().chain(reason.chars()).any(char::is_control), "{change}");
}

#[test]
fn a_text_that_is_too_long_is_rejected_without_a_change() {
    let subject = subject(POLICY);
    for (field, most) in [("by", 100), ("reason", 300)] {
        let body = |length| json!({"mode": "off", field: "é".repeat(length)}).to_string();
        let answer = subject.put("/v1/mode", &body(most + 1));
        assert_eq!(answer.status, 422, "{}", answer.text());
        let detail = format!("`{field}` may have at most {most} characters, and this has {}", most + 1);
        assert!(answer.problem().contains(&detail), "{}", answer.text());
        assert_eq!(subject.get("/v1/mode").json()["mode"], "enforce");
        assert_eq!(subject.put("/v1/limits/api/mode", &body(most)).status, 200);
    }
}

#[test]
fn the_journal_keeps_the_last_thousand() {
    let subject = subject(POLICY);
    for at in 0..MAX_CHANGES + 5 {
        let mode = if at % 2 == 0 { "off" } else { "shadow" };
        subject.put("/v1/mode", &json!({"mode": mode, "reason": at.to_string()}).to_string());
    }
    let changes = subject.get("/v1/changes").json();
    let changes = changes["changes"].as_array().unwrap();
    assert_eq!((changes.len(), &changes[0]["reason"]), (MAX_CHANGES, &json!("1004")));
}

/// Creates an API with overrides that other code shares.
fn with_board(policy: &str) -> (Subject, ModeOverrides<crate::support::Store_>) {
    let subject = subject(policy);
    let board = ModeOverrides::new(subject.limiter.clone());
    let api = subject.api.clone().with_mode_overrides(board.clone());
    (Subject { api, ..subject }, board)
}

#[test]
fn overrides_survive_a_changed_file_and_stay_dormant_for_removed_limits() {
    let (subject, board) = with_board(POLICY);
    assert!(passes(&subject) && passes(&subject));
    subject.put("/v1/limits/api/mode", r#"{"mode":"shadow"}"#);
    subject.put("/v1/mode", r#"{"mode":"shadow"}"#);
    board.reload(Policy::parse("limits: [{name: other, by: ip, bucket: 9/minute}]").unwrap());
    assert_eq!(modes(&subject), ["shadow"], "the mode of everything");
    assert_eq!(
        subject.get("/v1/mode").json()["limits"],
        json!([{"name": "api", "mode": null, "policy_mode": null, "switch": "shadow"}])
    );
    assert_eq!(subject.put("/v1/limits/api/mode", r#"{"mode":"off"}"#).status, 404);
    board.reload(Policy::parse("limits: [{name: api, by: ip, bucket: 2/minute}]").unwrap());
    subject.put("/v1/mode", r#"{"mode":"enforce"}"#);
    assert_eq!(modes(&subject), ["shadow"], "its dormant override applies again");
    assert_eq!(subject.put("/v1/limits/api/mode", r#"{"mode":"policy"}"#).json()["mode"], "enforce");
}

#[test]
fn the_override_of_a_removed_limit_can_be_removed() {
    let (subject, board) = with_board(POLICY);
    subject.put("/v1/limits/api/mode", r#"{"mode":"off"}"#);
    board.reload(Policy::default());
    let response = subject.put("/v1/limits/api/mode", r#"{"mode":"policy"}"#);
    assert_eq!((response.status.as_u16(), &response.json()["mode"]), (200, &json!(null)));
    assert_eq!(subject.get("/v1/mode").json()["limits"], json!([]));
}

#[test]
fn a_policy_set_by_other_code_survives_the_next_switch() {
    let subject = subject(POLICY);
    subject.put("/v1/limits/api/mode", r#"{"mode":"off"}"#);
    subject.limiter.replace(Policy::parse("limits: [{name: new, by: ip, bucket: 1/minute}]").unwrap());
    subject.put("/v1/limits/new/mode", r#"{"mode":"shadow"}"#);
    assert_eq!(modes(&subject), ["shadow"]);
}

#[test]
fn saved_overrides_and_changes_are_restored() {
    let (subject, board) = with_board(POLICY);
    let kept = Arc::new(Mutex::new(String::new()));
    let keep = Arc::clone(&kept);
    board.on_change(move |saved, change| {
        assert_eq!(saved.changes.back(), Some(change));
        *keep.lock().unwrap() = serde_json::to_string(saved).unwrap();
        Ok(())
    });
    let response = subject.put("/v1/limits/api/mode", r#"{"mode":"off","by":"ann"}"#).json();
    assert_eq!((&response["persisted"], &response["warning"]), (&json!(true), &json!(null)));
    subject.put("/v1/mode", r#"{"mode":"shadow"}"#);

    let (restarted, board) = with_board(POLICY);
    let saved: SavedOverrides = serde_json::from_str(&kept.lock().unwrap()).unwrap();
    board.restore(saved);
    assert_eq!(modes(&restarted), ["off", "shadow", "off"]);
    assert_eq!(restarted.get("/v1/changes").json(), subject.get("/v1/changes").json());
    let version = restarted.limiter.load().version();
    board.restore(SavedOverrides::default());
    assert_eq!(restarted.limiter.load().version(), version, "nothing to put in force");
}

#[test]
fn a_freeze_ends_with_the_process_that_has_learned_what_it_keeps() {
    let policy = "shed: {node: {cpu: 80%}}\nlimits: [{name: up, by: global, slots: adaptive}]";
    let (subject, board) = with_board(policy);
    let kept = Arc::new(Mutex::new(String::new()));
    let keep = Arc::clone(&kept);
    board.on_change(move |saved, _| {
        *keep.lock().unwrap() = serde_json::to_string(saved).unwrap();
        Ok(())
    });
    for name in ["up", "shed.node"] {
        let response = subject.put(&format!("/v1/limits/{name}/mode"), r#"{"mode":"frozen"}"#).json();
        assert_eq!((&response["mode"], &response["persisted"]), (&json!("enforce"), &json!(false)));
        assert!(response["warning"].as_str().unwrap().contains("until this server restarts"), "{response}");
    }
    assert!(subject.limiter.load().policy().limits()[0].is_frozen());
    let (restarted, board) = with_board(policy);
    board.restore(serde_json::from_str(&kept.lock().unwrap()).unwrap());
    assert!(!restarted.limiter.load().policy().limits()[0].is_frozen());
    assert!(restarted.limiter.load().policy().node_shed().is_some_and(|it| !it.is_frozen));
    assert_eq!(restarted.get("/v1/mode").json()["limits"], json!([]));
}

#[test]
fn an_override_that_cannot_be_saved_is_in_force_with_a_warning() {
    let (subject, board) = with_board(POLICY);
    let fails = Arc::new(AtomicBool::new(true));
    let failing = Arc::clone(&fails);
    board.on_change(
        move |_, _| if failing.load(Ordering::Relaxed) { Err("the disk is full".into()) } else { Ok(()) },
    );
    let response = subject.put("/v1/limits/api/mode", r#"{"mode":"off"}"#).json();
    assert_eq!((&response["mode"], &response["persisted"]), (&json!("off"), &json!(false)));
    assert!(response["warning"].as_str().unwrap().contains("the disk is full"), "{response}");
    assert_eq!(modes(&subject)[0], "off");
    assert_eq!(
        subject.put("/v1/limits/api/mode", r#"{"mode":"off"}"#).json()["persisted"],
        false,
        "still not"
    );
    fails.store(false, Ordering::Relaxed);
    assert_eq!(
        subject.put("/v1/limits/api/mode", r#"{"mode":"off"}"#).json()["persisted"],
        true,
        "tried again"
    );
    assert_eq!(subject.get("/v1/changes").json()["changes"].as_array().map(Vec::len), Some(1));
    assert_eq!(subject.put("/v1/limits/api/mode", r#"{"mode":"shadow"}"#).json()["persisted"], true);
}

#[test]
fn an_edited_file_of_overrides_cannot_make_a_candidate_refuse() {
    let (subject, board) =
        with_board("limits: [{name: live, by: ip, bucket: 9/s, candidate: {bucket: 5/s}}]");
    let mut saved = SavedOverrides { everything: Switch::Policy, ..SavedOverrides::default() };
    saved.limits.insert("live.candidate".into(), Switch::Enforce);
    saved.limits.insert("gone".into(), Switch::Policy);
    board.restore(saved);
    assert_eq!(modes(&subject), ["enforce", "shadow"]);
}

#[test]
fn concurrent_switches_are_serialized() {
    let (subject, board) = with_board(POLICY);
    let inside = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&inside);
    board.on_change(move |_, _| {
        assert_eq!(counted.fetch_add(1, Ordering::SeqCst), 0, "one at a time");
        counted.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    });
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let subject = &subject;
            scope.spawn(move || {
                for round in 0..25 {
                    let mode = if (thread + round) % 2 == 0 { "off" } else { "shadow" };
                    assert_eq!(subject.put("/v1/mode", &json!({"mode": mode}).to_string()).status, 200);
                    passes(subject);
                }
            });
        }
    });
    let changes = subject.get("/v1/changes").json();
    let changes = changes["changes"].as_array().unwrap();
    assert!(
        changes.windows(2).all(|pair| pair[0]["from"] == pair[1]["to"]),
        "each change starts from the result of the last"
    );
}

#[test]
fn a_switch_increments_the_policy_version_and_keeps_the_counts() {
    let (subject, watcher) = watched(POLICY, Access::open());
    passes(&subject);
    let before = subject.get("/v1/overview").json();
    subject.put("/v1/limits/api/mode", r#"{"mode":"shadow"}"#);
    passes(&subject);
    let after = subject.get("/v1/overview").json();
    assert_eq!((&before["policy"]["version"], &after["policy"]["version"]), (&json!(1), &json!(2)));
    assert_eq!((&before["policy"]["switched"], &after["policy"]["switched"]), (&json!(0), &json!(1)));
    assert_eq!(watcher.limit_totals("api").unwrap().allowed, 2);
    assert_eq!(subject.get("/readyz").json()["policy_version"], 2);
}

#[test]
fn switching_everything_warns_that_the_deny_list_stays_in_force() {
    let policy = "deny: [{ip: 192.0.2.66}]\nlimits: [{name: api, by: ip, bucket: 2/minute}]";
    let (subject, board) = with_board(policy);
    for mode in ["off", "shadow"] {
        let response = subject.put("/v1/mode", &json!({"mode": mode}).to_string()).json();
        assert!(response["warning"].as_str().unwrap().contains("deny list"), "{response}");
        assert_eq!(subject.ask("/v1/check", r#"{"path":"/","ip":"192.0.2.66"}"#)["allowed"], false);
    }
    assert_eq!(subject.put("/v1/mode", r#"{"mode":"enforce"}"#).json()["warning"], json!(null));
    assert_eq!(subject.put("/v1/limits/api/mode", r#"{"mode":"off"}"#).json()["warning"], json!(null));
    board.on_change(|_, _| Err("the disk is full".to_owned()));
    let response = subject.put("/v1/mode", r#"{"mode":"off"}"#).json();
    let warning = response["warning"].as_str().unwrap();
    assert!(warning.contains("the disk is full") && warning.contains("deny list"), "{response}");
}

#[test]
fn modes_and_overrides_are_in_the_metrics() {
    let subject = subject(POLICY);
    let lines = |expected: &[&str]| {
        let text = subject.get("/metrics");
        for line in expected {
            assert!(text.text().lines().any(|it| it == *line), "{line} in:\n{}", text.text());
        }
        text.text().lines().filter(|line| line.starts_with("tollgate_limit_mode{")).count()
    };
    let count = lines(&[
        r#"tollgate_mode{mode="enforce"} 1"#,
        r#"tollgate_mode{mode="off"} 0"#,
        r#"tollgate_limit_mode{limit="api",mode="enforce"} 1"#,
        r#"tollgate_limit_mode{limit="tried",mode="shadow"} 1"#,
        r#"tollgate_limit_switched{limit="tried"} 0"#,
    ]);
    assert_eq!(count, 3, "one for each limit");
    subject.put("/v1/limits/api/mode", r#"{"mode":"shadow"}"#);
    subject.put("/v1/mode", r#"{"mode":"off"}"#);
    lines(&[
        r#"tollgate_mode{mode="enforce"} 0"#,
        r#"tollgate_mode{mode="off"} 1"#,
        r#"tollgate_limit_mode{limit="api",mode="off"} 1"#,
        r#"tollgate_limit_switched{limit="api"} 1"#,
        r#"tollgate_limit_switched{limit="tried"} 0"#,
    ]);
}
