//! The proxies. Each runs the file that users copy, with other addresses.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{self, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};

use tollgate_testkit::{Program, Scratch, free_port, wait_for_port};

/// A proxy and its setup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proxy {
    /// Tollgate refuses with 403, which nginx converts into 429.
    NginxBy403,
    /// Tollgate refuses with 429, which nginx treats as an error.
    NginxBy429,
    Caddy,
    Haproxy,
}

/// The optional lines of a file that are enabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Setup {
    /// No optional lines.
    AsWritten,
    /// The lines that admit requests without a response from Tollgate.
    PassWithoutAnswer,
    /// The lines for another proxy in front, at the address `CLIENT`.
    BehindAnother,
    /// The lines that send `TOKEN`.
    WithToken,
}

/// The token that Tollgate may require.
pub(crate) const TOKEN: &str = "correct-horse-battery";

/// The peers of a proxy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Between {
    pub(crate) tollgate: UpstreamRequest,
    pub(crate) app: SocketAddr,
}

/// The state of Tollgate.
#[derive(Clone, Copy, Debug)]
pub(crate) enum UpstreamRequest {
    /// It responds. Timeouts are long, so that a busy machine does not affect the result.
    Answering(SocketAddr),
    /// It does not respond. Timeouts are those of the file.
    Silent(SocketAddr),
}

/// A proxy that runs until it is dropped.
pub(crate) struct RunningProxy {
    _program: Program,
    _files: Scratch,
    pub(crate) address: SocketAddr,
}

impl Proxy {
    /// Starts it with its file.
    pub(crate) fn start(self, between: Between) -> RunningProxy {
        self.start_so(between, Setup::AsWritten)
    }

    /// Starts it with some optional lines of its file.
    pub(crate) fn start_so(self, between: Between, setup: Setup) -> RunningProxy {
        let (files, address) = (Scratch::new(), own_address());
        let text = self.file();
        let text = offered(&addressed(&text, address, between), self.offers(setup));
        let mut command = match self {
            Self::NginxBy403 => nginx(&files, &text),
            Self::NginxBy429 => nginx(&files, &replaced(&text, "/original/403;", "/original;")),
            Self::Caddy => caddy(&files, &text),
            Self::Haproxy => haproxy(&files, &text, address),
        };
        command.env_remove("TOLLGATE_TOKEN");
        if setup == Setup::WithToken {
            command.env("TOLLGATE_TOKEN", TOKEN);
        }
        let mut program = Program::start(command);
        wait_for_port(&mut program, address);
        RunningProxy { _program: program, _files: files, address }
    }

    fn file(self) -> String {
        let file = match self {
            Self::NginxBy403 | Self::NginxBy429 => "nginx/tollgate.conf",
            Self::Caddy => "caddy/Caddyfile",
            Self::Haproxy => "haproxy/haproxy.cfg",
        };
        fs::read_to_string(integration(file)).unwrap()
    }

    /// Returns the replacements that enable optional lines.
    fn offers(self, setup: Setup) -> &'static [(&'static str, &'static str)] {
        const TRUSTED: (&str, &str) = (" 10.0.0.0/8", " 127.0.0.1/32");
        match (self, setup) {
            (_, Setup::AsWritten) | (Self::Caddy | Self::Haproxy, Setup::WithToken) => &[],
            (Self::NginxBy403 | Self::NginxBy429, Setup::WithToken) => {
                &[("Tollgate-Token \"\"", "Tollgate-Token \"correct-horse-battery\"")]
            }
            (Self::NginxBy403 | Self::NginxBy429, Setup::PassWithoutAnswer) => {
                &[("#error_page", "error_page")]
            }
            (Self::NginxBy403 | Self::NginxBy429, Setup::BehindAnother) => &[
                ("#set_real_ip", "set_real_ip"),
                ("#real_ip_h", "real_ip_h"),
                ("#real_ip_r", "real_ip_r"),
                TRUSTED,
            ],
            (Self::Caddy, Setup::PassWithoutAnswer) => {
                &[("\t#handle_errors", "\thandle_errors"), ("\n\t#\t", "\n\t\t"), ("\n\t#}", "\n\t}")]
            }
            (Self::Caddy, Setup::BehindAnother) => &[("#trusted_proxies", "trusted_proxies"), TRUSTED],
            (Self::Haproxy, Setup::PassWithoutAnswer) => &[("lua.tollgate closed", "lua.tollgate open")],
            (Self::Haproxy, Setup::BehindAnother) => &[("#http-request", "http-request"), TRUSTED],
        }
    }
}

