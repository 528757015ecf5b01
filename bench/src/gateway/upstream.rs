//! The upstream of every contestant: an nginx that responds immediately, and accepts any request body, such as spans.

use std::io;
use std::path::Path;
use std::{fs, net::SocketAddr};

use super::contestant::nginx;
use super::probe;
use crate::server::{Server, free_address};

/// The response body. wrk sees it only through a contestant that admits.
pub const BODY: &str = "an answer of the upstream, as short as those of many an API";

/// Starts the upstream on the cores of wrk.
pub fn start(folder: &Path) -> io::Result<Server> {
    let folder = folder.join("upstream");
    fs::create_dir_all(&folder)?;
    let address = free_address()?;
    let config = folder.join("nginx.conf");
    fs::write(&config, text(address))?;
    Server::start(&nginx::command(&config, &folder), None, address, &folder, probe::answers)
}

fn text(listen: SocketAddr) -> String {
    let preamble = nginx::PREAMBLE;
    format!(
        "{preamble}
http {{
    access_log off;
    keepalive_requests 1000000000;
    keepalive_timeout 1h;
    client_max_body_size 0;
    client_body_temp_path body;
    server {{
        listen {listen} backlog=4096;
        location / {{
            default_type text/plain;
            return 200 '{BODY}';
        }}
    }}
}}
"
    )
}
