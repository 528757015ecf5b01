//! `TG.CALL`: the calls of other nodes for keys that this node owns.
//!
//! A call can charge and refund any key, so it has its own permission: a peer authenticates as
//! `tollgate-peer` with the password of the peers. Clients of the port do not know that password.
//!
//! The meaning of a call is in `tollgate_peers`.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use tollgate::Store;

use crate::command::Command;
use crate::exchange::Exchange;
use crate::frame::Words;
use crate::metrics::CommandResult;
use crate::session::{Flow, Session, bulk, wrong};
use crate::settings::Password;

/// The user name of peers, as in `tollgate_peers::PEER_USER`.
pub(crate) const PEER_USER: &[u8] = b"tollgate-peer";

/// The receiver of calls.
pub trait PeerCalls: Send + Sync + 'static {
    /// Answers a call.
    fn call(&self, version: &[u8], payload: &[u8]) -> PeerReply;
}

/// The reply to a call: its bytes, or the text of an error.
pub enum PeerReply {
    /// The reply.
    Now(Result<Vec<u8>, String>),
    /// The reply after the node has asked another one.
    Later(Pin<Box<dyn Future<Output = Result<Vec<u8>, String>> + Send>>),
}

impl fmt::Debug for PeerReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Now(reply) => f.debug_tuple("Now").field(reply).finish(),
            Self::Later(_) => f.write_str("Later"),
        }
    }
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
    pub(crate) fn call(
        &self,
        words: Words<'_>,
        exchange: &mut Exchange<'_, '_, S>,
    ) -> Result<CommandResult, Flow> {
        let Some(peers) = &self.inner.settings.peers else {
            return Ok(exchange.error(b"ERR this node has no peers: its `store` is not `tollgate://`"));
        };
        if peers.password.is_some() && !self.is_peer {
            return Ok(exchange.error(
                b"NOPERM only peers may call: they authenticate as `tollgate-peer` with the password of `store`",
            ));
        }
        match peers.calls.call(words.get(1), words.get(2)) {
            PeerReply::Now(reply) => Ok(write(reply, exchange.end())),
            PeerReply::Later(reply) => Err(exchange.defer(Command::Call, async move {
                let mut out = Vec::new();
                let result = write(reply.await, &mut out);
                (out, result)
            })),
        }
    }
}

fn write(reply: Result<Vec<u8>, String>, out: &mut Vec<u8>) -> CommandResult {
    match reply {
        Ok(reply) => bulk(out, &reply),
        Err(error) => wrong(out, error.as_bytes()),
    }
}
