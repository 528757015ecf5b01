//! The reply of the script to a batch.
//!
//! In: the value that the server returned. Out: an array of whole numbers with the time of the
//! server ([`ScriptReply`]), and from it, item by item, the answer to each request and the changes
//! of its keys ([`Replay`]).

mod replay;

use redis::Value;
use tollgate_core::Timestamp;

use crate::failure::Failure;
use crate::key_state::Numbers;

pub(crate) use replay::{KeyChange, Replay, UnitsWait};

/// The reply of the script.
pub(crate) struct ScriptReply {
    /// Whether the script executed the batch. Otherwise the calendar pages of the call do not
    /// include the time of the server, and nothing was written.
    pub(crate) has_executed: bool,
    /// The time of the server.
    pub(crate) now: Timestamp,
    /// When the call was sent, by the local clock.
    pub(crate) sent_at: Timestamp,
    /// The states of the keys before the call, then the replies of the items.
    numbers: Numbers<std::vec::IntoIter<i64>>,
}

impl ScriptReply {
    /// Parses the value that the server returned to a call that was sent at this local time.
    pub(crate) fn parse(value: Value, sent_at: Timestamp) -> Result<Self, Failure> {
        let not_numbers = || Failure::failed("the reply of the script is not an array of numbers");
        let Value::Array(values) = value else { return Err(not_numbers()) };
        let number = |value| if let Value::Int(number) = value { Some(number) } else { None };
        let numbers: Option<Vec<_>> = values.into_iter().map(number).collect();
        let mut numbers = Numbers(numbers.ok_or_else(not_numbers)?.into_iter());
        let (Some(status), Some(now)) = (numbers.next(), numbers.next()) else {
            return Err(Failure::failed("the reply of the script is too short"));
        };
        let now = Timestamp::from_micros(u64::try_from(now).unwrap_or_default());
        Ok(Self { has_executed: status == 1, now, sent_at, numbers })
    }
}

/// A reply that does not fit its batch.
fn invalid_reply() -> Failure {
    Failure::failed("the reply of the script is invalid")
}
