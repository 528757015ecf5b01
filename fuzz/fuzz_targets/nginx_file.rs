//! Imports arbitrary text as an nginx configuration.
//!
//! Invariant: the importer returns diagnostics, or a policy that the policy parser accepts.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate::Policy;

fuzz_target!(|text: &str| match tollgate_import::nginx("nginx.conf", text) {
    Ok(imported) => {
        if let Err(diagnostics) = Policy::parse(&imported.policy) {
            panic!("{}\n{}", imported.policy, diagnostics.render("imported policy"));
        }
    }
    Err(diagnostics) => assert!(!diagnostics.render("nginx.conf").is_empty()),
});
