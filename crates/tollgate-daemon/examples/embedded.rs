//! Runs Tollgate inside another program: starts it, sends requests, reloads the policy, shuts down.
//!
//! `cargo run -p tollgate-daemon --example embedded`

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::{env, fs, io, process};

use tollgate_daemon::{Daemon, Inputs};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let policy = env::temp_dir().join(format!("tollgate-embedded-{}.yaml", process::id()));
    fs::write(&policy, "limits: [{name: api, by: ip, bucket: 2/hour}]\ngateway: {upstream: demo}\n")?;
    let inputs = Inputs::default()
        .with_config(&policy)
        .set("listen", "{gateway: 127.0.0.1:0, api: off, rls: off, resp: off}");
    let mut daemon = Daemon::start(inputs).await?;
    let gateway = daemon.addresses().gateway.ok_or("the gateway is on")?.socket;
    for _ in 0..3 {
        println!("{}", get(gateway)?);
    }

    // Usage survives a reload: two of the ten are spent.
    fs::write(&policy, "limits: [{name: api, by: ip, bucket: 10/hour}]\ngateway: {upstream: demo}\n")?;
    daemon.reload()?;
    println!("{}", get(gateway)?);

    daemon.shutdown().await;
    fs::remove_file(&policy)?;
    Ok(())
}

/// Sends a request, and returns the status line and the rate-limit header of the response.
fn get(gateway: SocketAddr) -> io::Result<String> {
    let mut stream = TcpStream::connect(gateway)?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let status = answer.lines().next().unwrap_or_default();
    let limit = answer.lines().find(|line| line.to_ascii_lowercase().starts_with("ratelimit:"));
    Ok(format!("{status}   {}", limit.unwrap_or_default()))
}
