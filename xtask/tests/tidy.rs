//! The repository keeps its own rules.

#[test]
fn everything_is_in_its_place() {
    let findings = xtask::findings().expect("the repository can be read");
    assert!(findings.is_empty(), "\n{}", findings.join("\n"));
}
