//! Connecting: standalone, through Sentinel, or to a Cluster.

use std::sync::Once;
use std::time::Duration;

use redis::cluster::ClusterClientBuilder;
use redis::sentinel::{SentinelClientBuilder, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, IntoConnectionInfo, ProtocolVersion,
    RedisConnectionInfo, RedisResult, TlsCertificates, TlsMode, Value,
};

use crate::link::{Connection, reason};
use crate::settings::{Address, RedisSettings, Topology};

/// Below this a script's effects cannot be replicated, and its clock not be read.
const OLDEST: u32 = 5;

/// Waiting for answers is bounded by whoever waits; the library's own patience must only
/// not be shorter.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long the library gives each sentinel.
const SENTINEL: Duration = Duration::from_secs(1);

/// How long connecting to one server may take. Short, because the first packet of a
/// connection is repeated only after a second, and a new attempt is sooner; but a place
/// with a long deadline is far away.
fn dialling(settings: &RedisSettings) -> Duration {
    Duration::from_millis(500).max(4 * settings.deadline)
}

/// How long an attempt may take in all, some of the servers being dead.
pub(crate) fn longest_attempt(settings: &RedisSettings) -> Duration {
    let each = dialling(settings);
    let several = |servers: &[Address]| u32::try_from(servers.len()).unwrap_or(u32::MAX).min(16);
    match &settings.topology {
        Topology::Standalone(_) => 2 * each,
        Topology::Sentinel { sentinels, .. } => several(sentinels) * SENTINEL + 2 * each,
        Topology::Cluster(nodes) => several(nodes) * each + 4 * each,
    }
}

/// Connects, or says why not.
pub(crate) async fn connect(settings: &RedisSettings) -> Result<Connection, String> {
    if settings.tls.is_some() {
        install_crypto();
    }
    let mut connection = dial(settings).await.map_err(|error| reason(&error))?;
    look_at(&mut connection).await?;
    Ok(connection)
}

async fn dial(settings: &RedisSettings) -> RedisResult<Connection> {
    let patience = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(dialling(settings)))
        .set_response_timeout(Some(PATIENCE));
    match &settings.topology {
        Topology::Standalone(address) => {
            let info = addr(settings, address).into_connection_info()?.set_redis_settings(login(settings));
            let client = match certificates(settings) {
                Some(certificates) => Client::build_with_tls(info, certificates)?,
                None => Client::open(info)?,
            };
            Ok(Connection::One(client.get_multiplexed_async_connection_with_config(&patience).await?))
        }
        Topology::Sentinel { sentinels, primary, username, password } => {
            let sentinels = sentinels.iter().map(|it| ConnectionAddr::Tcp(it.host.clone(), it.port));
            let mut builder = SentinelClientBuilder::new(sentinels, primary, SentinelServerType::Master)?;
            builder = builder.set_client_to_redis_db(settings.database);
            if let Some(user) = &settings.username {
                builder = builder.set_client_to_redis_username(user);
            }
            if let Some(password) = &settings.password {
                builder = builder.set_client_to_redis_password(password);
            }
            if let Some(user) = username {
                builder = builder.set_client_to_sentinel_username(user);
            }
            if let Some(password) = password {
                builder = builder.set_client_to_sentinel_password(password);
            }
            if let Some(certificates) = certificates(settings) {
                builder = builder
                    .set_client_to_redis_tls_mode(TlsMode::Secure)
                    .set_client_to_redis_certificates(certificates.clone())
                    .set_client_to_sentinel_tls_mode(TlsMode::Secure)
                    .set_client_to_sentinel_certificates(certificates);
            }
            let mut client = builder.build()?;
            Ok(Connection::One(client.get_async_connection_with_config(&patience).await?))
        }
        Topology::Cluster(nodes) => {
            let nodes = nodes.iter().map(|it| addr(settings, it));
            let mut builder = ClusterClientBuilder::new(nodes)
                .connection_timeout(dialling(settings))
                .response_timeout(PATIENCE)
                // Often and soon: the deadline of a decision is short.
                .retries(8)
                .min_retry_wait(2)
                .max_retry_wait(40);
            if let Some(user) = &settings.username {
                builder = builder.username(user);
            }
            if let Some(password) = &settings.password {
                builder = builder.password(password);
            }
            if let Some(certificates) = certificates(settings) {
                builder = builder.tls(TlsMode::Secure).certs(certificates);
            }
            Ok(Connection::Cluster(builder.build()?.get_async_connection().await?))
        }
    }
}

fn addr(settings: &RedisSettings, address: &Address) -> ConnectionAddr {
    let Address { host, port } = address.clone();
    if settings.tls.is_some() {
        ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }
    } else {
        ConnectionAddr::Tcp(host, port)
    }
}

fn login(settings: &RedisSettings) -> RedisConnectionInfo {
    let mut info = RedisConnectionInfo::default()
        .set_db(settings.database)
        .set_protocol(ProtocolVersion::RESP2)
        .set_skip_set_lib_name();
    if let Some(user) = &settings.username {
        info = info.set_username(user);
    }
    if let Some(password) = &settings.password {
        info = info.set_password(password);
    }
    info
}

fn certificates(settings: &RedisSettings) -> Option<TlsCertificates> {
    let tls = settings.tls.as_ref()?;
    Some(TlsCertificates { client_tls: None, root_cert: tls.ca.clone() })
}

/// The library takes the process' cryptography, and leaves the choice to us.
fn install_crypto() {
    static INSTALLED: Once = Once::new();
    // An error says that somebody has chosen already, which is as good.
    INSTALLED.call_once(|| drop(rustls::crypto::ring::default_provider().install_default()));
}

/// Whether this is a server that can serve. One that does not let us look is taken at its word.
async fn look_at(connection: &mut Connection) -> Result<(), String> {
    if matches!(connection, Connection::Cluster(_)) {
        return Ok(());
    }
    let mut info = Cmd::new();
    info.arg("INFO").arg("server");
    let told = match connection.query(&info).await {
        Ok(Value::BulkString(text)) => String::from_utf8_lossy(&text).into_owned(),
        Ok(Value::VerbatimString { text, .. }) => text,
        // It wants a password and got none.
        Err(error) if error.code() == Some("NOAUTH") => return Err(reason(&error)),
        _ => return Ok(()),
    };
    let find =
        |name: &str| told.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim);
    if find("redis_mode") == Some("cluster") {
        return Err("this server is a node of a cluster: write `redis-cluster://`".to_owned());
    }
    if let Some(version) = find("redis_version")
        && version
            .split('.')
            .next()
            .and_then(|major| major.parse().ok())
            .is_some_and(|major: u32| major < OLDEST)
    {
        return Err(format!("Redis {version} is too old: Tollgate needs {OLDEST}.0 or newer, or Valkey"));
    }
    Ok(())
}
