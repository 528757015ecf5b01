//! The configuration that the variables of envoyproxy/ratelimit describe.
//!
//! `TOLLGATE_` variables override it, so that everything else of Tollgate can be set too. The API listens
//! on loopback only, because nothing in these environments sets a token.

use std::path::Path;

use super::RatelimitPorts;
use super::variables::RatelimitVariables;
use crate::configuration::{Inputs, Overlay, literal};
use crate::environment::Environment;
use crate::failure::Failure;

/// The interface of the listeners, as in envoyproxy/ratelimit.
const ANY_ADDRESS: &str = "0.0.0.0";
const DEFAULT_RUNTIME_ROOT: &str = "/srv/runtime_data/current";

impl Inputs {
    /// Returns the inputs of a process that replaces envoyproxy/ratelimit.
    pub fn for_ratelimit(variables: &RatelimitVariables, environment: &Environment) -> Result<Self, Failure> {
        variables.check()?;
        let mut inputs = Self::from_environment(environment);
        let own = std::mem::take(&mut inputs.overlays);
        inputs.overlays = overlays(variables)?;
        inputs.overlays.extend(own);
        inputs.unread_variables.extend(variables.warnings());
        let metrics = variables.is_true("USE_PROMETHEUS").then(|| {
            let address = variables.get_or("PROMETHEUS_ADDR", ":9090");
            let host = if address.starts_with(':') { ANY_ADDRESS } else { "" };
            (format!("{host}{address}"), variables.get_or("PROMETHEUS_PATH", "/metrics").to_owned())
        });
        inputs.ratelimit = Some(RatelimitPorts {
            http: address(variables, "HOST", "PORT", "8080"),
            debug: address(variables, "DEBUG_HOST", "DEBUG_PORT", "6070"),
            metrics,
            needs_config: variables.is_true("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED"),
        });
        Ok(inputs)
    }
}

/// Returns `host:port` of two variables.
fn address(variables: &RatelimitVariables, host: &str, port: &str, default: &str) -> String {
    let (host, port) = (variables.get_or(host, ANY_ADDRESS), variables.get_or(port, default));
    if host.contains(':') && !host.starts_with('[') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

/// Collects the values of the configuration.
struct Overlays<'v> {
    variables: &'v RatelimitVariables,
    all: Vec<Overlay>,
}

impl Overlays<'_> {
    /// Sets a value, which is YAML, because of a variable.
    fn set(&mut self, variable: &str, path: &str, value: impl Into<String>) {
        let typed = format!("{variable}=");
        let (path, value) = (path.to_owned(), value.into());
        self.all.push(Overlay { origin: "in the environment", typed, path, value });
    }

    /// Sets a value to the text of a variable, if it is set.
    fn copy(&mut self, variable: &str, path: &str) {
        if let Some(value) = self.variables.get(variable) {
            let value = literal(value);
            self.set(variable, path, value);
        }
    }
}

fn overlays(variables: &RatelimitVariables) -> Result<Vec<Overlay>, Failure> {
    let mut to = Overlays { variables, all: Vec::new() };
    to.set("PORT", "listen", "{gateway: off, resp: off}");
    to.set("GRPC_PORT", "listen.rls", literal(&address(variables, "GRPC_HOST", "GRPC_PORT", "8081")));
    if variables.is_true("GRPC_SERVER_USE_TLS") {
        needed(variables, "GRPC_SERVER_USE_TLS", &["GRPC_SERVER_TLS_CERT", "GRPC_SERVER_TLS_KEY"])?;
        to.copy("GRPC_SERVER_TLS_CERT", "rls.tls.certificate");
        to.copy("GRPC_SERVER_TLS_KEY", "rls.tls.key");
        to.copy("GRPC_CLIENT_TLS_CACERT", "rls.tls.client_ca");
    }
    let headers = if variables.is_true("LIMIT_RESPONSE_HEADERS_ENABLED") { "all" } else { "off" };
    to.set("LIMIT_RESPONSE_HEADERS_ENABLED", "rls.headers", headers);
    let refunds = variables.is_true("ENABLE_NEGATIVE_HITS").to_string();
    to.set("ENABLE_NEGATIVE_HITS", "rls.refunds", refunds);
    if variables.is_true("MERGE_DOMAIN_CONFIG") {
        to.set("MERGE_DOMAIN_CONFIG", "rls.merge_domains", "true");
    }
    match variables.get("LOG_LEVEL").map(str::to_ascii_lowercase).as_deref() {
        Some("trace" | "debug") => to.set("LOG_LEVEL", "log.level", "debug"),
        Some("warn" | "warning") => to.set("LOG_LEVEL", "log.level", "warn"),
        Some("error" | "fatal" | "panic") => to.set("LOG_LEVEL", "log.level", "error"),
        _ => {}
    }
    if variables.get("LOG_FORMAT").is_some_and(|it| it.eq_ignore_ascii_case("json")) {
        to.set("LOG_FORMAT", "log.format", "json");
    }
    if variables.get("CONFIG_TYPE").is_some_and(|it| it.eq_ignore_ascii_case("GRPC_XDS_SOTW")) {
        xds(&mut to)?;
    } else {
        let root = Path::new(variables.get_or("RUNTIME_ROOT", DEFAULT_RUNTIME_ROOT));
        let folder = root
            .join(variables.get_or("RUNTIME_SUBDIRECTORY", ""))
            .join(variables.get_or("RUNTIME_APPDIRECTORY", "config"));
        to.set("RUNTIME_ROOT", "rls.envoy_config", literal(&folder.display().to_string()));
    }
    redis(&mut to)?;
    if variables.is_true("TRACING_ENABLED") {
        to.copy("OTEL_EXPORTER_OTLP_ENDPOINT", "traces.endpoint");
        if variables.get("OTEL_EXPORTER_OTLP_ENDPOINT").is_none() {
            to.set("TRACING_ENABLED", "traces.endpoint", "http://localhost:4318");
        }
        to.copy("TRACING_SERVICE_NAME", "traces.service");
        if let Some(rate) = variables.get("TRACING_SAMPLING_RATE").and_then(|it| it.parse::<f64>().ok()) {
            to.set("TRACING_SAMPLING_RATE", "traces.sample", format!("{}%", rate * 100.0));
        }
    }
    Ok(to.all)
}

