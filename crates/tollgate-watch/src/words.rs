//! The arithmetic of a limit, in words.

use tollgate::Timestamp;

use crate::record::LimitRecord;

/// How the answer comes about.
pub(crate) fn arithmetic(limit: &LimitRecord, at: Timestamp) -> Vec<String> {
    let _ = (limit, at);
    Vec::new()
}
