//! Warnings about a directory of Envoy's files in combination with the policy.
//!
//! Warnings within one file are in `tollgate_envoy`.

use std::path::Path;

use tollgate::policy::Lint;
use tollgate::{Limit, Policy};
use tollgate_document::sanitize::Printable;
use tollgate_envoy::{Domain, EnvoyConfig};

use super::{ConfigWarning, Folder, shown};

/// The maximum number of limits that a warning names.
const MAX_NAMED_LIMITS: usize = 10;

/// Returns all warnings. They contain no text of the files.
pub(super) fn remarks(
    path: &Path,
    folder: &Folder,
    config: &EnvoyConfig,
    policy: &Policy,
) -> Vec<ConfigWarning> {
    no_files(path, folder).into_iter().chain(never_asked(config, policy)).collect()
}

/// Warns of a directory without files, which would admit everything.
fn no_files(path: &Path, folder: &Folder) -> Option<ConfigWarning> {
    folder.files.is_empty().then(|| ConfigWarning::Plain {
        code: Lint::NoEnvoyFiles,
        messages: vec![format!(
            "{} holds no *.yaml or *.yml file, so no limit of Envoy's is in force",
            shown(path)
        )],
        more: 0,
        help: "is it the right folder? Files that begin with a dot or lie deeper are not read".to_owned(),
    })
}

/// Warns of limits on descriptors of a domain that an Envoy file decides alone.
fn never_asked(config: &EnvoyConfig, policy: &Policy) -> Option<ConfigWarning> {
    let found = config.decided_alone(policy);
    let message = |(limit, domain): &(&Limit, &Domain)| {
        let (limit, domain, file) = (limit.name(), &domain.name, Printable(&domain.file));
        format!("limit `{limit}` is never asked in the domain `{domain}`: {file} decides there alone")
    };
    (!found.is_empty()).then(|| ConfigWarning::Plain {
        code: Lint::NeverAsked,
        messages: found.iter().take(MAX_NAMED_LIMITS).map(message).collect(),
        more: found.len().saturating_sub(MAX_NAMED_LIMITS),
        help: "write it into that file, or send its descriptors in another domain".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use tollgate_testkit::Scratch;

    use super::super::{Configuration, Inputs, LoadPhase, Overlay, literal};

    fn load(files: &Scratch, limits: &str) -> Configuration {
        let set = |path: &str, value: String| Overlay {
            origin: "on the command line",
            typed: format!("--set {path}="),
            path: path.to_owned(),
            value,
        };
        let folder = literal(&files.path().display().to_string());
        let overlays = vec![set("rls.envoy_config", folder), set("limits", limits.to_owned())];
        Inputs { overlays, ..Inputs::default() }.load(LoadPhase::First).unwrap()
    }

    #[test]
    fn a_directory_without_files_causes_a_warning() {
        let files = Scratch::new();
        files.write("limits.txt", "domain: edge\n");
        let configuration = load(&files, "[]");
        for warnings in [&configuration.warnings, &configuration.brief_warnings] {
            assert!(
                warnings.len() == 1 && warnings[0].contains("holds no *.yaml or *.yml file"),
                "{warnings:?}"
            );
        }
        files.write("edge.yaml", "domain: edge\n");
        assert_eq!(load(&files, "[]").warnings, [""; 0]);
    }

    #[test]
    fn a_policy_limit_for_the_domain_of_a_file_causes_a_warning() {
        let files = Scratch::new();
        files.write(
            "e.yaml",
            "domain: edge\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1}}]\n",
        );
        let limit = |name: &str, rest: &str| format!("{{name: {name}, descriptor: [n], {rest}}}");
        let limits = [
            limit("dead", "domain: edge, bucket: 1/day"),
            limit("half", "domain: [shop, edge], bucket: 3/day"),
            limit("alive", "domain: shop, bucket: 2/day"),
            "{name: path, by: ip, bucket: 1/s}".to_owned(),
        ];
        let configuration = load(&files, &format!("[{}]", limits.join(", ")));
        for warnings in [&configuration.warnings, &configuration.brief_warnings] {
            let [warning] = &warnings[..] else { panic!("{warnings:?}") };
            for limit in ["dead", "half"] {
                let said = format!("limit `{limit}` is never asked in the domain `edge`");
                assert!(
                    warning.contains(&said) && warning.contains("e.yaml decides there alone"),
                    "{warning}"
                );
            }
            assert!(!warning.contains("alive") && !warning.contains("path"), "{warning}");
        }
    }
}
