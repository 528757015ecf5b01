//! A limiter answers any request: no panic, no bypass, no growth.

use std::net::IpAddr;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};
use tollgate::{Call, Limiter};

const POLICY: &str = "
max_keys: 1000
limits:
  - {name: all, by: ip, bucket: 5/hour}
  - {name: header, endpoint: '/h/**', by: 'header:X-Tenant', bucket: 5/hour}
  - {name: cookie, endpoint: '/h/**', by: 'cookie:session', bucket: 5/hour, missing: shared}
  - {name: query, endpoint: '/q/{id}', by: ['path:id', 'query:q'], rate: 5/hour, algorithm: sliding-log}
  - {name: cost, endpoint: '/c/**', by: user, bucket: 5/hour, cost: 'header:X-Cost'}
";

fn path() -> impl Strategy<Value = String> {
    prop_oneof!["/(h|q|c|x)(/[a-z%./]{0,12}){0,4}", "\\PC{0,40}", "/[h-q%2eF/.;?&=]{0,60}"]
}

proptest! {
    #![proptest_config(Config { cases: 2_000, rng_seed: RngSeed::Fixed(7), failure_persistence: None, ..Config::default() })]

    #[test]
    fn no_request_panics_or_exceeds_the_widest_limit(
        method in "\\PC{0,8}",
        paths in prop::collection::vec(path(), 1..4),
        address in any::<u128>(),
        name in "\\PC{0,12}",
        value in prop::collection::vec(any::<u8>(), 0..300),
        cost in prop::option::of(any::<u64>()),
    ) {
        let limiter = Limiter::from_policy(POLICY).unwrap();
        let address = IpAddr::from(address.to_be_bytes());
        let value = &value[..];
        let mut passed = 0;
        for turn in 0..20 {
            let path = &paths[turn % paths.len()];
            let mut call = Call::new(&method, path).ip(address).header("X-Tenant", value).header("cookie", value);
            call = call.header("X-Cost", value).user(&name).host(&name);
            if let Some(cost) = cost {
                call = call.cost(cost.max(1));
            }
            let decision = limiter.check(&call);
            passed += u32::from(decision.is_allowed());
            for limit in decision.limits() {
                prop_assert!(limit.key().as_bytes().len() <= 2 * 140);
                prop_assert!(!limit.key().display().to_string().contains(char::is_control));
            }
        }
        prop_assert!(passed <= 5, "{passed} passed a limit of five");
    }
}
