//! Divides a budget over claims by demand: max-min fair, rounded down.
//!
//! The numbers are tokens per fill interval. Nothing here has a state or reads a clock.
//!
//! Invariant: the shares add up to at most the budget. Tested by `tests/division.rs`.

/// The part of a budget that is kept for newcomers: one part in this many.
const RESERVE_PARTS: u64 = 64;
/// A claim gets this part of its demand in addition, so that small changes of demand find room.
const HEADROOM_PARTS: u64 = 10;
/// A claim without demand gets the fair share divided by this.
const IDLE_PARTS: u64 = 16;
/// A claim of unknown demand gets the fair share divided by this.
const NEWCOMER_PARTS: u64 = 4;

/// The demand of one proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DemandRate {
    /// The proxy has not reported long enough.
    Unknown,
    /// Requests per fill interval, admitted and denied.
    Known(u64),
}

/// Returns the part of a budget that is kept for newcomers.
pub const fn reserve(budget: u64) -> u64 {
    budget / RESERVE_PARTS
}

/// Divides `total` so that no claim gets more than it wants, and no claim can get more without
/// taking from a claim that has less. Shares are rounded down.
///
/// ```
/// # use tollgate_rlqs::division::max_min;
/// assert_eq!(max_min(300, &[600, 30, 150]), [135, 30, 135]);
/// assert_eq!(max_min(2, &[1, 1, 1]), [0, 1, 1]);
/// ```
pub fn max_min(total: u64, wants: &[u64]) -> Vec<u64> {
    let mut order: Vec<usize> = (0..wants.len()).collect();
    order.sort_by_key(|&claim| wants[claim]);
    let (mut left, mut shares) = (total, vec![0; wants.len()]);
    for (done, &claim) in order.iter().enumerate() {
        let claims_left = (wants.len() - done) as u64;
        let share = wants[claim].min(left / claims_left);
        shares[claim] = share;
        left -= share;
    }
    shares
}

/// Returns the number of tokens that a claim wants, for a fair share of `fair`.
fn want(demand_rate: DemandRate, fair: u64) -> u64 {
    match demand_rate {
        DemandRate::Unknown => (fair / NEWCOMER_PARTS).max(1),
        DemandRate::Known(demand_rate) => {
            demand_rate.saturating_add(demand_rate.div_ceil(HEADROOM_PARTS)).max(fair / IDLE_PARTS).max(1)
        }
    }
}

/// Returns the tokens that all claims want together, for a budget of `limit`.
pub fn wanted(limit: u64, demands: &[DemandRate]) -> u64 {
    let fair = limit / (demands.len() as u64).max(1);
    demands.iter().fold(0, |sum: u64, demand_rate| sum.saturating_add(want(*demand_rate, fair)))
}

/// Returns the target of each claim.
///
/// The rate that no claim wants is spread: half of it evenly, so that new demand finds room without a call,
/// and half is kept for raises that need not wait. A single claim gets all of it. `spread` is false
/// while claims are still expected that had a share before.
pub fn targets(budget: u64, demands: &[DemandRate], spread: bool) -> Vec<u64> {
    let usable = budget - reserve(budget);
    let claims = (demands.len() as u64).max(1);
    let wants: Vec<u64> = demands.iter().map(|demand_rate| want(*demand_rate, usable / claims)).collect();
    let mut shares = max_min(usable, &wants);
    let left = usable - shares.iter().sum::<u64>();
    let extra = match (spread, claims) {
        (false, _) => 0,
        (true, 1) => left,
        (true, claims) => left / 2 / claims,
    };
    for share in &mut shares {
        *share += extra;
    }
    shares
}
