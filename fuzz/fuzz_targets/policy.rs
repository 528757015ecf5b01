//! Parses arbitrary text as a policy file.
//!
//! Invariant: the parser returns a policy or diagnostics that can be rendered, and an accepted policy decides a request.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate::policy::Call;
use tollgate::{Limiter, Policy};

fuzz_target!(|text: &str| match Policy::parse(text) {
    Ok(policy) => {
        let limiter = Limiter::new(policy);
        let _ = limiter.check(&Call::new("GET", "/"));
    }
    Err(diagnostics) => assert!(!diagnostics.render("policy.yaml").is_empty()),
});
