//! The board of the nodes of a shared store: a record about each node, questions and answers.
//!
//! A node publishes a short record about itself every second or so. Any node reads the records of all
//! nodes. A record expires if its node does not renew it, so a node that was killed disappears. A
//! question is a number; the node that knows the answer leaves it in the store for a few seconds.
//!
//! Nodes need no addresses of each other, and no node sends a secret to an address that it read from
//! the store. Records and answers are bytes that any writer of the store may have written: a reader
//! parses them, and ignores unknown parts.
//!
//! Not here: the meaning of records and questions, which is in `tollgate-server`.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use crate::StoreError;

/// The maximum length of a record, in bytes.
pub const MAX_RECORD_BYTES: usize = 4_096;
/// The maximum length of an answer, in bytes.
pub const MAX_ANSWER_BYTES: usize = 65_536;
/// The maximum number of nodes of which records are read.
pub const MAX_NODES: usize = 256;
/// The time after which a record expires that its node does not renew.
pub const RECORD_LIFETIME: Duration = Duration::from_secs(10);

/// The time that a node waits for an answer. Nodes see a question when they publish, once a second.
pub const ANSWER_DEADLINE: Duration = Duration::from_millis(2_500);
/// The interval between two looks for an answer.
pub const ANSWER_POLL_INTERVAL: Duration = Duration::from_millis(150);
/// The time that questions and answers are kept.
pub const QUESTION_LIFETIME: Duration = Duration::from_secs(5);
/// The maximum number of open questions.
pub const MAX_OPEN_QUESTIONS: usize = 64;
/// The maximum number of questions that a node receives at a time.
pub const MAX_QUESTIONS_PER_READ: usize = 16;

/// The id of a node: a random number of its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u64);

impl NodeId {
    /// Parses an id as it is displayed: sixteen hexadecimal digits.
    pub fn parse(digits: &[u8]) -> Option<Self> {
        let is_id = digits.len() == 16 && digits.iter().all(u8::is_ascii_hexdigit);
        let digits = str::from_utf8(digits).ok().filter(|_| is_id)?;
        u64::from_str_radix(digits, 16).ok().map(Self)
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A question to the other nodes: the id of the decision to explain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Question(pub u64);

/// The record of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRecord {
    /// The node.
    pub node: NodeId,
    /// The time since it was published, by the clock of the store.
    pub age: Duration,
    /// The bytes, as they are stored: at most [`MAX_RECORD_BYTES`].
    pub record: Vec<u8>,
}

/// The records of all nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeRecords {
    /// The records, at most [`MAX_NODES`].
    pub records: Vec<NodeRecord>,
    /// The number of entries that no node can have written.
    pub unreadable: u64,
}

/// A future of a call to a board.
pub type BoardFuture<'b, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'b>>;

/// The place in a shared store where nodes leave records about themselves, questions and answers.
///
/// Each call ends within a few seconds, with an error if the store does not answer.
pub trait NodeBoard: Send + Sync + 'static {
    /// Returns the id of this node.
    fn node(&self) -> NodeId;

    /// Replaces the record of this node, and returns the questions that are open.
    fn publish<'b>(&'b self, record: &'b [u8]) -> BoardFuture<'b, Vec<Question>>;

    /// Returns the records of all nodes, including this one.
    fn read(&self) -> BoardFuture<'_, NodeRecords>;

    /// Removes the record of this node.
    fn withdraw(&self) -> BoardFuture<'_, ()>;

    /// Asks the other nodes, and waits a few seconds for an answer. `None` if no node has answered, or
    /// if too many questions are open.
    fn ask(&self, question: Question) -> BoardFuture<'_, Option<Vec<u8>>>;

    /// Answers a question.
    fn answer<'b>(&'b self, question: Question, answer: &'b [u8]) -> BoardFuture<'b, ()>;
}
