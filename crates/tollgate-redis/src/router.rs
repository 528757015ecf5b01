//! Routes the calls of a queue to a server.
//!
//! In: a command and its queue. Out: the reply of the server that holds the keys of the queue.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind, Value};
use tokio::time::sleep;

use crate::cluster::Cluster;
use crate::connect::Target;
use crate::failure::{Failure, classify};
use crate::link::Link;
use crate::settings::Topology;
use crate::shared::Shared;

/// The delay before a retry while a slot migrates and neither node can answer, because it has some of
/// the keys of the call and not all, and the maximum number of such retries. A slot with many keys
/// migrates for longer: the caller then repeats the call, because nothing was written.
const SLOT_MIGRATION_DELAY: Duration = Duration::from_millis(3);
const MAX_SLOT_MIGRATION_RETRIES: usize = 8;

/// The maximum number of redirections of one call; more indicate an inconsistent cluster.
const MAX_REDIRECTIONS: usize = 8;

/// The destination of calls.
pub(crate) enum Router {
    /// One server, or the primary that sentinels name.
    Server(Arc<Link>),
    /// The node that holds the queue's partition.
    Cluster(Arc<Cluster>),
}

/// The reply of a server.
pub(crate) enum ServerReply {
    /// A value.
    With(Value),
    /// The server does not know the script.
    NoScript,
}

/// A call that was sent, for a caller that stops waiting for its reply.
pub(crate) struct SentRequest {
    link: Arc<Link>,
    number: u64,
}

impl Router {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        match &shared.settings.topology {
            Topology::Cluster(seeds) => Self::Cluster(Cluster::new(shared, seeds)),
            Topology::Standalone(_) | Topology::Sentinel { .. } => {
                Self::Server(Link::new(shared, Target::Named))
            }
        }
    }

    /// Connects to the server that holds the keys of a queue.
    pub(crate) async fn link(&self, queue: usize) -> Result<Arc<Link>, Failure> {
        match self {
            Self::Server(link) => Ok(Arc::clone(link)),
            Self::Cluster(cluster) => cluster.link(queue).await,
        }
    }

    /// Sends a command to the server that holds the keys of a queue, and follows redirections.
    /// `sent` is set to the last destination.
    pub(crate) async fn query(
        &self,
        queue: usize,
        command: &Cmd,
        sent: &Mutex<Option<SentRequest>>,
    ) -> Result<ServerReply, Failure> {
        let mut link = self.link(queue).await?;
        let mut asking = false;
        // An unsent command is repeated once: the next connection is a new one.
        let mut may_resend = true;
        let mut migration_retries = 0;
        for _ in 0..MAX_REDIRECTIONS + MAX_SLOT_MIGRATION_RETRIES {
            let (mut connection, number) = link.connection().await.inspect_err(|_| self.node_failed())?;
            *sent.lock().unwrap_or_else(PoisonError::into_inner) =
                Some(SentRequest { link: Arc::clone(&link), number });
            let reply = if asking {
                connection.query_asking(command.clone()).await
            } else {
                connection.query(command).await
            };
            let error = match reply {
                Ok(Ok(value)) => {
                    link.answered(number);
                    return Ok(ServerReply::With(value));
                }
                Ok(Err(error)) => error,
                Err(unsent) => {
                    *sent.lock().unwrap_or_else(PoisonError::into_inner) = None;
                    self.node_failed();
                    let failure = link.ended(number, &unsent);
                    if std::mem::take(&mut may_resend) {
                        continue;
                    }
                    return Err(failure);
                }
            };
            asking = false;
            match (self, error.kind()) {
                (_, ErrorKind::Server(ServerErrorKind::NoScript)) => {
                    link.answered(number);
                    return Ok(ServerReply::NoScript);
                }
                (
                    Self::Cluster(cluster),
                    ErrorKind::Server(kind @ (ServerErrorKind::Moved | ServerErrorKind::Ask)),
                ) => {
                    asking = kind == ServerErrorKind::Ask;
                    link = redirection(cluster, &error, (!asking).then_some(queue))
                        .ok_or_else(|| link.failed(number, &error))?;
                }
                (Self::Cluster(_), ErrorKind::Server(ServerErrorKind::TryAgain))
                    if migration_retries < MAX_SLOT_MIGRATION_RETRIES =>
                {
                    migration_retries += 1;
                    link.answered(number);
                    // The server has answered: a call that ends now was not executed.
                    *sent.lock().unwrap_or_else(PoisonError::into_inner) = None;
                    sleep(SLOT_MIGRATION_DELAY).await;
                    link = self.link(queue).await?;
                }
                (Self::Cluster(_), ErrorKind::Server(ServerErrorKind::TryAgain)) => {
                    link.answered(number);
                    return Err(classify(&error));
                }
                _ => {
                    self.node_failed();
                    return Err(link.failed(number, &error));
                }
            }
        }
        Err(Failure::refused("too many redirections: the nodes of the cluster disagree"))
    }

    fn node_failed(&self) {
        if let Self::Cluster(cluster) = self {
            cluster.node_failed();
        }
    }

    /// Records that no reply came in time.
    pub(crate) fn silent(&self, sent: &SentRequest) {
        sent.link.silent(sent.number);
        self.node_failed();
    }
}

fn redirection(cluster: &Arc<Cluster>, error: &RedisError, moved: Option<usize>) -> Option<Arc<Link>> {
    let (to, _slot) = error.redirect_node()?;
    cluster.follow_redirection(to, moved)
}
