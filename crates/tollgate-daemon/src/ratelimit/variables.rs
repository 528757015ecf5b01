//! The environment variables of envoyproxy/ratelimit.
//!
//! Each variable has a kind, and a wrong value is a mistake that names both. An unknown variable with a
//! prefix of the family is reported once, because it is probably a typing error. A variable that has no
//! effect here is reported with the reason, unless Envoy Gateway or Istio sets it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use tollgate_document::nearest;

use crate::environment::is_of_kubernetes;
use crate::failure::Failure;

/// The values that a variable accepts.
#[derive(Clone, Copy)]
enum Kind {
    Text,
    Bool,
    Port,
    Number,
    /// A share between 0 and 1.
    Fraction,
    /// A duration of Go: `10s`, `1h30m`.
    Duration,
    /// One of these words, in any case.
    Choice(&'static [&'static str]),
}

/// The effect of a variable.
#[derive(Clone, Copy)]
enum Effect {
    Read,
    /// No effect, and none is missing.
    Silent,
    /// No effect, for this reason.
    Without(&'static str),
}

use Effect::{Read, Silent, Without};
use Kind::{Bool, Choice, Duration, Fraction, Number, Port, Text};

const STATSD: Effect = Without("StatsD is not supported; metrics are served for Prometheus");
const PER_SECOND: Effect = Without("limits per second are counted in the store of all limits");
const POOL: Effect = Without("Tollgate shares its connections to Redis between calls");

/// The known variables.
const VARIABLES: &[(&str, Kind, Effect)] = &[
    ("HOST", Text, Read),
    ("PORT", Port, Read),
    ("GRPC_HOST", Text, Read),
    ("GRPC_PORT", Port, Read),
    ("DEBUG_HOST", Text, Read),
    ("DEBUG_PORT", Port, Read),
    ("GRPC_UDS", Text, Without("gRPC is served over TCP only")),
    ("GRPC_SERVER_USE_TLS", Bool, Read),
    ("GRPC_SERVER_TLS_CERT", Text, Read),
    ("GRPC_SERVER_TLS_KEY", Text, Read),
    ("GRPC_CLIENT_TLS_CACERT", Text, Read),
    ("GRPC_CLIENT_TLS_SAN", Text, Without("each certificate that GRPC_CLIENT_TLS_CACERT signed is accepted")),
    // Set by Envoy Gateway, and read by envoyproxy/ratelimit neither.
    ("GRPC_SERVER_TLS_CA_CERT", Text, Silent),
    ("GRPC_MAX_CONNECTION_AGE", Duration, Without("connections have no maximum age")),
    ("GRPC_MAX_CONNECTION_AGE_GRACE", Duration, Silent),
    ("LOG_LEVEL", Choice(&["trace", "debug", "info", "warn", "warning", "error", "fatal", "panic"]), Read),
    ("LOG_FORMAT", Choice(&["text", "json"]), Read),
    ("USE_PROMETHEUS", Bool, Read),
    ("PROMETHEUS_ADDR", Text, Read),
    ("PROMETHEUS_PATH", Text, Read),
    ("PROMETHEUS_MAPPER_YAML", Text, Silent),
    ("USE_STATSD", Bool, Read),
    ("STATSD_HOST", Text, STATSD),
    ("STATSD_PORT", Port, STATSD),
    ("EXTRA_TAGS", Text, STATSD),
    ("STATS_FLUSH_INTERVAL", Duration, STATSD),
    ("USE_DOG_STATSD", Bool, STATSD),
    ("DOG_STATSD_MOGRIFIERS", Text, STATSD),
    ("DISABLE_STATS", Bool, Without("metrics are always counted")),
    ("RUNTIME_ROOT", Text, Read),
    ("RUNTIME_SUBDIRECTORY", Text, Read),
    ("RUNTIME_APPDIRECTORY", Text, Read),
    // Files are watched in either case, through the links of a ConfigMap too.
    ("RUNTIME_WATCH_ROOT", Bool, Silent),
    ("RUNTIME_IGNOREDOTFILES", Bool, Silent),
    ("CONFIG_TYPE", Choice(&["FILE", "GRPC_XDS_SOTW"]), Read),
    ("CONFIG_GRPC_XDS_NODE_ID", Text, Read),
    ("CONFIG_GRPC_XDS_NODE_METADATA", Text, Read),
    ("CONFIG_GRPC_XDS_SERVER_URL", Text, Read),
    (
        "CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL",
        Duration,
        Without("delays between connections grow from 0.5 s to 30 s"),
    ),
    ("CONFIG_GRPC_XDS_SERVER_USE_TLS", Bool, Read),
    ("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", Text, Read),
    ("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", Text, Read),
    ("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", Text, Read),
    ("CONFIG_GRPC_XDS_SERVER_TLS_SAN", Text, Read),
    ("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", Text, Read),
    ("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", Duration, Silent),
    ("XDS_CLIENT_BACKOFF_MAX_INTERVAL", Duration, Silent),
    ("XDS_CLIENT_BACKOFF_RANDOM_FACTOR", Fraction, Silent),
    ("XDS_CLIENT_BACKOFF_JITTER", Bool, Silent),
    ("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", Number, Read),
    ("FORCE_START_WITHOUT_INITIAL_CONFIG", Bool, Silent),
    ("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", Bool, Read),
    ("MERGE_DOMAIN_CONFIG", Bool, Read),
    ("BACKEND_TYPE", Choice(&["redis"]), Read),
    ("REDIS_SOCKET_TYPE", Choice(&["tcp"]), Read),
    ("REDIS_TYPE", Choice(&["SINGLE", "SENTINEL", "CLUSTER"]), Read),
    ("REDIS_URL", Text, Read),
    ("REDIS_AUTH", Text, Read),
    ("REDIS_SENTINEL_AUTH", Text, Read),
    ("SENTINEL_AUTH", Text, Read),
    ("REDIS_TLS", Bool, Read),
    ("REDIS_TLS_CACERT", Text, Read),
    ("REDIS_TLS_CLIENT_CERT", Text, Read),
    ("REDIS_TLS_CLIENT_KEY", Text, Read),
    (
        "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION",
        Bool,
        Without("the name in the certificate of Redis is always verified"),
    ),
    ("REDIS_POOL_SIZE", Number, POOL),
    ("REDIS_POOL_ON_EMPTY_BEHAVIOR", Text, POOL),
    ("REDIS_POOL_ON_EMPTY_WAIT_DURATION", Duration, POOL),
    ("REDIS_PIPELINE_WINDOW", Duration, POOL),
    ("REDIS_PIPELINE_LIMIT", Number, POOL),
    ("REDIS_TIMEOUT", Duration, Without("the deadline of Redis is 50ms; TOLLGATE_STORE_DEADLINE changes it")),
    (
        "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION",
        Bool,
        Without("health does not depend on Redis: limits continue locally without it"),
    ),
    ("REDIS_PERSECOND", Bool, PER_SECOND),
    ("REDIS_PERSECOND_SOCKET_TYPE", Text, PER_SECOND),
    ("REDIS_PERSECOND_TYPE", Text, PER_SECOND),
    ("REDIS_PERSECOND_URL", Text, PER_SECOND),
    ("REDIS_PERSECOND_POOL_SIZE", Number, PER_SECOND),
    ("REDIS_PERSECOND_AUTH", Text, PER_SECOND),
    ("REDIS_PERSECOND_TLS", Bool, PER_SECOND),
    ("REDIS_PERSECOND_PIPELINE_WINDOW", Duration, PER_SECOND),
    ("REDIS_PERSECOND_PIPELINE_LIMIT", Number, PER_SECOND),
    ("CACHE_KEY_PREFIX", Text, Read),
    ("LOCAL_CACHE_SIZE_IN_BYTES", Number, Silent),
    ("EXPIRATION_JITTER_MAX_SECONDS", Number, Silent),
    ("NEAR_LIMIT_RATIO", Fraction, Without("hits above 80 % of a limit count as near")),
    ("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", Bool, Silent),
    ("SHADOW_MODE", Bool, Without("`tollgate mode shadow --all` does that, live")),
    ("LIMIT_RESPONSE_HEADERS_ENABLED", Bool, Read),
    ("LIMIT_LIMIT_HEADER", Text, Without("the headers have Tollgate's names")),
    ("LIMIT_REMAINING_HEADER", Text, Without("the headers have Tollgate's names")),
    ("LIMIT_RESET_HEADER", Text, Without("the headers have Tollgate's names")),
    ("RESPONSE_DYNAMIC_METADATA", Bool, Silent),
    ("ENABLE_NEGATIVE_HITS", Bool, Read),
    ("TRACING_ENABLED", Bool, Read),
    ("TRACING_EXPORTER_PROTOCOL", Choice(&["http", "grpc"]), Read),
    ("TRACING_SAMPLING_RATE", Fraction, Read),
    ("TRACING_SERVICE_NAME", Text, Read),
    ("TRACING_SERVICE_NAMESPACE", Text, Silent),
    ("TRACING_SERVICE_INSTANCE_ID", Text, Silent),
    ("OTEL_EXPORTER_OTLP_ENDPOINT", Text, Read),
];

/// The prefixes of the family. Other variables belong to other programs.
const PREFIXES: [&str; 13] = [
    "CONFIG_",
    "GRPC_",
    "REDIS_",
    "RUNTIME_",
    "XDS_CLIENT_",
    "LIMIT_",
    "PROMETHEUS_",
    "STATSD_",
    "TRACING_",
    "MEMCACHE_",
    "USE_",
    "DEBUG_",
    "LOG_",
];

/// The variables of envoyproxy/ratelimit that are set and not empty.
#[derive(Debug, Default)]
pub struct RatelimitVariables(BTreeMap<String, String>);

impl RatelimitVariables {
    /// Reads the environment of the process.
    pub fn read() -> Self {
        let text = |value: std::ffi::OsString| value.to_string_lossy().into_owned();
        Self::of(std::env::vars_os().map(|(name, value)| (text(name), text(value))))
    }

