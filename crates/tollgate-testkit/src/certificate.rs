//! A certificate authority and a server certificate for one test.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{ProgramOutput, Scratch};

/// The files of a TLS server for `localhost` and 127.0.0.1, which a client may present too.
pub struct Certificate {
    /// The certificate of the authority, which a client must trust.
    pub ca: PathBuf,
    /// The certificate of the server.
    pub server: PathBuf,
    /// The key of the server.
    pub key: PathBuf,
}

impl Certificate {
    /// Creates both with `openssl`. The authority is separate, because some clients refuse a
    /// self-signed server certificate.
    pub fn new(folder: &Scratch) -> Self {
        let file = |name: &str| folder.path().join(name);
        let (ca, ca_key) = (file("ca.crt"), file("ca.key"));
        let (server, key, request) = (file("server.crt"), file("server.key"), file("server.csr"));
        let names = "subjectAltName=DNS:localhost,IP:127.0.0.1\nbasicConstraints=CA:FALSE\n\
                     extendedKeyUsage=serverAuth,clientAuth\n";
        let names = folder.write("server.ext", names);
        let new_key = ["req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];

        let mut authority = openssl(&new_key);
        authority.args(["-x509", "-days", "2", "-subj", "/CN=Tollgate test authority"]);
        authority.args(["-addext", "keyUsage=critical,keyCertSign,cRLSign"]);
        run(authority.args([path("-keyout", &ca_key), path("-out", &ca)].concat()));
        let mut ask = openssl(&new_key);
        ask.args(["-subj", "/CN=localhost"]);
        run(ask.args([path("-keyout", &key), path("-out", &request)].concat()));
        let mut sign = openssl(&["x509", "-req", "-days", "2", "-CAcreateserial"]);
        sign.args([path("-in", &request), path("-CA", &ca), path("-CAkey", &ca_key)].concat());
        run(sign.args([path("-extfile", &names), path("-out", &server)].concat()));
        Self { ca, server, key }
    }
}

fn openssl(arguments: &[&str]) -> Command {
    let mut command = Command::new("openssl");
    command.args(arguments);
    command
}

fn path<'a>(option: &'a str, path: &'a Path) -> [&'a std::ffi::OsStr; 2] {
    [option.as_ref(), path.as_os_str()]
}

fn run(command: &mut Command) {
    let finished = ProgramOutput::of(std::mem::replace(command, Command::new("openssl")));
    assert_eq!(finished.code, Some(0), "openssl: {}", finished.stderr);
}
