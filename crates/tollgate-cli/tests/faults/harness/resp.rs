//! Checks whether a Redis serves, with a minimal client.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use tollgate_testkit::{Redis, wait_until};

/// The timeout, after which a server counts as not serving.
const READ_TIMEOUT: Duration = Duration::from_millis(200);

/// A script that writes, as decisions do.
const QUESTION: &str = "EVAL \"return redis.call('SET', KEYS[1], 1, 'PX', 100)\" 1 prober\r\n";

/// Whether it runs scripts that write, with this password.
pub(crate) fn serves(redis: &Redis, password: Option<&str>) -> bool {
    ask(redis, password).is_ok_and(|answer| answer.ends_with("+OK\r\n"))
}

/// Waits until it serves, and returns the time.
pub(crate) fn wait_until_it_serves(redis: &Redis) -> Instant {
    wait_until("serving Redis", || serves(redis, None));
    Instant::now()
}

/// Waits until these replicas have all writes of the primary.
pub(crate) fn wait_until_copied(primary: &Redis, replicas: &[&Redis]) {
    let offset = |redis: &Redis, name: &str| -> u64 {
        let info = redis.cli(&["INFO", "replication"]);
        info.lines().find_map(|line| line.trim().strip_prefix(name)?.parse().ok()).unwrap_or(0)
    };
    let written = offset(primary, "master_repl_offset:");
    wait_until("copied data", || replicas.iter().all(|it| offset(it, "slave_repl_offset:") >= written));
}

fn ask(redis: &Redis, password: Option<&str>) -> std::io::Result<String> {
    let address = redis.address().parse().expect("it is an address");
    let mut stream = TcpStream::connect_timeout(&address, READ_TIMEOUT)?;
    stream.set_read_timeout(Some(READ_TIMEOUT))?;
    if let Some(password) = password {
        stream.write_all(format!("AUTH {password}\r\n").as_bytes())?;
    }
    stream.write_all(QUESTION.as_bytes())?;
    let wanted = if password.is_some() { 2 } else { 1 };
    let (mut answer, mut part) = (String::new(), [0; 512]);
    while answer.matches("\r\n").count() < wanted {
        let count = stream.read(&mut part)?;
        if count == 0 {
            break;
        }
        answer.push_str(&String::from_utf8_lossy(&part[..count]));
    }
    Ok(answer)
}
