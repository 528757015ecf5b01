//! What is probably not meant about a folder of Envoy's files, seen beside the policy.
//!
//! Not here: what is odd within one of the files (`tollgate_envoy`).

use std::fmt::Write as _;
use std::path::Path;

use tollgate::Policy;
use tollgate_envoy::EnvoyConfig;

use super::{Folder, shown};

/// As many limits are named as a person reads.
const MOST_NAMED: usize = 10;

/// Everything, ready to print. None of it quotes a file.
pub(super) fn warnings(path: &Path, folder: &Folder, config: &EnvoyConfig, policy: &Policy) -> Vec<String> {
    no_files(path, folder).into_iter().chain(never_asked(config, policy)).collect()
}

/// A folder in the wrong place passes everything.
fn no_files(path: &Path, folder: &Folder) -> Option<String> {
    folder.files.is_empty().then(|| {
        format!(
            "warning: {} holds no *.yaml or *.yml file, so no limit of Envoy's is in force\n  \
             = help: is it the right folder? Files that begin with a dot or lie deeper are not read\n",
            shown(path)
        )
    })
}

/// Limits on descriptors of a domain that a file decides alone.
fn never_asked(config: &EnvoyConfig, policy: &Policy) -> Option<String> {
    let found = config.decided_alone(policy);
    let mut out = String::new();
    for (limit, domain) in found.iter().take(MOST_NAMED) {
        let (limit, domain, file) = (limit.name(), &domain.name, &domain.file);
        let _ = writeln!(
            out,
            "warning: limit `{limit}` is never asked in the domain `{domain}`: {} decides there alone",
            file.escape_debug()
        );
    }
    if found.len() > MOST_NAMED {
        let _ = writeln!(out, "  and {} more", found.len() - MOST_NAMED);
    }
    let help = "  = help: write it into that file, or send its descriptors in another domain\n";
    (!out.is_empty()).then(|| out + help)
}

#[cfg(test)]
mod tests {
    use tollgate_testkit::Scratch;

    use super::super::{Configuration, Inputs, Overlay, Reading, literal};

    fn load(files: &Scratch, limits: &str) -> Configuration {
        let set = |path: &str, value: String| Overlay {
            origin: "on the command line",
            typed: format!("--set {path}="),
            path: path.to_owned(),
            value,
        };
        let folder = literal(&files.path().display().to_string());
        let overlays = vec![set("rls.envoy_config", folder), set("limits", limits.to_owned())];
        Inputs { overlays, ..Inputs::default() }.load(Reading::First).unwrap()
    }

    #[test]
    fn a_folder_without_files_is_told_of() {
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
    fn a_limit_of_the_policy_for_a_domain_of_a_file_is_told_of() {
        let files = Scratch::new();
        files.write(
            "e.yaml",
            "domain: edge\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1}}]\n",
        );
        let limit =
            |name: &str, domain: &str| format!("{{name: {name}, descriptor: [n], {domain} bucket: 1/day}}");
        let limits = [
            limit("dead", "domain: edge,"),
            limit("half", "domain: [shop, edge],"),
            limit("alive", "domain: shop,"),
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