/// Checks that the variables that another one needs are set.
fn needed(variables: &RatelimitVariables, because: &str, names: &[&str]) -> Result<(), Failure> {
    match names.iter().find(|name| variables.get(name).is_none()) {
        Some(name) => Err(Failure::new(format_args!("{because} needs the variable {name}"))),
        None => Ok(()),
    }
}

fn xds(to: &mut Overlays<'_>) -> Result<(), Failure> {
    let variables = to.variables;
    let server = variables.get_or("CONFIG_GRPC_XDS_SERVER_URL", "localhost:18000");
    if tollgate_xds::XdsServer::parse(server).is_none() {
        let shown: String = server.chars().take(80).flat_map(char::escape_debug).collect();
        return Err(Failure::new(format_args!(
            "the variable CONFIG_GRPC_XDS_SERVER_URL is host:port, such as envoy-gateway:18001, not `{shown}`"
        )));
    }
    to.set("CONFIG_GRPC_XDS_SERVER_URL", "rls.xds.server", literal(server));
    to.set(
        "CONFIG_GRPC_XDS_NODE_ID",
        "rls.xds.node",
        literal(variables.get_or("CONFIG_GRPC_XDS_NODE_ID", "default")),
    );
    for (variable, path) in [
        ("CONFIG_GRPC_XDS_NODE_METADATA", "rls.xds.metadata"),
        ("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", "rls.xds.headers"),
    ] {
        let Some(text) = variables.get(variable) else { continue };
        to.set(variable, path, map(variable, text)?);
    }
    if variables.is_true("CONFIG_GRPC_XDS_SERVER_USE_TLS") {
        to.set("CONFIG_GRPC_XDS_SERVER_USE_TLS", "rls.xds.tls", "{}");
        to.copy("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", "rls.xds.tls.ca");
        to.copy("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", "rls.xds.tls.cert");
        to.copy("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", "rls.xds.tls.key");
        to.copy("CONFIG_GRPC_XDS_SERVER_TLS_SAN", "rls.xds.server_name");
    }
    to.copy("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", "rls.xds.max_message_bytes");
    Ok(())
}

