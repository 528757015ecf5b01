//! The running service.
//!
//! ```text
//! read configuration ─► reject mistakes ─► listen ─► serve
//!                                                      │ SIGHUP, changed file: reload
//!                                                      │ SIGTERM, SIGINT: drain, end; a second one: end at once
//! ```
//!
//! Sockets and threads are in `surfaces`.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Interval, MissedTickBehavior, interval, timeout};
use tollgate::{Clock, Policy, SharedLimiter, SystemClock};
use tollgate_server::{Api, Book, ModeOverrides, Status};
use tollgate_telemetry::Watcher;
use tollgate_xds::Proposal;

use crate::addresses::Addresses;
use crate::api::{access, api};
use crate::config_server::ConfigServer;
use crate::configuration::{Configuration, Inputs};
use crate::failure::Failure;
use crate::fleet;
use crate::huge_pages;
use crate::load;
use crate::logging::Log;
use crate::process_metrics::{ProcessMetrics, Reloads};
use crate::protocols::Protocols;
use crate::ratelimit::{RatelimitListeners, RatelimitSources};
use crate::record_consumer::{ConsumerCounts, RecordConsumer};
use crate::record_log;
use crate::reload::{Reloader, RunningConfig, Watch};
use crate::rule_registry::RuleRegistry;
use crate::service_manager::ServiceManager;
use crate::signals::{ProcessSignal, Signals};
use crate::startup::Startup;
use crate::state::{self, RuleHistory, State, UsageSaver, restore};
use crate::store::{self, AnyStore};
use crate::surfaces::Surfaces;

/// The interval between two polls of the files.
const FILE_POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The running service: gateway, API, Envoy's rate limit service and the Redis protocol on one policy.
///
/// The listeners have their own threads. Dropping a `Daemon` closes them as soon as running requests
/// have ended; [`shutdown`](Self::shutdown) also waits for that, and saves the rest.
///
/// ```
/// use tollgate_daemon::{Daemon, Inputs};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tollgate_daemon::Failure> {
/// let inputs = Inputs::default()
///     .set("limits", "[{name: api, by: ip, bucket: 5/minute}]")
///     .set("listen", "{gateway: 127.0.0.1:0, api: 127.0.0.1:0, rls: off, resp: off}");
/// let daemon = Daemon::start(inputs).await?;
/// println!("forwarding on {:?}", daemon.addresses().gateway_url());
/// assert_eq!(daemon.policy().limits()[0].name(), "api");
/// assert_eq!(daemon.addresses().rls, None);
/// daemon.shutdown().await;
///
/// let mistake = Inputs::default().set("listen.api", "nowhere");
/// assert!(Daemon::start(mistake).await.is_err());
/// # Ok(())
/// # }
/// ```
pub struct Daemon {
    configuration: Box<Configuration>,
    surfaces: Surfaces,
    limiter: SharedLimiter<AnyStore>,
    store: Arc<AnyStore>,
    status: Arc<Status>,
    reloader: Box<Reloader>,
    watch: Watch,
    file_polls: Interval,
    records: RecordConsumer,
    api: Api<AnyStore>,
    maintenance: JoinHandle<()>,
    saver: Option<Arc<UsageSaver>>,
    config_server: ConfigServer,
    ratelimit: Option<RatelimitListeners>,
}

impl Daemon {
    /// Reads the configuration, opens the listeners and starts to serve.
    ///
    /// Needs a Tokio runtime, on which periodic work runs: telemetry, and the connection to Redis.
    /// Messages are `tracing` events. [`Startup`] starts a log, too.
    pub async fn start(inputs: Inputs) -> Result<Self, Failure> {
        Startup::read(inputs)?.start(&Log::default()).await
    }

