//! Repository tasks: `cargo run -p xtask -- tidy` reports violations of the rules; `-- generate`
//! writes the generated documents; `-- faults FOLDER` writes the document of the fault tests.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let done = match (arguments.next().as_deref(), arguments.next()) {
        (Some("tidy"), None) => xtask::findings(),
        (Some("generate"), None) => xtask::reference::write(&xtask::root()).map(|()| Vec::new()),
        (Some("faults"), Some(rows)) => {
            xtask::faults::write(&xtask::root(), rows.as_ref()).map(|()| Vec::new())
        }
        (Some("merge-faults"), Some(rows)) => {
            xtask::faults::merge(&xtask::root(), rows.as_ref()).map(|()| Vec::new())
        }
        _ => {
            eprintln!("usage: cargo run -p xtask -- tidy | generate | faults FOLDER | merge-faults FOLDER");
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
