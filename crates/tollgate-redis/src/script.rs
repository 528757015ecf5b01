//! The script that decides, by its text and by its hash.
//!
//! One script, in one file for each algorithm (`lua/*.lua`), put together here. It
//! is sent by its hash; a server that does not know it (a restart, a failover,
//! `SCRIPT FLUSH`) says so and is sent the text once.

use std::sync::LazyLock;

macro_rules! script {
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

/// A script and the hash it is known by.
pub(crate) struct Script {
    pub(crate) text: &'static str,
    pub(crate) hash: String,
}

impl Script {
    fn new(text: &'static str) -> Self {
        Self { text, hash: redis::Script::new(text).get_hash().to_owned() }
    }

    /// The one that decides, on the server's clock.
    pub(crate) fn decide() -> &'static Self {
        static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(script!("../lua/clock.lua")));
        &SCRIPT
    }

    /// The same on a clock that a test sets.
    #[cfg(feature = "test-clock")]
    pub(crate) fn decide_on_test_clock() -> &'static Self {
        static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(script!("../lua/test_clock.lua")));
        &SCRIPT
    }
}
