//! The properties of the division, for any budget and any demand.

use proptest::prelude::*;
use tollgate_rlqs::division::{DemandRate, max_min, targets};

fn demand_rate() -> impl Strategy<Value = DemandRate> {
    prop_oneof![Just(DemandRate::Unknown), (0_u64..10_000_000).prop_map(DemandRate::Known)]
}

proptest! {
    #[test]
    fn shares_never_exceed_the_total_nor_the_wants(
        total in 0_u64..5_000_000_000,
        wants in prop::collection::vec(0_u64..5_000_000_000, 0..50),
    ) {
        let shares = max_min(total, &wants);
        prop_assert!(shares.iter().sum::<u64>() <= total);
        prop_assert!(shares.iter().zip(&wants).all(|(share, want)| share <= want));
        // The rest is less than one token for each claim that wants more.
        let unmet = shares.iter().zip(&wants).filter(|(share, want)| share < want).count() as u64;
        let left = total - shares.iter().sum::<u64>();
        prop_assert!(unmet == 0 || left < unmet.max(1), "{left} left of {total} for {unmet}");
    }

    #[test]
    fn no_claim_has_more_than_another_that_wants_more(
        total in 0_u64..1_000_000,
        wants in prop::collection::vec(0_u64..1_000_000, 1..50),
    ) {
        let shares = max_min(total, &wants);
        for (share, want) in shares.iter().zip(&wants) {
            let largest = shares.iter().max().unwrap();
            prop_assert!(share == want || share + 1 >= *largest, "{share} of {want}, largest {largest}");
        }
    }

    #[test]
    fn targets_never_exceed_the_budget(
        budget in 0_u64..5_000_000_000,
        demands in prop::collection::vec(demand_rate(), 0..100),
        spread in any::<bool>(),
    ) {
        prop_assert!(targets(budget, &demands, spread).iter().sum::<u64>() <= budget);
    }

    #[test]
    fn known_demand_that_fits_is_met(
        demands in prop::collection::vec(0_u64..1_000, 1..20),
    ) {
        let wanted: u64 = demands.iter().sum();
        let claims: Vec<DemandRate> = demands.iter().map(|it| DemandRate::Known(*it)).collect();
        let targets = targets(wanted * 2 + 1_000, &claims, true);
        prop_assert!(targets.iter().zip(&demands).all(|(target, demand_rate)| target >= demand_rate));
    }
}