    /// Takes the variables of the family from an environment.
    pub fn of(variables: impl IntoIterator<Item = (String, String)>) -> Self {
        let is_known = |name: &str| VARIABLES.iter().any(|(known, ..)| *known == name);
        let is_family = |name: &str| PREFIXES.iter().any(|prefix| name.starts_with(prefix));
        let is_ours = |(name, value): &(String, String)| {
            !value.is_empty() && (is_known(name) || is_family(name) && !is_of_kubernetes(name, value))
        };
        Self(variables.into_iter().filter(is_ours).collect())
    }

    /// Returns a variable.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        debug_assert!(
            VARIABLES.iter().any(|(known, _, effect)| *known == name && matches!(effect, Read)),
            "{name} is declared above"
        );
        self.0.get(name).map(String::as_str)
    }

    /// Returns a variable, or its default.
    pub(super) fn get_or<'v>(&'v self, name: &str, default: &'v str) -> &'v str {
        self.get(name).unwrap_or(default)
    }

    /// Whether a boolean variable is set to true.
    pub(super) fn is_true(&self, name: &str) -> bool {
        self.get(name).and_then(boolean) == Some(true)
    }

    /// Returns all values that are not of the kind of their variable.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let wrong: Vec<_> =
            VARIABLES.iter().filter_map(|(name, kind, _)| self.mistake(name, *kind)).collect();
        if wrong.is_empty() { Ok(()) } else { Err(Failure::all(&wrong)) }
    }

    fn mistake(&self, name: &str, kind: Kind) -> Option<Failure> {
        let value = self.0.get(name)?;
        let (is_valid, accepted) = match kind {
            Text => (true, String::new()),
            Bool => (boolean(value).is_some(), "true or false".to_owned()),
            Port => (value.parse::<u16>().is_ok(), "a port, 0 to 65535".to_owned()),
            Number => (value.parse::<u64>().is_ok(), "a whole number".to_owned()),
            Fraction => {
                let is_share = value.parse::<f64>().is_ok_and(|it| (0.0..=1.0).contains(&it));
                (is_share, "a number between 0 and 1".to_owned())
            }
            Duration => (is_duration(value), "a duration such as 10s or 1h30m".to_owned()),
            Choice(words) => (words.iter().any(|it| it.eq_ignore_ascii_case(value)), one_of(words)),
        };
        let shown: String = value.chars().take(60).flat_map(char::escape_debug).collect();
        (!is_valid).then(|| Failure::new(format_args!("the variable {name} is {accepted}, not `{shown}`")))
    }

    /// Returns warnings about variables that are unknown or have no effect.
    pub(super) fn warnings(&self) -> Vec<String> {
        let known = || VARIABLES.iter().map(|(name, ..)| *name);
        let warning = |name: &str| {
            let Some((.., effect)) = VARIABLES.iter().find(|(it, ..)| *it == name) else {
                let help = match nearest(name, known()) {
                    Some(meant) => format!("did you mean {meant}?"),
                    None => "no variable of envoyproxy/ratelimit has this name".to_owned(),
                };
                return Some(format!("warning: the variable {name} is not known\n  = help: {help}\n"));
            };
            let Without(reason) = effect else { return None };
            // `false` and `0` switch the feature off, so their effect is not missing.
            let is_off = self.0.get(name).is_some_and(|it| boolean(it) == Some(false));
            (!is_off).then(|| format!("warning: the variable {name} has no effect: {reason}\n"))
        };
        let mut warnings: Vec<_> = self.0.keys().filter_map(|name| warning(name)).collect();
        if self.is_true("USE_STATSD") {
            warnings.push("warning: the variable USE_STATSD has no effect: StatsD is not supported; USE_PROMETHEUS serves metrics\n".to_owned());
        }
        warnings
    }
}