    #[allow(clippy::too_many_lines, reason = "the parts of the service, in the order of their start")]
    pub(crate) async fn open(startup: Startup, log: &Log) -> Result<Self, Failure> {
        let outage = startup.outage();
        let Startup { inputs, watch, mut configuration, secrets } = startup;
        let watcher = configuration.settings.observing.watched().map(|it| Watcher::new(&it));
        let records = configuration.settings.records.as_ref().map(record_log::open).transpose()?;
        let (records, record_writer) = records.unzip();
        let opened = configuration.settings.state.as_ref().map(|it| State::open(&it.folder)).transpose()?;
        let (state, saved) = opened.map(|(state, saved)| (Arc::new(state), saved)).unzip();
        let usage = configuration.settings.state.as_ref().and_then(|it| it.usage).zip(state.clone());
        let (restored, policy, history, warning) = match &usage {
            Some((_, state)) => state::open_store(state, configuration.policy.clone()),
            None => (None, configuration.policy.clone(), RuleHistory::default(), None),
        };
        configuration.warnings.extend(warning);
        let listen = &configuration.settings.resp_listen;
        let remote = store::complete(secrets.store.clone(), listen, &configuration.policy)?;
        let store =
            restored.unwrap_or_else(|| store::open(&configuration.policy, remote, secrets.far.clone()));
        let (rules, policy, warning) = RuleRegistry::join(&store, policy).await;
        configuration.warnings.extend(warning);
        let limiter = store::limiter(policy, &store, &outage, watcher.as_ref());
        let unconnected = store::connect(&limiter.load(), &store).await.err();
        rules.hold_until_read();
        let status = Arc::new(Status::new());
        if let Some(remote) = store.remote() {
            status.stored_at(remote.to_string());
        }
        let switches = ModeOverrides::new(limiter.clone());
        let switched = state.as_ref().zip(saved).and_then(|(state, saved)| restore(state, saved, &switches));
        configuration.warnings.extend(switched);
        let saver =
            usage.map(|(interval, state)| UsageSaver::new(&state, &store, &limiter, interval, history));
        let reloads = Arc::new(Reloads::default());
        let consumer_counts = ConsumerCounts::new(&configuration.settings.observing);
        let (seen, reloaded) = (watcher.clone(), Arc::clone(&reloads));
        let reading = (limiter.clone(), Arc::clone(&store));
        let process_metrics =
            Arc::new(ProcessMetrics::new(reading, seen, reloaded, consumer_counts.clone(), log.clone()));
        if let Some(records) = &records {
            process_metrics.record_in(records.clone());
        }
        let access = access(&configuration.settings, &secrets.tokens);
        let protocols = Protocols::new(&configuration.settings, &limiter, &secrets, &store);
        process_metrics.speak(protocols.clone());
        let config_server = ConfigServer::start(&configuration.settings);
        if let Some(counters) = config_server.counters() {
            process_metrics.configure_by(counters);
        }
        let sources = RatelimitSources {
            rls: protocols.rls().clone(),
            limiter: limiter.clone(),
            status: Arc::clone(&status),
            reloads: Arc::clone(&reloads),
            config_server: config_server.counters(),
            metrics: Arc::clone(&process_metrics),
        };
        let ports = inputs.ratelimit.as_ref();
        let ratelimit = ports.map(|ports| RatelimitListeners::open(ports, &sources)).transpose()?;
        let api = api(limiter.clone(), &status, access, &switches, watcher.as_ref(), &process_metrics);
        let api = match records {
            Some(records) => api.with_records(records),
            None => api,
        };
        let api = fleet::join(protocols.clone().answer_json(api), &store);
        let dividing = protocols.clone().divide_quotas(Arc::clone(&store));
        let surfaces = Surfaces::open(&configuration, &limiter, &api, protocols, &secrets.tokens)?;
        configuration.warnings.extend(surfaces.warnings().to_vec());
        process_metrics.hold_back_in(surfaces.tarpit());
        process_metrics.wait_in(surfaces.waiting_room());
        process_metrics.throttle_by(surfaces.throttle_counts());
        process_metrics.forward_to(surfaces.outbound_services());
        let ticking = api.clone();
        let records = RecordConsumer::start(
            watcher,
            &configuration.settings,
            &consumer_counts,
            record_writer,
            move |now| {
                ticking.tick(now);
            },
        )?;
        let now = SystemClock::new().now();
        status.loaded(now);
        reloads.worked(now);
        configuration.warnings.extend(unconnected);
        let running = RunningConfig::new(&configuration, secrets);
        let measuring = load::measure(limiter.clone(), surfaces.event_loops());
        let maintaining = store::maintain(limiter.clone(), Arc::clone(&store));
        let reporting = fleet::report(api.clone());
        let (registry, switched) = (Arc::clone(&rules), switches.clone());
        let registering = async move { registry.maintain(&switched).await };
        let saving = UsageSaver::run(saver.clone());
        let maintenance = tokio::spawn(async {
            let growing = huge_pages::adopt_as_it_grows();
            _ = tokio::join!(maintaining, measuring, reporting, registering, saving, dividing, growing);
        });
        let base = configuration.policy.clone();
        let reloader = Reloader::new(inputs, switches, rules, Arc::clone(&status), reloads, running, base)
            .with_store(&store);
        let mut file_polls = interval(FILE_POLL_INTERVAL);
        file_polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Ok(Self {
            configuration,
            surfaces,
            limiter,
            store,
            status,
            reloader: Box::new(reloader),
            watch,
            file_polls,
            records,
            api,
            maintenance,
            saver,
            config_server,
            ratelimit,
        })
    }

    /// Serves the documentation at `/book/` of the API. Only the first call has an effect.
    pub fn serve_book(&self, book: Book) {
        let _same = self.api.clone().with_book(book);
    }

    /// Returns the bound addresses.
    pub const fn addresses(&self) -> Addresses {
        self.surfaces.addresses()
    }

    /// Returns the bound addresses of the outbound gateway, by the name of their service.
    pub fn outbound_addresses(&self) -> &[(String, std::net::SocketAddr)] {
        self.surfaces.outbound()
    }

