//! The scripts that decide, by their texts and by their hashes.
//!
//! Redis runs all of a script at each call, so a call gets no more than it needs: the
//! plain script where that is enough, or else the general one with the algorithms that
//! the call asks for (`lua/*.lua`, one file each). A script is sent by its hash; a
//! server that does not know it (a restart, a failover, `SCRIPT FLUSH`) says so and is
//! sent the text once.

use std::sync::OnceLock;

use tollgate_core::Quota;

/// Each algorithm's part of the general script, in the order of their numbers there.
const PARTS: [&str; 6] = [
    include_str!("../lua/bucket.lua"),
    include_str!("../lua/fixed_window.lua"),
    include_str!("../lua/sliding_window.lua"),
    include_str!("../lua/sliding_parts.lua"),
    include_str!("../lua/sliding_log.lua"),
    include_str!("../lua/slots.lua"),
];

/// Which of the parts a rule needs.
const fn part(quota: &Quota) -> usize {
    match quota {
        Quota::Bucket(_) => 0,
        Quota::FixedWindow(_) => 1,
        Quota::SlidingWindow(_) => 2,
        Quota::SlidingParts(_) => 3,
        Quota::SlidingLog(_) => 4,
        Quota::Concurrency(_) => 5,
    }
}

/// A script and the hash it is known by.
pub(crate) struct Script {
    pub(crate) text: String,
    pub(crate) hash: String,
}

impl Script {
    fn new(text: String) -> Self {
        let hash = redis::Script::new(&text).get_hash().to_owned();
        Self { text, hash }
    }
}

/// The scripts that decide, made when they are first needed.
pub(crate) struct Scripts {
    clock: &'static str,
    plain: OnceLock<Script>,
    general: [OnceLock<Script>; 1 << PARTS.len()],
}

impl Scripts {
    const fn new(clock: &'static str) -> Self {
        Self { clock, plain: OnceLock::new(), general: [const { OnceLock::new() }; 1 << PARTS.len()] }
    }

    /// On the server's clock.
    pub(crate) fn on_server_clock() -> &'static Self {
        static SCRIPTS: Scripts = Scripts::new(include_str!("../lua/clock.lua"));
        &SCRIPTS
    }

    /// On a clock that a test sets.
    #[cfg(feature = "test-clock")]
    pub(crate) fn on_test_clock() -> &'static Self {
        static SCRIPTS: Scripts = Scripts::new(include_str!("../lua/test_clock.lua"));
        &SCRIPTS
    }

    /// Knows requests for token buckets, and is quick.
    pub(crate) fn plain(&self) -> &Script {
        self.plain.get_or_init(|| Script::new([self.clock, include_str!("../lua/plain.lua")].concat()))
    }

    /// Knows everything about the rules of a call.
    pub(crate) fn general<'q>(&self, quotas: impl Iterator<Item = &'q Quota>) -> &Script {
        let parts = quotas.fold(0, |parts, quota| parts | 1 << part(quota));
        self.general[parts].get_or_init(|| {
            let mut text = [self.clock, include_str!("../lua/frame.lua")].concat();
            for (at, part) in PARTS.iter().enumerate() {
                if parts & 1 << at != 0 {
                    text.push_str(part);
                }
            }
            text.push_str(include_str!("../lua/main.lua"));
            Script::new(text)
        })
    }
}
