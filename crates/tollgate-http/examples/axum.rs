//! A small axum service behind Tollgate.
//!
//! ```text
//! cargo run -p tollgate-http --example axum [ADDRESS]     (127.0.0.1:8080 unless given)
//! curl -i http://127.0.0.1:8080/api/v1/search             (six times)
//! ```

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::process::ExitCode;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::routing::{get, post};
use tokio::net::TcpListener;
use tollgate::Limiter;
use tollgate_http::LimitLayer;

const POLICY: &str = include_str!("policy.yaml");

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let Ok(address) = address.parse::<SocketAddr>() else {
        eprintln!(
            "`{address}` is not an address: give one such as 127.0.0.1:8080, or port 0 for any free one"
        );
        return ExitCode::from(2);
    };
    let app = match app() {
        Ok(app) => app,
        Err(mistakes) => {
            eprintln!("{mistakes}");
            return ExitCode::from(2);
        }
    };
    match serve(app, address).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            eprintln!("{address} is taken by another program: stop it, or give another address as argument");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("cannot serve on {address}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn app() -> Result<Router, tollgate::PolicyError> {
    let limiter = Limiter::from_policy(POLICY)?;
    let layer = LimitLayer::new(limiter)
        .with_peer(|parts| parts.extensions.get::<ConnectInfo<SocketAddr>>().map(|peer| peer.0.ip()));
    Ok(Router::new()
        .route("/", get(|| async { "not limited\n" }))
        .route("/api/v1/login", post(|| async { "welcome\n" }))
        .route("/api/v1/search", get(|| async { "found nothing\n" }))
        .route("/api/v1/posts", get(|| async { "no posts\n" }))
        .layer(layer))
}

async fn serve(app: Router, address: SocketAddr) -> io::Result<()> {
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    println!("listening on http://{address}, until Ctrl-C");
    println!("five a minute, the sixth is refused:  curl -i http://{address}/api/v1/search");
    println!(
        "two limits at once:                   curl -i -X POST -H 'X-User-Id: ann' http://{address}/api/v1/login"
    );
    println!("not limited:                          curl -i http://{address}/");
    // Adds the peer address to each request: without it all callers would share one allowance.
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service).with_graceful_shutdown(interrupted()).await
}

async fn interrupted() {
    if let Err(error) = tokio::signal::ctrl_c().await {
        eprintln!("cannot listen for Ctrl-C: {error}");
        std::future::pending::<()>().await;
    }
    println!("stopping");
}
