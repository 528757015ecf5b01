//! A store in three nodes passes the conformance suite: as a member, and as a client.

use std::future::{Future, ready};

use tollgate_core::{Span, Timestamp};
use tollgate_peers::PeerStore;
use tollgate_store::ManualClock;
use tollgate_store::conformance::{self, Harness};

use crate::support::Nodes;

struct Trio {
    nodes: Nodes,
    store: PeerStore<ManualClock>,
}

impl Harness for Trio {
    type Store = PeerStore<ManualClock>;

    fn store(&self) -> &Self::Store {
        &self.store
    }

    fn pass(&self, span: Span) -> impl Future<Output = ()> {
        self.nodes.clock.advance(span);
        ready(())
    }

    fn set_clock(&self, now: Timestamp) -> impl Future<Output = bool> {
        self.nodes.clock.set(now);
        ready(true)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn three_nodes_conform_as_one_store() {
    let nodes = Nodes::start(3);
    let store = nodes.stores[0].clone();
    let trio = Trio { nodes, store };
    conformance::run(&trio).await;
    let counted = trio.nodes.stores.iter().map(PeerStore::counters).collect::<Vec<_>>();
    assert!(counted[0].calls > 100 && counted[1].served + counted[2].served > 100, "{counted:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_owns_nothing_conforms_through_the_others() {
    let nodes = Nodes::start_with(3, |number, mut settings| {
        if number == 2 {
            settings.members.truncate(2);
            settings.advertise = None;
        } else {
            settings.members.truncate(2);
        }
        settings
    });
    let store = nodes.stores[2].clone();
    assert_eq!((store.here(), store.members().len()), (None, 2));
    conformance::run(&Trio { nodes, store }).await;
}
