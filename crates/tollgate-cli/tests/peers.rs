//! `store: tollgate://…` with the binary: several processes as one store.
//!
//! Deadlines are long, so that a busy machine does not affect the result.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]
#![allow(clippy::disallowed_methods, reason = "other programs keep real time")]

mod consistent_hash;
mod pipeline;

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use tollgate_testkit::{ProgramOutput, Scratch, Tollgate, free_port, wait_until};

use crate::service::authority::Authority;
use crate::service::client::{get, get_json, post_json};

const BINARY: &str = env!("CARGO_BIN_EXE_tollgate");

/// The units of a user per day.
const LIMIT: usize = 100;

fn list(ports: &[u16]) -> String {
    format!("tollgate://{}", ports.iter().map(|it| format!("127.0.0.1:{it}")).collect::<Vec<_>>().join(","))
}

fn policy(store: &str) -> String {
    format!(
        "store: {{{store}, deadline: 10s}}\ngateway: {{workers: 2}}\n\
         limits:\n  - {{name: api, by: user, bucket: {LIMIT}/day}}\n"
    )
}

fn start_on(store: &str, port: u16) -> Tollgate {
    Tollgate::start_with(BINARY, &policy(store), &["--set", &format!("listen.resp=127.0.0.1:{port}")])
}

fn start(list: &str, port: u16) -> Tollgate {
    start_on(&format!("url: '{list}'"), port)
}

