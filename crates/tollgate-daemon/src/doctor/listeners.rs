//! Checks whether the configured addresses can be bound.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tollgate_net::{BindError, Sockets};

use super::{Finding, Severity};
use crate::configuration::{Configuration, Listen};
use crate::store::in_full;

/// The time that a program on the port of the API has to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// The number of bytes of its answer that are read.
const MAX_ANSWER_BYTES: u64 = 4096;

/// Returns one finding for each listener that is on.
pub(super) async fn findings(configuration: &Configuration) -> Vec<Finding> {
    let settings = &configuration.settings;
    let is_running = match settings.api.address() {
        Some(address) => is_tollgate(address).await,
        None => false,
    };
    let listeners = [
        ("listen.gateway", &settings.gateway),
        ("listen.api", &settings.api),
        ("listen.rls", &settings.rls_listen),
        ("listen.resp", &settings.resp_listen),
    ];
    listeners.into_iter().filter_map(|(setting, listen)| finding(setting, listen, is_running)).collect()
}

fn finding(setting: &str, listen: &Listen, is_running: bool) -> Option<Finding> {
    let address = listen.address()?;
    let new = |severity, message: String| Finding::new("listen", severity, message);
    let error = match Sockets::bind(address, 1) {
        Ok(_closed) => return Some(new(Severity::Ok, format!("{address} is free ({setting})"))),
        Err(error) => error,
    };
    let message = format!("{} ({setting})", in_full(&error));
    let another = format!("choose another with `{setting}: HOST:PORT`");
    Some(match error {
        BindError::Taken(_) if is_running => {
            new(Severity::Note, format!("{address} is in use, as a Tollgate runs here already ({setting})"))
        }
        BindError::Taken(_) if matches!(listen, Listen::IfFree(_)) => {
            new(Severity::Warning, message).help(format!("it would be off: {another}, or `off`"))
        }
        BindError::Taken(_) => {
            new(Severity::Problem, message).help(format!("stop that program, or {another}"))
        }
        BindError::Forbidden(_) => new(Severity::Problem, message).help(format!(
            "ports below 1024 are for root: {another}, or let systemd open it (tollgate.socket)"
        )),
        _ => new(Severity::Problem, message).help(format!("is it an address of this machine? {another}")),
    })
}

/// Whether the API of a Tollgate answers at this address. Its `/readyz` needs no token.
async fn is_tollgate(address: &str) -> bool {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await.ok()?;
        let request = format!("GET /readyz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = Vec::new();
        stream.take(MAX_ANSWER_BYTES).read_to_end(&mut answer).await.ok()?;
        Some(String::from_utf8_lossy(&answer).contains("\"policy_version\""))
    };
    timeout(ANSWER_TIMEOUT, exchange).await.ok().flatten().unwrap_or(false)
}
