//! Self-signed certificates.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::Request;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

use super::Feed;

/// A self-signed certificate in files.
pub(crate) struct Certificate {
    chain: PathBuf,
    key: PathBuf,
    name: &'static str,
    der: rustls::pki_types::CertificateDer<'static>,
}

impl Certificate {
    pub(crate) fn of(name: &'static str) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
        let file = |kind: &str, text: String| {
            let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
                .join(format!("gateway-{kind}-{}-{number}.pem", std::process::id()));
            std::fs::write(&path, text).unwrap();
            path
        };
        Self {
            chain: file("certificate", made.cert.pem()),
            key: file("key", made.signing_key.serialize_pem()),
            name,
            der: made.cert.der().clone(),
        }
    }

    pub(crate) fn path(&self) -> String {
        self.chain.display().to_string()
    }

    pub(crate) fn key_path(&self) -> String {
        self.key.display().to_string()
    }

    /// The setting that serves the certificate.
    pub(crate) fn served(&self) -> String {
        format!("tls: {{certificate: \"{}\", key: \"{}\"}}", self.path(), self.key.display())
    }

    /// Sends a request over TLS that offers these protocols; returns the negotiated protocol and
    /// the status.
    pub(crate) async fn get(&self, address: SocketAddr, offered: &[&str]) -> (Option<String>, u16) {
        let mut roots = RootCertStore::empty();
        roots.add(self.der.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = offered.iter().map(|it| it.as_bytes().to_vec()).collect();
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let name = ServerName::try_from(self.name).unwrap();
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
        let agreed = stream.get_ref().1.alpn_protocol().map(|it| String::from_utf8_lossy(it).into_owned());
        let io = TokioIo::new(stream);
        let request =
            Request::get("https://localhost/").header("host", "localhost").body(Feed::nothing()).unwrap();
        let answer = if agreed.as_deref() == Some("h2") {
            let (mut sender, connection) =
                hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
            tokio::spawn(connection);
            sender.send_request(request).await.unwrap()
        } else {
            let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
            tokio::spawn(connection);
            sender.send_request(request).await.unwrap()
        };
        (agreed, answer.status().as_u16())
    }
}

impl Drop for Certificate {
    fn drop(&mut self) {
        for file in [&self.chain, &self.key] {
            let _ = std::fs::remove_file(file);
        }
    }
}
