//! Checks that several processes with one allowance admit exactly its size, or with leases at most its size.
//!
//! The processes are instances of this program. Each prepares, waits for a start signal, sends all requests at once
//! and prints the number of admitted ones.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use serde::Serialize;
use tokio::task::JoinSet;
use tollgate_core::{Bucket, Rate, Rule, Span};
use tollgate_lease::Leased;
use tollgate_store::{Check, Store as _};

use super::instance::Instance;
use super::{io_error, ours};

/// The subcommand of such a process, before URL, key, number of requests and lease in milliseconds.
pub const WORD: &str = "spend";

/// Processes that consume one allowance.
#[derive(Clone, Copy, Debug)]
pub struct Contention {
    /// Number of processes.
    pub processes: usize,
    /// Concurrent requests of each process.
    pub requests: usize,
    /// The lease of the rule.
    pub lease: Option<Span>,
}

impl Contention {
    /// Three processes without leases.
    pub const EXACT: Self = Self { processes: 3, requests: 400, lease: None };
}

/// The allowance: one unit refills in 36 seconds, which is longer than the measurement.
const LIMIT: Rate = Rate::per_hour(100);

/// Admitted requests.
#[derive(Clone, Debug, Serialize)]
pub struct Spent {
    /// Admitted requests of each process.
    pub admitted: Vec<u64>,
    /// The size of the allowance.
    pub limit: u64,
}

impl Spent {
    /// Whether exactly the allowance was admitted.
    pub fn is_exact(&self) -> bool {
        self.admitted.iter().sum::<u64>() == self.limit
    }
}

/// Lets several processes consume an unused allowance.
pub fn measure(redis: &Instance, contention: Contention, round: usize) -> io::Result<Spent> {
    let mut processes = Vec::new();
    for _ in 0..contention.processes {
        processes.push(Process::start(&redis.url(), &format!("budget-{round}"), contention)?);
    }
    processes.iter_mut().try_for_each(Process::wait_until_ready)?;
    processes.iter_mut().try_for_each(Process::go)?;
    let admitted = processes.iter_mut().map(Process::admitted).collect::<io::Result<_>>()?;
    Ok(Spent { admitted, limit: LIMIT.count })
}

struct Process {
    child: Child,
    said: BufReader<std::process::ChildStdout>,
}

impl Process {
    fn start(url: &str, key: &str, contention: Contention) -> io::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        let lease = contention.lease.unwrap_or_default().as_micros() / 1_000;
        command
            .args([WORD, url, key, &contention.requests.to_string(), &lease.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let said = child.stdout.take().map(BufReader::new);
        Ok(Self { child, said: said.ok_or_else(|| io::Error::other("a process without an output"))? })
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.said.read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }

    fn wait_until_ready(&mut self) -> io::Result<()> {
        let line = self.line()?;
        if line == "ready" { Ok(()) } else { Err(io::Error::other(format!("a process said `{line}`"))) }
    }

    fn go(&mut self) -> io::Result<()> {
        self.child.stdin.take().map_or(Ok(()), |mut input| input.write_all(b"go\n"))
    }

    fn admitted(&mut self) -> io::Result<u64> {
        let line = self.line()?;
        self.child.wait()?;
        line.parse().map_err(|_| io::Error::other(format!("a process said `{line}`")))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Fails if the process has ended, which is fine.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs one of the processes, with the arguments after [`WORD`].
pub async fn spend(arguments: &[String]) -> io::Result<()> {
    let [url, key, requests, lease] = arguments else {
        return Err(io::Error::other("a process has four arguments"));
    };
    let number = |text: &str| text.parse::<u64>().map_err(io::Error::other);
    let lease = Some(Span::from_millis(number(lease)?)).filter(|it| *it > Span::default());
    let store = Arc::new(Leased::new(ours::connected(url).await?));
    let quota = Bucket::new(LIMIT).map_err(|error| io_error(&error))?;
    let rule = Arc::new(Rule::new("budget", quota).leased_for(lease));
    let key: Arc<str> = key.as_str().into();
    println!("ready");
    io::stdin().read_line(&mut String::new())?;
    let mut tasks = JoinSet::new();
    for _ in 0..number(requests)? {
        let (store, rule, key) = (Arc::clone(&store), Arc::clone(&rule), Arc::clone(&key));
        tasks.spawn(async move { store.decide(&[Check::new(&rule, key.as_bytes(), 1)]).await });
    }
    let mut admitted = 0;
    while let Some(answer) = tasks.join_next().await {
        let answer = answer.map_err(io::Error::other)?.map_err(|error| io_error(&error))?;
        admitted += u64::from(answer.admitted);
    }
    println!("{admitted}");
    Ok(())
}
