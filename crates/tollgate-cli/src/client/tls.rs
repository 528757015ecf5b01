//! TLS of the client: trust, client certificates and error messages.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{AlertDescription, CertificateError, ClientConfig, Error};
use tollgate_daemon::{Environment, Failure};
use tollgate_document::sanitize::printable;
use tollgate_net::HttpUrl;

use crate::arguments::Api;

/// The TLS configuration. It caches sessions, so that repeated requests resume instead of a full
/// handshake.
pub(super) struct Tls(pub(super) Arc<ClientConfig>);

impl Tls {
    /// Reads the files that arguments or variables name.
    pub(super) fn read(api: &Api, environment: &Environment) -> Result<Self, Failure> {
        let file = |typed: &Option<PathBuf>, variable: &str| {
            typed.clone().or_else(|| environment.get(variable).map(PathBuf::from))
        };
        let (ca, cert, key) =
            (file(&api.server.ca, "CA"), file(&api.server.cert, "CERT"), file(&api.key, "KEY"));
        let mut config = trusting(ca.as_deref())?;
        match (cert, key) {
            (None, None) => {}
            (Some(cert), Some(key)) => {
                let chain = certificates(&cert)?;
                let secret = PrivateKeyDer::from_pem_file(&key).map_err(|error| unreadable(&key, &error))?;
                let shown = CertifiedKey::from_der(chain, secret, config.crypto_provider());
                let shown = shown.map_err(|error| {
                    let (cert, key) = (cert.display(), key.display());
                    Failure::new(format_args!("{cert} and {key} do not belong together: {error}"))
                })?;
                config.client_auth_cert_resolver = Arc::new(SingleCertAndKey::from(shown));
            }
            (Some(_), None) => return Err(half("--cert", "--key", "TOLLGATE_KEY")),
            (None, Some(_)) => return Err(half("--key", "--cert", "TOLLGATE_CERT")),
        }
        Ok(Self(Arc::new(config)))
    }
}

/// Explains a TLS error; `None` if the error is something else.
pub(super) fn explain(url: &HttpUrl, error: &io::Error) -> Option<Failure> {
    let error = error.get_ref()?.downcast_ref::<Error>()?;
    Some(match error {
        Error::InvalidCertificate(why) => distrust(url, why),
        Error::InvalidMessage(_) => {
            let plain = url.to_string().replacen("https", "http", 1);
            Failure::with_help(format_args!("{url} does not speak TLS"), format_args!("try {plain}"))
        }
        Error::AlertReceived(
            AlertDescription::CertificateRequired
            | AlertDescription::BadCertificate
            | AlertDescription::UnknownCA
            // Sent for a certificate whose issuer has the right name and another key.
            | AlertDescription::DecryptError
            | AlertDescription::AccessDenied
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateExpired,
        ) => Failure::with_help(
            format_args!("{url} requires a client certificate that it trusts ({error})"),
            "show one with --cert FILE and --key FILE, or TOLLGATE_CERT and TOLLGATE_KEY",
        ),
        other => Failure::new(format_args!("{url} and this command cannot agree on TLS: {other}")),
    })
}

fn distrust(url: &HttpUrl, why: &CertificateError) -> Failure {
    let host = url.host();
    match why {
        // A CA that was recreated has the same name and another key.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => Failure::with_help(
            format_args!("{url} has a certificate of an unknown authority"),
            "name its CA with --ca FILE or TOLLGATE_CA",
        ),
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            Failure::with_help(
                format_args!("{url} has a certificate that is not for `{host}`"),
                "ask it by a name that its certificate has",
            )
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            Failure::new(format_args!("{url} has a certificate that is not valid any more"))
        }
        other => Failure::new(format_args!("{url} has a certificate that cannot be trusted: {other}")),
    }
}

/// Trusts the certificates of this file, or else the public ones.
pub(crate) fn trusting(ca: Option<&Path>) -> Result<ClientConfig, Failure> {
    let read = |path: &Path| fs::read(path).map_err(|error| unreadable(path, &error));
    let authorities = ca.map(read).transpose()?;
    tollgate_net::client_tls(authorities.as_deref()).map_err(|error| match ca {
        Some(path) => unreadable(path, &error),
        None => Failure::new(format_args!("TLS cannot be spoken: {error}")),
    })
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Failure> {
    let read = CertificateDer::pem_file_iter(path).map_err(|error| unreadable(path, &error))?;
    let chain: Result<Vec<_>, _> = read.collect();
    let chain = chain.map_err(|error| unreadable(path, &error))?;
    if chain.is_empty() {
        return Err(unreadable(path, &"there is no PEM certificate in it"));
    }
    Ok(chain)
}

fn unreadable(path: &Path, why: &dyn std::fmt::Display) -> Failure {
    Failure::new(format_args!("cannot use {}: {}", path.display(), printable(&why.to_string())))
}

fn half(given: &str, missing: &str, variable: &str) -> Failure {
    Failure::with_help(
        format_args!("{given} was given without {missing}"),
        format_args!("a certificate is shown with its key: {missing} FILE, or {variable}"),
    )
}
