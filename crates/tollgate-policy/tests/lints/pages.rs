//! The lint pages agree with the code.

use std::fs;
use std::path::Path;

use tollgate_policy::{Lint, LintScope};

use super::codes;

fn yaml_blocks(page: &str) -> Vec<String> {
    page.split("```yaml\n").skip(1).map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

#[test]
fn the_first_policy_of_a_page_has_the_lint_and_the_second_has_not() {
    for lint in Lint::ALL.iter().filter(|it| matches!(it.of(), LintScope::Limit | LintScope::Policy)) {
        let [with, without] = &yaml_blocks(lint.page())[..] else { panic!("{lint} has two policies") };
        assert!(codes(with).contains(&lint.code()), "{lint}: {:?}\n{with}", codes(with));
        assert_eq!(codes(without), [""; 0], "{lint}\n{without}");
    }
}

#[test]
fn every_page_says_what_happens_how_to_fix_it_and_when_to_keep_it() {
    for lint in Lint::ALL {
        let page = lint.page();
        assert_eq!(page.lines().next(), Some(format!("# {lint}").as_str()));
        assert!(lint.summary().ends_with('.') && lint.summary().len() < 130, "{lint}: {}", lint.summary());
        for part in ["**What happens.**", "**Fix.**", "**Keep it**"] {
            assert!(page.contains(part), "{lint} says: {part}");
        }
        assert_eq!(Lint::find(lint.code()), Some(*lint));
    }
    assert_eq!(Lint::nearest("fixed-windows-alone"), Some("fixed-window-alone"));
    assert_eq!((Lint::find("no"), Lint::nearest("tomato")), (None, None));
}

#[test]
fn every_page_is_of_a_lint_and_all_are_in_the_document() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("lints");
    let names = fs::read_dir(folder).unwrap().map(|it| it.unwrap().file_name().into_string().unwrap());
    let mut pages: Vec<_> = names.filter(|it| it != "README.md").collect();
    let mut known: Vec<_> = Lint::ALL.iter().map(|it| format!("{it}.md")).collect();
    pages.sort();
    known.sort();
    assert_eq!(pages, known);
    let document = Lint::document();
    for lint in Lint::ALL {
        assert_eq!(document.matches(&format!("\n## {lint}\n")).count(), 1, "{lint}");
    }
}
