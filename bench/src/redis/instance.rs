//! A Redis server on a free port, on its own core, without persistence.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{AsyncConnectionConfig, Client, Cmd, FromRedisValue, cmd};

use super::io_error;
use crate::process::Family;
use crate::server::{Server, free_address};

/// Time limit of a call, generous for busy machines.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// A running Redis server. It is stopped on drop.
pub struct Instance {
    server: Server,
    client: Client,
    control: MultiplexedConnection,
    version: String,
}

/// Statistics of a Redis server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// CPU time.
    pub cpu: Duration,
    /// Commands, including those of scripts, without those that read these statistics.
    pub commands: u64,
    /// Script calls, by hash or by text.
    pub scripts: u64,
}

impl Instance {
    /// Starts a server on this core, with its log in this folder.
    pub async fn start(core: usize, folder: &Path) -> io::Result<Self> {
        let address = free_address()?;
        let server = Server::start(&command(address, folder), Some(core), address, folder, pong)?;
        let client = Client::open(format!("redis://{address}")).map_err(|error| io_error(&error))?;
        let control = connect(&client).await?;
        let instance = Self { server, client, control, version: String::new() };
        let info = instance.info("server").await?;
        if field(&info, "process_id") != Some(&*instance.server.id().to_string()) {
            return Err(io::Error::other("somebody else's Redis took our port: run it again"));
        }
        let version = field(&info, "redis_version").unwrap_or("unknown").to_owned();
        Ok(Self { version, ..instance })
    }

    /// Returns the address.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Returns the URL.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    /// Returns the version that the server reports.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Returns the process family.
    pub fn family(&self) -> io::Result<Family> {
        self.server.family()
    }

    /// Opens a client connection, as the store does.
    pub async fn connect(&self) -> io::Result<MultiplexedConnection> {
        connect(&self.client).await
    }

    /// Deletes all keys. Scripts are kept.
    pub async fn forget(&self) -> io::Result<()> {
        self.ask::<String>(cmd("FLUSHALL").arg("SYNC")).await.map(drop)
    }

    /// Returns the statistics so far.
    pub async fn account(&self) -> io::Result<Account> {
        let account = Account::parse(&self.info("cpu").await?, &self.info("commandstats").await?);
        account.ok_or_else(|| io::Error::other("Redis does not say what it did"))
    }

    async fn info(&self, section: &str) -> io::Result<String> {
        self.ask(cmd("INFO").arg(section)).await
    }

    /// Sends a command that is not measured.
    pub async fn ask<T: FromRedisValue>(&self, command: &Cmd) -> io::Result<T> {
        command.query_async(&mut self.control.clone()).await.map_err(|error| io_error(&error))
    }
}

impl Account {
    fn parse(cpu: &str, commands: &str) -> Option<Self> {
        let seconds = |name| field(cpu, name)?.parse::<f64>().ok();
        let mut account = Self {
            cpu: Duration::from_secs_f64(seconds("used_cpu_sys")? + seconds("used_cpu_user")?),
            ..Self::default()
        };
        for line in commands.lines() {
            let Some((name, figures)) = line.strip_prefix("cmdstat_").and_then(|line| line.split_once(':'))
            else {
                continue;
            };
            let calls = figures.strip_prefix("calls=")?.split(',').next()?.parse::<u64>().ok()?;
            if name != "info" {
                account.commands += calls;
            }
            if matches!(name, "evalsha" | "eval") {
                account.scripts += calls;
            }
        }
        Some(account)
    }

    /// Returns the difference from earlier statistics.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            cpu: self.cpu.saturating_sub(earlier.cpu),
            commands: self.commands - earlier.commands,
            scripts: self.scripts - earlier.scripts,
        }
    }
}

/// Returns the command that starts a server at this address, without persistence, in this folder.
pub fn command(address: SocketAddr, folder: &Path) -> Command {
    let mut command = Command::new("redis-server");
    command.args(["--bind", &address.ip().to_string(), "--port", &address.port().to_string()]);
    command.args(["--save", "", "--appendonly", "no", "--dir"]).arg(folder);
    command
}

async fn connect(client: &Client) -> io::Result<MultiplexedConnection> {
    let patience = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(CALL_TIMEOUT))
        .set_response_timeout(Some(CALL_TIMEOUT));
    let connected = client.get_multiplexed_async_connection_with_config(&patience).await;
    connected.map_err(|error| io_error(&error))
}

fn field<'t>(info: &'t str, name: &str) -> Option<&'t str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// Checks that a Redis server answers.
fn pong(address: SocketAddr) -> io::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(CALL_TIMEOUT))?;
    stream.write_all(b"PING\r\n")?;
    let mut answer = [0; 7];
    stream.read_exact(&mut answer)?;
    if &answer == b"+PONG\r\n" { Ok(()) } else { Err(io::Error::other("it is not Redis that answers")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_of_redis_are_parsed() {
        let cpu = "# CPU\r\nused_cpu_sys:1.250000\r\nused_cpu_user:0.500000\r\nused_cpu_sys_children:9\r\n";
        let commands = "# Commandstats\r\ncmdstat_evalsha:calls=10,usec=7,usec_per_call=0.70\r\n\
                        cmdstat_get:calls=20,usec=1\r\ncmdstat_info:calls=5,usec=1\r\n\
                        cmdstat_config|get:calls=3,usec=1\r\n";
        let account = Account::parse(cpu, commands).unwrap();
        let expected = Account { cpu: Duration::from_millis(1_750), commands: 33, scripts: 10 };
        assert_eq!(account, expected);
        assert_eq!(Account::parse("", commands), None);
    }
}
