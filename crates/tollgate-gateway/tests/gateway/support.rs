//! A gateway, a service behind it that follows a script, and sockets that say
//! anything.
//!
//! Waiting ends a test that has gone wrong (`TEST_TIMEOUT`); it never decides one.

mod certificate;
mod gateway;
mod h2;
mod message;
mod script;
mod wire;

use std::time::Duration;

pub(crate) use self::certificate::Certificate;
pub(crate) use self::gateway::{Behind, ServedGateway, settings};
pub(crate) use self::h2::{Feed, H2Upstream, Http2, http2, http2_that_takes_nothing, wait_for};
pub(crate) use self::message::Message;
pub(crate) use self::script::{OK, Upstream, eventually};
pub(crate) use self::wire::Wire;

/// How long anything may take before the test is given up.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// A limit that lets nobody through twice.
pub(crate) const ONCE: &str = "limits: [{name: once, by: global, bucket: 1/hour}]";

/// One request at a time.
pub(crate) const ONE_SLOT: &str = "limits: [{name: slots, by: global, slots: 1}]";

/// The same, for a service that stops when its connection is closed.
pub(crate) const ONE_SLOT_RELEASED: &str =
    "limits: [{name: slots, by: global, slots: 1, on_hangup: release}]";
