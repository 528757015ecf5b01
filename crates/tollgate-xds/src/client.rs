//! The client: opens streams, and answers each response once and in order.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, sleep_until};
use tollgate_envoy::EnvoyConfig;

use crate::backoff::Backoff;
use crate::connection::{Stream, StreamError};
use crate::counters::XdsCounters;
use crate::discovery::{DiscoveryRequest, Node};
use crate::session::{Answers, Judged, REACTION_TIME, Verdict, judge};
use crate::settings::XdsSettings;
use crate::snapshot::Snapshot;

/// The time after which a stream without a response is reported.
const SILENCE: Duration = Duration::from_secs(60);

/// A configuration that the server sent, and that has passed all checks.
#[derive(Debug)]
pub struct Proposal {
    /// The configuration.
    pub config: EnvoyConfig,
    /// The version that the server gave it.
    pub version: String,
    /// Receives the result: in force, or the reason why not. The server is told.
    pub reply: oneshot::Sender<Result<(), String>>,
}

/// Receives configurations from a server.
pub struct XdsClient {
    settings: XdsSettings,
    proposals: mpsc::Sender<Proposal>,
    counters: Arc<XdsCounters>,
    backoff: Backoff,
    /// The resources in force; `None` before the first configuration.
    in_force: Option<Arc<Snapshot>>,
    /// The last accepted version.
    version: String,
}

impl XdsClient {
    /// Creates a client, which passes configurations to `proposals`. `seed` is for the jitter of delays.
    pub fn new(settings: XdsSettings, proposals: mpsc::Sender<Proposal>, seed: u64) -> Self {
        let (counters, backoff) = (Arc::default(), Backoff::new(seed));
        Self { settings, proposals, counters, backoff, in_force: None, version: String::new() }
    }

    /// Returns the counters of the client.
    pub fn counters(&self) -> Arc<XdsCounters> {
        Arc::clone(&self.counters)
    }

    /// Receives configurations until the receiver of proposals is dropped. Needs a Tokio runtime.
    pub async fn run(mut self) {
        let mut last_problem = String::new();
        while !self.proposals.is_closed() {
            let error = match self.stream().await {
                Ok(()) => return,
                Err(error) => error,
            };
            self.counters.set_connected(false);
            let (problem, delay) = (error.to_string(), self.backoff.next_delay());
            self.counters.fail(&problem);
            let delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
            // The same problem is reported once.
            if problem == last_problem {
                tracing::debug!(delay_ms, "xDS: {problem}");
            } else {
                let server = self.settings.server.to_string();
                tracing::warn!(server, delay_ms, "xDS: {problem}; the configuration in force stays");
                last_problem = problem;
            }
            sleep(delay).await;
        }
    }

    /// Opens a stream, and answers its responses. Returns when the receiver of proposals is gone.
    async fn stream(&mut self) -> Result<(), StreamError> {
        // Without a version, so that the server sends the whole state: the version of a server that was
        // restarted may be that of this client, with other content.
        let mut stream =
            Stream::open(&self.settings, DiscoveryRequest::default().framed(self.node())).await?;
        let first = self.first_message(&mut stream).await?;
        self.backoff.reset();
        self.counters.set_connected(true);
        let server = self.settings.server.to_string();
        tracing::info!(server, "xDS: connected");
        let (mut answers, mut message, mut answered_at) = (Answers::default(), first, None);
        loop {
            let is_reaction = answered_at.is_some_and(|at: Instant| at.elapsed() < REACTION_TIME);
            let Some(judged) = self.judge(message).await? else { return Ok(()) };
            let delay = answers.note(&judged, is_reaction);
            let Some(answer) = self.conclude(judged).await else { return Ok(()) };
            if !delay.is_zero() {
                sleep(delay).await;
            }
            stream.send(answer).await?;
            answered_at = Some(Instant::now());
            message = tokio::select! {
                message = stream.next_message() => message?,
                () = self.proposals.closed() => return Ok(()),
            };
        }
    }

    /// Waits for the first message of a stream, and warns once if there is none for a minute.
    async fn first_message(&self, stream: &mut Stream) -> Result<Bytes, StreamError> {
        let silent_at = Instant::now() + SILENCE;
        let mut has_warned = false;
        loop {
            tokio::select! {
                message = stream.next_message() => return message,
                () = sleep_until(silent_at), if !has_warned => {
                    has_warned = true;
                    self.counters.note_silence();
                    let (server, node) = (self.settings.server.to_string(), &self.settings.node);
                    tracing::warn!(
                        server, node,
                        "xDS: the server has sent nothing for {} s: it has no configuration for this node id",
                        SILENCE.as_secs()
                    );
                }
                () = self.proposals.closed() => {
                    return Err(StreamError::Lost("the service is stopping".to_owned()));
                }
            }
        }
    }

    /// Reads a response. A large one takes a while, so other tasks are not kept waiting.
    async fn judge(&self, message: Bytes) -> Result<Option<Judged>, StreamError> {
        let (in_force, merge) = (self.in_force.clone(), self.settings.merge_domains);
        match spawn_blocking(move || judge(&message, in_force.as_deref(), merge)).await {
            Ok(Some(judged)) => Ok(Some(judged)),
            Ok(None) => Err(StreamError::Malformed("a message that is not a DiscoveryResponse")),
            // The runtime is shutting down.
            Err(_) => Ok(None),
        }
    }

    /// Puts a configuration into force, and returns the answer to the server. Returns `None` if the
    /// receiver of proposals is gone.
    async fn conclude(&mut self, judged: Judged) -> Option<Bytes> {
        let Judged { version, nonce, verdict } = judged;
        let result = match verdict {
            Verdict::Unchanged => Ok(()),
            Verdict::Rejected(reason) => Err(reason),
            Verdict::Changed(snapshot, config) => {
                let result = self.propose(config, version.clone()).await?;
                if result.is_ok() {
                    self.in_force = Some(Arc::new(snapshot));
                }
                result
            }
        };
        match result {
            Ok(()) => {
                self.version = version;
                self.counters.accept(&self.version);
                Some(self.answer(&nonce, None))
            }
            Err(reason) => {
                self.counters.reject(&reason);
                tracing::error!("xDS: the configuration was rejected, and the one in force stays: {reason}");
                Some(self.answer(&nonce, Some(&reason)))
            }
        }
    }

    async fn propose(&self, config: EnvoyConfig, version: String) -> Option<Result<(), String>> {
        let (reply, result) = oneshot::channel();
        self.proposals.send(Proposal { config, version, reply }).await.ok()?;
        result.await.ok()
    }

    /// Returns the answer to a response, with the last accepted version.
    fn answer(&self, nonce: &str, rejection: Option<&str>) -> Bytes {
        DiscoveryRequest { version: &self.version, nonce, rejection }.framed(self.node())
    }

    fn node(&self) -> Node<'_> {
        Node { id: &self.settings.node, metadata: &self.settings.node_metadata }
    }
}
