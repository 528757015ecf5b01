//! Connections that upgrade to another protocol, such as WebSocket.

use http::header::{CONNECTION, UPGRADE};
use http::{HeaderMap, HeaderValue, Version};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::copy_bidirectional;

use crate::detached::{HeldSlots, wait_for_close};

/// Returns the protocol that a request wants to upgrade to.
///
/// Upgrades to HTTP/2 are ignored: requests on such a connection would bypass every limit.
pub(crate) fn wanted(version: Version, headers: &HeaderMap) -> Option<HeaderValue> {
    let protocol = headers.get(UPGRADE).filter(|_| version == Version::HTTP_11)?;
    let listed = headers.get_all(CONNECTION).iter().filter_map(|it| it.to_str().ok());
    let meant = listed.flat_map(|it| it.split(',')).any(|it| it.trim().eq_ignore_ascii_case("upgrade"));
    let text = protocol.to_str().ok()?;
    let is_http = text.split(',').any(|it| {
        let it = it.trim().to_ascii_lowercase();
        it.starts_with("h2") || it.starts_with("http/")
    });
    (meant && !is_http).then(|| protocol.clone())
}

/// Whether a protocol is among the requested ones (RFC 9110, 7.8).
pub(crate) fn offers(wanted: &HeaderValue, chosen: &HeaderValue) -> bool {
    let mut listed = wanted.as_bytes().split(|it| *it == b',').map(<[u8]>::trim_ascii);
    listed.any(|it| !it.is_empty() && it.eq_ignore_ascii_case(chosen.as_bytes()))
}

/// Copies bytes in both directions until both sides have closed, and holds the resources of the
/// request meanwhile. `slots` are held until the upstream has closed its side, even if the caller
/// disconnects earlier.
pub(crate) fn open(
    client: OnUpgrade,
    upstream: OnUpgrade,
    slots: Option<HeldSlots>,
    held: impl Send + 'static,
) {
    tokio::spawn(async move {
        let (client, upstream) = tokio::join!(client, upstream);
        let mut upstream = match upstream {
            Ok(upstream) => TokioIo::new(upstream),
            Err(error) => {
                tracing::debug!(%error, "a protocol upgrade failed");
                return slots.map_or((), HeldSlots::release);
            }
        };
        match client {
            Ok(client) => {
                let copied = copy_bidirectional(&mut TokioIo::new(client), &mut upstream).await;
                if copied.is_ok() {
                    return slots.map_or((), HeldSlots::release);
                }
            }
            Err(error) => tracing::debug!(%error, "a protocol upgrade failed"),
        }
        if let Some(slots) = slots {
            slots.detach(|slots| async move {
                let _held = held;
                if wait_for_close(upstream).await {
                    slots.release();
                }
            });
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_protocols_that_are_not_http_are_changed_to() {
        for (connection, upgrade, wanted) in [
            ("Upgrade", "websocket", true),
            ("keep-alive, upgrade", "WebSocket", true),
            ("keep-alive", "websocket", false),
            ("Upgrade, HTTP2-Settings", "h2c", false),
            ("upgrade", "websocket, H2C", false),
            ("upgrade", "HTTP/2.0", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(CONNECTION, HeaderValue::from_static(connection));
            headers.insert(UPGRADE, HeaderValue::from_static(upgrade));
            assert_eq!(
                super::wanted(Version::HTTP_11, &headers).is_some(),
                wanted,
                "{connection} / {upgrade}"
            );
        }
    }
}
