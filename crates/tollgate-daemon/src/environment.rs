//! Reads the `TOLLGATE_` variables.
//!
//! A variable is the path of a value in upper case: `TOLLGATE_LISTEN_API` is `listen.api`. The exception is
//! `TOLLGATE_REGION`, which is `regions.here`. Paths are
//! looked up in a list, because a `_` may stand for a dot or for itself. Unknown variables cause a
//! warning, except those that Kubernetes sets for each service named `tollgate` or `tollgate-…`.

use std::collections::BTreeMap;

use tollgate_document::nearest;

use crate::configuration::{Overlay, yaml};
use crate::failure::Failure;

const PREFIX: &str = "TOLLGATE_";

/// The sections, each with its words that have a variable. A whole section comes before its words, which replace
/// parts of it.
const SETTING_PATHS: [(&str, &[&str]); 24] = [
    ("", &["store", "observe", "state", "records", "max_keys"]),
    ("listen", &["gateway", "api", "rls", "resp"]),
    ("gateway", &["upstream", "upstream_ca", "proxy_protocol", "forwarded", "workers", "keep_alive"]),
    ("gateway.tls", &["certificate", "key"]),
    ("gateway.timeouts", &["connect", "headers", "idle", "total", "client_headers", "client_idle", "drain"]),
    ("gateway.caps", &["header_bytes", "headers", "body", "connections", "streams", "tarpit", "waiting"]),
    ("gateway.eject", &["after", "for"]),
    ("rls", &["headers", "envoy_config", "merge_domains", "wait", "waiting"]),
    ("rls.tls", &["certificate", "key", "client_ca"]),
    ("rls.xds", &["server", "node", "server_name", "max_message_bytes"]),
    ("rls.xds.tls", &["ca", "cert", "key"]),
    ("resp", &["password_file"]),
    ("resp.tls", &["certificate", "key", "client_ca"]),
    (
        "store",
        &[
            "url",
            "password_file",
            "ca",
            "cert",
            "key",
            "deadline",
            "deny_cache",
            "lease",
            "prefix",
            "advertise",
        ],
    ),
    ("store.outage", &["failures", "share", "grace"]),
    ("regions", &["here"]),
    ("log", &["level", "format", "refusals"]),
    ("observe", &["records"]),
    ("records", &["dir", "keep", "max"]),
    ("traces", &["endpoint", "sample", "service", "ca"]),
    ("alerts", &["at_zero_for", "webhook", "ca"]),
    ("admin", &["token_file", "read_token_file"]),
    ("admin.tls", &["certificate", "key", "client_ca"]),
    ("privacy", &["keys"]),
];

/// Variables that are not paths.
const OTHER_VARIABLES: [&str; 9] =
    ["CONFIG", "SETTINGS", "API", "TOKEN", "CA", "CERT", "KEY", "ADMIN_TOKEN", "READ_TOKEN"];

/// Variables without the prefix that are read too: the user name and color settings.
const SHARED_VARIABLES: [&str; 4] = ["USER", "LOGNAME", "NO_COLOR", "TERM"];

/// Returns the paths that variables can set, such as `listen.api`.
fn setting_paths() -> impl Iterator<Item = String> {
    SETTING_PATHS.iter().flat_map(|(section, words)| {
        words.iter().map(move |word| format!("{section}.{word}").trim_start_matches('.').to_owned())
    })
}

/// The variables that are set and not empty.
#[derive(Debug, Default)]
pub struct Environment {
    /// The `TOLLGATE_` variables, without their prefix.
    own: BTreeMap<String, String>,
    common: BTreeMap<&'static str, String>,
}

