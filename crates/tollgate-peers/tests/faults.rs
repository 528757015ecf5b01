//! Nodes that are gone, that do not answer, or whose lists differ.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use tollgate_core::{Bucket, Rate, Rule};
use tollgate_net::Sockets;
use tollgate_peers::{Address, PeerSettings};
use tollgate_store::{Check, Store as _, StoreError};

use crate::support::{Nodes, PASSWORD, Server};

fn hourly(units: u64) -> Rule {
    Rule::new("api", Bucket::new(Rate::per_hour(units)).unwrap())
}

/// Returns the text of an error of a part of the store.
#[track_caller]
fn part(error: &StoreError) -> String {
    let StoreError::Part(inner) = error else { panic!("{error:?} is not about one node") };
    let cause = std::error::Error::source(inner).map(ToString::to_string);
    format!("{inner}: {}", cause.unwrap_or_default())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_gone_is_an_outage_of_its_keys_only() {
    let mut nodes = Nodes::start(3);
    let rule = hourly(10);
    let keys: Vec<_> = (0..3).map(|node| nodes.key_of(node, 0)).collect();
    for key in &keys {
        assert!(nodes.stores[0].decide(&[Check::new(&rule, key, 1)]).await.unwrap().admitted);
    }
    let gone = nodes.address(2);
    nodes.servers[2] = None;
    for store in &nodes.stores[..2] {
        for key in &keys[..2] {
            assert!(store.decide(&[Check::new(&rule, key, 1)]).await.unwrap().admitted);
        }
        let error = store.decide(&[Check::new(&rule, &keys[2], 1)]).await.unwrap_err();
        assert!(part(&error).contains(&gone.to_string()), "{error:?}");
        // A request for all keys charges none.
        let all: Vec<_> = keys.iter().map(|key| Check::new(&rule, key, 1)).collect();
        part(&store.decide(&all).await.unwrap_err());
        store.probe().await.unwrap();
    }
    let left = nodes.stores[0].decide(&[Check::new(&rule, &keys[1], 0)]).await.unwrap();
    assert_eq!(left.outcomes[0].remaining, 7);
    assert_eq!(nodes.stores[0].counters().down, 1);

    // It comes back at the same address.
    let sockets = Sockets::bind(&gone.to_string(), 1).unwrap();
    nodes.servers[2] = Some(Server::start(sockets, &nodes.stores[2]));
    loop {
        if nodes.stores[0].decide(&[Check::new(&rule, &keys[2], 0)]).await.is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(nodes.stores[0].counters().down, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_wrong_passwords_and_silence_are_named() {
    // A listener that answers each connection with these bytes, or with nothing.
    let stranger = |bytes: &'static [u8]| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let mut open = Vec::new();
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let _gone = stream.write_all(bytes);
                open.push(stream);
            }
        });
        Address::of(address.ip(), address.port())
    };
    for (bytes, expected) in [
        (&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], "the address is not of a Tollgate peer"),
        (b"-WRONGPASS invalid\r\n", "the password of the peers is refused: WRONGPASS invalid"),
        (b"+OK\r\n-PEERVERSION this node speaks version 9\r\n", "PEERVERSION this node speaks version 9"),
        (b"+OK\r\n$3\r\nabc\r\n", "the address is not of a Tollgate peer"),
        (b"", "no connection within 1s"),
    ] {
        let nodes = Nodes::start(1);
        let members = [nodes.address(0), stranger(bytes)];
        nodes.stores[0].set_members(&members, Some(&members[0]));
        let error = nodes.stores[0].connect().await.unwrap_err();
        assert!(part(&error).contains(expected), "{error:?}");
    }
}

#[test]
fn a_stranger_may_not_call() {
    let nodes = Nodes::start(1);
    let Address { host, port } = nodes.address(0);
    let mut stream = TcpStream::connect((host, port)).unwrap();
    let mut ask = |text: &str, expected: &str| {
        stream.write_all(text.as_bytes()).unwrap();
        let mut found = vec![0; expected.len()];
        stream.read_exact(&mut found).unwrap();
        assert_eq!(String::from_utf8_lossy(&found), expected);
    };
    ask("TG.CALL 2 x\r\n", "-NOPERM only peers may call: they authenticate");
    ask("\r\n", " as `tollgate-peer` with the password of `store`\r\n");
    ask("AUTH tollgate-peer wrong\r\n", "-WRONGPASS ");
    ask("\r\n", "invalid username-password pair or user is disabled.\r\n");
    ask(&format!("AUTH tollgate-peer {PASSWORD}\r\n"), "+OK\r\n");
    ask("TG.CALL 2 x\r\n", "-ERR the bytes are not a call between peers, or are damaged\r\n");
    ask("TG.CALL 1 x\r\n", "-PEERVERSION this node speaks version 2");
}

#[test]
fn a_node_finds_itself_in_the_list() {
    let find = |url: &str| PeerSettings::parse(&[url]).unwrap().find_here(7379).map_err(|it| it.to_string());
    assert_eq!(find("tollgate://192.0.2.1,127.0.0.1").unwrap().to_string(), "127.0.0.1:7379");
    assert_eq!(
        find("tollgate://192.0.2.1,127.0.0.1:7380").unwrap_err(),
        "the list of peers does not name this node: no address is of this machine and has port 7379"
    );
    assert_eq!(
        find("tollgate://127.0.0.1,127.0.0.2").unwrap_err(),
        "the list of peers names this node twice, as 127.0.0.1:7379 and as 127.0.0.2:7379"
    );
}
