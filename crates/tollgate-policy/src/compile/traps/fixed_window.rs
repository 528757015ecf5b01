//! A fixed window with nothing beside it.

use std::collections::HashSet;

use crate::diagnostic::Problems;
use crate::trap::Trap;
use crate::written::limit::{Algorithm, Align, Limit};

pub(super) fn look(limits: &[Limit], problems: &mut Problems) {
    let fixed = |limit: &Limit| {
        limit
            .algorithm
            .filter(|it| it.value == Algorithm::FixedWindow)
            .filter(|_| limit.align.is_none_or(|align| align.value != Align::Calendar))
    };
    let key = |limit: &Limit| -> Vec<String> { limit.by.iter().map(|it| it.value.to_string()).collect() };
    let beside: HashSet<_> = limits.iter().filter(|limit| fixed(limit).is_none()).map(key).collect();
    for algorithm in limits.iter().filter(|limit| !beside.contains(&key(limit))).filter_map(fixed) {
        problems
            .warning(
                Trap::FixedWindowAlone,
                algorithm.place,
                "a fixed window admits up to twice its rate around its border",
            )
            .label("the end of one window and the start of the next")
            .help("`sliding-window` does not, at the same price; or add a shorter limit beside it");
    }
}
