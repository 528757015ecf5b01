//! Calls a URL a hundred times with `reqwest`, under the limits of its server.
//!
//! `cargo run -p tollgate-client --features reqwest --example reqwest -- http://127.0.0.1:8080/api/v1/search`

use tollgate::Sleeper;
use tollgate_client::{CallOptions, Client};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "http://127.0.0.1:8080/api/v1/search".to_owned());
    let http = reqwest::Client::new();
    let client = Client::builder().sleeper(Sleeper::new(tokio::time::sleep)).build();
    for number in 1..=100 {
        let response = client.execute(&http, http.get(&url).build()?, CallOptions::default()).await?;
        println!("{number}: {}, {:?}", response.status(), client.counts());
    }
    Ok(())
}
