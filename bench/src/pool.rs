//! A service with a real PostgreSQL pool under overload, with and without a ceiling before the pool.
//!
//! The service is the example `postgres_pool` of `tollgate-http`: axum, deadpool and tokio-postgres. Each of its 8
//! connections takes 20 ms for a query, so the pool can answer at most 400 requests in a second. One greedy tenant
//! sends nearly three times as many, and three quiet tenants a few each.
//!
//! - [`load`]: the requests, sent at a constant rate regardless of the responses.
//! - [`report`]: the table, the JSON, the bars.

pub mod load;
pub mod report;

use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use self::load::Tenant;
pub use self::report::{PoolReport, Row};
use crate::gateway::probe;
use crate::server::{Server, free_address};
use crate::{process, stopwatch};

/// The connections of the pool: also the slots of the policy of the example.
const CONNECTIONS: u32 = 8;
/// The time that a query holds its connection.
const QUERY_TIME: Duration = Duration::from_millis(20);
/// Requests in a second that the pool can answer.
pub const CAPACITY: f64 = 400.0;

/// The tenants and their requests in a second: three times the capacity.
const TENANTS: [Tenant; 4] = [
    Tenant { name: "greedy", rate: 1_140 },
    Tenant { name: "quiet-1", rate: 20 },
    Tenant { name: "quiet-2", rate: 20 },
    Tenant { name: "quiet-3", rate: 20 },
];

/// One way to run the service.
#[derive(Clone, Copy, Debug)]
pub struct Variant {
    /// Its name in the table.
    pub name: &'static str,
    arguments: &'static [&'static str],
}

impl Variant {
    /// All variants.
    pub const ALL: [Self; 3] = [
        Self { name: "pool", arguments: &["--ceiling", "off"] },
        Self { name: "pool, wait 500 ms", arguments: &["--ceiling", "off", "--pool-wait", "500"] },
        Self { name: "ceiling", arguments: &[] },
    ];
}

/// Starts the service in this variant, loads it, and returns a row.
pub fn measure(
    variant: Variant,
    service: &Path,
    database: &str,
    folder: &Path,
    time: Duration,
) -> io::Result<Row> {
    let address = free_address()?;
    let mut command = Command::new(service);
    command.args(["--database", database, "--listen", &address.to_string()]).args(variant.arguments);
    command.args(["--connections", &CONNECTIONS.to_string()]);
    command.args(["--query-time", &QUERY_TIME.as_millis().to_string()]);
    let server = Server::start(&command, None, address, folder, probe::answers)?;
    let (others, start) = (process::others()?, stopwatch::mark());
    let answers = load::run(server.address(), &TENANTS, time)?;
    let others = process::others()?.saturating_sub(others).as_secs_f64() / start.elapsed().as_secs_f64();
    Ok(Row::new(variant.name, &TENANTS, &answers, time, others))
}
