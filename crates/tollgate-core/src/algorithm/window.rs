//! The boundaries of fixed windows.
//!
//! The counting is the same for all of them (`fixed_window`); only the time at which a window that
//! opens now closes differs between the three kinds.

use core::fmt;

use super::calendar::Calendar;
use crate::time::{Span, Timestamp};

/// The boundaries of the windows of one limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Window {
    /// Windows at multiples of the length since 1970. All keys reset at the same time.
    Epoch(Span),
    /// Windows that start with the first request of a key. Keys reset at different times.
    Anchored(Span),
    /// Windows of the calendar of a time zone.
    Calendar(Calendar),
}

impl Window {
    /// Returns the time at which a window that opens at `now` closes.
    pub fn closes(&self, now: Timestamp) -> Timestamp {
        match self {
            Self::Epoch(length) => {
                now.before(Span::from_micros(now.as_micros() % length.as_micros().max(1))) + *length
            }
            Self::Anchored(length) => now + *length,
            Self::Calendar(calendar) => calendar.around(now).1,
        }
    }

    /// Returns the time at which the window that closes at `end` opened.
    pub fn opened(&self, end: Timestamp) -> Timestamp {
        match self {
            Self::Epoch(length) | Self::Anchored(length) => end.before(*length),
            Self::Calendar(calendar) => calendar.around(end.before(Span::from_micros(1))).0,
        }
    }

    /// Returns whether windows begin and end with the wall clock, not with the first request of a
    /// key.
    pub const fn is_aligned(&self) -> bool {
        matches!(self, Self::Epoch(_) | Self::Calendar(_))
    }

    /// Returns the longest duration of such a window.
    pub const fn longest(&self) -> Span {
        match self {
            Self::Epoch(length) | Self::Anchored(length) => *length,
            Self::Calendar(calendar) => calendar.longest(),
        }
    }
}

/// Written as in `1m`, `1m from the first request`, `month in Europe/Paris`.
impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Epoch(length) => write!(f, "{length}"),
            Self::Anchored(length) => write!(f, "{length} from the first request"),
            Self::Calendar(calendar) => write!(f, "{calendar}"),
        }
    }
}
