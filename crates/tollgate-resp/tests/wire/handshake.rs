//! The commands that clients send when they connect.

use rcgen::{CertifiedKey, generate_simple_self_signed};
use tollgate_net::Tls;
use tollgate_resp::RespSettings;
use tollgate_testkit::Scratch;

use crate::support::{Server, encoded, in_memory, plain, with_password};

#[test]
fn clients_are_greeted_in_both_protocols() {
    let (server, _clock) = plain();
    let mut client = server.connect();
    client.ask("PING", "+PONG\r\n");
    client.ask("PING \"a b\"", "$3\r\na b\r\n");
    client.ask("ping a b", "-ERR wrong number of arguments for 'ping' command\r\n");
    client.ask("ECHO hi", "$2\r\nhi\r\n");
    client.ask("ECHO", "-ERR wrong number of arguments for 'echo' command\r\n");
    client.send(b"HELLO 3 SETNAME worker\r\n");
    client.expect(
        "%7\r\n$6\r\nserver\r\n$8\r\ntollgate\r\n$7\r\nversion\r\n$5\r\n7.2.0\r\n$5\r\nproto\r\n:3\r\n",
    );
    client.expect("$2\r\nid\r\n:1\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n");
    client.ask("CLIENT GETNAME", "$6\r\nworker\r\n");
    client
        .ask("CONFIG GET save appendonly", "%2\r\n$4\r\nsave\r\n$0\r\n\r\n$10\r\nappendonly\r\n$2\r\nno\r\n");
    client.ask("RESET", "+RESET\r\n");
    client.ask("CLIENT GETNAME", "$-1\r\n");
    client.ask("CONFIG GET save", "*2\r\n$4\r\nsave\r\n$0\r\n\r\n");
    client.ask("HELLO 4", "-NOPROTO unsupported protocol version\r\n");
    client.ask("HELLO x", "-ERR Protocol version is not an integer or out of range\r\n");
    client.ask("HELLO 2 FOO", "-ERR Syntax error in HELLO option 'FOO'\r\n");
    client.ask("SELECT 1", "+OK\r\n");
    client.ask("SELECT 16", "-ERR DB index is out of range\r\n");
    client.ask("CLIENT SETINFO LIB-NAME redis-py", "+OK\r\n");
    client.ask("CLIENT SETINFO lib-ver 5.0", "+OK\r\n");
    client.ask("CLIENT SETINFO x y", "-ERR Unrecognized option 'x'\r\n");
    client.ask(
        "CLIENT SETNAME \"a b\"",
        "-ERR Client names cannot contain spaces, newlines or special characters.\r\n",
    );
    client.ask("CLIENT ID", ":1\r\n");
    client.ask("CLIENT NO-EVICT on", "+OK\r\n");
    client.ask("CLIENT KILL x", "-ERR unknown subcommand 'KILL'. Try CLIENT HELP.\r\n");
    client.ask("COMMAND COUNT", ":27\r\n");
    client.ask("COMMAND GETKEYS CL.THROTTLE k 1 2 3", "*1\r\n$1\r\nk\r\n");
    client.ask("AUTH x", "-ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?\r\n");
    client.ask("QUIT", "+OK\r\n");
    assert_eq!(client.rest(), "");
}

#[test]
fn unknown_commands_get_the_errors_of_redis() {
    let (server, _clock) = plain();
    let mut client = server.connect();
    client.ask("GET", "-ERR unknown command 'GET', with args beginning with: \r\n");
    client.ask("set a b", "-ERR unknown command 'set', with args beginning with: 'a' 'b' \r\n");
    client.ask(
        "\"a\\r\\nb\" \"\\x1b[2J\"",
        "-ERR unknown command 'a  b', with args beginning with: ' [2J' \r\n",
    );
    client.command(&["x", &"y".repeat(500), "z"]);
    client.expect(&format!("-ERR unknown command 'x', with args beginning with: '{}' \r\n", "y".repeat(128)));
    // The rest of an HTTP request is not executed.
    client.send(b"POST / HTTP/1.1\r\nHost: x\r\n\r\nPING\r\n");
    assert_eq!(client.rest(), "");
}

