//! The nginx of Debian, with `proxy_pass` and `limit_req`.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Contestant, Duty, Place, version};

/// The nginx contestant.
#[derive(Default)]
pub struct Nginx;

/// The start of every nginx configuration. One worker; temporary files are in the working folder, so root is not
/// needed.
pub const PREAMBLE: &str = "daemon off;
worker_processes 1;
pid nginx.pid;
error_log stderr error;
events {
    worker_connections 16384;
}";

/// By address, by key, and global.
const KEYS: [&str; 3] = ["$binary_remote_addr", "$http_x_api_key", "$server_name"];

/// Returns the command that starts nginx.
pub fn command(config: &Path, folder: &Path) -> Command {
    let mut command = Command::new(program());
    command.arg("-p").arg(folder).arg("-e").arg("stderr").arg("-c").arg(config);
    command
}

/// Returns the path of nginx, which Debian installs outside the PATH of normal users.
fn program() -> PathBuf {
    let debian = Path::new("/usr/sbin/nginx");
    if debian.exists() { debian.into() } else { "nginx".into() }
}

impl Contestant for Nginx {
    fn name(&self) -> &'static str {
        "nginx"
    }

    fn version(&self) -> io::Result<String> {
        // "nginx version: nginx/1.22.1"
        let said = version(&program(), "-v")?;
        Ok(said.rsplit(' ').next().unwrap_or_default().to_owned())
    }

    fn config(&self, duty: Duty, place: &Place) -> (&'static str, String) {
        ("nginx.conf", text(duty, place))
    }

    fn command(&self, config: &Path, place: &Place) -> Command {
        command(config, &place.folder)
    }
}

fn text(duty: Duty, place: &Place) -> String {
    let (zones, limits) = limits(duty);
    let (listen, upstream) = (place.listen, place.upstream);
    // By default a refusal is logged as an error; at `notice` it is not logged.
    format!(
        "{PREAMBLE}
http {{
    access_log off;
    keepalive_requests 1000000000;
    keepalive_timeout 1h;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
{zones}    limit_req_status 429;
    limit_req_log_level notice;
    upstream behind {{
        server {upstream};
        keepalive 256;
        keepalive_requests 1000000000;
        keepalive_timeout 1h;
    }}
    server {{
        listen {listen} backlog=4096;
        server_name bench.test;
        location / {{
{limits}            proxy_pass http://behind;
            proxy_http_version 1.1;
            proxy_set_header Connection '';
            proxy_set_header Host $http_host;
            proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
            proxy_set_header X-Forwarded-Proto $scheme;
        }}
    }}
}}
"
    )
}

/// Returns three zones and the lines that use them. Without `nodelay`, nginx would delay requests.
fn limits(duty: Duty) -> (String, String) {
    let (mut zones, mut limits) = (String::new(), String::new());
    if duty == Duty::Off {
        return (zones, limits);
    }
    for (number, key) in KEYS.into_iter().enumerate() {
        let spent = duty == Duty::Refuse && number + 1 == KEYS.len();
        let (rate, burst) = if spent { ("1r/m", "") } else { ("10000000r/s", " burst=10000000 nodelay") };
        let _ = writeln!(zones, "    limit_req_zone {key} zone=zone{number}:10m rate={rate};");
        let _ = writeln!(limits, "            limit_req zone=zone{number}{burst};");
    }
    (zones, limits)
}
