//! The scripts that decide, by their texts and by their hashes.
//!
//! The general one is put together here from one file for each algorithm
//! (`lua/*.lua`); the plain one does the part of it that nearly every request needs,
//! and nothing else, because Redis runs all of a script at each call. A script is sent
//! by its hash; a server that does not know it (a restart, a failover, `SCRIPT FLUSH`)
//! says so and is sent the text once.

use std::sync::LazyLock;

macro_rules! general {
    ($clock:literal) => {
        concat!(
            include_str!($clock),
            include_str!("../lua/frame.lua"),
            include_str!("../lua/bucket.lua"),
            include_str!("../lua/fixed_window.lua"),
            include_str!("../lua/sliding_window.lua"),
            include_str!("../lua/sliding_log.lua"),
            include_str!("../lua/slots.lua"),
            include_str!("../lua/main.lua"),
        )
    };
}

macro_rules! plain {
    ($clock:literal) => {
        concat!(include_str!($clock), include_str!("../lua/plain.lua"))
    };
}

/// A script and the hash it is known by.
pub(crate) struct Script {
    pub(crate) text: &'static str,
    pub(crate) hash: String,
}

impl Script {
    fn new(text: &'static str) -> Self {
        Self { text, hash: redis::Script::new(text).get_hash().to_owned() }
    }
}

/// The scripts that decide.
pub(crate) struct Scripts {
    /// Knows everything.
    pub(crate) general: Script,
    /// Knows requests for token buckets, and is quick.
    pub(crate) plain: Script,
}

impl Scripts {
    /// On the server's clock.
    pub(crate) fn on_server_clock() -> &'static Self {
        static SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| Scripts {
            general: Script::new(general!("../lua/clock.lua")),
            plain: Script::new(plain!("../lua/clock.lua")),
        });
        &SCRIPTS
    }

    /// On a clock that a test sets.
    #[cfg(feature = "test-clock")]
    pub(crate) fn on_test_clock() -> &'static Self {
        static SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| Scripts {
            general: Script::new(general!("../lua/test_clock.lua")),
            plain: Script::new(plain!("../lua/test_clock.lua")),
        });
        &SCRIPTS
    }
}
