//! TLS for listeners, with HTTP/2 or HTTP/1.1 by ALPN, and for outgoing connections
//! ([`client_tls`]).
//!
//! A listener may request client certificates. A presented certificate must be valid; the surface
//! decides whether one is required.

use std::sync::{Arc, PoisonError, RwLock};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

/// A server certificate and its key. Clones share them, so [`replace`](Self::replace) affects all.
#[derive(Clone)]
pub struct Tls {
    acceptor: Arc<RwLock<TlsAcceptor>>,
}

/// The reason why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The certificate file is not PEM, or contains no certificate.
    #[error("there is no PEM certificate in it (a line `-----BEGIN CERTIFICATE-----`)")]
    Certificate,
    /// The key file is not PEM, or contains no key.
    #[error("there is no PEM private key in it (a line `-----BEGIN PRIVATE KEY-----`)")]
    Key,
    /// The certificate and the key do not match, or their type is not supported.
    #[error("the certificate cannot be used with this key")]
    Mismatch(#[source] rustls::Error),
    /// The CA file for a server is not PEM, or contains no certificate.
    #[error("the server cannot be verified by it")]
    Authorities(#[source] rustls::Error),
    /// The client CA file is not PEM, or contains no certificate that can sign.
    #[error("clients cannot be known by it")]
    Clients(#[source] rustls::Error),
}

/// Whether clients must present a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCertificates {
    /// The handshake fails without a certificate.
    Required,
    /// Clients without a certificate are accepted, with `Connection::certified` false.
    Optional,
}

impl Tls {
    /// Creates the TLS settings from a certificate chain, leaf first, and its private key, both
    /// PEM.
    pub fn from_pem(certificates: &[u8], key: &[u8]) -> Result<Self, TlsError> {
        Self::new(certificates, key, None)
    }

    /// Creates TLS settings that request client certificates signed by one of these authorities.
    pub fn with_clients(
        certificates: &[u8],
        key: &[u8],
        authorities: &[u8],
        clients: ClientCertificates,
    ) -> Result<Self, TlsError> {
        Self::new(certificates, key, Some((authorities, clients)))
    }

    fn new(
        certificates: &[u8],
        key: &[u8],
        clients: Option<(&[u8], ClientCertificates)>,
    ) -> Result<Self, TlsError> {
        let chain = CertificateDer::pem_slice_iter(certificates).collect::<Result<Vec<_>, _>>();
        let chain = chain.ok().filter(|chain| !chain.is_empty()).ok_or(TlsError::Certificate)?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| TlsError::Key)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Mismatch)?;
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some((authorities, clients)) => {
                let roots = Arc::new(roots(Some(authorities)).map_err(TlsError::Clients)?);
                let mut verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
                if clients == ClientCertificates::Optional {
                    verifier = verifier.allow_unauthenticated();
                }
                let verifier = verifier.build();
                builder.with_client_cert_verifier(
                    verifier.map_err(|error| TlsError::Clients(rustls::Error::General(error.to_string())))?,
                )
            }
        };
        let mut config = builder.with_single_cert(chain, key).map_err(TlsError::Mismatch)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self { acceptor: Arc::new(RwLock::new(TlsAcceptor::from(Arc::new(config)))) })
    }

    /// Uses the settings of `new` for connections from now on.
    pub fn replace(&self, new: &Self) {
        let acceptor = new.acceptor();
        *self.acceptor.write().unwrap_or_else(PoisonError::into_inner) = acceptor;
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        self.acceptor.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Returns the TLS settings for outgoing connections. `authorities` are PEM certificates to trust
/// instead of the public ones.
pub fn client_tls(authorities: Option<&[u8]>) -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(config.with_root_certificates(roots(authorities)?).with_no_client_auth())
}

/// Returns the TLS settings for outgoing connections that trust the authorities of the operating system.
pub fn system_tls() -> Result<ClientConfig, rustls::Error> {
    let mut roots = RootCertStore::empty();
    // Unreadable and invalid certificates are common there, and ignored.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err(rustls::Error::General(
            "the operating system has no certificates of authorities".to_owned(),
        ));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

/// Returns the TLS settings for outgoing connections that present a certificate: a chain, leaf first, and
/// its key, both PEM.
pub fn mutual_tls(
    authorities: Option<&[u8]>,
    certificates: &[u8],
    key: &[u8],
) -> Result<ClientConfig, TlsError> {
    let chain = CertificateDer::pem_slice_iter(certificates).collect::<Result<Vec<_>, _>>();
    let chain = chain.ok().filter(|chain| !chain.is_empty()).ok_or(TlsError::Certificate)?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| TlsError::Key)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let roots = roots(authorities).map_err(TlsError::Authorities)?;
    let config = config.map_err(TlsError::Mismatch)?.with_root_certificates(roots);
    config.with_client_auth_cert(chain, key).map_err(TlsError::Mismatch)
}

/// Returns the trusted roots: the given authorities, or else the public ones.
fn roots(authorities: Option<&[u8]>) -> Result<RootCertStore, rustls::Error> {
    let mut roots = RootCertStore::empty();
    match authorities {
        Some(pem) => {
            let certificates = CertificateDer::pem_slice_iter(pem).filter_map(Result::ok);
            let (added, _) = roots.add_parsable_certificates(certificates);
            if added == 0 {
                return Err(rustls::Error::General("there is no PEM certificate in it".into()));
            }
        }
        None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
    }
    Ok(roots)
}
