//! Two nodes that share one budget in Redis.
//!
//! Run it with `cargo run -p tollgate-redis --example fleet [URL]`; the default URL is
//! `redis://127.0.0.1:6379`. The two nodes admit five requests together. Without a Redis at that
//! URL, each node admits its own share, and every line says so.

use std::error::Error;

use tollgate::{Call, Limiter, Policy};
use tollgate_redis::{RedisSettings, RedisStore};

const POLICY: &str = "
limits:
  - name: exports
    by: user
    bucket: 5/minute
";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1);
    for line in run(url.as_deref().unwrap_or("redis://127.0.0.1:6379")).await? {
        println!("{line}");
    }
    Ok(())
}

/// Sends eight requests of one user to two nodes in turn, and returns one line for each.
pub async fn run(url: &str) -> Result<Vec<String>, Box<dyn Error>> {
    let node = || -> Result<_, Box<dyn Error>> {
        let store = RedisStore::new(RedisSettings::parse(&[url])?);
        Ok(Limiter::with_store(Policy::parse(POLICY)?, store))
    };
    let nodes = [node()?, node()?];
    let mut lines = Vec::new();
    for request in 0..8 {
        let at = request % nodes.len();
        let decision = nodes[at].decide(&Call::new("POST", "/exports").user("ann")).await;
        let Some(limit) = decision.limiting() else { continue };
        let outcome = match decision.retry_after() {
            None => format!("admitted, {} left", limit.outcome().remaining),
            Some(wait) => format!("refused, retry in {wait:.0?}"),
        };
        let source = if decision.is_degraded() { " (Redis does not answer: decided locally)" } else { "" };
        lines.push(format!("node {}: {outcome}{source}", at + 1));
    }
    Ok(lines)
}
