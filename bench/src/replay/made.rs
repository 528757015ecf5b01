//! Generates a log like that of a web shop, the same in every run.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::Path;

use crate::zipf::{Rng, Zipf, mixed};

/// Number of clients, with Zipf weights.
const CLIENTS: usize = 20_000;

/// Number of pages, with Zipf weights.
const PAGES: usize = 5_000;

/// Requests per second.
const RATE: usize = 40;

const AGENTS: [&str; 4] = [
    "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 Safari/537.36",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_2 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.2 Mobile/15E148 Safari/604.1",
    "Mozilla/5.0 (compatible; ExampleBot/2.1; +http://bot.example/about)",
    "curl/8.5.0",
];

/// Writes this many lines in the combined format. One in five is a second late, as with several workers.
pub fn write(path: &Path, lines: usize) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    let (mut clients, mut pages, mut rng) = (Zipf::new(CLIENTS), Zipf::new(PAGES), Rng::new());
    for line in 0..lines {
        // Starts in the second minute of a March, so that late lines stay in the month.
        let second = 60 + line / RATE - usize::from(rng.below(5) == 0);
        let [a, b, c, ..] = mixed(clients.next().unwrap_or(0) as u64).to_le_bytes();
        let page = pages.next().unwrap_or(0);
        let status = if rng.below(10) == 0 { 404 } else { 200 };
        let bytes = rng.below(50_000);
        let agent = AGENTS[rng.below(AGENTS.len())];
        let (day, hour, minute) = (1 + second / 86_400, second / 3_600 % 24, second / 60 % 60);
        writeln!(
            file,
            "10.{a}.{b}.{c} - - [{day:02}/Mar/2024:{hour:02}:{minute:02}:{:02} +0000] \"GET /shop/items/{page} HTTP/1.1\" \
             {status} {bytes} \"https://shop.example/\" \"{agent}\"",
            second % 60,
        )?;
    }
    file.flush()
}

/// The most lines: more would reach into April.
pub const MAX_LINES: usize = 30 * 86_400 * RATE;