/// Parses a boolean of Go.
fn boolean(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

/// Whether a text is a duration of Go, which is a sequence of numbers with units.
fn is_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    let is_empty = rest.is_empty();
    while !rest.is_empty() {
        let digits = rest.find(|char: char| !char.is_ascii_digit() && char != '.').unwrap_or(rest.len());
        let (number, unit) = rest.split_at(digits);
        let Some(unit) = ["ns", "us", "µs", "ms", "s", "m", "h"]
            .into_iter()
            .filter(|it| unit.starts_with(it))
            .max_by_key(|it| it.len())
        else {
            return false;
        };
        if number.parse::<f64>().is_err() {
            return false;
        }
        rest = rest.get(digits + unit.len()..).unwrap_or_default();
    }
    !is_empty
}

fn one_of(words: &[&str]) -> String {
    let mut text = String::new();
    for (at, word) in words.iter().enumerate() {
        let separator = if at == 0 {
            ""
        } else if at + 1 == words.len() {
            " or "
        } else {
            ", "
        };
        let _never = write!(text, "{separator}{word}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(all: &[(&str, &str)]) -> RatelimitVariables {
        RatelimitVariables::of(all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())))
    }

    #[test]
    fn a_wrong_value_names_its_variable_and_what_is_accepted() {
        for (name, value, message) in [
            ("GRPC_PORT", "65536", "the variable GRPC_PORT is a port, 0 to 65535, not `65536`"),
            ("REDIS_TLS", "yes", "the variable REDIS_TLS is true or false, not `yes`"),
            (
                "REDIS_TYPE",
                "single,",
                "the variable REDIS_TYPE is SINGLE, SENTINEL or CLUSTER, not `single,`",
            ),
            ("CONFIG_TYPE", "XDS", "the variable CONFIG_TYPE is FILE or GRPC_XDS_SOTW, not `XDS`"),
            (
                "TRACING_SAMPLING_RATE",
                "2",
                "the variable TRACING_SAMPLING_RATE is a number between 0 and 1, not `2`",
            ),
            (
                "GRPC_MAX_CONNECTION_AGE",
                "24",
                "the variable GRPC_MAX_CONNECTION_AGE is a duration such as 10s or 1h30m, not `24`",
            ),
            ("BACKEND_TYPE", "memcache", "the variable BACKEND_TYPE is redis, not `memcache`"),
        ] {
            let failure = variables(&[(name, value)]).check().unwrap_err().to_string();
            assert!(failure.contains(message), "{failure}");
        }
        variables(&[("REDIS_TYPE", "cluster"), ("GRPC_MAX_CONNECTION_AGE", "1h30m0.5s"), ("REDIS_TLS", "T")])
            .check()
            .unwrap();
    }

    #[test]
    fn an_unknown_variable_of_the_family_is_named_once() {
        let all = variables(&[
            ("REDIS_ULR", "redis:6379"),
            ("PATH", "/bin"),
            ("HOSTNAME", "pod"),
            ("REDIS_PORT", "tcp://10.0.0.1:6379"),
            ("REDIS_SERVICE_HOST", "10.0.0.1"),
            ("REDIS_PORT_6379_TCP_ADDR", "10.0.0.1"),
            ("NEAR_LIMIT_RATIO", "0.5"),
            ("REDIS_PERSECOND", "false"),
            ("USE_STATSD", "false"),
        ]);
        let warnings = all.warnings();
        assert_eq!(warnings.len(), 2, "{warnings:?}");
        assert!(
            warnings
                .iter()
                .any(|it| it.contains("REDIS_ULR is not known") && it.contains("did you mean REDIS_URL?")),
            "{warnings:?}"
        );
        assert!(warnings.iter().any(|it| it.contains("NEAR_LIMIT_RATIO has no effect")), "{warnings:?}");
    }
}
