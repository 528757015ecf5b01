//! `store: postgres://…` with the binary, on a real PostgreSQL.
//!
//! Deadlines are long, so that a busy machine does not affect the result.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::redis::{admitted, check, counted, metrics, spend_one_budget, start, stop, versions};
use crate::service::client::{get, get_json};
use tollgate_testkit::{Postgres, Scratch};

#[test]
fn two_servers_share_one_budget_exactly_with_and_without_leases() {
    let server = Postgres::start();
    for (prefix, lease, is_exact) in [("exact", "off", true), ("leased", "auto", false)] {
        let store = format!("url: '{}', prefix: {prefix}, lease: {lease}", server.url());
        let ([one, other], total) = spend_one_budget(&store);
        let expected = if is_exact { 100..=100 } else { 50..=100 };
        assert!(expected.contains(&total), "{prefix}: {total}\n{}\n{}", one.log(), other.log());
        stop(one);
        stop(other);
        // A server that has no further requests holds units for a moment, and returns them.
        let last = crate::redis::start(100, &format!("url: '{}', prefix: {prefix}", server.url()));
        let total = total + admitted(last.api, 101 - total);
        assert!((98..=100).contains(&total), "{prefix}: {total}\n{}", last.log());
    }
}

#[test]
fn counts_survive_a_restart_and_the_password_is_never_shown() {
    let server = Postgres::start();
    let files = Scratch::new();
    let password = files.write("password", "superuser-secret\n");
    let url = format!("postgres://tollgate@{}/postgres", server.address());
    let store = format!("url: '{url}', password_file: {}", password.display());
    let first = start(5, &store);
    let shown = format!("postgres://tollgate:***@{}/postgres", server.address());
    assert!(first.log().contains(&format!("  store    {shown}, 10000 ms\n")), "{}", first.log());
    assert!(!first.log().contains("warning") && !first.log().contains("secret"), "{}", first.log());
    assert_eq!(admitted(first.api, 3), 3);
    let page = metrics(first.api);
    assert!(counted("tollgate_postgres_decisions_total", &page) >= 3, "{page}");
    assert!(counted("tollgate_postgres_connections_total", &page) >= 1, "{page}");
    stop(first);
    let second = start(5, &store);
    assert_eq!(admitted(second.api, 5), 2);
    assert_eq!(get(second.gateway, "/").status, 429);
}

#[test]
fn a_server_that_dies_is_an_outage_until_it_is_back() {
    let server = Postgres::start();
    let store = format!("url: '{}?synchronous_commit=on', outage: {{failures: 1}}", server.url());
    let mut tollgate = start(100, &store);
    let api = tollgate.api;
    assert_eq!(admitted(api, 1), 1);
    server.kill();
    let mut owed = 0;
    tollgate.program.wait_until("a degraded answer", || {
        let answer = check(api);
        owed += u64::from(answer["allowed"] == true);
        answer["degraded"] == true
    });
    let ready = get_json(api, "/readyz");
    assert_eq!(ready["store"]["state"], "degraded", "{ready}");
    assert!(!ready.to_string().contains("secret"), "{ready}");
    assert_eq!(counted("tollgate_store_up", &metrics(api)), 0);
    server.restart();
    tollgate.program.wait_until("an answer of the server", || {
        let answer = check(api);
        owed += u64::from(answer["allowed"] == true);
        answer["degraded"] == false
    });
    // Requests that were admitted without the server are charged to it without further traffic.
    tollgate
        .program
        .wait_until("charging what is owed", || counted("tollgate_ledger_keys", &metrics(api)) == 0);
    let answer = check(api);
    assert_eq!(answer["degraded"], false, "{answer}");
    let remaining = answer["limits"][0]["remaining"].as_u64().unwrap();
    // A charge whose commit was in doubt when the server died may not have been made.
    assert!((98 - owed..=99 - owed).contains(&remaining), "{owed} owed: {answer}");
    assert!(tollgate.log().contains("the store answers again"), "{}", tollgate.log());
}

#[test]
fn without_the_server_the_start_says_so_and_serves_degraded() {
    let server = Postgres::start();
    let right = server.url();
    for (url, cause) in [
        (server.url_of("tollgate", "wr0ng", "postgres"), "password is wrong"),
        (server.url_of("tollgate", "superuser-secret", "missing"), "name another database"),
    ] {
        let tollgate = start(100, &format!("url: '{url}'"));
        let log = tollgate.log();
        assert!(log.contains("warning: cannot use the store postgres://") && log.contains(cause), "{log}");
        assert!(!log.contains("wr0ng") && !log.contains("secret"), "{log}");
        assert_eq!(check(tollgate.api)["degraded"], true);
    }
    server.kill();
    let mut tollgate = start(100, &format!("url: '{right}', outage: {{failures: 1}}"));
    assert_eq!(check(tollgate.api)["degraded"], true);
    server.restart();
    let api = tollgate.api;
    tollgate.program.wait_until("the server to be found", || {
        get_json(api, "/readyz")["store"]["state"] == "ok" && check(api)["degraded"] == false
    });
}

#[test]
fn servers_that_share_a_database_know_how_many_they_are() {
    let server = Postgres::start();
    let store = format!("url: '{}'", server.url());
    let (mut one, mut other) = (start(100, &store), start(100, &store));
    for tollgate in [&mut one, &mut other] {
        let api = tollgate.api;
        tollgate.program.wait_until("the other node", || counted("tollgate_nodes", &metrics(api)) == 2);
    }
}

#[test]
fn changed_numbers_keep_usage_and_a_rolling_deploy_admits_no_more_than_the_larger_limit() {
    let server = Postgres::start();
    let store = |prefix: &str| format!("url: '{}', prefix: {prefix}", server.url());
    versions::restart_with_changed_numbers(&store("restart"));
    versions::deploy(100, 130, &store("raised"));
    versions::deploy(130, 100, &store("lowered"));
}
