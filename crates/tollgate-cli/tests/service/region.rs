//! A node of one of two regions that share a limit equally.

use tollgate_testkit::{Redis, SlowLink, Tollgate};

const BINARY: &str = env!("CARGO_BIN_EXE_tollgate");

/// Starts a node of a region with the units of both regions. `far` is the way to the store of the other region.
pub(crate) fn start(units: u64, (here, near): (&str, &Redis), (other, far): (&str, &SlowLink)) -> Tollgate {
    let policy = format!(
        "store: {{url: '{}', deadline: 10s}}\n\
         regions:\n  shares: {{eu: 50%, us: 50%}}\n  stores: {{{other}: 'redis://{}'}}\n\
         gateway: {{workers: 1}}\n\
         limits:\n  - {{name: plan, by: global, rate: {units}/day, algorithm: fixed-window, align: first-request, scope: global}}\n",
        near.url(),
        far.address(),
    );
    Tollgate::start_with(BINARY, &policy, &["--set", &format!("regions.here={here}")])
}
