//! The board of the nodes that share a Redis, as in [`tollgate_store::node_board`].
//!
//! ```text
//! tg1:{0}:node-times   sorted set: the time of the record of each node
//! tg1:{0}:node:…       the record of a node
//! tg1:{0}:questions    sorted set: open questions, and when they expire
//! tg1:{0}:answer:…     the answer to a question, for a few seconds
//! ```
//!
//! Everything is written and read by scripts, on the clock of Redis, and with bounds on numbers and
//! lengths that apply before anything is sent to a node: other clients of Redis may have written any
//! value.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::time::{sleep, timeout};
use tollgate_store::StoreError;
use tollgate_store::node_board::{
    ANSWER_DEADLINE, ANSWER_POLL_INTERVAL, BoardFuture, MAX_ANSWER_BYTES, MAX_NODES, MAX_OPEN_QUESTIONS,
    MAX_QUESTIONS_PER_READ, MAX_RECORD_BYTES, NodeBoard, NodeId, NodeRecord, NodeRecords, QUESTION_LIFETIME,
    Question, RECORD_LIFETIME,
};

use crate::dispatcher::Dispatcher;
use crate::failure::Failure;
use crate::names;
use crate::router::ServerReply;
use crate::shared::Shared;
use crate::store::dispatcher_of_this_thread;

/// The deadline of a call, unless that of the store is longer.
const CALL_DEADLINE: Duration = Duration::from_secs(1);

const PUBLISH_SCRIPT: &str = include_str!("../lua/publish_node.lua");
const READ_SCRIPT: &str = include_str!("../lua/read_nodes.lua");
const WITHDRAW_SCRIPT: &str = "redis.call('ZREM', KEYS[1], ARGV[1]) redis.call('DEL', KEYS[2]) return 1";
const ASK_SCRIPT: &str = include_str!("../lua/ask_nodes.lua");
const ANSWER_SCRIPT: &str = include_str!("../lua/answer_node.lua");
const READ_ANSWER_SCRIPT: &str = include_str!("../lua/read_answer.lua");

/// The board of the nodes that share a Redis.
pub(crate) struct RedisBoard {
    pub(crate) shared: Arc<Shared>,
    pub(crate) dispatchers: Arc<[Arc<Dispatcher>]>,
}

impl RedisBoard {
    fn key(&self, name: &str) -> String {
        names::beside_nodes(&self.shared.settings.prefix, name)
    }

    fn answer_key(&self, question: Question) -> String {
        self.key(&format!("answer:{:016x}", question.0))
    }

    /// Runs a script within the deadline. All keys are in the partition of the node registry.
    async fn run(&self, script: &str, keys: &[String], arguments: &[&[u8]]) -> Result<Value, StoreError> {
        let mut command = Cmd::new();
        command.arg("EVAL").arg(script).arg(keys.len());
        for key in keys {
            command.arg(key);
        }
        for argument in arguments {
            command.arg(*argument);
        }
        let dispatcher = dispatcher_of_this_thread(&self.dispatchers);
        let destination = Mutex::default();
        let queue = dispatcher.queue_of(names::NODES_PARTITION);
        let deadline = CALL_DEADLINE.max(self.shared.settings.deadline);
        let reply = timeout(deadline, dispatcher.router().query(queue, &command, &destination)).await;
        match reply.map_err(|_| Failure::TimedOut(deadline))?? {
            ServerReply::With(value) => Ok(value),
            // `EVAL` brings its script.
            ServerReply::NoScript => Err(Failure::failed("Redis does not run scripts").into()),
        }
    }

    async fn read_answer(&self, question: Question) -> Result<Option<Vec<u8>>, StoreError> {
        let longest = decimal(MAX_ANSWER_BYTES);
        let reply = self.run(READ_ANSWER_SCRIPT, &[self.answer_key(question)], &[longest.as_bytes()]).await?;
        Ok(bytes(reply).filter(|answer| !answer.is_empty() && answer.len() <= MAX_ANSWER_BYTES))
    }
}

impl NodeBoard for RedisBoard {
    fn node(&self) -> NodeId {
        self.shared.node
    }

    fn publish<'b>(&'b self, record: &'b [u8]) -> BoardFuture<'b, Vec<Question>> {
        Box::pin(async move {
            let node = self.node().to_string();
            let keys = ["node-times", &format!("node:{node}"), "questions"].map(|name| self.key(name));
            let (lifetime, most) = (millis(RECORD_LIFETIME), decimal(MAX_QUESTIONS_PER_READ));
            let arguments = [node.as_bytes(), record, lifetime.as_bytes(), most.as_bytes()];
            let reply = self.run(PUBLISH_SCRIPT, &keys, &arguments).await?;
            let questions = items(reply).into_iter().take(MAX_QUESTIONS_PER_READ);
            Ok(questions.filter_map(id).map(|it| Question(it.0)).collect())
        })
    }

