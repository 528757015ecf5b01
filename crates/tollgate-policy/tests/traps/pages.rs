//! The pages tell what the code does.

use std::fs;
use std::path::Path;

use tollgate_policy::{Trap, TrapOf};

use super::codes;

fn yaml_blocks(page: &str) -> Vec<String> {
    page.split("```yaml\n").skip(1).map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

#[test]
fn the_first_policy_of_a_page_has_the_trap_and_the_second_has_not() {
    for trap in Trap::ALL.iter().filter(|it| matches!(it.of(), TrapOf::Limit | TrapOf::Policy)) {
        let [with, without] = &yaml_blocks(trap.page())[..] else { panic!("{trap} has two policies") };
        assert!(codes(with).contains(&trap.code()), "{trap}: {:?}\n{with}", codes(with));
        assert_eq!(codes(without), [""; 0], "{trap}\n{without}");
    }
}

#[test]
fn every_page_says_what_happens_how_to_fix_it_and_when_to_keep_it() {
    for trap in Trap::ALL {
        let page = trap.page();
        assert_eq!(page.lines().next(), Some(format!("# {trap}").as_str()));
        assert!(trap.summary().ends_with('.') && trap.summary().len() < 130, "{trap}: {}", trap.summary());
        for part in ["**What happens.**", "**Fix.**", "**Keep it**"] {
            assert!(page.contains(part), "{trap} says: {part}");
        }
        assert_eq!(Trap::find(trap.code()), Some(*trap));
    }
    assert_eq!(Trap::nearest("fixed-windows-alone"), Some("fixed-window-alone"));
    assert_eq!((Trap::find("no"), Trap::nearest("tomato")), (None, None));
}

#[test]
fn every_page_is_of_a_trap_and_all_are_in_the_document() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("traps");
    let names = fs::read_dir(folder).unwrap().map(|it| it.unwrap().file_name().into_string().unwrap());
    let mut pages: Vec<_> = names.filter(|it| it != "README.md").collect();
    let mut known: Vec<_> = Trap::ALL.iter().map(|it| format!("{it}.md")).collect();
    pages.sort();
    known.sort();
    assert_eq!(pages, known);
    let document = Trap::document();
    for trap in Trap::ALL {
        assert_eq!(document.matches(&format!("\n## {trap}\n")).count(), 1, "{trap}");
    }
}
