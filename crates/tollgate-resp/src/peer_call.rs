//! `TG.CALL`: the calls of other nodes for keys that this node owns.
//!
//! A call can charge and refund any key, so it has its own permission: a peer authenticates as
//! `tollgate-peer` with the password of the peers. Clients of the port do not know that password.
//!
//! The meaning of a call is in `tollgate_peers`.

use std::fmt;
use std::sync::Arc;

use tollgate::Store;

use crate::frame::Words;
use crate::metrics::CommandResult;
use crate::session::{Session, bulk, wrong};
use crate::settings::Password;

/// The user name of peers, as in `tollgate_peers::PEER_USER`.
pub(crate) const PEER_USER: &[u8] = b"tollgate-peer";

/// The receiver of calls.
pub trait PeerCalls: Send + Sync + 'static {
    /// Answers a call: returns the bytes of the reply, or the text of an error.
    fn call(&self, version: &[u8], payload: &[u8]) -> Result<Vec<u8>, String>;
}

/// The settings of a node with peers.
#[derive(Clone)]
pub struct PeerSettings {
    /// The password of the peers. Without one, every client of the port may send calls.
    pub password: Option<Password>,
    /// The receiver of calls.
    pub calls: Arc<dyn PeerCalls>,
}

impl fmt::Debug for PeerSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerSettings").field("password", &self.password).finish_non_exhaustive()
    }
}

impl<S: Store> Session<S> {
    /// Answers the call of another node.
    pub(crate) fn call(&self, words: Words<'_>, out: &mut Vec<u8>) -> CommandResult {
        let Some(peers) = &self.inner.settings.peers else {
            return wrong(out, b"ERR this node has no peers: its `store` is not `tollgate://`");
        };
        if peers.password.is_some() && !self.is_peer {
            return wrong(
                out,
                b"NOPERM only peers may call: they authenticate as `tollgate-peer` with the password of `store`",
            );
        }
        match peers.calls.call(words.get(1), words.get(2)) {
            Ok(reply) => bulk(out, &reply),
            Err(error) => wrong(out, error.as_bytes()),
        }
    }
}
