//! One bad file for each mistake, with the exact message beside it.
//!
//! A folder contains several files that are read together. If one of their names ends in
//! `-merge.yaml`, domains are merged. `TOLLGATE_BLESS=1 cargo test -p tollgate-envoy
//! --test integration gallery` rewrites the messages; read them before you commit them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::fs;
use std::path::{Path, PathBuf};

use tollgate::Policy;
use tollgate::policy::{Lint, LintScope, format_words};
use tollgate_envoy::{EnvoyConfig, EnvoyFile};

fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut all: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    all.retain(|it| it.is_dir() || it.extension().is_some_and(|it| it == "yaml"));
    all.sort();
    all
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn file(path: &Path) -> EnvoyFile {
    let name = path.file_name().unwrap().to_str().unwrap().to_owned();
    EnvoyFile { name, text: fs::read_to_string(path).unwrap() }
}

#[allow(clippy::disallowed_methods, reason = "a switch for test runs, not for the product")]
fn blessing() -> bool {
    std::env::var("TOLLGATE_BLESS").is_ok()
}

#[test]
fn every_bad_file_says_what_to_change() {
    let all = entries(&folder("gallery"));
    assert!(all.len() >= 45, "the gallery has {} entries", all.len());
    let mut wrong = Vec::new();
    for path in all {
        let files: Vec<_> = if path.is_dir() {
            entries(&path).iter().map(|it| file(it)).collect()
        } else {
            vec![file(&path)]
        };
        let merge = files.iter().any(|file| file.name.ends_with("-merge.yaml"));
        let Err(mistakes) = EnvoyConfig::read(&files, merge) else { panic!("{} is good", path.display()) };
        let said: Vec<_> = mistakes.iter().map(|(name, mistakes)| mistakes.render(name)).collect();
        let said = said.join("\n");
        let control = said.chars().find(|char| char.is_control() && *char != '\n');
        assert_eq!(control, None, "{}: the message can be printed", path.display());
        let expected = path.with_extension("txt");
        if blessing() {
            fs::write(&expected, &said).unwrap();
        } else if fs::read_to_string(&expected).ok().as_deref() != Some(&said) {
            wrong.push(format!("{} now says:\n{said}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_good_file_can_be_put_in_force() {
    let files: Vec<_> = entries(&folder("good")).iter().map(|path| file(path)).collect();
    assert!(files.len() >= 15, "there are {} good files", files.len());
    let shown = |all: &[(String, tollgate::PolicyError)]| {
        all.iter().map(|(name, said)| said.render(name)).collect::<Vec<_>>().join("\n")
    };
    let config = EnvoyConfig::read(&files, false).unwrap_or_else(|wrong| panic!("{}", shown(&wrong)));
    assert!(config.warnings().is_empty(), "{}", shown(config.warnings()));
    let policy = config.apply(Policy::default()).unwrap();
    assert!(policy.limits().len() > 40, "{} limits", policy.limits().len());
}

#[test]
fn probable_mistakes_are_warnings() {
    let limit = "rate_limit: {unit: day, requests_per_unit: 1}";
    for (descriptor, message) in [
        ("key: a, rate_limit: {unit: day}", "without `requests_per_unit`, this limit admits nothing"),
        (
            "key: a, rate_limit: {unit: day, requests_per_unit: 1, shadow_mode: true}",
            "`shadow_mode` has no effect in a `rate_limit`",
        ),
        ("key: a, unit: day", "`unit` has no effect in a descriptor"),
        (&format!("key: 'a*', {limit}"), "`*` in a key is not a wildcard"),
        ("key: a, shadow_mode: true", "`shadow_mode` has no effect without a `rate_limit` beside it"),
        ("key: a, metadata: {a: b}", "`metadata` has no effect without a `rate_limit` beside it"),
        (
            "key: a, rate_limit: {unlimited: true, requests_per_unit: 1}",
            "`requests_per_unit` has no effect beside `unlimited`",
        ),
        (
            "key: a, rate_limit: {unit: day, requests_per_unit: 1, replaces: [{name: b}]}",
            "no limit of this domain is called `b`",
        ),
    ] {
        let text = format!("domain: shop\ndescriptors:\n  - {{{descriptor}}}\n");
        let file = EnvoyFile { name: "shop.yaml".into(), text };
        let config = EnvoyConfig::read(&[file], false).unwrap_or_else(|wrong| panic!("{wrong:?}"));
        let found: Vec<_> = config.warnings().iter().flat_map(|(_, all)| all.iter()).collect();
        let found: Vec<_> = found.iter().map(|it| it.message.as_str()).collect();
        assert_eq!(found, [message], "{descriptor}");
    }
}

#[test]
fn a_brief_message_shows_words_of_the_format_and_no_full_value() {
    let text = "domain: d\ndescriptors:\n  - {key: api_key, value: sk-live-51secret, share_threshold: true}
  - {key: api_key, value: sk-live-51secret}\n  - {key: user, rate_limit: sk-live-51secret}\n";
    let file = EnvoyFile { name: "d.yaml".into(), text: text.into() };
    let wrong = EnvoyConfig::read(&[file], false).unwrap_err();
    let said = wrong[0].1.brief("d.yaml", format_words());
    assert_eq!(said.lines().count(), 3, "{said}");
    assert!(said.contains("`share_threshold`") && said.contains("`rate_limit`"), "{said}");
    assert!(!said.contains("51secret"), "{said}");
}

#[test]
fn the_first_file_of_a_page_has_the_lint_and_the_second_has_not() {
    let mut seen = 0;
    for lint in Lint::ALL.iter().filter(|it| it.of() == LintScope::Envoy) {
        let files = lint.page().split("```yaml\n").skip(1).map(|rest| rest.split("```").next().unwrap());
        let codes = |text: &str| -> Vec<&str> {
            let file = EnvoyFile { name: "e.yaml".into(), text: text.to_owned() };
            let config = EnvoyConfig::read(&[file], false).unwrap_or_else(|wrong| panic!("{wrong:?}"));
            config.warnings().iter().flat_map(|(_, all)| all.iter()).filter_map(|it| it.code).collect()
        };
        // Lints about the folder as a whole have no files.
        let [with, without] = &files.collect::<Vec<_>>()[..] else { continue };
        assert_eq!((codes(with), codes(without)), (vec![lint.code()], vec![]), "{lint}");
        seen += 1;
    }
    assert_eq!(seen, 4);
}
