//! Records of nodes, and questions between them, on real servers.

use tollgate_store::conformance::nodes::{self, records};
use tollgate_store::node_board::{MAX_RECORD_BYTES, Question};
use tollgate_testkit::{Redis, RedisCluster};

use crate::support::store;

async fn check_two_nodes(urls: &[String]) {
    let [one, other] = [store(urls).node_board(), store(urls).node_board()];
    nodes::board(&*one, &*other).await;
}

#[tokio::test]
async fn nodes_read_the_records_of_each_other_and_answer_questions() {
    check_two_nodes(&[Redis::start().url()]).await;
}

#[tokio::test]
async fn nodes_of_a_cluster_read_the_records_of_each_other_and_answer_questions() {
    let cluster = RedisCluster::start();
    check_two_nodes(&cluster.urls()).await;
}

#[tokio::test]
async fn garbage_is_counted_and_never_returned() {
    let redis = Redis::start();
    let board = store(&[redis.url()]).node_board();
    board.publish(b"mine").await.unwrap();
    let times = redis.cli(&["KEYS", "tg1:*:node-times"]).trim().to_owned();
    let start = times.strip_suffix("node-times").expect("the key of the times").to_owned();
    let garbage = "
        local time, start = redis.call('TIME'), KEYS[1]
        local now = time[1] * 1000
        redis.call('SET', start .. 'node:0000000000000001', string.rep('x', ARGV[1] + 1))
        redis.call('RPUSH', start .. 'node:0000000000000002', 'a list')
        redis.call('SET', start .. 'node:not-a-node', '{}')
        for _, node in ipairs({'0000000000000001', '0000000000000002', '0000000000000003', 'not-a-node',
                               string.rep('y', 100000)}) do
          redis.call('ZADD', start .. 'node-times', now, node)
        end
        redis.call('ZADD', start .. 'questions', now + 9000, 'why?')";
    redis.cli(&["EVAL", garbage, "1", &start, &MAX_RECORD_BYTES.to_string()]);
    board.publish(b"mine").await.unwrap();
    assert_eq!(records(&*board).await, (vec!["mine".to_owned()], 5));
    assert_eq!(board.publish(b"mine").await.unwrap(), [], "not a question");
}

#[tokio::test]
async fn an_unanswered_question_ends() {
    let redis = Redis::start();
    let board = store(&[redis.url()]).node_board();
    assert_eq!(board.ask(Question(7)).await.unwrap(), None);
}
