//! A plain hyper service behind Tollgate, without a framework.
//!
//! The example serves itself: it makes four requests to a limit of three a minute, prints the
//! responses, and ends.
//!
//! Run it with `cargo run -p tollgate-http --example hyper`.

use std::convert::Infallible;
use std::error::Error;
use std::net::SocketAddr;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tollgate::Limiter;
use tollgate_http::LimitLayer;
use tower::{Layer as _, service_fn};

const POLICY: &str = "limits: [{name: search, endpoint: /search, by: ip, bucket: 3/minute}]";

async fn search(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::from("found nothing\n")))
}

async fn serve(listener: TcpListener, layer: LimitLayer) {
    while let Ok((stream, peer)) = listener.accept().await {
        // Every connection has its own peer, which a limit `by: ip` counts.
        let service = layer.clone().with_peer(move |_| Some(peer.ip())).layer(service_fn(search));
        let connection =
            http1::Builder::new().serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                eprintln!("{peer}: {error}");
            }
        });
    }
}

async fn get(address: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut response = String::new();
    stream.read_to_string(&mut response).await?;
    Ok(response)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(serve(listener, LimitLayer::new(Limiter::from_policy(POLICY)?)));
    for _ in 0..4 {
        println!("{}", get(address, "/search").await?);
    }
    Ok(())
}