    /// Returns the inputs.
    pub fn inputs(&self) -> &Inputs {
        self.reloader.inputs()
    }

    /// Returns the configuration of the start, with all warnings of the start.
    pub fn configuration(&self) -> &Configuration {
        &self.configuration
    }

    /// Returns the policy in force, with mode overrides applied.
    pub fn policy(&self) -> Policy {
        self.limiter.load().policy().clone()
    }

    /// Reads all inputs again and puts the policy into force. After a mistake, the old policy stays in
    /// force, and the log and `/readyz` report the mistake.
    pub fn reload(&mut self) -> Result<(), Failure> {
        self.reload_because("on request")
    }

    fn reload_because(&mut self, why: &str) -> Result<(), Failure> {
        self.watch.reading();
        self.reloader.reload(why)
    }

    /// Reloads whenever a file of the configuration changes, or a configuration server sends another
    /// configuration, and reads changed certificates. Returns only if all listeners have ended.
    ///
    /// Dropping the future stops watching; a later call continues.
    pub async fn watch_files(&mut self) -> Failure {
        loop {
            tokio::select! {
                _ = self.file_polls.tick() => {
                    self.surfaces.poll_certificates();
                    if self.watch.has_changed() {
                        // The log has the mistake.
                        let _rejected = self.reloader.reload("the file has changed");
                    }
                }
                proposal = self.config_server.next() => {
                    let Proposal { config, version, reply } = proposal;
                    let result = self.reloader.put_server_config(config, &version);
                    // The client is gone if the service ends.
                    let _gone = reply.send(result.map_err(|failure| failure.brief().trim().to_owned()));
                }
                () = self.surfaces.ended() => {
                    return Failure::new("nothing listens any more; the log says why");
                }
            }
        }
    }

    /// Serves until a stop signal, and then shuts down; a second stop signal ends at once. Reloads on
    /// SIGHUP and when a file changes. Reports all of this to systemd.
    pub async fn run(mut self, mut signals: Signals) -> Result<(), Failure> {
        let mut manager = ServiceManager::from_environment();
        ServiceManager::ready(&self.service_status());
        loop {
            tokio::select! {
                failure = self.watch_files() => {
                    self.maintenance.abort();
                    return Err(failure);
                }
                () = manager.keep_alive() => {}
                signal = signals.next() => match signal {
                    ProcessSignal::Reload => {
                        ServiceManager::reloading();
                        let rejected = self.reload_because("on SIGHUP").is_err();
                        let status = self.service_status();
                        let note = if rejected { "; the last reload was rejected, see the log" } else { "" };
                        ServiceManager::ready(&format!("{status}{note}"));
                    }
                    ProcessSignal::Stop(name) => {
                        ServiceManager::stopping();
                        tracing::info!("{name}: finishing what runs; a second one ends at once");
                        break;
                    }
                }
            }
        }
        let stop = async {
            let name = signals.next_stop().await;
            tracing::warn!("{name} again: ending at once");
        };
        tokio::select! {
            () = self.end(stop) => {}
            () = manager.keep_alive() => {}
        }
        Ok(())
    }

    /// Describes the service in one line.
    fn service_status(&self) -> String {
        match self.policy().limits().len() {
            1 => "serving 1 limit".to_owned(),
            limits => format!("serving {limits} limits"),
        }
    }

    /// Stops accepting, waits for running requests up to `gateway.timeouts.drain`, passes on the
    /// remaining records, and charges the store for requests that were admitted without it.
    pub async fn shutdown(self) {
        self.end(pending()).await;
    }

    /// Shuts down; `interrupt` ends the wait.
    async fn end(self, interrupt: impl Future<Output = ()>) {
        let Self {
            surfaces,
            limiter,
            store,
            status,
            records,
            api,
            maintenance,
            saver,
            ratelimit,
            config_server,
            ..
        } = self;
        status.drain();
        drop(config_server);
        let (clock, patience) = (SystemClock::new(), surfaces.patience());
        let started_at = clock.now();
        let left = tokio::select! {
            all_done = surfaces.drain() => {
                if all_done {
                    tracing::info!("all done");
                }
                patience.saturating_sub(Duration::from_micros(clock.now().since(started_at).as_micros()))
            }
            () = interrupt => Duration::ZERO,
        };
        maintenance.abort();
        let _late = timeout(left, records.end()).await;
        fleet::leave(&api).await;
        store::return_leases(&store).await;
        store::settle_up(&limiter.load(), left).await;
        store::leave(&store).await;
        if let Some(saver) = saver {
            UsageSaver::save(&saver).await;
        }
        // Last, so that health checks fail while running calls end.
        drop(ratelimit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_can_be_run_by_any_runtime() {
        const fn is_send<T: Send>() {}
        is_send::<Daemon>();
    }
}
