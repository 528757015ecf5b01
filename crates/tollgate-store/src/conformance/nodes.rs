//! The board of the nodes of a shared store, and the registry of their rules.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use tollgate_core::Span;

use crate::node_board::{NodeBoard, Question};
use crate::version_registry::{Registration, Registry, Version, VersionRegistry};

/// Returns a version with this digest, whose rules are a text.
pub fn version(digest: u64) -> Version {
    let rules = format!("the rules of {digest}");
    Version { digest, memory: Span::from_hours(1), rules: Arc::from(rules.as_bytes()) }
}

/// Registers a version, and sends its rules if the store wants them.
pub async fn register(store: &dyn VersionRegistry, digest: u64, known_revision: Option<u64>) -> Registry {
    let version = version(digest);
    let mut it = Registration { version: &version, sends_rules: false, in_force: digest, known_revision };
    if let Some(registry) = store.register(&it).await.expect("the store answers") {
        return registry;
    }
    it.sends_rules = true;
    store.register(&it).await.expect("the store answers").expect("the rules were sent")
}

/// Returns the digests of the versions of a registry.
pub fn digests(registry: &Registry) -> Vec<u64> {
    registry.versions.iter().map(|it| it.digest).collect()
}

/// Nodes see the versions of each other, their rules, and the revision that each knows. `leave` removes the
/// first node.
pub async fn versions(one: &dyn VersionRegistry, other: &dyn VersionRegistry, leave: impl AsyncFnOnce()) {
    let first = register(one, 0x11, None).await;
    assert_eq!((digests(&first), first.nodes.len()), (vec![0x11], 0));
    let second = register(other, 0x22, None).await;
    assert_eq!(digests(&second), [0x11, 0x22]);
    assert!(second.revision > first.revision && second.versions[1].revision == second.revision);
    assert_eq!((second.nodes[0].in_force, second.nodes[0].known_revision), (0x11, first.revision));
    let rules = other.registered_rules(0x11).await.expect("the store answers");
    assert_eq!(rules.as_deref(), Some(&*version(0x11).rules));
    assert_eq!(other.registered_rules(0x33).await.expect("the store answers"), None);
    let newest = second.revision;
    let first = register(one, 0x11, Some(newest)).await;
    assert_eq!(first.nodes.len(), 1, "a node that joins knows all");
    assert_eq!((first.revision, first.nodes[0].known_revision), (newest, newest));
    assert_eq!(register(other, 0x22, Some(newest)).await.nodes[0].known_revision, newest);
    let lost = register(other, 0x22, Some(newest + 7)).await;
    assert_eq!(register(one, 0x11, Some(newest)).await.nodes[0].known_revision, 0, "{lost:?}");
    leave().await;
    let second = register(other, 0x22, Some(newest)).await;
    assert_eq!((digests(&second), second.nodes.len()), (vec![0x11, 0x22], 0), "its usage still counts");
    // The versions are bounded.
    for digest in 0x100..0x130 {
        let listed = digests(&register(one, digest, Some(0)).await);
        assert!(listed.len() <= 33 && listed.contains(&digest), "{listed:?}");
        assert!(listed.contains(&0x22), "a version in force stays: {listed:?}");
    }
}

/// Returns the records of all nodes, as texts in order, and the number of those that cannot be read.
pub async fn records(board: &dyn NodeBoard) -> (Vec<String>, u64) {
    let found = board.read().await.expect("the store answers");
    let mut texts: Vec<_> =
        found.records.iter().map(|it| String::from_utf8_lossy(&it.record).into_owned()).collect();
    texts.sort();
    (texts, found.unreadable)
}

/// Two nodes read the records of each other, and one answers a question of the other.
pub async fn board(one: &dyn NodeBoard, other: &dyn NodeBoard) {
    assert_ne!(one.node(), other.node());
    let publish = async |board: &dyn NodeBoard, record: &'static [u8]| {
        board.publish(record).await.expect("the store answers")
    };
    assert_eq!(publish(one, b"first").await, []);
    assert_eq!(publish(one, b"one").await, []);
    assert_eq!(publish(other, b"other").await, []);
    let both = (vec!["one".to_owned(), "other".to_owned()], 0);
    assert_eq!((records(one).await, records(other).await), (both.clone(), both));

    let question = Question(0xc0ff_ee00_0000_0001);
    // Both run to their end: a call that is abandoned may hold a lock in the store.
    let is_answered = AtomicBool::new(false);
    let mut answering = pin!(async {
        while !is_answered.load(Ordering::Relaxed) {
            if publish(other, b"other").await.contains(&question) {
                other.answer(question, b"because").await.expect("the store answers");
            }
        }
    });
    let mut asking = pin!(async {
        loop {
            // The first wait may end too early on a busy machine.
            if let Some(answer) = one.ask(question).await.expect("the store answers") {
                is_answered.store(true, Ordering::Relaxed);
                return answer;
            }
        }
    });
    let mut answer = None;
    poll_fn(|context| {
        if answer.is_none()
            && let Poll::Ready(found) = asking.as_mut().poll(context)
        {
            answer = Some(found);
        }
        answering.as_mut().poll(context)
    })
    .await;
    assert_eq!(answer.as_deref(), Some(&b"because"[..]));
    publish(one, b"one").await;
    other.withdraw().await.expect("the store answers");
    assert_eq!(records(one).await, (vec!["one".to_owned()], 0));
}
