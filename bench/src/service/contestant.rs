//! The servers, their requests, and how they are started.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use super::question::grpc::{self, Grpc};
use super::question::http::{self, Http};
use super::question::resp::{Dialect, Resp};
use super::question::varied_grpc::VariedGrpc;
use super::question::{Question, said};
use crate::redis::instance;

/// RESP, one request in flight per connection. The cases are in the order of the table.
pub const RESP_1: &str = "resp_p1";
/// RESP, sixteen requests in flight per connection.
pub const RESP_16: &str = "resp_p16";
/// HTTP, with wrk.
pub const HTTP: &str = "http";
/// gRPC, with h2load.
pub const GRPC: &str = "grpc";
/// gRPC, with headers and keys that vary.
pub const GRPC_VARIED: &str = "grpc_varied";

/// Paths of the programs.
pub struct Programs {
    /// `tollgate`.
    pub tollgate: PathBuf,
    /// `throttlecrab-server`.
    pub throttlecrab: PathBuf,
}

/// A server and its requests.
pub struct Contestant {
    /// Name of the case.
    pub case: &'static str,
    /// Name in the table.
    pub subject: &'static str,
    /// The requests.
    pub question: Box<dyn Question>,
    server: Kind,
}

/// A program and one of its surfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    TollgateResp,
    TollgateApi,
    /// With limits of a policy.
    TollgateRls,
    /// With limits of an envoyproxy/ratelimit file.
    TollgateEnvoy,
    ThrottlecrabResp,
    ThrottlecrabHttp,
    ThrottlecrabGrpc,
    Redis,
}

impl Contestant {
    /// Returns all contestants. Within a case, contestants that a bar compares are adjacent in time.
    pub fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for (case, pipeline) in [(RESP_1, 1), (RESP_16, 16)] {
            for (subject, server, dialect) in [
                ("tollgate", Kind::TollgateResp, Dialect::Cell),
                ("throttlecrab", Kind::ThrottlecrabResp, Dialect::Crab),
                ("redis-script", Kind::Redis, Dialect::Script),
                ("redis-incr", Kind::Redis, Dialect::Incr),
            ] {
                all.push(Self { case, subject, server, question: Box::new(Resp { dialect, pipeline }) });
            }
        }
        for (subject, server, form) in [
            ("tollgate-throttle", Kind::TollgateApi, Http::Throttle),
            ("throttlecrab", Kind::ThrottlecrabHttp, Http::Throttle),
            ("tollgate", Kind::TollgateApi, Http::Check),
        ] {
            all.push(Self { case: HTTP, subject, server, question: Box::new(form) });
        }
        for (subject, server, method) in [
            ("tollgate-throttle", Kind::TollgateRls, Grpc::Throttle),
            ("tollgate", Kind::TollgateRls, Grpc::Descriptor),
            ("throttlecrab", Kind::ThrottlecrabGrpc, Grpc::Throttle),
            ("tollgate-envoy", Kind::TollgateEnvoy, Grpc::Descriptor),
        ] {
            all.push(Self { case: GRPC, subject, server, question: Box::new(method) });
        }
        for (subject, server, method) in [
            ("tollgate-throttle", Kind::TollgateRls, Grpc::Throttle),
            ("throttlecrab", Kind::ThrottlecrabGrpc, Grpc::Throttle),
            ("tollgate", Kind::TollgateRls, Grpc::Descriptor),
        ] {
            all.push(Self { case: GRPC_VARIED, subject, server, question: Box::new(VariedGrpc(method)) });
        }
        all
    }

    /// Returns the command that starts the server at an address, with its files in this folder.
    pub fn command(&self, programs: &Programs, at: SocketAddr, folder: &Path) -> io::Result<Command> {
        let throttlecrab = |surface| Ok(throttlecrab(&programs.throttlecrab, surface, at));
        let under = |policy: &str, surface| {
            let config = folder.join("tollgate.yaml");
            fs::write(&config, policy)?;
            let mut command = tollgate(&programs.tollgate, surface, at);
            command.arg("--config").arg(config);
            Ok(command)
        };
        match self.server {
            Kind::TollgateResp => under(&http::policy(), "resp"),
            Kind::TollgateApi => under(&http::policy(), "api"),
            Kind::TollgateRls => under(&grpc::policy(), "rls"),
            Kind::TollgateEnvoy => {
                let files = folder.join("envoy");
                fs::create_dir_all(&files)?;
                fs::write(files.join("bench.yaml"), grpc::envoy_file())?;
                let mut command = tollgate(&programs.tollgate, "rls", at);
                command.arg("--envoy-config").arg(files);
                Ok(command)
            }
            Kind::ThrottlecrabResp => throttlecrab("redis"),
            Kind::ThrottlecrabHttp => throttlecrab("http"),
            Kind::ThrottlecrabGrpc => throttlecrab("grpc"),
            Kind::Redis => Ok(instance::command(at, folder)),
        }
    }
}

/// Returns `tollgate serve` with one surface enabled and one thread.
fn tollgate(program: &Path, surface: &str, at: SocketAddr) -> Command {
    let mut command = Command::new(program);
    command.arg("serve").args(["--set", "gateway.workers=1"]);
    for each in ["gateway", "api", "rls", "resp"] {
        let address = if each == surface { at.to_string() } else { "off".to_owned() };
        command.arg("--set").arg(format!("listen.{each}={address}"));
    }
    command
}

/// Returns throttlecrab-server with one surface, in its default configuration, with only errors logged.
fn throttlecrab(program: &Path, surface: &str, at: SocketAddr) -> Command {
    let mut command = Command::new(program);
    command.arg(format!("--{surface}"));
    command.arg(format!("--{surface}-host")).arg(at.ip().to_string());
    command.arg(format!("--{surface}-port")).arg(at.port().to_string());
    command.args(["--log-level", "error"]);
    command
}

impl Programs {
    /// Returns the versions that the programs print.
    pub fn versions(&self) -> io::Result<Vec<(&'static str, String)>> {
        let version = |program: &Path| {
            let mut command = Command::new(program);
            command.arg("--version");
            Ok::<_, io::Error>(said(command)?.lines().next().unwrap_or("unknown").trim().to_owned())
        };
        Ok(vec![
            ("tollgate", version(&self.tollgate)?),
            ("throttlecrab", version(&self.throttlecrab)?),
            ("redis", version(Path::new("redis-server"))?),
        ])
    }
}
