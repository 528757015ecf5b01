//! The shared vectors: the reference for every store and script.
//!
//! Both the model and the implementation must give the answers in `vectors/*.json`. With
//! `TOLLGATE_BLESS=1` the files are rewritten with the answers of the *model*, never with those of
//! the implementation.

#[path = "../model/mod.rs"]
#[allow(dead_code, reason = "the proof asks the models more than the vectors do")]
mod model;
mod subject;

use subject::Subject;
use tollgate_core::Quota;
use tollgate_core::vectors::{Case, Expect, File, texts};

#[allow(clippy::disallowed_methods, reason = "a test is the binary here: it reads its switch once, at start")]
fn blessing() -> bool {
    std::env::var("TOLLGATE_BLESS").is_ok()
}

/// Returns the file with the answers of the model.
fn answered_by_the_model(mut file: File) -> File {
    for case in &mut file.cases {
        let mut model = Subject::model(&case.quota.build());
        for step in &mut case.steps {
            step.expect = Some(Expect::from(model.perform(step)));
        }
    }
    file
}

#[test]
fn the_model_gives_the_answers_in_the_files() {
    for (name, text) in texts() {
        let answered = answered_by_the_model(File::parse(name, text)).render();
        if blessing() {
            let path = format!("{}/vectors/{name}.json", env!("CARGO_MANIFEST_DIR"));
            std::fs::write(path, answered).unwrap();
        } else {
            let differs = text.lines().zip(answered.lines()).find(|(stored, now)| stored != now);
            assert_eq!(differs, None, "{name}.json, where left is stored and right is the model's");
            assert_eq!(text, answered, "{name}.json");
        }
    }
}

#[test]
fn the_implementation_gives_the_answers_in_the_files() {
    for (name, text) in texts() {
        let file = File::parse(name, text);
        let file = if blessing() { answered_by_the_model(file) } else { file };
        for case in file.cases {
            let mut ours = Subject::ours(case.quota.build());
            for step in &case.steps {
                let answer = Some(Expect::from(ours.perform(step)));
                assert_eq!(answer, step.expect, "{name}: {} at {}: {:?}", case.name, step.at_us, step.act);
            }
        }
    }
}

#[test]
fn every_case_matches_its_file_and_has_a_unique_name() {
    for (name, text) in texts() {
        let cases = File::parse(name, text).cases;
        let mut names: Vec<_> = cases.iter().map(|case| &case.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), cases.len(), "{name}.json has two cases of one name");
        if name == "lease" {
            continue; // leases of all algorithms
        }
        let mut algorithms = cases.iter().map(|case| case.quota.build().algorithm());
        let in_parts = name.strip_suffix("-in-parts");
        assert!(algorithms.all(|algorithm| algorithm == in_parts.unwrap_or(name)), "{name}.json");
        let are_in_parts = |case: &Case| matches!(case.quota.build(), Quota::SlidingParts(_));
        assert!(cases.iter().all(|case| are_in_parts(case) == in_parts.is_some()), "{name}.json");
    }
}

/// Redis computes in doubles, and JavaScript parses JSON numbers as doubles.
#[test]
fn every_number_is_exact_as_a_double() {
    for (name, text) in texts() {
        let mut digits = text.split(|c: char| !c.is_ascii_digit()).filter(|digits| !digits.is_empty());
        let large = digits.find(|digits| digits.parse::<u64>().is_ok_and(|number| number >= 1 << 53));
        assert_eq!(large, None, "{name}.json");
    }
}
