//! The Lua scripts and their hashes.
//!
//! Redis runs the whole text of a script at each call, so a call uses the smallest script: the
//! plain script if it is sufficient, else the general script with the algorithms that the call
//! needs (`lua/*.lua`, one file each). A script is called by its hash. A server that does not know
//! the hash (after a restart, a failover or `SCRIPT FLUSH`) says so and is sent the text once.

use std::sync::OnceLock;

use tollgate_core::Quota;

/// The part of each algorithm in the general script, in the order of their numbers.
const PARTS: [&str; 6] = [
    include_str!("../lua/bucket.lua"),
    include_str!("../lua/fixed_window.lua"),
    include_str!("../lua/sliding_window.lua"),
    include_str!("../lua/sliding_parts.lua"),
    include_str!("../lua/sliding_log.lua"),
    include_str!("../lua/slots.lua"),
];

/// The index of the part that a rule needs.
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

/// A script and its SHA-1 hash.
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

/// The scripts, built on first use.
pub(crate) struct Scripts {
    clock: &'static str,
    plain: OnceLock<Script>,
    general: [OnceLock<Script>; 1 << PARTS.len()],
}

impl Scripts {
    const fn new(clock: &'static str) -> Self {
        Self { clock, plain: OnceLock::new(), general: [const { OnceLock::new() }; 1 << PARTS.len()] }
    }

    /// The scripts that use the clock of the server.
    pub(crate) fn on_server_clock() -> &'static Self {
        static SCRIPTS: Scripts = Scripts::new(include_str!("../lua/clock.lua"));
        &SCRIPTS
    }

    /// The scripts that use a clock set by a test.
    #[cfg(feature = "test-clock")]
    pub(crate) fn on_test_clock() -> &'static Self {
        static SCRIPTS: Scripts = Scripts::new(include_str!("../lua/test_clock.lua"));
        &SCRIPTS
    }

    /// The fast script for token buckets.
    pub(crate) fn plain(&self) -> &Script {
        self.plain.get_or_init(|| Script::new([self.clock, include_str!("../lua/plain.lua")].concat()))
    }

    /// The general script with the algorithms of these quotas.
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
