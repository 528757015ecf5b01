//! Debian's nginx, beside the gateway.

use std::net::SocketAddr;
use std::process::Command;

use tollgate_testkit::{Program, Scratch, free_port, wait_for_port};

/// A running nginx.
pub(crate) struct Nginx {
    pub(crate) address: SocketAddr,
    _program: Program,
    _files: Scratch,
}

impl Nginx {
    /// Starts it with one server. `http` is what the configuration has outside that server, `server` is the rest of it.
    pub(crate) fn start(http: &str, server: &str) -> Self {
        let (files, address) = (Scratch::new(), SocketAddr::from(([127, 0, 0, 1], free_port())));
        let main = files.write(
            "nginx.conf",
            &format!(
                "daemon off; master_process off; pid nginx.pid; error_log error.log crit;\n\
                 events {{}}\n\
                 http {{\n\
                     access_log off;\n\
                     client_body_temp_path bodies; proxy_temp_path proxied; fastcgi_temp_path fastcgi;\n\
                     uwsgi_temp_path uwsgi; scgi_temp_path scgi;\n\
                     {http}\n\
                     server {{ listen {address}; {server} }}\n\
                 }}\n"
            ),
        );
        let mut command = Command::new("nginx");
        command.arg("-p").arg(files.path()).arg("-c").arg(main).args(["-e", "error.log"]);
        let mut program = Program::start(command);
        wait_for_port(&mut program, address);
        Self { address, _program: program, _files: files }
    }
}
