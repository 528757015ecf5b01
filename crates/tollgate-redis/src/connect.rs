//! Connects to a server, to the primary that sentinels name, or to a node of a cluster.

use std::sync::Once;
use std::time::Duration;

use redis::aio::{ConnectionLike as _, MultiplexedConnection};
use redis::sentinel::{SentinelClientBuilder, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, Cmd, ConnectionAddr, ErrorKind, IntoConnectionInfo as _,
    ProtocolVersion, RedisConnectionInfo, RedisError, RedisResult, TlsCertificates, TlsMode, Value,
};

use crate::failure::explain;
use crate::settings::{Address, RedisSettings, Topology};

/// The oldest supported version: older ones cannot replicate the effects of scripts that read the
/// clock.
const MIN_REDIS_MAJOR: u32 = 5;

/// The response timeout of the client library. The callers have shorter deadlines of their own.
const LIBRARY_TIMEOUT: Duration = Duration::from_secs(30);

/// The timeout of the client library for each sentinel.
const SENTINEL_TIMEOUT: Duration = Duration::from_secs(1);

/// The timeout for connecting to one server. It is short because TCP repeats a lost SYN only after
/// a second and a new attempt is faster. A long deadline indicates a distant server, so the timeout
/// grows with the deadline.
fn connect_timeout(settings: &RedisSettings) -> Duration {
    Duration::from_millis(500).max(4 * settings.deadline)
}

/// A connection target.
pub(crate) enum Target {
    /// The server of the settings, or the primary that the sentinels name.
    Named,
    /// A node of a cluster.
    Node(Address),
}

impl Target {
    /// Describes the target for messages.
    pub(crate) fn of(&self, settings: &RedisSettings) -> String {
        match (self, &settings.topology) {
            (Self::Node(address), _) | (Self::Named, Topology::Standalone(address)) => address.to_string(),
            (Self::Named, Topology::Sentinel { primary, .. }) => format!("the primary `{primary}`"),
            (Self::Named, Topology::Cluster(_)) => "the cluster".to_owned(),
        }
    }
}

/// The maximum duration of an attempt, including timeouts of dead sentinels.
pub(crate) fn longest_attempt(settings: &RedisSettings, target: &Target) -> Duration {
    let each = connect_timeout(settings);
    match (target, &settings.topology) {
        (Target::Named, Topology::Sentinel { sentinels, .. }) => {
            let sentinels = u32::try_from(sentinels.len()).unwrap_or(u32::MAX).min(16);
            sentinels * SENTINEL_TIMEOUT + 2 * each
        }
        _ => 2 * each,
    }
}

/// Connects to the target.
pub(crate) async fn connect(
    settings: &RedisSettings,
    target: &Target,
) -> Result<MultiplexedConnection, String> {
    if settings.tls.is_some() {
        install_crypto();
    }
    let failed = |error: &RedisError| format!("{}: {}", target.of(settings), explain(error));
    let mut connection = dial(settings, target).await.map_err(|error| failed(&error))?;
    check_server(&mut connection, target).await.map_err(|why| format!("{}: {why}", target.of(settings)))?;
    Ok(connection)
}

async fn dial(settings: &RedisSettings, target: &Target) -> RedisResult<MultiplexedConnection> {
    let timeouts = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(connect_timeout(settings)))
        .set_response_timeout(Some(LIBRARY_TIMEOUT));
    let address = match (target, &settings.topology) {
        (Target::Node(address), _) | (Target::Named, Topology::Standalone(address)) => address,
        (Target::Named, Topology::Sentinel { .. }) => return dial_primary(settings, &timeouts).await,
        (Target::Named, Topology::Cluster(nodes)) => {
            nodes.first().ok_or((ErrorKind::InvalidClientConfig, "the cluster has no nodes"))?
        }
    };
    let info = addr(settings, address).into_connection_info()?.set_redis_settings(login(settings));
    let client = match certificates(settings) {
        Some(certificates) => Client::build_with_tls(info, certificates)?,
        None => Client::open(info)?,
    };
    client.get_multiplexed_async_connection_with_config(&timeouts).await
}

async fn dial_primary(
    settings: &RedisSettings,
    timeouts: &AsyncConnectionConfig,
) -> RedisResult<MultiplexedConnection> {
    let Topology::Sentinel { sentinels, primary, username, password } = &settings.topology else {
        return Err((ErrorKind::EmptySentinelList, "there are no sentinels").into());
    };
    let sentinels = sentinels.iter().map(|it| addr(settings, it));
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
    builder.build()?.get_async_connection_with_config(timeouts).await
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
    let client = tls.client.as_ref();
    let client_tls =
        client.map(|it| ClientTlsConfig { client_cert: it.chain.clone(), client_key: it.key.clone() });
    Some(TlsCertificates { client_tls, root_cert: tls.ca.clone() })
}

/// Installs the process-wide crypto provider that the client library uses.
fn install_crypto() {
    static INSTALLED: Once = Once::new();
    // An error means that a provider is already installed.
    INSTALLED.call_once(|| drop(rustls::crypto::ring::default_provider().install_default()));
}

/// Checks whether the server is usable. A server that does not permit the check is assumed to be.
async fn check_server(connection: &mut MultiplexedConnection, target: &Target) -> Result<(), String> {
    let mut info = Cmd::new();
    info.arg("INFO").arg("server");
    let reply = match connection.req_packed_command(&info).await.and_then(Value::extract_error) {
        Ok(Value::BulkString(text)) => String::from_utf8_lossy(&text).into_owned(),
        Ok(Value::VerbatimString { text, .. }) => text,
        // The server requires a password, and the settings have none.
        Err(error) if error.code() == Some("NOAUTH") => return Err(explain(&error)),
        _ => return Ok(()),
    };
    let find =
        |name: &str| reply.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim);
    if matches!(target, Target::Named) && find("redis_mode") == Some("cluster") {
        return Err("this server is a node of a cluster: write `redis-cluster://`".to_owned());
    }
    if let Some(version) = find("redis_version")
        && version
            .split('.')
            .next()
            .and_then(|major| major.parse().ok())
            .is_some_and(|major: u32| major < MIN_REDIS_MAJOR)
    {
        return Err(format!(
            "Redis {version} is too old: Tollgate needs {MIN_REDIS_MAJOR}.0 or newer, or Valkey"
        ));
    }
    Ok(())
}