impl Environment {
    /// Reads the variables.
    pub fn read() -> Result<Self, Failure> {
        let mut found = Self::default();
        for (name, value) in std::env::vars_os() {
            if let Some(common) = SHARED_VARIABLES.iter().find(|it| name == **it) {
                found.common.insert(common, value.to_string_lossy().into_owned());
                continue;
            }
            let Some(name) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)) else { continue };
            let Ok(value) = value.into_string() else {
                return Err(Failure::new(format_args!("the variable {PREFIX}{name} is not UTF-8")));
            };
            if !value.is_empty() {
                found.own.insert(name.to_owned(), value);
            }
        }
        found.common.retain(|_, value| !value.is_empty());
        Ok(found)
    }

    /// Returns a variable without the prefix, such as `USER`.
    pub fn common(&self, name: &str) -> Option<&str> {
        debug_assert!(SHARED_VARIABLES.contains(&name), "{name} is declared above");
        self.common.get(name).map(String::as_str)
    }

    /// Returns a variable that is not a path, such as `CONFIG`.
    pub fn get(&self, name: &str) -> Option<&str> {
        debug_assert!(OTHER_VARIABLES.contains(&name), "{name} is declared above");
        self.own.get(name).map(String::as_str)
    }

    /// Returns the values that variables set.
    pub(crate) fn overlays(&self) -> Vec<Overlay> {
        let set = |path: String| {
            let value = yaml(&path, self.own.get(&variable(&path))?);
            let typed = format!("{PREFIX}{}=", variable(&path));
            Some(Overlay { origin: "in the environment", typed, path, value })
        };
        setting_paths().filter_map(set).collect()
    }

    /// Returns warnings about unknown variables.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let known: Vec<_> = setting_paths().map(|path| variable(&path)).collect();
        let known = || known.iter().map(String::as_str).chain(OTHER_VARIABLES);
        let sections =
            ["LISTEN_", "GATEWAY_", "STORE_", "LOG_", "ADMIN_", "STATE_", "OBSERVE_", "TRACES_", "ALERTS_"];
        let unknown = self
            .own
            .iter()
            .filter(|(name, value)| !is_of_kubernetes(name, value) && !known().any(|it| it == *name));
        unknown
            .map(|(name, _)| {
                let help = match nearest(name, known()) {
                    Some(meant) => format!("did you mean {PREFIX}{meant}?"),
                    None if sections.iter().any(|section| name.starts_with(section)) => {
                        "a value without a variable of its own can be set with --set".to_owned()
                    }
                    None => "`tollgate serve --help` says which are".to_owned(),
                };
                format!("warning: the variable {PREFIX}{name} is not read\n  = help: {help}\n")
            })
            .collect()
    }
}

/// Whether Kubernetes set the variable, for a service named `tollgate`, `tollgate-api` or similar:
/// `…SERVICE_HOST`, `…SERVICE_PORT`, `…SERVICE_PORT_HTTP`, `…PORT` (a URL), `…PORT_80_TCP` and
/// `…PORT_80_TCP_ADDR`.
pub(crate) fn is_of_kubernetes(name: &str, value: &str) -> bool {
    let words: Vec<_> = name.split('_').collect();
    let is_port = |port: &str| port.parse::<u16>().is_ok();
    let is_protocol = |word: &str| ["TCP", "UDP", "SCTP"].contains(&word);
    matches!(words.as_slice(), [.., "SERVICE", "HOST" | "PORT"])
        || words.windows(2).any(|pair| pair == ["SERVICE", "PORT"])
        || words.windows(3).any(|it| it[0] == "PORT" && is_port(it[1]) && is_protocol(it[2]))
        || words.last() == Some(&"PORT") && value.contains("://")
}

fn variable(path: &str) -> String {
    if path == "regions.here" {
        return "REGION".to_owned();
    }
    path.replace('.', "_").to_ascii_uppercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(variables: &[(&str, &str)]) -> Environment {
        let own = variables.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        Environment { own, ..Environment::default() }
    }

    #[test]
    fn a_variable_is_a_path_in_upper_case() {
        let environment = environment(&[("LISTEN_API", "off"), ("ADMIN_TOKEN_FILE", "/run/token")]);
        let set: Vec<_> = environment
            .overlays()
            .into_iter()
            .map(|it| format!("{}|{}|{}", it.typed, it.path, it.value))
            .collect();
        assert_eq!(
            set,
            ["TOLLGATE_LISTEN_API=|listen.api|off", "TOLLGATE_ADMIN_TOKEN_FILE=|admin.token_file|/run/token"]
        );
        assert!(environment.warnings().is_empty());
    }

    #[test]
    fn the_region_has_a_short_variable() {
        let environment = environment(&[("REGION", "eu")]);
        let [region] = &environment.overlays()[..] else { panic!("one value") };
        assert_eq!((&*region.path, &*region.value), ("regions.here", "eu"));
        assert!(environment.warnings().is_empty());
    }

    #[test]
    fn an_unknown_variable_causes_a_warning_unless_kubernetes_set_it() {
        let cases = [
            ("LISTEN_APPI", "did you mean TOLLGATE_LISTEN_API?"),
            ("CONFG", "did you mean TOLLGATE_CONFIG?"),
            ("GATEWAY_NOTHING_OF_THE_KIND", "set with --set"),
            ("LISTEN_PORT", "set with --set"),
            ("IMPORT", "tollgate serve --help"),
            ("BLESS", "tollgate serve --help"),
            ("SERVICE_HOST", ""),
            ("SERVICE_PORT_HTTP", ""),
            ("GATEWAY_SERVICE_PORT", ""),
            ("PORT_8080_TCP", ""),
            ("PORT_8080_TCP_ADDR", ""),
            ("GATEWAY_SERVICE_HOST", ""),
        ];
        assert!(environment(&[("PORT", "tcp://10.0.0.1:80")]).warnings().is_empty());
        for (name, expected) in cases {
            let warnings = environment(&[(name, "x")]).warnings();
            assert_eq!(warnings.len(), usize::from(!expected.is_empty()), "{name}: {warnings:?}");
            assert!(warnings.iter().all(|it| it.contains(expected)), "{name}: {warnings:?}");
        }
    }
}
