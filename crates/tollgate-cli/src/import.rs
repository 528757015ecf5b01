//! `tollgate import`: converts the configuration of another limiter into a policy.
//!
//! The conversion is in `tollgate_import`.

use std::io::{self, Read};
use std::path::Path;
use std::process::ExitCode;

use tollgate_daemon::Failure;
use tollgate_daemon::configuration::{LoadPhase, about_each, read_file, shown};
use tollgate_daemon::io_error::Attempt;
use tollgate_document::Diagnostics;
use tollgate_envoy::EnvoyFile;
use tollgate_import::ImportedPolicy;

use crate::arguments::{Foreign, Import};
use crate::output;

/// The maximum size of the input.
const MAX_INPUT_BYTES: u64 = 32 << 20;

pub(crate) fn run(arguments: &Import) -> Result<ExitCode, Failure> {
    let mut files = Vec::with_capacity(arguments.files.len());
    for path in &arguments.files {
        files.push(read(path)?);
    }
    let imported = match (arguments.from, files.as_slice()) {
        (Foreign::Envoy, files) => {
            tollgate_import::envoy(files, arguments.merge).map_err(|wrong| about_each(&wrong))?
        }
        (_, _) if arguments.merge => {
            return Err(Failure::new("`--merge` is for files of Envoy: others have no domains"));
        }
        (Foreign::Limitador, [file]) => one(file, tollgate_import::limitador)?,
        (Foreign::Nginx, [file]) => one(file, tollgate_import::nginx)?,
        _ => {
            return Err(Failure::with_help(
                "this takes one file at a time",
                "for nginx, `nginx -T | tollgate import nginx -` has all of them in one",
            ));
        }
    };
    match &arguments.output {
        None => output::text(&imported.policy)?,
        Some(path) => output::new_file(path, &imported.policy)?,
    }
    // Notes are also printed, because output that goes to a file is not read immediately.
    for note in &imported.notes {
        output::complain(&format!("note: {note}\n"));
    }
    Ok(ExitCode::SUCCESS)
}

type Importer = fn(&str, &str) -> Result<ImportedPolicy, Diagnostics>;

fn one(file: &EnvoyFile, import: Importer) -> Result<ImportedPolicy, Failure> {
    import(&file.name, &file.text).map_err(|wrong| Failure::about(&wrong, &file.name))
}

fn read(path: &Path) -> Result<EnvoyFile, Failure> {
    if path.as_os_str() != "-" {
        return Ok(EnvoyFile { name: shown(path), text: read_file(path, LoadPhase::First)? });
    }
    let mut text = String::new();
    let read = io::stdin().lock().take(MAX_INPUT_BYTES).read_to_string(&mut text);
    read.map_err(|error| Failure::io("cannot read standard input", &error, Attempt::Other))?;
    Ok(EnvoyFile { name: "standard input".to_owned(), text })
}