    fn read(&self) -> BoardFuture<'_, NodeRecords> {
        Box::pin(async move {
            let keys = ["node-times", "node:"].map(|name| self.key(name));
            let bounds = [millis(RECORD_LIFETIME), decimal(MAX_NODES), decimal(MAX_RECORD_BYTES)];
            let reply = self.run(READ_SCRIPT, &keys, &bounds.each_ref().map(String::as_bytes)).await?;
            Ok(records(items(reply)))
        })
    }

    fn withdraw(&self) -> BoardFuture<'_, ()> {
        Box::pin(async move {
            let node = self.node().to_string();
            let keys = ["node-times", &format!("node:{node}")].map(|name| self.key(name));
            self.run(WITHDRAW_SCRIPT, &keys, &[node.as_bytes()]).await.map(drop)
        })
    }

    fn ask(&self, question: Question) -> BoardFuture<'_, Option<Vec<u8>>> {
        Box::pin(async move {
            let id = NodeId(question.0).to_string();
            let (lifetime, most) = (millis(QUESTION_LIFETIME), decimal(MAX_OPEN_QUESTIONS));
            let arguments = [id.as_bytes(), lifetime.as_bytes(), most.as_bytes()];
            // An answer to the same question, a moment ago.
            if let Some(answer) = self.read_answer(question).await? {
                return Ok(Some(answer));
            }
            if self.run(ASK_SCRIPT, &[self.key("questions")], &arguments).await? != Value::Int(1) {
                return Ok(None);
            }
            let wait = async {
                loop {
                    sleep(ANSWER_POLL_INTERVAL).await;
                    if let Some(answer) = self.read_answer(question).await? {
                        return Ok(Some(answer));
                    }
                }
            };
            timeout(ANSWER_DEADLINE, wait).await.unwrap_or(Ok(None))
        })
    }

    fn answer<'b>(&'b self, question: Question, answer: &'b [u8]) -> BoardFuture<'b, ()> {
        Box::pin(async move {
            let keys = [self.key("questions"), self.answer_key(question)];
            let (id, lifetime) = (NodeId(question.0).to_string(), millis(QUESTION_LIFETIME));
            self.run(ANSWER_SCRIPT, &keys, &[id.as_bytes(), answer, lifetime.as_bytes()]).await.map(drop)
        })
    }
}

fn millis(span: Duration) -> String {
    span.as_millis().to_string()
}

fn decimal(number: usize) -> String {
    number.to_string()
}

fn items(value: Value) -> Vec<Value> {
    match value {
        Value::Array(items) => items,
        _ => Vec::new(),
    }
}

fn bytes(value: Value) -> Option<Vec<u8>> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        _ => None,
    }
}

/// Returns the id of a node, or of a question, which has the same format.
fn id(value: Value) -> Option<NodeId> {
    NodeId::parse(&bytes(value)?)
}

/// Returns the records of a reply: node, age in milliseconds and record, for each.
fn records(items: Vec<Value>) -> NodeRecords {
    let mut found = NodeRecords::default();
    let mut items = items.into_iter().take(3 * MAX_NODES);
    while let (Some(node), Some(age), Some(record)) = (items.next(), items.next(), items.next()) {
        let age = match age {
            Value::Int(age) => u64::try_from(age).ok(),
            _ => None,
        };
        let record = bytes(record).filter(|it| !it.is_empty() && it.len() <= MAX_RECORD_BYTES);
        if let (Some(node), Some(age), Some(record)) = (id(node), age, record) {
            found.records.push(NodeRecord { node, age: Duration::from_millis(age), record });
        } else {
            found.unreadable += 1;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    #[test]
    fn entries_that_no_node_has_written_are_counted_and_left_out() {
        let long = "x".repeat(MAX_RECORD_BYTES + 1);
        let reply = vec![
            text("00000000000000ff"),
            Value::Int(1_200),
            text("{}"),
            text("../../etc/passwd"),
            Value::Int(0),
            text("{}"),
            text("00000000000000fe"),
            Value::Int(-1),
            text("{}"),
            text("00000000000000fd"),
            Value::Int(1),
            text(&long),
            text("00000000000000fc"),
            Value::Int(1),
            Value::Nil,
            text("cut"),
        ];
        let found = records(reply);
        let kept = NodeRecord { node: NodeId(0xff), age: Duration::from_millis(1_200), record: b"{}".into() };
        assert_eq!(found, NodeRecords { records: vec![kept], unreadable: 4 });
    }

    #[test]
    fn a_question_is_sixteen_digits() {
        assert_eq!(id(text("00c0ffee00c0ffee")), Some(NodeId(0x00c0_ffee_00c0_ffee)));
        for other in [text("c0ffee"), text("+0c0ffee00c0ffee"), text(""), Value::Nil, Value::Int(7)] {
            assert_eq!(id(other.clone()), None, "{other:?}");
        }
    }
}