#[test]
fn commands_require_authentication() {
    let server = with_password("hunter2");
    let mut client = server.connect();
    for line in ["PING", "CL.THROTTLE k 1 2 3", "INFO", "NOSUCH"] {
        client.ask(line, "-NOAUTH Authentication required.\r\n");
    }
    client.send(b"HELLO 3\r\n");
    assert!(client.line().starts_with("-NOAUTH HELLO must be called with the client already authenticated"));
    client.ask("AUTH hunter3", "-WRONGPASS invalid username-password pair or user is disabled.\r\n");
    client.ask("AUTH admin hunter2", "-WRONGPASS invalid username-password pair or user is disabled.\r\n");
    client
        .ask("HELLO 3 AUTH default x", "-WRONGPASS invalid username-password pair or user is disabled.\r\n");
    client.ask("AUTH hunter2", "+OK\r\n");
    client.ask("PING", "+PONG\r\n");
    client.ask("RESET", "+RESET\r\n");
    client.ask("PING", "-NOAUTH Authentication required.\r\n");
    client.send(b"HELLO 3 AUTH default hunter2\r\n");
    assert_eq!(client.line(), "%7");
    let mut stranger = server.connect();
    stranger.send(b"*11\r\n");
    assert_eq!(stranger.rest(), "-ERR Protocol error: unauthenticated multibulk length\r\n");
    assert!(server.metrics().contains("tollgate_resp_wrong_passwords_total 3\n"));
    assert!(!server.metrics().contains("hunter"));
}

#[test]
fn repeated_wrong_passwords_close_the_connection() {
    let server = with_password("hunter2");
    let mut client = server.connect();
    client.send(&b"AUTH guess\r\n".repeat(20));
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
    assert_eq!(client.rest(), wrong.repeat(10));
    // A correct password resets the count.
    let mut clumsy = server.connect();
    for _ in 0..3 {
        clumsy.send(&b"AUTH guess\r\n".repeat(9));
        clumsy.expect(&wrong.repeat(9));
        clumsy.ask("AUTH hunter2", "+OK\r\n");
    }
    let metrics = server.metrics();
    assert!(metrics.contains("{reason=\"stranger\"} 1\n"), "{metrics}");
    assert!(metrics.contains("tollgate_resp_wrong_passwords_total 37\n"), "{metrics}");
}

#[test]
fn each_database_has_its_own_keys() {
    let (server, _clock) = plain();
    let mut client = server.connect();
    for database in ["0", "1", "15"] {
        client.ask(&format!("SELECT {database}"), "+OK\r\n");
        client.ask_numbers("CL.THROTTLE u 15 30 60", &[0, 16, 15, -1, 2]);
    }
    client.ask("SELECT 1", "+OK\r\n");
    client.ask_numbers("CL.THROTTLE u 15 30 60", &[0, 16, 14, -1, 4]);
    client.send(b"CLIENT INFO\r\n");
    client.line();
    assert!(client.line().contains(" db=1 "));
    client.ask("RESET", "+RESET\r\n");
    client.ask_numbers("CL.THROTTLE u 15 30 60 0", &[0, 16, 15, -1, 2]);
}

#[test]
fn redis_cli_works() {
    let (server, _clock) = plain();
    assert_eq!(server.cli(&["PING"]), "PONG\n");
    assert_eq!(server.cli(&["CL.THROTTLE", "u", "15", "30", "60"]), "0\n16\n15\n-1\n2\n");
    assert_eq!(server.cli(&["-3", "CL.THROTTLE", "u", "15", "30", "60"]), "0\n16\n14\n-1\n4\n");
    assert_eq!(server.cli(&["THROTTLE", "v", "10", "30", "60"]), "1\n10\n9\n2\n0\n");
    let info = server.cli(&["INFO", "server"]);
    assert!(info.contains("redis_version:") && info.contains("tollgate_version:"), "{info}");
    assert!(server.cli(&["COMMAND", "DOCS", "cl.throttle"]).contains("redis-cell"));
    assert!(server.cli(&["COMMAND"]).contains("tg.check"));
}

#[test]
fn a_certificate_enables_tls() {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(vec!["localhost".into(), "127.0.0.1".into()]).unwrap();
    let tls = Tls::from_pem(cert.pem().as_bytes(), signing_key.serialize_pem().as_bytes()).unwrap();
    let server = Server::start(in_memory("limits: []").0, RespSettings::default(), Some(tls));
    let files = Scratch::new();
    let authority = files.write("ca.pem", &cert.pem());
    let authority = authority.to_str().unwrap();
    let arguments = ["--tls", "--cacert", authority, "CL.THROTTLE", "u", "15", "30", "60"];
    assert_eq!(server.cli(&arguments), "0\n16\n15\n-1\n2\n");
    // A client without TLS gets no reply.
    let mut plain = server.connect();
    plain.send(b"PING\r\n");
    assert!(!plain.rest().contains("PONG"));
}

#[test]
fn commands_may_arrive_in_any_pieces() {
    let (server, _clock) = plain();
    let mut client = server.connect();
    client.0.set_nodelay(true).unwrap();
    for (used, at) in (1..).zip([1, 5, 9, 20, 33]) {
        let call = encoded(&["CL.THROTTLE", "pieces", "15", "30", "60"]);
        client.send(&call[..at]);
        client.ask_after(&call[at..], used);
    }
}

impl crate::support::Client {
    fn ask_after(&mut self, rest: &[u8], used: i64) {
        self.send(rest);
        self.expect(&crate::support::numbered(&[0, 16, 16 - used, -1, 2 * used]));
    }
}
