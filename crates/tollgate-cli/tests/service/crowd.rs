//! Many idle connections.

use tollgate_testkit::Tollgate;

use super::client::{Client, get};
use super::process::{allow_open_files, connections, memory};
use super::upstream::Upstream;
use super::{BINARY, ROOMY, alone};

const IDLE: usize = 2_000;

/// The memory that the idle connections may take: their share of 200 MiB for ten thousand, beside the
/// memory of an idle server.
const SHARE: u64 = 200 * IDLE as u64 / 10_000;

#[test]
fn idle_connections_take_little_memory_and_do_not_disturb_others() {
    let _alone = alone();
    allow_open_files(2 * IDLE);
    let upstream = Upstream::start();
    let section = upstream.section("timeouts: {client_headers: 10m, client_idle: 10m}");
    let tollgate = Tollgate::start(BINARY, &format!("{ROOMY}{section}"));
    assert_eq!(get(tollgate.gateway, "/").status, 200);
    let before = memory(tollgate.program.id()).resident;

    let mut idle: Vec<_> = (0..IDLE).map(|_| Client::connect(tollgate.gateway).unwrap()).collect();
    // Every other connection never sends a request; the rest have sent one and wait.
    for client in idle.iter_mut().step_by(2) {
        assert_eq!(client.get("/").expect("one among many is answered").status, 200);
    }
    for _ in 0..20 {
        assert_eq!(get(tollgate.gateway, "/").status, 200, "a request passes beside {IDLE} idle connections");
    }
    let held = connections(tollgate.gateway).held;
    assert!(held >= IDLE, "all {IDLE} connections are still open, and not {held}");
    let after = memory(tollgate.program.id());
    println!("{IDLE} idle connections: {} MiB resident, {before} MiB without them", after.resident);
    assert!(
        after.resident - before <= SHARE,
        "{IDLE} idle connections take at most {SHARE} MiB beside {before} MiB: {after:?}"
    );
    let late = idle.iter_mut().map(|client| client.get("/").map(|it| it.status)).find(|it| *it != Ok(200));
    assert_eq!(late, None, "an idle connection is answered when it sends a request");
}
