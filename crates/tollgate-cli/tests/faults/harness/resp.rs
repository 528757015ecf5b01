//! Whether a Redis serves: as much of its protocol as it takes to ask.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use tollgate_testkit::{Redis, wait_until};

/// A server that takes longer does not serve yet.
const READ_TIMEOUT: Duration = Duration::from_millis(200);

/// A script that writes: what decisions need.
const QUESTION: &str = "EVAL \"return redis.call('SET', KEYS[1], 1, 'PX', 100)\" 1 prober\r\n";

/// Whether it runs scripts that write, for whoever knows the password.
pub(crate) fn serves(redis: &Redis, password: Option<&str>) -> bool {
    ask(redis, password).is_ok_and(|answer| answer.ends_with("+OK\r\n"))
}

/// Waits for that, and says since when.
pub(crate) fn wait_until_it_serves(redis: &Redis) -> Instant {
    wait_until("serving Redis", || serves(redis, None));
    Instant::now()
}

/// Waits until these replicas have heard of all that the primary had written when asked.
pub(crate) fn wait_until_copied(primary: &Redis, replicas: &[&Redis]) {
    let offset = |redis: &Redis, name: &str| -> u64 {
        let told = redis.cli(&["INFO", "replication"]);
        told.lines().find_map(|line| line.trim().strip_prefix(name)?.parse().ok()).unwrap_or(0)
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
