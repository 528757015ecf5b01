//! A gateway, a scripted upstream, and raw sockets.
//!
//! Timeouts end a test that has failed (`TEST_TIMEOUT`); they never decide a test.

mod certificate;
mod gateway;
mod h2;
mod message;
mod script;
mod wire;

use std::time::Duration;

pub(crate) use self::certificate::Certificate;
pub(crate) use self::gateway::{Behind, ServedGateway, settings};
pub(crate) use self::h2::{Feed, H2Upstream, Http2, http2, http2_without_window, wait_for};
pub(crate) use self::message::Message;
pub(crate) use self::script::{OK, Turn, Upstream, eventually};
pub(crate) use self::wire::Wire;

/// The time after which a test has failed.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// A limit that admits one request.
pub(crate) const ONCE: &str = "limits: [{name: once, by: global, bucket: 1/hour}]";

/// A limit of one concurrent request.
pub(crate) const ONE_SLOT: &str = "limits: [{name: slots, by: global, slots: 1}]";

/// A limit of one concurrent request, for a service that stops when its connection is closed.
pub(crate) const ONE_SLOT_RELEASED: &str =
    "limits: [{name: slots, by: global, slots: 1, on_hangup: release}]";
