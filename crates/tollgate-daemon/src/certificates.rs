//! The certificates of the listeners, which are read again when their files change.
//!
//! A certificate that cannot be used leaves the old one in use. The gateway has its own certificate.

use tollgate_net::Tls;

use crate::configuration::{ServedTls, Settings, Tokens};
use crate::failure::Failure;
use crate::reload::Watch;

/// The TLS settings of all listeners except the gateway.
#[derive(Clone)]
pub(crate) struct Certificates {
    pub(crate) api: Option<Tls>,
    pub(crate) rls: Option<Tls>,
    pub(crate) resp: Option<Tls>,
}

/// Detects changed certificates.
pub(crate) struct CertificateWatch {
    watch: Watch,
    served: Vec<ServedCertificate>,
}

struct ServedCertificate {
    section: ServedTls,
    surface: &'static str,
    /// Whether a client without a certificate may authenticate in another way.
    or_else: bool,
    tls: Tls,
}

impl Certificates {
    /// Loads the certificates that the settings name.
    pub(crate) fn load(settings: &Settings, tokens: &Tokens) -> Result<(Self, CertificateWatch), Failure> {
        let sections = [
            // A caller with a token needs no certificate.
            (&settings.admin.tls, "the API", tokens.admin.is_some()),
            (&settings.rls.tls, "Envoy", false),
            (&settings.resp.tls, "clients of Redis", false),
        ];
        // Before reading, so that a change during the read is detected afterwards.
        let files = sections.iter().filter_map(|(section, ..)| section.as_ref()).flat_map(ServedTls::files);
        let watch = Watch::new(files.collect());
        let mut served = Vec::new();
        let mut load = |(section, surface, or_else): (&Option<ServedTls>, &'static str, bool)| {
            let Some(section) = section else { return Ok(None) };
            let tls = section.load(surface, or_else)?;
            served.push(ServedCertificate { section: section.clone(), surface, or_else, tls: tls.clone() });
            Ok::<_, Failure>(Some(tls))
        };
        let [api, rls, resp] = sections;
        let certificates = Self { api: load(api)?, rls: load(rls)?, resp: load(resp)? };
        Ok((certificates, CertificateWatch { watch, served }))
    }
}

impl CertificateWatch {
    /// Uses changed certificates for connections from now on.
    pub(crate) fn poll(&mut self) {
        if !self.watch.has_changed() {
            return;
        }
        for it in &self.served {
            match it.section.load(it.surface, it.or_else) {
                Ok(new) => {
                    it.tls.replace(&new);
                    tracing::info!("the certificate for {} was read again", it.surface);
                }
                Err(failure) => {
                    let why = failure.brief();
                    tracing::error!("the certificate for {} stays as it was: {}", it.surface, why.trim());
                }
            }
        }
    }
}
