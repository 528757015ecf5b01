//! Connections that change their protocol on the way, such as to WebSocket.

use http::header::{CONNECTION, UPGRADE};
use http::{HeaderMap, HeaderValue, Version};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;

/// The protocol that a request wants to change to.
///
/// HTTP/2 is not one of them: a client that talked an upstream into it behind
/// the gateway's back would pass every limit.
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

/// Whether a protocol is one of those that were asked for (RFC 9110, 7.8).
pub(crate) fn offers(wanted: &HeaderValue, chosen: &HeaderValue) -> bool {
    let mut listed = wanted.as_bytes().split(|it| *it == b',').map(<[u8]>::trim_ascii);
    listed.any(|it| !it.is_empty() && it.eq_ignore_ascii_case(chosen.as_bytes()))
}

/// Carries bytes both ways until both sides have had enough, and holds what is held meanwhile.
pub(crate) fn open(client: OnUpgrade, upstream: OnUpgrade, held: impl Send + 'static) {
    tokio::spawn(async move {
        let (client, upstream) = match tokio::try_join!(client, upstream) {
            Ok(ends) => ends,
            Err(error) => return tracing::debug!(%error, "a change of protocol came to nothing"),
        };
        let (mut client, mut upstream) = (TokioIo::new(client), TokioIo::new(upstream));
        let _ = tokio::io::copy_bidirectional(&mut client, &mut upstream).await;
        drop(held);
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
