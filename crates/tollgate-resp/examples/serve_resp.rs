//! Serves the Redis protocol on one thread: `cargo run --release -p tollgate-resp --example serve_resp -- 127.0.0.1:7379`.

use tollgate::{Limiter, SharedLimiter};
use tollgate_net::{Drain, Sockets};
use tollgate_resp::{Resp, RespSettings};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:7379".to_owned());
    let limiter = Limiter::from_policy("limits: [{name: api, by: user, bucket: 100/minute}]")?;
    let resp = Resp::new(SharedLimiter::from(limiter), RespSettings::default());
    let sockets = Sockets::bind(&address, 1)?;
    println!("listening on {}", sockets.address());
    let listener = sockets.into_listeners().into_iter().next().ok_or("no listener")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (_drainer, drain) = Drain::new();
    runtime.block_on(resp.serve(listener, None, drain))?;
    Ok(())
}
