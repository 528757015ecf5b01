//! Who is asked what, and how each is started.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use super::question::grpc::{self, Grpc};
use super::question::http::{self, Http};
use super::question::resp::{Dialect, Resp};
use super::question::{Question, said};
use crate::redis::instance;

/// Cases, in the order of the table.
pub const RESP_1: &str = "resp_p1";
/// Sixteen questions in flight on a connection.
pub const RESP_16: &str = "resp_p16";
/// With wrk.
pub const HTTP: &str = "http";
/// With h2load.
pub const GRPC: &str = "grpc";

/// Where the programs are.
pub struct Programs {
    /// `tollgate`.
    pub tollgate: PathBuf,
    /// `throttlecrab-server`.
    pub throttlecrab: PathBuf,
}

/// A server that is asked something.
pub struct Contestant {
    /// In which case.
    pub case: &'static str,
    /// As it stands in the table.
    pub subject: &'static str,
    /// What it is asked.
    pub question: Box<dyn Question>,
    server: Kind,
}

/// A program, and which of its surfaces is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    TollgateResp,
    TollgateApi,
    /// Under limits of a policy.
    TollgateRls,
    /// Under limits of a file of envoyproxy/ratelimit's.
    TollgateEnvoy,
    ThrottlecrabResp,
    ThrottlecrabHttp,
    ThrottlecrabGrpc,
    Redis,
}

impl Contestant {
    /// All of them. Within a case, those that a bar compares are neighbours in time.
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
        all
    }

    /// How it is started at an address, with its files in this folder.
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

/// `tollgate serve` with one surface: the others are off, and one thread answers.
fn tollgate(program: &Path, surface: &str, at: SocketAddr) -> Command {
    let mut command = Command::new(program);
    command.arg("serve").args(["--set", "gateway.workers=1"]);
    for each in ["gateway", "api", "rls", "resp"] {
        let address = if each == surface { at.to_string() } else { "off".to_owned() };
        command.arg("--set").arg(format!("listen.{each}={address}"));
    }
    command
}

/// throttlecrab-server with one surface, as it comes, and no log but of errors.
fn throttlecrab(program: &Path, surface: &str, at: SocketAddr) -> Command {
    let mut command = Command::new(program);
    command.arg(format!("--{surface}"));
    command.arg(format!("--{surface}-host")).arg(at.ip().to_string());
    command.arg(format!("--{surface}-port")).arg(at.port().to_string());
    command.args(["--log-level", "error"]);
    command
}

impl Programs {
    /// What they say of themselves.
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
