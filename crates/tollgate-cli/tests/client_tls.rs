//! Commands that call a server over TLS: trust and client certificates.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::thread;

use crate::service::authority::Authority;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use tollgate_testkit::ProgramOutput;

impl Authority {
    /// Starts a server with a certificate for that name; optionally it requires a client certificate.
    fn serve(&self, name: &str, wants_one: bool) -> String {
        let (certificate, key) = self.sign(name);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .unwrap();
        let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
        let builder = if wants_one {
            let mut roots = RootCertStore::empty();
            roots.add(CertificateDer::from_pem_slice(self.ca.as_bytes()).unwrap()).unwrap();
            builder.with_client_cert_verifier(
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap(),
            )
        } else {
            builder.with_no_client_auth()
        };
        let config = Arc::new(builder.with_single_cert(chain, key).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            for stream in listener.incoming() {
                answer(&config, stream.unwrap());
            }
        });
        format!("https://127.0.0.1:{port}")
    }
}

fn answer(config: &Arc<ServerConfig>, stream: TcpStream) {
    let session = ServerConnection::new(config.clone()).unwrap();
    let mut stream = BufReader::new(StreamOwned::new(session, stream));
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        // A client that does not trust the server closes the connection.
        if !matches!(stream.read_line(&mut line), Ok(1..)) {
            return;
        }
    }
    let body = "{\"mode\":\"enforce\",\"limits\":[]}";
    let said = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let stream = stream.get_mut();
    stream.write_all(said.as_bytes()).unwrap();
    stream.conn.send_close_notify();
    let _ = stream.flush();
}

fn mode(url: &str, arguments: &[&str], variables: &[(&str, &str)]) -> ProgramOutput {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.args(["mode", "--api", url]).args(arguments).env_clear().envs(variables.iter().copied());
    ProgramOutput::of(command)
}

const FINE: &str = "everything: each limit as it says\nno limit is switched\n";

#[test]
fn a_server_with_a_known_ca_is_trusted() {
    let authority = Authority::new();
    let (url, ca) = (authority.serve("127.0.0.1", false), authority.file("ca.pem"));
    let finished = mode(&url, &["--ca", &ca], &[]);
    assert_eq!((finished.code, finished.stdout.as_str(), finished.stderr.as_str()), (Some(0), FINE, ""));
    assert_eq!(mode(&url, &[], &[("TOLLGATE_CA", &ca)]).stdout, FINE);
}

#[test]
fn an_untrusted_server_is_reported_with_help() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let (url, synonyms) = (theirs.serve("127.0.0.1", false), ours.serve("tollgate.example", false));
    let ca = ours.file("ca.pem");
    for (url, arguments, expected) in [
        (&url, &["--ca", &ca][..], "name its CA with --ca FILE or TOLLGATE_CA"),
        (&url, &[], "a certificate of an unknown authority"),
        (&synonyms, &["--ca", &ca], "a certificate that is not for `127.0.0.1`"),
    ] {
        let finished = mode(url, arguments, &[]);
        assert_eq!((finished.code, finished.stdout.as_str()), (Some(2), ""), "{}", finished.stderr);
        assert!(finished.stderr.contains(expected), "{}", finished.stderr);
    }
}

#[test]
fn a_client_certificate_is_sent_to_a_server_that_requires_it() {
    let authority = Authority::new();
    let (url, ca) = (authority.serve("127.0.0.1", true), authority.file("ca.pem"));
    let (certificate, key) = authority.sign("ann");
    authority.files.write("cert.pem", &certificate);
    authority.files.write("key.pem", &key);
    let (cert, key) = (authority.file("cert.pem"), authority.file("key.pem"));
    let finished = mode(&url, &["--ca", &ca, "--cert", &cert, "--key", &key], &[]);
    assert_eq!((finished.code, finished.stdout.as_str(), finished.stderr.as_str()), (Some(0), FINE, ""));
    let variables = [("TOLLGATE_CA", &*ca), ("TOLLGATE_CERT", &*cert), ("TOLLGATE_KEY", &*key)];
    assert_eq!(mode(&url, &[], &variables).stdout, FINE);

    let finished = mode(&url, &["--ca", &ca], &[]);
    assert_eq!(finished.code, Some(2));
    assert!(finished.stderr.contains("show one with --cert FILE and --key FILE"), "{}", finished.stderr);

    let (stranger, key) = Authority::new().sign("mallory");
    authority.files.write("cert.pem", &stranger);
    authority.files.write("key.pem", &key);
    let finished = mode(&url, &[], &variables);
    assert_eq!(finished.code, Some(2));
    assert!(finished.stderr.contains("requires a client certificate that it trusts"), "{}", finished.stderr);
}

#[test]
fn a_mismatch_of_plain_and_tls_is_reported() {
    let authority = Authority::new();
    let url = authority.serve("127.0.0.1", false).replacen("https", "http", 1);
    let finished = mode(&url, &[], &[]);
    assert_eq!(finished.code, Some(2));
    assert!(finished.stderr.contains("with https:// if it speaks TLS"), "{}", finished.stderr);

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = BufReader::new(&stream).fill_buf();
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    });
    let finished = mode(&url, &[], &[]);
    assert_eq!(finished.code, Some(2));
    assert!(finished.stderr.contains("does not speak TLS"), "{}", finished.stderr);
}
