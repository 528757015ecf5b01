//! Cases that leases pass on every store that nodes share.

use std::future::poll_fn;
use std::task::Poll;

use tollgate_core::{Bucket, Quota, Rate, Rule, Span};
use tollgate_store::{Check, Outcomes, Store};

use crate::Leased;

/// The units of the limit of a stampede.
const LIMIT: usize = 100;
/// The fewest units that have to be spent.
const MIN_ADMITTED: usize = 98;
/// The requests of each node: enough for every node to spend its leased units.
const REQUESTS: usize = 150;

/// Lets every node send its requests at once, and returns the number of admitted requests.
async fn stampede<S: Store>(nodes: &[Leased<S>], rule: &Rule) -> usize {
    let check = Check::new(rule, b"hot", 1);
    let checks = [check];
    let calls = nodes.iter().flat_map(|node| (0..REQUESTS).map(|_| Box::pin(node.decide(&checks))));
    let (mut waiting, mut admitted): (Vec<_>, _) = (calls.collect(), 0);
    poll_fn(|context| {
        waiting.retain_mut(|call| match call.as_mut().poll(context) {
            Poll::Ready(answer) => {
                admitted += usize::from(answer.expect("the store answers").admitted);
                false
            }
            Poll::Pending => true,
        });
        if waiting.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    admitted
}

/// Nodes spend a limit of 100 units an hour together: never more, and nearly all of them.
pub async fn nodes_share_a_limit<S: Store>(nodes: &[Leased<S>], name: &str, quota: impl Into<Quota>) {
    let rule = Rule::new(name, quota).leased_for(Some(Span::from_secs(1)));
    let admitted = stampede(nodes, &rule).await;
    assert!((MIN_ADMITTED..=LIMIT).contains(&admitted), "{name}: {admitted} of {LIMIT}");
    for node in nodes {
        node.drain().await;
    }
    // Units that were not spent have been returned.
    let rest = stampede(nodes, &rule).await;
    assert!(admitted + rest <= LIMIT, "{name}: {admitted} and {rest}");
}

/// A hot key is decided while the store is silent. `silence` and `resume` stop the store.
pub async fn a_hot_key_outlives_silence<S: Store>(
    node: &Leased<S>,
    silence: impl FnOnce(),
    resume: impl FnOnce(),
) {
    let bucket = Bucket::new(Rate::per_hour(3_600_000)).expect("a valid rate");
    let rule = Rule::new("silent", bucket).leased_for(Some(Span::from_secs(10)));
    let checks = [Check::new(&rule, b"hot", 1)];
    for _ in 0..200 {
        assert!(node.decide(&checks).await.expect("the store answers").admitted);
    }
    node.tend().await;
    let held = node.counters().held;
    assert!(held >= 100, "{:?}", node.counters());
    silence();
    // Half of the held units: the lease lives for ten seconds, and no call is made.
    for _ in 0..held / 2 {
        assert!(node.try_decide(&checks, &mut Outcomes::new()).is_some_and(|(admitted, _)| admitted));
    }
    resume();
    node.drain().await;
    assert_eq!(node.counters().held, 0);
}