/// Returns the YAML of `name=value,name=value`.
fn map(variable: &str, text: &str) -> Result<String, Failure> {
    let pair = |part: &str| {
        let (name, value) = part.split_once('=').filter(|(name, _)| !name.trim().is_empty())?;
        Some(format!("{}: {}", quoted(name.trim()), quoted(value.trim())))
    };
    let pairs: Option<Vec<_>> = text.split(',').map(pair).collect();
    pairs.map(|it| format!("{{{}}}", it.join(", "))).ok_or_else(|| {
        Failure::new(format_args!("the variable {variable} is a list of name=value, separated by commas"))
    })
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn redis(to: &mut Overlays<'_>) -> Result<(), Failure> {
    let variables = to.variables;
    let Some(servers) = variables.get("REDIS_URL") else { return Ok(()) };
    let is_tls = variables.is_true("REDIS_TLS");
    let login = variables.get("REDIS_AUTH").map(|auth| match auth.split_once(':') {
        Some((user, password)) => format!("{}:{}@", encoded(user), encoded(password)),
        None => format!(":{}@", encoded(auth)),
    });
    let login = login.unwrap_or_default();
    let kind = variables.get_or("REDIS_TYPE", "SINGLE").to_ascii_uppercase();
    let secure = if is_tls { "s" } else { "" };
    let url = match (kind.as_str(), servers.split_once("://")) {
        (_, Some((scheme, rest))) if kind == "SINGLE" => {
            let is_secure = is_tls || scheme == "rediss";
            let login = if rest.contains('@') { "" } else { &login };
            format!("redis{}://{login}{rest}", if is_secure { "s" } else { "" })
        }
        (_, Some(_)) => {
            return Err(Failure::new(format_args!(
                "the variable REDIS_URL is a list of host:port for REDIS_TYPE {kind}, without a scheme"
            )));
        }
        ("SENTINEL", None) => {
            let Some((primary, sentinels)) = servers.split_once(',') else {
                return Err(Failure::new(
                    "the variable REDIS_URL is the name of the primary and then its sentinels, separated by commas, for REDIS_TYPE SENTINEL",
                ));
            };
            let auth = variables.get("REDIS_SENTINEL_AUTH").or_else(|| variables.get("SENTINEL_AUTH"));
            let auth = auth.map(|auth| match auth.split_once(':') {
                Some((user, password)) => {
                    format!("?sentinel_username={}&sentinel_password={}", encoded(user), encoded(password))
                }
                None => format!("?sentinel_password={}", encoded(auth)),
            });
            format!(
                "redis{secure}-sentinel://{login}{sentinels}/{}{}",
                encoded(primary),
                auth.unwrap_or_default()
            )
        }
        ("CLUSTER", None) => format!("redis{secure}-cluster://{login}{servers}"),
        _ => format!("redis{secure}://{login}{servers}"),
    };
    to.set("REDIS_URL", "store", format!("{{url: {}}}", quoted(&url)));
    if is_tls {
        to.copy("REDIS_TLS_CACERT", "store.ca");
        to.copy("REDIS_TLS_CLIENT_CERT", "store.cert");
        to.copy("REDIS_TLS_CLIENT_KEY", "store.key");
    }
    to.copy("CACHE_KEY_PREFIX", "store.prefix");
    Ok(())
}

/// Percent-encodes a part of a URL.
fn encoded(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(variables: &[(&str, &str)]) -> Result<String, String> {
        let all = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let overlays = overlays(&RatelimitVariables::of(all)).map_err(|it| it.to_string())?;
        let store = overlays.into_iter().find(|it| it.path == "store");
        Ok(store.map(|it| it.value).unwrap_or_default())
    }

    #[test]
    fn redis_is_a_url_of_its_topology() {
        for (variables, url) in [
            (&[][..], ""),
            (&[("REDIS_URL", "redis:6379")][..], "{url: 'redis://redis:6379'}"),
            (
                &[("REDIS_URL", "redis:6379"), ("REDIS_TLS", "true"), ("REDIS_AUTH", "p@ss")],
                "{url: 'rediss://:p%40ss@redis:6379'}",
            ),
            (
                &[("REDIS_URL", "a:1,b:2"), ("REDIS_TYPE", "cluster"), ("REDIS_AUTH", "ann:x")],
                "{url: 'redis-cluster://ann:x@a:1,b:2'}",
            ),
            (
                &[
                    ("REDIS_URL", "mymaster,a:1,b:2"),
                    ("REDIS_TYPE", "SENTINEL"),
                    ("REDIS_SENTINEL_AUTH", "s"),
                ],
                "{url: 'redis-sentinel://a:1,b:2/mymaster?sentinel_password=s'}",
            ),
            (&[("REDIS_URL", "rediss://h:1/2"), ("REDIS_AUTH", "p")], "{url: 'rediss://:p@h:1/2'}"),
        ] {
            assert_eq!(store(variables).as_deref(), Ok(url), "{variables:?}");
        }
        for (variables, message) in [
            ([("REDIS_URL", "a:1"), ("REDIS_TYPE", "SENTINEL")], "the name of the primary"),
            ([("REDIS_URL", "redis://a:1"), ("REDIS_TYPE", "CLUSTER")], "without a scheme"),
        ] {
            let failure = store(&variables).unwrap_err();
            assert!(failure.contains("REDIS_URL") && failure.contains(message), "{failure}");
        }
    }
}
