//! Checks whether client addresses are those of clients, and not of a proxy.

use tollgate::policy::KeySource;

use super::{Finding, Severity};
use crate::configuration::Configuration;

/// Returns the finding about `client.trusted_proxies`.
pub(super) fn findings(configuration: &Configuration) -> Vec<Finding> {
    let policy = configuration.policy();
    let proxies = &policy.client().trusted_proxies;
    let by_address =
        policy.limits().iter().filter(|limit| limit.by().iter().any(|it| matches!(it, KeySource::Ip)));
    let new = |severity, message: String| vec![Finding::new("client", severity, message)];
    match (by_address.count(), proxies.is_empty()) {
        (_, false) => {
            let nets: Vec<_> = proxies.iter().map(|net| net.to_string()).collect();
            new(Severity::Ok, format!("client addresses are read from {}", nets.join(", ")))
        }
        (0, true) => new(Severity::Ok, "no limit counts by client address".to_owned()),
        (limits, true) => {
            let limits =
                if limits == 1 { "1 limit counts".to_owned() } else { format!("{limits} limits count") };
            let message = format!("{limits} by client address, and no proxy is trusted");
            vec![Finding::new("client", Severity::Note, message).help(
                "behind a balancer or proxy all clients have its address: `client: {trusted_proxies: [10.0.0.0/8]}`",
            )]
        }
    }
}
