//! TLS for a listener: HTTP/2 or HTTP/1.1, as the client prefers (ALPN).

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

/// A certificate and its key, ready to serve.
#[derive(Clone)]
pub struct Tls {
    pub(crate) acceptor: TlsAcceptor,
}

/// Why a certificate cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The file with the certificates is not PEM, or holds none.
    #[error("there is no PEM certificate in it (a line `-----BEGIN CERTIFICATE-----`)")]
    Certificate,
    /// The file with the key is not PEM, or holds none.
    #[error("there is no PEM private key in it (a line `-----BEGIN PRIVATE KEY-----`)")]
    Key,
    /// They do not go together, or are of a kind that cannot be used.
    #[error("the certificate cannot be used with this key")]
    Mismatch(#[source] rustls::Error),
}

impl Tls {
    /// Serves a certificate chain, leaf first, with its private key: both as PEM.
    pub fn from_pem(certificates: &[u8], key: &[u8]) -> Result<Self, TlsError> {
        let chain = CertificateDer::pem_slice_iter(certificates).collect::<Result<Vec<_>, _>>();
        let chain = chain.ok().filter(|chain| !chain.is_empty()).ok_or(TlsError::Certificate)?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| TlsError::Key)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Mismatch)?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(TlsError::Mismatch)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)) })
    }
}
