//! The board of the nodes that share a database: records, questions, and the rules that they use.

use tollgate_store::conformance::nodes::{board, digests, records, register, version, versions};
use tollgate_store::node_board::{MAX_RECORD_BYTES, Question};
use tollgate_store::{Check, Store, StoreError, VersionRegistry as _};
use tollgate_testkit::Postgres;

use crate::support::{daily, store};

#[tokio::test]
async fn nodes_read_the_records_of_each_other_and_answer_questions() {
    let server = Postgres::start();
    let [one, other] = [store(&server).node_board(), store(&server).node_board()];
    board(&*one, &*other).await;
    assert_eq!(one.ask(Question(7)).await.unwrap(), None, "an unanswered question ends");
}

#[tokio::test]
async fn nodes_know_the_rules_of_each_other() {
    let server = Postgres::start();
    let (one, other) = (store(&server), store(&server));
    versions(&one, &other, async || one.leave().await.unwrap()).await;
}

#[tokio::test]
async fn garbage_of_other_users_is_ignored_or_replaced() {
    let server = Postgres::start();
    let node = store(&server);
    let board = node.node_board();
    board.publish(b"mine").await.unwrap();
    let now = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
    server.sql(&format!(
        "INSERT INTO tollgate_nodes (name, expires, record, record_at)
         VALUES ('not a node', 0, 'x', {now}), ('0000000000000001', 0, repeat('x', {})::bytea, {now}),
                ('0000000000000002', 0, '', {now}), ('0000000000000003', 0, 'x', {now} + 60000000);
         INSERT INTO tollgate_questions SELECT n, {now} + 3600000000 FROM generate_series(1, 100) AS n",
        MAX_RECORD_BYTES + 1
    ));
    assert_eq!(records(&*board).await, (vec!["mine".to_owned()], 3));
    assert_eq!(board.publish(b"mine").await.unwrap(), [], "questions of the far future");

    let first = register(&node, 1, None).await;
    server.sql(&format!(
        "UPDATE tollgate_versions SET rules = 'short', expires = 9223372036854775807;
         INSERT INTO tollgate_versions VALUES (2, 9223372036854775807, 9223372036854775807, 'x'),
             (3, -1, 9223372036854775807, 'x'), (4, 5, -9223372036854775807, 'x');
         INSERT INTO tollgate_nodes VALUES ('x', 0, 9223372036854775807, 4, 1), ('y', 0, {now} + 5000000, 4, -1),
             ('z', 0, {now} + 5000000, NULL, NULL)"
    ));
    let second = register(&node, 1, Some(first.revision)).await;
    assert_eq!((digests(&second), second.revision), (vec![4, 1], first.revision));
    assert_eq!(second.nodes.len(), 0, "{second:?}");
    let rules = node.registered_rules(1).await.unwrap();
    assert_eq!(rules.as_deref(), Some(&*version(1).rules), "the rules were sent again");
}

#[tokio::test]
async fn a_node_that_does_not_know_the_rules_of_others_does_not_count() {
    let server = Postgres::start();
    let node = store(&server);
    let rule = daily("held", 10);
    node.gate().hold(true);
    let held = node.decide(&[Check::new(&rule, b"key", 1)]).await;
    assert!(matches!(held, Err(StoreError::Refused(_))), "{held:?}");
    node.gate().hold(false);
    assert!(node.decide(&[Check::new(&rule, b"key", 1)]).await.unwrap().admitted);
}
