//! The stores of other regions, from which keys that run short borrow units.
//!
//! No request waits for them, and the start does not: a region that cannot be reached lends nothing.

use std::time::Duration;

use tokio::time::timeout;
use tollgate_lease::{FarStore, Leased};

use super::remote::{RemoteSettings, RemoteStore};
use super::try_until_it_works;

/// The time after which a region that cannot be reached is reported.
const REPORT_AFTER: Duration = Duration::from_secs(5);

/// Opens the stores, each with the name of its region.
pub(super) fn open(settings: Vec<(String, RemoteSettings)>) -> Vec<FarStore<RemoteStore>> {
    settings.into_iter().map(|(region, it)| FarStore::new(&region, RemoteStore::new(it))).collect()
}

/// Connects to the stores, and borrows from them, until dropped.
pub(super) async fn borrow(leased: &Leased<RemoteStore>) {
    let connect = async {
        let mut waiting: Vec<_> = leased.far_stores().iter().map(|far| Box::pin(connect(far))).collect();
        std::future::poll_fn(|context| {
            waiting.retain_mut(|it| it.as_mut().poll(context).is_pending());
            if waiting.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        })
        .await;
    };
    tokio::join!(connect, leased.tend_far());
}

/// Connects, so that the first call does not take longer than a round trip.
async fn connect(far: &FarStore<RemoteStore>) {
    let mut why = format!("no answer within {REPORT_AFTER:?}");
    if timeout(REPORT_AFTER, try_until_it_works(far.store(), &mut why)).await.is_err() {
        tracing::warn!(
            "cannot use the store {} of region {}: {why}; nothing is borrowed there until it answers",
            far.store(),
            far.region()
        );
    }
}
