//! A service with a PostgreSQL pool behind axum, and a ceiling before the pool.
//!
//! ```text
//! cargo run -p tollgate-http --example postgres_pool -- --database postgres://user:password@127.0.0.1/db
//! curl -i -X POST -H 'X-Tenant-Id: acme' http://127.0.0.1:8080/orders
//! ```
//!
//! A pool bounds the number of connections, and queues without a bound behind them: under overload every
//! request waits, most callers leave before their turn, and a tenant with many requests takes nearly all
//! turns. The limit in `policy.yaml` has as many slots as the pool has connections, a short queue with a
//! bounded wait, and turns by tenant. `--ceiling off` shows the difference; `make bench-pool` measures it.

mod service;

use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use tokio::net::TcpListener;
use tollgate::Limiter;
use tollgate_http::WaitingRoom;

use self::service::{Shop, ceiling, connect};

const POLICY: &str = include_str!("policy.yaml");
/// The largest number of requests that wait for a slot, over all limits.
const MAX_WAITING: usize = 1_000;

const USAGE: &str = "usage: postgres_pool [OPTION VALUE]...
  --database URL     postgres://user:password@host:port/database (required)
  --listen ADDRESS   127.0.0.1:8080 unless given
  --ceiling off      sends every request to the pool
  --connections N    the size of the pool (8)
  --pool-wait MS     the longest wait for a connection of the pool (no bound)
  --query-time MS    the time that a query holds its connection at least (20)";

struct Options {
    database: String,
    listen: SocketAddr,
    has_ceiling: bool,
    connections: usize,
    pool_wait: Option<Duration>,
    query_time: Duration,
}

impl Options {
    fn read(mut words: impl Iterator<Item = String>) -> Option<Self> {
        let mut options = Self {
            database: String::new(),
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            has_ceiling: true,
            connections: 8,
            pool_wait: None,
            query_time: Duration::from_millis(20),
        };
        while let Some(option) = words.next() {
            let value = words.next()?;
            let millis = || value.parse().ok().map(Duration::from_millis);
            match option.as_str() {
                "--database" => options.database = value,
                "--listen" => options.listen = value.parse().ok()?,
                "--ceiling" => options.has_ceiling = value != "off",
                "--connections" => options.connections = value.parse().ok()?,
                "--pool-wait" => options.pool_wait = Some(millis()?),
                "--query-time" => options.query_time = millis()?,
                _ => return None,
            }
        }
        (!options.database.is_empty()).then_some(options)
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let Some(options) = Options::read(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match serve(&options).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("postgres_pool: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(options: &Options) -> Result<(), Box<dyn std::error::Error>> {
    let pool = connect(&options.database, options.connections, options.pool_wait)?;
    let shop = Shop::open(pool, options.query_time).await?;
    let app = if options.has_ceiling {
        let room = WaitingRoom::new(MAX_WAITING, tokio::time::sleep);
        shop.router().layer(ceiling(Limiter::from_policy(POLICY)?, room))
    } else {
        shop.router()
    };
    let listener = TcpListener::bind(options.listen).await?;
    println!("listening on http://{}, until Ctrl-C", listener.local_addr()?);
    axum::serve(listener, app).with_graceful_shutdown(interrupted()).await.map_err(io::Error::into)
}

async fn interrupted() {
    if let Err(error) = tokio::signal::ctrl_c().await {
        eprintln!("cannot listen for Ctrl-C: {error}");
        std::future::pending::<()>().await;
    }
}