/// Returns an address that no other test of this machine uses, so that its port stays free.
fn own_address() -> SocketAddr {
    static STARTED: AtomicU8 = AtomicU8::new(1);
    let [_, _, high, low] = process::id().to_be_bytes();
    let host = Ipv4Addr::new(127, high.max(1), low, STARTED.fetch_add(1, Ordering::Relaxed));
    SocketAddr::from((host, free_port()))
}

/// Inserts the addresses of this test into a file.
fn addressed(text: &str, own: SocketAddr, between: Between) -> String {
    let (text, tollgate) = match between.tollgate {
        UpstreamRequest::Answering(tollgate) => {
            (text.replace(" 250ms", " 60s").replace(" 500ms", " 60s"), tollgate)
        }
        UpstreamRequest::Silent(tollgate) => (text.to_owned(), tollgate),
    };
    let text = replaced(&text, "127.0.0.1:7070", &tollgate.to_string());
    let text = replaced(&text, "127.0.0.1:3000", &between.app.to_string());
    if text.contains("127.0.0.1:8000") {
        return replaced(&text, "127.0.0.1:8000", &own.to_string());
    }
    let text = replaced(&text, ":8000 {", &format!(":{} {{", own.port()));
    replaced(&text, "bind 127.0.0.1 ", &format!("bind {} ", own.ip()))
}

/// Enables optional lines, which the file has as comments.
fn offered(text: &str, offers: &[(&str, &str)]) -> String {
    let mut text = text.to_owned();
    for (comment, line) in offers {
        assert!(text.contains(comment), "`{comment}` in:\n{text}");
        text = text.replace(comment, line);
    }
    text
}

/// Returns the path of a file that users copy.
pub(crate) fn integration(file: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../integrations")).join(file)
}

/// Replaces exactly one occurrence; fails otherwise, because the file has changed.
#[track_caller]
fn replaced(text: &str, old: &str, new: &str) -> String {
    assert_eq!(text.matches(old).count(), 1, "`{old}` in:\n{text}");
    text.replace(old, new)
}

/// Wraps the file like Debian's `/etc/nginx/nginx.conf`, in one process and its own directory.
pub(crate) fn nginx(files: &Scratch, text: &str) -> Command {
    files.write("tollgate.conf", text);
    let main = files.write(
        "nginx.conf",
        "daemon off; master_process off; pid nginx.pid; error_log error.log;\n\
         events {}\n\
         http {\n\
             access_log off;\n\
             client_body_temp_path bodies; proxy_temp_path proxied; fastcgi_temp_path fastcgi;\n\
             uwsgi_temp_path uwsgi; scgi_temp_path scgi;\n\
             include tollgate.conf;\n\
         }\n",
    );
    let mut command = Command::new("nginx");
    command.arg("-p").arg(files.path()).arg("-c").arg(main).args(["-e", "error.log"]);
    command
}

/// Without its administration port, and with its own home directory.
fn caddy(files: &Scratch, text: &str) -> Command {
    files.write("Caddyfile", text);
    let main = files.write("main", "{\n\tadmin off\n}\nimport Caddyfile\n");
    let mut command = Command::new("caddy");
    command.arg("run").arg("--config").arg(main).args(["--adapter", "caddyfile"]);
    for home in ["HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"] {
        command.env(home, files.path());
    }
    command.current_dir(files.path()).stderr(log(files));
    command
}

/// In the foreground, with its own name for the socket between Lua and `HAProxy`.
fn haproxy(files: &Scratch, text: &str, address: SocketAddr) -> Command {
    let socket = format!("abns@tollgate-{address}");
    let script = fs::read_to_string(integration("haproxy/tollgate.lua")).unwrap();
    let script = files.write("tollgate.lua", &replaced(&script, "abns@tollgate", &socket));
    let load = |path: &str| format!("lua-load-per-thread {path}\n");
    let text = replaced(text, &load("/etc/haproxy/tollgate.lua"), &load(&script.display().to_string()));
    let main = files.write("haproxy.cfg", &replaced(&text, "abns@tollgate", &socket));
    let mut command = Command::new("haproxy");
    command.arg("-db").arg("-f").arg(main).stderr(log(files));
    command
}

fn log(files: &Scratch) -> Stdio {
    Stdio::from(fs::File::create(files.path().join("stderr.log")).unwrap())
}
