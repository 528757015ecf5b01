//! A certificate authority for one test.

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tollgate_testkit::Scratch;

/// A certificate authority with the files that it signed. Its own certificate is `ca.pem`.
pub(crate) struct Authority {
    pub(crate) files: Scratch,
    issuer: Issuer<'static, KeyPair>,
    pub(crate) ca: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, "authority of a test");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let ca = params.self_signed(&key).unwrap().pem();
        let files = Scratch::new();
        files.write("ca.pem", &ca);
        Self { files, issuer: Issuer::new(params, key), ca }
    }

    /// Signs a certificate; returns it and its key.
    pub(crate) fn sign(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        // Some clients treat a certificate with the name of its CA as self-signed.
        params.distinguished_name.push(DnType::CommonName, name);
        let made = params.signed_by(&key, &self.issuer).unwrap();
        (made.pem(), key.serialize_pem())
    }

    pub(crate) fn file(&self, name: &str) -> String {
        self.files.path().join(name).to_str().unwrap().to_owned()
    }
}
