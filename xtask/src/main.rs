//! `cargo run -p xtask -- tidy` says what is out of place; `-- generate` writes
//! the generated documents.

use std::process::ExitCode;

fn main() -> ExitCode {
    let done = match std::env::args().nth(1).as_deref() {
        Some("tidy") => xtask::findings(),
        Some("generate") => xtask::reference::write(&xtask::root()).map(|()| Vec::new()),
        _ => {
            eprintln!("usage: cargo run -p xtask -- tidy | generate");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(findings) if findings.is_empty() => ExitCode::SUCCESS,
        Ok(findings) => {
            eprintln!("{}", findings.join("\n"));
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::from(2)
        }
    }
}
