//! Connects to a server, and checks that it can be used.

use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::config::{SslMode, TargetSessionAttrs};
use tokio_postgres::{Client, Config, Error, NoTls};

use crate::connection::Connection;
use crate::failure::explain;
use crate::settings::PostgresSettings;
use crate::tables::Tables;
use crate::tls::Rustls;

/// The oldest supported version: older ones read the whole table to find expired rows.
const MIN_VERSION: i32 = 14;

/// The time after which the server ends a transaction whose node sends nothing, because the node
/// has stopped while it holds locks.
const MAX_IDLE_IN_TRANSACTION: Duration = Duration::from_secs(1);

/// The timeout for one attempt to connect. It is longer than the deadline of a request, which then
/// fails, so that the next one finds a connection.
pub(crate) fn connect_timeout(settings: &PostgresSettings) -> Duration {
    Duration::from_millis(500).max(4 * settings.deadline)
}

/// Connects, and creates the tables if they are missing.
pub(crate) async fn connect(settings: &PostgresSettings, tables: &Tables) -> Result<Connection, String> {
    let hosts: Vec<_> = settings.hosts.iter().map(ToString::to_string).collect();
    let hosts = hosts.join(",");
    let patience = connect_timeout(settings);
    let connected = timeout(patience, open(settings, tables)).await;
    match connected {
        Ok(connected) => connected.map_err(|why| format!("{hosts}: {why}")),
        Err(_) => Err(format!("{hosts}: no connection within {patience:?}")),
    }
}

async fn open(settings: &PostgresSettings, tables: &Tables) -> Result<Connection, String> {
    let client = dial(settings).await?;
    check_server(&client).await?;
    tables.prepare(&client).await?;
    let connection = Connection::new(client, tables).await.map_err(|error| explain(&error))?;
    // After tables and statements, which may take longer than a decision.
    set_up_session(connection.client(), settings).await.map_err(|error| explain(&error))?;
    Ok(connection)
}

async fn dial(settings: &PostgresSettings) -> Result<Client, String> {
    let mut config = Config::new();
    config.user(&settings.username).dbname(&settings.database).application_name("tollgate");
    for address in &settings.hosts {
        config.host(&address.host).port(address.port);
    }
    if settings.hosts.len() > 1 {
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
    }
    if let Some(password) = &settings.password {
        config.password(password);
    }
    let failed = |error: Error| explain(&error);
    match &settings.tls {
        None => {
            let connected = config.ssl_mode(SslMode::Disable).connect(NoTls).await;
            let (client, connection) = connected.map_err(failed)?;
            drive(connection);
            Ok(client)
        }
        Some(tls) => {
            let connected = config.ssl_mode(SslMode::Require).connect(Rustls::new(tls)?).await;
            let (client, connection) = connected.map_err(failed)?;
            drive(connection);
            Ok(client)
        }
    }
}

/// Runs the connection until its client is dropped. The client reports its errors.
fn drive(connection: impl Future<Output = Result<(), Error>> + Send + 'static) {
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(error = explain(&error), "the connection to PostgreSQL ended");
        }
    });
}

async fn check_server(client: &Client) -> Result<(), String> {
    let check = "SELECT current_setting('server_version_num')::integer, current_setting('server_version'),
        pg_is_in_recovery()";
    let row = client.query_one(check, &[]).await;
    // Not all servers that speak this protocol are PostgreSQL.
    let read = row.and_then(|row| Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?)));
    let (number, version, is_standby): (i32, String, bool) = read.map_err(|error| explain(&error))?;
    if number < MIN_VERSION * 10_000 {
        return Err(format!("PostgreSQL {version} is too old: Tollgate needs {MIN_VERSION} or newer"));
    }
    if is_standby {
        return Err("this is a standby, which accepts no writes: name the primary".to_owned());
    }
    Ok(())
}

async fn set_up_session(client: &Client, settings: &PostgresSettings) -> Result<(), Error> {
    let commit = if settings.synchronous_commit { "on" } else { "off" };
    let deadline = settings.deadline.as_millis().max(1);
    let idle = MAX_IDLE_IN_TRANSACTION.max(2 * settings.deadline).as_millis();
    // Statistics are old while a table grows: without these settings, the plan of a prepared
    // statement may read the whole table.
    let plans =
        "SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; SET jit = off";
    let statements = format!(
        "SET statement_timeout = {deadline}; SET idle_in_transaction_session_timeout = {idle}; \
         SET synchronous_commit = {commit}; {plans}"
    );
    client.batch_execute(&statements).await
}
