//! Runs tests of policies: a YAML file beside the policy states requests, their times and the expected outcomes.
//!
//! Tests run in virtual time, with the same limiter that serves requests, on the in-memory store. Responses are
//! written by the code that writes them for clients, so a passing test shows the response that a client would get.
//!
//! ```
//! use tollgate::Policy;
//! use tollgate_policy_test::{Coverage, Suite};
//!
//! let policy = Policy::parse("limits: [{name: login, by: ip, bucket: 2/minute}]")?;
//! let suite = Suite::parse("
//! defaults: {ip: 203.0.113.9}
//! tests:
//!   - name: two logins a minute
//!     steps:
//!       - {request: POST /login, times: 2, expect: allowed}
//!       - {request: POST /login, expect: {decision: refused, limit: login, retry_after: 30s}}
//!       - wait: 30s
//!       - {request: POST /login, expect: allowed}
//! ")?;
//! suite.check(&policy)?;
//! let mut coverage = Coverage::of(&policy);
//! for test in suite.tests() {
//!     assert!(test.run(&policy, &mut coverage).has_passed());
//! }
//! assert!(coverage.percent() == 100);
//! # Ok::<(), tollgate::PolicyError>(())
//! ```
//!
//! # Modules
//!
//! - [`Suite`], [`Test`]: the contents of a file; `file_format` parses it.
//! - `timeline`: the time of each step.
//! - `request`: a request as the policy sees it.
//! - `run`: runs the steps of a test.
//! - `answer`, `expectation`: the actual and the expected outcome.
//! - `explanation`: the result of each limit, in words.
//! - [`Coverage`]: the limits, plans and overrides that tests reached.
//! - [`report`]: results as text, JSON and `JUnit` XML.
//! - [`schema`]: the JSON Schema of test files, for editors.
//!
//! Not here: files and clocks (this crate takes text), the terminal.

mod answer;
mod coverage;
mod expectation;
mod explanation;
mod file_format;
pub mod report;
mod request;
mod run;
mod schema;
mod suite;
mod timeline;

pub use coverage::{Coverage, Exception, LimitCoverage};
pub use run::{Mismatch, UnexpectedStep, Verdict};
pub use schema::schema;
pub use suite::{Suite, Test, Unprovided};
