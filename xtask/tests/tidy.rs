//! The repository keeps its own rules.

#[test]
fn the_repository_has_no_violations() {
    let findings = xtask::findings().expect("the repository can be read");
    assert!(findings.is_empty(), "\n{}", findings.join("\n"));
}
