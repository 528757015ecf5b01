//! To whom a queue's questions go.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind, Value};
use tokio::time::sleep;

use crate::cluster::Cluster;
use crate::connect::Target;
use crate::failure::Failure;
use crate::link::Link;
use crate::settings::Topology;
use crate::shared::Shared;

/// While a slot is moved, some questions can be answered by neither side.
const SLOT_MIGRATION_DELAY: Duration = Duration::from_millis(3);

/// More redirections than this in one question are a cluster that disagrees with itself.
const MAX_REDIRECTIONS: usize = 8;

/// To whom questions go.
pub(crate) enum Router {
    /// One server, or the primary that sentinels name.
    Server(Arc<Link>),
    /// The node that keeps the queue's partition.
    Cluster(Arc<Cluster>),
}

/// What a server answered.
pub(crate) enum ServerReply {
    /// This.
    With(Value),
    /// That it does not know the script.
    NoScript,
}

/// A question that was sent, for whoever stops waiting for its answer.
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

    /// Connects to whoever keeps this queue's keys.
    pub(crate) async fn link(&self, queue: usize) -> Result<Arc<Link>, Failure> {
        match self {
            Self::Server(link) => Ok(Arc::clone(link)),
            Self::Cluster(cluster) => cluster.link(queue).await,
        }
    }

    /// Asks whoever keeps this queue's keys, and follows redirections. `sent` is whom it
    /// was sent to last.
    pub(crate) async fn query(
        &self,
        queue: usize,
        command: &Cmd,
        sent: &Mutex<Option<SentRequest>>,
    ) -> Result<ServerReply, Failure> {
        let mut asked = self.link(queue).await?;
        let mut asking = false;
        // What was not sent is asked again, once: the next connection is a new one.
        let mut again = true;
        for _ in 0..MAX_REDIRECTIONS {
            let (mut connection, number) = asked.connection().await.inspect_err(|_| self.doubt())?;
            *sent.lock().unwrap_or_else(PoisonError::into_inner) =
                Some(SentRequest { link: Arc::clone(&asked), number });
            let answer = if asking {
                connection.query_asking(command.clone()).await
            } else {
                connection.query(command).await
            };
            let error = match answer {
                Ok(Ok(value)) => {
                    asked.answered(number);
                    return Ok(ServerReply::With(value));
                }
                Ok(Err(error)) => error,
                Err(unsent) => {
                    *sent.lock().unwrap_or_else(PoisonError::into_inner) = None;
                    self.doubt();
                    let failure = asked.ended(number, &unsent);
                    if std::mem::take(&mut again) {
                        continue;
                    }
                    return Err(failure);
                }
            };
            asking = false;
            match (self, error.kind()) {
                (_, ErrorKind::Server(ServerErrorKind::NoScript)) => {
                    asked.answered(number);
                    return Ok(ServerReply::NoScript);
                }
                (
                    Self::Cluster(cluster),
                    ErrorKind::Server(kind @ (ServerErrorKind::Moved | ServerErrorKind::Ask)),
                ) => {
                    asking = kind == ServerErrorKind::Ask;
                    asked = redirected(cluster, &error, (!asking).then_some(queue))
                        .ok_or_else(|| asked.failed(number, &error))?;
                }
                (Self::Cluster(_), ErrorKind::Server(ServerErrorKind::TryAgain)) => {
                    sleep(SLOT_MIGRATION_DELAY).await;
                    asked = self.link(queue).await?;
                }
                _ => {
                    self.doubt();
                    return Err(asked.failed(number, &error));
                }
            }
        }
        Err(Failure::refused("the nodes of the cluster send us round in circles"))
    }

    fn doubt(&self) {
        if let Self::Cluster(cluster) = self {
            cluster.doubt();
        }
    }

    /// No answer came in time.
    pub(crate) fn silent(&self, sent: &SentRequest) {
        sent.link.silent(sent.number);
        self.doubt();
    }
}

fn redirected(cluster: &Arc<Cluster>, error: &RedisError, moved: Option<usize>) -> Option<Arc<Link>> {
    let (to, _slot) = error.redirect_node()?;
    cluster.redirected(to, moved)
}
