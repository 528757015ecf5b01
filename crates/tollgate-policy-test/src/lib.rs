//! Tests of policies: a YAML file beside the policy says who asks for what, when, and what must come of it.
//!
//! Steps are taken in virtual time by the limiter that serves, on the store in memory, and answers are worded by the code that words
//! them for clients: a test that passes here says what a client would see.
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
//! # Rooms
//!
//! - [`Suite`], [`Test`]: what is in a file; `file_format` reads it.
//! - `timeline`: when each step is taken.
//! - `request`: a request as the policy sees it.
//! - `run`: takes the steps of a test.
//! - `answer`, `expectation`: what came, and whether that was expected.
//! - `explanation`: what each limit said, in words.
//! - [`Coverage`]: which limits, plans and overrides were met.
//! - [`report`]: all that as text, JSON and the XML of `JUnit`.
//! - [`schema`]: for editors.
//!
//! Not here: files, clocks (this crate is handed text), the terminal.

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
