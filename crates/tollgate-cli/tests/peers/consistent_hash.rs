//! `integrations/nginx/consistent-hash.conf`: one budget by consistent hashing in a proxy, without peers.

use std::fs;
use std::net::SocketAddr;

use tollgate_testkit::{Program, Scratch, Tollgate, free_port, wait_for_port, wait_until};

use super::BINARY;
use crate::integrations::proxy::{self, integration};
use crate::service::client::Client;

const LIMIT: usize = 10;
const CALLERS: usize = 30;

fn node() -> Tollgate {
    let policy = format!(
        "store: memory\ngateway: {{upstream: demo, workers: 1}}\nclient: {{trusted_proxies: [127.0.0.1]}}\n\
         limits:\n  - {{name: keys, by: api_key, bucket: {LIMIT}/day}}\n"
    );
    Tollgate::start(BINARY, &policy)
}

/// nginx with the file that users copy, and other addresses.
fn start(nodes: &[Tollgate], address: SocketAddr) -> (Program, Scratch) {
    let files = Scratch::new();
    let mut text = fs::read_to_string(integration("nginx/consistent-hash.conf")).unwrap();
    for (number, node) in nodes.iter().enumerate() {
        let written = format!("127.0.0.1:808{}", number + 1);
        assert!(text.contains(&written));
        text = text.replace(&written, &node.gateway.to_string());
    }
    text = text.replace("127.0.0.1:8000", &address.to_string());
    let mut program = Program::start(proxy::nginx(&files, &text));
    wait_for_port(&mut program, address);
    (program, files)
}

#[test]
fn a_proxy_that_hashes_keeps_a_limit_over_nodes_in_memory() {
    let mut nodes = vec![node(), node(), node()];
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let _proxy = start(&nodes, address);
    let status = |caller: usize| {
        let request = format!(
            "GET / HTTP/1.1\r\nHost: shop.test\r\nX-API-Key: caller-{caller}\r\nConnection: close\r\n\r\n"
        );
        let answer = Client::connect(address).ok().and_then(|mut client| client.ask(&request).ok());
        answer.map_or(0, |it| it.status)
    };
    let admitted = |caller: usize| (0..LIMIT + 5).filter(|_| status(caller) == 200).count();
    // The same key always reaches the same node.
    for caller in 0..CALLERS {
        assert_eq!(admitted(caller), LIMIT, "{caller}");
    }
    // A node is gone: its callers begin again on others, and no other caller notices.
    drop(nodes.pop());
    let mut again = Vec::new();
    wait_until("the other nodes to answer for all", || {
        again = (0..CALLERS).map(|caller| usize::from(status(caller) == 200)).collect();
        (0..CALLERS).all(|caller| [200, 429].contains(&status(caller)))
    });
    let moved: Vec<_> = (0..CALLERS).filter(|caller| again[*caller] > 0).collect();
    assert!((1..CALLERS * 2 / 3).contains(&moved.len()), "{moved:?}");
    for caller in 0..CALLERS {
        assert!(admitted(caller) <= LIMIT, "{caller}");
        assert_eq!(admitted(caller), 0, "{caller}");
    }
}
