//! The client of the configuration server that Envoy's limits come from (`rls.xds`).
//!
//! The protocol is in `tollgate_xds`; configurations come into force in `reload`.

use std::future::pending;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tollgate_telemetry::Exposition;
use tollgate_telemetry::MetricKind::{Counter, Gauge};
use tollgate_xds::{Proposal, XdsClient, XdsCounters};

use crate::configuration::Settings;

/// The running client, if there is one.
pub(crate) struct ConfigServer {
    client: Option<RunningClient>,
}

struct RunningClient {
    proposals: mpsc::Receiver<Proposal>,
    counters: Arc<XdsCounters>,
    task: JoinHandle<()>,
}

impl ConfigServer {
    /// Starts the client that the settings describe. Needs a Tokio runtime.
    pub(crate) fn start(settings: &Settings) -> Self {
        let client = settings.rls.xds.as_ref().map(|section| {
            // One at a time: the client waits for the result of each.
            let (sender, proposals) = mpsc::channel(1);
            let seed = RandomState::new().hash_one(section.shown());
            let client = XdsClient::new(section.settings(settings.rls.merge_domains), sender, seed);
            let counters = client.counters();
            RunningClient { proposals, counters, task: tokio::spawn(client.run()) }
        });
        Self { client }
    }

    /// Waits for the next configuration; for ever, if there is no server.
    pub(crate) async fn next(&mut self) -> Proposal {
        if let Some(client) = &mut self.client
            && let Some(proposal) = client.proposals.recv().await
        {
            return proposal;
        }
        pending().await
    }

    /// Returns the counters of the client.
    pub(crate) fn counters(&self) -> Option<Arc<XdsCounters>> {
        self.client.as_ref().map(|it| Arc::clone(&it.counters))
    }
}

impl Drop for ConfigServer {
    fn drop(&mut self) {
        if let Some(client) = &self.client {
            client.task.abort();
        }
    }
}

/// Appends the metrics of the client.
pub(crate) fn write_metrics(counters: &XdsCounters, to: &mut Exposition<'_>) {
    let status = counters.status();
    let help = "Whether the configuration server answers.";
    to.one("tollgate_xds_connected", Gauge, help, u8::from(status.connected));
    let help = "Whether a configuration of the configuration server is in force.";
    to.one("tollgate_xds_configured", Gauge, help, u8::from(status.configured));
    let help = "Configurations that the configuration server sent.";
    to.family("tollgate_xds_responses_total", Counter, help)
        .value(&[("result", "accepted")], status.accepted)
        .value(&[("result", "rejected")], status.rejected);
    let help = "Streams to the configuration server that failed or could not be opened.";
    to.one("tollgate_xds_failures_total", Counter, help, status.failures);
    let help = "Streams on which the configuration server sent nothing for a minute.";
    to.one("tollgate_xds_silences_total", Counter, help, status.silences);
}