fn check(node: &Tollgate, user: usize) -> Value {
    post_json(node.api, "/v1/check", &format!(r#"{{"path":"/","user":"user-{user}"}}"#))
}

fn remaining(node: &Tollgate, user: usize) -> u64 {
    check(node, user)["limits"][0]["remaining"].as_u64().unwrap()
}

/// Returns how many of sixty users are decided without the owner of their key.
fn degraded(node: &Tollgate) -> usize {
    (0..60).filter(|user| check(node, *user)["degraded"] == true).count()
}

fn wait_until_settled(nodes: &[Tollgate]) {
    // Nodes that started earlier try to reach the later ones until they answer.
    let is_settled =
        || nodes.iter().all(|node| (1_000..1_020).all(|user| check(node, user)["degraded"] == false));
    wait_until("all nodes to reach each other", is_settled);
}

/// Returns a number of the metrics.
fn counted(node: &Tollgate, name: &str) -> u64 {
    let page = String::from_utf8(get(node.api, "/metrics").body).unwrap();
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in\n{page}")).parse().unwrap()
}

/// Spends the units of all users on all nodes at the same time. Returns the admissions of each user.
fn exhaust(nodes: &[Tollgate], users: usize) -> Vec<usize> {
    thread::scope(|scope| {
        let spend = |node| {
            (0..users)
                .map(|user| (0..LIMIT).filter(|_| check(node, user)["allowed"] == true).count())
                .collect()
        };
        let callers: Vec<_> =
            nodes.iter().map(|node| scope.spawn(move || -> Vec<usize> { spend(node) })).collect();
        let mut total = vec![0; users];
        for caller in callers {
            caller.join().unwrap().iter().zip(&mut total).for_each(|(some, all)| *all += some);
        }
        total
    })
}

#[test]
fn three_processes_share_one_budget_and_lose_only_the_keys_of_a_dead_one() {
    let ports = [free_port(), free_port(), free_port()];
    let list = list(&ports);
    let mut nodes: Vec<_> = ports.iter().map(|port| start(&list, *port)).collect();
    wait_until_settled(&nodes);
    assert_eq!(exhaust(&nodes, 2), [LIMIT; 2], "{}", nodes[0].log());

    drop(nodes.pop());
    wait_until("the loss of a node to be noticed", || degraded(&nodes[0]) > 0);
    let lost = degraded(&nodes[0]);
    assert!((1..50).contains(&lost), "{lost} of 60 keys: only those of the dead node");
    nodes.push(start(&list, ports[2]));
    wait_until("the node to be back", || degraded(&nodes[0]) == 0);
    // A key of the new process begins with the share; all others are as they were.
    let left: Vec<_> = (2_000..2_060).map(|user| remaining(&nodes[0], user)).collect();
    assert!(
        left.contains(&99) && left.contains(&19) && left.iter().all(|it| [19, 99].contains(it)),
        "{left:?}"
    );
}

#[test]
fn a_list_that_changes_under_load_takes_usage_along() {
    const USERS: usize = 30;
    let ports = [free_port(), free_port(), free_port()];
    let (short, long) = (list(&ports[..2]), list(&ports));
    let mut nodes: Vec<_> = ports[..2].iter().map(|port| start(&short, *port)).collect();
    wait_until_settled(&nodes);
    let (mut admitted, is_done) = (vec![0; USERS], AtomicBool::new(false));
    let third = thread::scope(|scope| {
        let is_done = &is_done;
        let call = |node: &Tollgate| {
            let mut admitted = vec![0; USERS];
            for user in (0..USERS).cycle() {
                if is_done.load(Ordering::Relaxed) {
                    break;
                }
                admitted[user] += usize::from(check(node, user)["allowed"] == true);
                thread::sleep(Duration::from_millis(2));
            }
            admitted
        };
        let callers: Vec<_> = nodes.iter().map(|node| scope.spawn(move || call(node))).collect();
        thread::sleep(Duration::from_millis(300));
        // The third node has the new list first, then the second, then the first.
        let third = start(&long, ports[2]);
        for node in nodes.iter().rev() {
            node.files.write("tollgate.yaml", &policy(&format!("url: '{long}'")));
            node.program.signal("HUP");
            wait_until("the new list", || node.log().contains("the list of peers has changed"));
        }
        wait_until("keys that move", || counted(&third, "tollgate_peers_carried_total") > 0);
        is_done.store(true, Ordering::Relaxed);
        for caller in callers {
            caller.join().unwrap().iter().zip(&mut admitted).for_each(|(some, all)| *all += some);
        }
        third
    });
    nodes.push(third);
    assert!(nodes.iter().all(|node| !node.log().contains("takes a restart")), "{}", nodes[0].log());
    wait_until_settled(&nodes);
    exhaust(&nodes, USERS).iter().zip(&mut admitted).for_each(|(some, all)| *all += some);
    assert!(admitted.iter().all(|it| (LIMIT - 5..=LIMIT).contains(it)), "{admitted:?}\n{}", nodes[2].log());
    let lost: u64 = nodes.iter().map(|node| counted(node, "tollgate_peers_lost_total")).sum();
    assert_eq!(lost, 0);

    // A list that does not name the node, or names it twice, changes nothing.
    let other = list(&ports[1..]);
    for (text, expected) in [
        (other, "the list of peers does not name this node"),
        (format!("{long},127.0.0.1:{}", ports[0]), "twice"),
    ] {
        nodes[0].files.write("tollgate.yaml", &policy(&format!("url: '{text}'")));
        nodes[0].program.signal("HUP");
        let error = || get_json(nodes[0].api, "/readyz")["reload_error"].as_str().unwrap_or("").to_owned();
        wait_until(expected, || error().contains(expected));
    }
}

#[test]
fn a_list_that_names_the_node_twice_or_not_at_all_ends_the_start() {
    let [port, other] = [free_port(), free_port()];
    for (list, expected) in [
        (list(&[other]), "the list of peers does not name this node"),
        (format!("{},127.0.0.2:{port}", list(&[port, other])), "the list of peers names this node twice"),
    ] {
        let files = Scratch::new();
        let config = files.write("tollgate.yaml", &policy(&format!("url: '{list}'")));
        let mut command = Command::new(BINARY);
        command.arg("serve").arg("--config").arg(config);
        command.args(["--set", &format!("listen.resp=127.0.0.1:{port}"), "--set", "listen.gateway=off"]);
        let output = ProgramOutput::of(command);
        assert!(output.code != Some(0) && output.stderr.contains(expected), "{}", output.stderr);
    }
}

#[test]
fn peers_speak_tls_with_a_password_and_refuse_strangers() {
    let authority = Authority::new();
    let (certificate, key) = authority.sign("127.0.0.1");
    authority.files.write("server.pem", &certificate);
    authority.files.write("server.key", &key);
    authority.files.write("password", "between-peers\n");
    let ports = [free_port(), free_port()];
    let file = |name: &str| authority.file(name);
    let store = format!(
        "url: '{}', ca: {}, password_file: {}",
        list(&ports).replace("tollgate://", "tollgates://"),
        file("ca.pem"),
        file("password")
    );
    let tls = format!("resp.tls={{certificate: {}, key: {}}}", file("server.pem"), file("server.key"));
    let start = |port: u16| {
        let listen = format!("listen.resp=127.0.0.1:{port}");
        Tollgate::start_with(BINARY, &policy(&store), &["--set", &listen, "--set", &tls])
    };
    let nodes = ports.map(start);
    wait_until_settled(&nodes);
    assert_eq!(exhaust(&nodes, 4), [LIMIT; 4], "{}", nodes[0].log());
    assert!(nodes.iter().all(|node| counted(node, "tollgate_peers_served_total") > 0));
    let mut command = Command::new("redis-cli");
    command.args([
        "-e",
        "-h",
        "127.0.0.1",
        "-p",
        &ports[0].to_string(),
        "--tls",
        "--cacert",
        &file("ca.pem"),
    ]);
    command.args(["TG.CALL", "2", "x"]);
    let stranger = ProgramOutput::of(command);
    assert!(stranger.stderr.contains("NOPERM") || stranger.stdout.contains("NOPERM"), "{}", stranger.stdout);
}

#[test]
fn a_name_is_looked_up_and_leases_work_over_peers() {
    let port = free_port();
    let store = format!("url: 'tollgate://localhost:{port}', lease: 100ms");
    let node = start_on(&store, port);
    wait_until("the name to be found", || check(&node, 1)["degraded"] == false);
    assert_eq!(exhaust(std::slice::from_ref(&node), 1), [LIMIT]);

    let ports = [free_port(), free_port()];
    let store = format!("url: '{}', lease: 100ms", list(&ports));
    let nodes = ports.map(|port| start_on(&store, port));
    wait_until_settled(&nodes);
    let admitted = exhaust(&nodes, 6);
    assert!(admitted.iter().all(|it| (LIMIT / 2..=LIMIT).contains(it)), "{admitted:?}");
    let leased: u64 =
        nodes.iter().map(|it| counted(it, r#"tollgate_lease_units_total{event="leased"}"#)).sum();
    assert!(leased > 0);
}
