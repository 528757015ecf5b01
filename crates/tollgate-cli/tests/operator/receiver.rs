//! A receiver of messages: a small HTTP server, with or without TLS.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver as Channel};
use std::time::Duration;
use std::{fs, thread};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use tollgate_testkit::Scratch;

/// A timeout that only failing tests reach.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// A message that was received.
#[derive(Debug)]
pub(crate) struct Message {
    /// `POST /v1/traces HTTP/1.1`, and the headers.
    pub(crate) head: String,
    pub(crate) body: String,
}

/// A receiver of messages.
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    messages: Channel<Message>,
}

impl Receiver {
    /// Responds to each message with the next of these statuses, then with 200.
    pub(crate) fn start(statuses: &'static [u16]) -> Self {
        Self::serve(statuses, |stream| stream)
    }

    /// Like `start`, over TLS.
    pub(crate) fn start_tls(certificates: &Certificates) -> Self {
        let read = |name: &str| fs::read(certificates.path(name)).unwrap();
        let chain = CertificateDer::pem_slice_iter(&read("server.pem")).map(Result::unwrap).collect();
        let key = PrivateKeyDer::from_pem_slice(&read("server.key")).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.unwrap().with_no_client_auth().with_single_cert(chain, key).unwrap();
        let config = Arc::new(config);
        Self::serve(&[], move |stream| {
            StreamOwned::new(ServerConnection::new(Arc::clone(&config)).unwrap(), stream)
        })
    }

    fn serve<S: Read + Write>(
        statuses: &'static [u16],
        open: impl Fn(TcpStream) -> S + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, messages) = mpsc::channel();
        thread::spawn(move || {
            let mut statuses = statuses.iter();
            for stream in listener.incoming() {
                let mut stream = BufReader::new(open(stream.unwrap()));
                while let Some(message) = read(&mut stream) {
                    let status = statuses.next().unwrap_or(&200);
                    let answer = format!("HTTP/1.1 {status} X\r\nContent-Length: 2\r\n\r\n{{}}");
                    if sender.send(message).is_err() || stream.get_mut().write_all(answer.as_bytes()).is_err()
                    {
                        break;
                    }
                }
            }
        });
        Self { address, messages }
    }

    /// Returns the next message.
    #[track_caller]
    pub(crate) fn next(&self) -> Message {
        self.messages.recv_timeout(TEST_TIMEOUT).expect("a message arrives")
    }

    /// Returns the messages that were not read yet.
    pub(crate) fn rest(&self) -> Vec<Message> {
        self.messages.try_iter().collect()
    }
}

fn read(stream: &mut BufReader<impl Read>) -> Option<Message> {
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if line == "\r\n" {
            break;
        }
        head.push_str(&line);
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    Some(Message { head, body: String::from_utf8(body).unwrap() })
}

/// A CA, a server certificate for 127.0.0.1 and `localhost`, and two client certificates, one of which
/// the CA has signed. All in files.
pub(crate) struct Certificates(Scratch);

impl Certificates {
    pub(crate) fn new() -> Self {
        let files = Scratch::new();
        let (ours, other) = (authority(), authority());
        let write = |name: &str, text: String| fs::write(files.path().join(name), text).unwrap();
        write("ca.pem", ours.pem());
        for (name, issuer, usage) in [
            ("server", &ours, ExtendedKeyUsagePurpose::ServerAuth),
            ("client", &ours, ExtendedKeyUsagePurpose::ClientAuth),
            ("stranger", &other, ExtendedKeyUsagePurpose::ClientAuth),
        ] {
            let names = ["127.0.0.1".to_owned(), "localhost".to_owned()];
            let mut params = CertificateParams::new(names).unwrap();
            params.distinguished_name.push(DnType::CommonName, format!("the {name}"));
            params.extended_key_usages = vec![usage];
            let key = KeyPair::generate().unwrap();
            write(&format!("{name}.pem"), params.signed_by(&key, issuer).unwrap().pem());
            write(&format!("{name}.key"), key.serialize_pem());
        }
        Self(files)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    /// Returns the settings that use it.
    pub(crate) fn served(&self, more: &str) -> String {
        let (certificate, key) = (self.path("server.pem"), self.path("server.key"));
        format!("tls: {{certificate: {certificate}, key: {key}{more}}}")
    }
}

fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, "Tollgate test authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}
