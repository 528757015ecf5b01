//! Puts a changed policy into force while requests are served.
//!
//! A reload reads all inputs again, from files to flags. If there is any mistake, the old policy stays
//! in force, and the log and `/readyz` report the mistake. Otherwise the new policy replaces the old
//! one, and limits that keep their name keep their state.
//!
//! - `changes`: the differences to the new configuration.
//! - `switched`: mode overrides that stay in force over the new file.
//! - `watch`: detects changed files.
//!
//! Signals and polling are in `daemon`.

mod changes;
mod switched;
mod watch;

use std::sync::Arc;

use tollgate::{Clock, Policy, SystemClock};
use tollgate_document::Document;
use tollgate_document::sanitize::Printable;
use tollgate_envoy::{DomainCache, EnvoyConfig};
use tollgate_server::{ModeOverrides, Status};

use changes::Changes;
pub use watch::Watch;

use crate::configuration::{Configuration, Inputs, LoadPhase, Settings, Tokens, Variables};
use crate::failure::Failure;
use crate::process_metrics::Reloads;
use crate::rule_registry::RuleRegistry;
use crate::store::{AnyStore, RemoteSettings, changed_list, in_full};

/// The maximum number of limits that a warning names.
const MAX_NAMED_LIMITS: usize = 10;

/// Puts a changed policy into force.
pub(crate) struct Reloader {
    inputs: Inputs,
    switches: ModeOverrides<AnyStore>,
    rules: Arc<RuleRegistry>,
    status: Arc<Status>,
    reloads: Arc<Reloads>,
    running: RunningConfig,
    store: Option<Arc<AnyStore>>,
    /// The policy of the inputs, without the limits of a configuration server.
    base: Policy,
    /// The configuration of a configuration server in force.
    server_config: Option<EnvoyConfig>,
    /// The compiled domains of that configuration.
    domains: DomainCache,
    /// Wall time, for the time at which a policy came into force.
    clock: SystemClock,
}

/// The running configuration, to which a new one is compared.
pub(crate) struct RunningConfig {
    /// The document of the policy in force. Changes are reported from one reload to the next.
    policy: Document,
    names: Vec<String>,
    /// Envoy's files in force.
    envoy: Vec<(String, String)>,
    /// The document at the start: a change of settings takes a restart.
    started: Document,
    max_keys: u64,
    secrets: Secrets,
}

/// Secrets that are read from files.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secrets {
    /// The tokens of the API.
    pub(crate) tokens: Tokens,
    /// The settings of a remote store, with password and certificates.
    pub(crate) store: Option<RemoteSettings>,
    /// The settings of the stores of other regions.
    pub(crate) far: Vec<(String, RemoteSettings)>,
    /// The password of the Redis protocol.
    pub(crate) resp: Option<String>,
}

impl Secrets {
    /// Reads the secrets.
    pub(crate) fn load(
        settings: &Settings,
        variables: &Variables,
        reading: LoadPhase,
    ) -> Result<Self, Failure> {
        let tokens = Tokens::load(settings, variables, reading)?;
        let (store, resp) = (settings.store.load(reading)?, settings.resp.password(reading)?);
        Ok(Self { tokens, store, far: settings.regions.load(reading)?, resp })
    }
}

impl RunningConfig {
    /// Creates the state at the start.
    pub(crate) fn new(configuration: &Configuration, secrets: Secrets) -> Self {
        Self {
            policy: configuration.document.clone(),
            names: names(&configuration.policy),
            envoy: configuration.envoy_texts(),
            started: configuration.document.clone(),
            max_keys: configuration.policy.max_keys(),
            secrets,
        }
    }
}

/// Returns the names of the limits in file order; a candidate is part of its limit.
fn names(policy: &Policy) -> Vec<String> {
    let listed = policy.limits().iter().filter(|limit| limit.candidate_of().is_none());
    listed.map(|limit| limit.name().to_owned()).collect()
}

/// Adds the limits of a configuration server to a policy.
fn with_config(
    config: Option<&EnvoyConfig>,
    policy: Policy,
    cache: &mut DomainCache,
) -> Result<Policy, Failure> {
    let Some(config) = config else { return Ok(policy) };
    config.apply_cached(policy, cache).map_err(|error| Failure::new(in_full(&error)))
}

impl Reloader {
    pub(crate) fn new(
        inputs: Inputs,
        switches: ModeOverrides<AnyStore>,
        rules: Arc<RuleRegistry>,
        status: Arc<Status>,
        reloads: Arc<Reloads>,
        running: RunningConfig,
        base: Policy,
    ) -> Self {
        let (server_config, store, clock) = (None, None, SystemClock::new());
        let domains = DomainCache::default();
        Self { inputs, switches, rules, status, reloads, running, store, base, server_config, domains, clock }
    }

    /// Sets the store, whose list of peers may change.
    pub(crate) fn with_store(self, store: &Arc<AnyStore>) -> Self {
        Self { store: Some(Arc::clone(store)), ..self }
    }

    /// Puts the configuration of a configuration server into force, with the limits of the inputs.
    pub(crate) fn put_server_config(&mut self, config: EnvoyConfig, version: &str) -> Result<(), Failure> {
        let policy = with_config(Some(&config), self.base.clone(), &mut self.domains)?;
        let (domains, limits) = (config.domains().len(), policy.limits().len() - self.base.limits().len());
        for (limit, domain) in config.decided_alone(&self.base).into_iter().take(MAX_NAMED_LIMITS) {
            let (limit, domain) = (limit.name(), Printable(&domain.name));
            tracing::warn!(
                "limit `{limit}` is never asked in the domain `{domain}`: the configuration server decides there alone"
            );
        }
        self.rules.reload(policy, &self.switches);
        self.server_config = Some(config);
        let now = self.clock.now();
        self.status.loaded(now);
        self.reloads.worked(now);
        let version = Printable(version);
        tracing::info!(domains, limits, "xDS: configuration {version} is in force");
        Ok(())
    }

    /// Returns the inputs.
    pub(crate) const fn inputs(&self) -> &Inputs {
        &self.inputs
    }

    /// Reads all inputs again and puts them into force, or logs and returns the reason why not.
    pub(crate) fn reload(&mut self, why: &str) -> Result<(), Failure> {
        match self.attempt() {
            Ok((changes, restart)) => {
                tracing::info!("reloaded {}, {why}: {changes}", self.inputs.name());
                if let Some(switched) = switched::in_words(&self.switches.modes()) {
                    tracing::warn!("{switched}");
                }
                if !restart.is_empty() {
                    tracing::warn!("changed, and takes a restart: {}", restart.join(", "));
                }
                Ok(())
            }
            Err(failure) => {
                // The brief form, because the file may contain API keys and the log has more readers.
                let said = failure.brief();
                tracing::error!("not reloaded, {why}; the old policy stays in force\n{said}");
                self.reloads.failed();
                self.status.reload_failed(said);
                Err(failure)
            }
        }
    }

    /// Returns the changes in force, and the changes that take a restart.
    fn attempt(&mut self) -> Result<(Changes, Vec<String>), Failure> {
        let new = self.inputs.load(LoadPhase::Again)?;
        let secrets = Secrets::load(&new.settings, &self.inputs.tokens, LoadPhase::Again)?;
        let new_names = names(&new.policy);
        let running = &self.running;
        let envoy = new.envoy_texts();
        let changes = Changes::between((&running.policy, &running.names), (&new.document, &new_names));
        let changes = changes.with_files(&running.envoy, &envoy);
        let mut restart = changes::settings(&running.started, &new.document);
        if new.policy.max_keys() != running.max_keys {
            restart.push("max_keys".to_owned());
        }
        let (tokens, known) = (&secrets.tokens, &running.secrets.tokens);
        for (is_other, what) in
            [(tokens.admin != known.admin, "the admin token"), (tokens.read != known.read, "the read token")]
        {
            if is_other {
                restart.push(what.to_owned());
            }
        }
        if secrets.resp != running.secrets.resp {
            restart.push("the password of `resp`".to_owned());
        }
        if secrets.store != running.secrets.store && !restart.iter().any(|it| it == "store") {
            restart.push("what the files of `store` hold".to_owned());
        }
        let listen = &new.settings.resp_listen;
        let list = changed_list(running.secrets.store.as_ref(), secrets.store.as_ref(), listen, &new.policy)?;
        if list.is_some() {
            restart.retain(|it| it != "store" && it != "what the files of `store` hold");
        }
        if secrets.far != running.secrets.far {
            restart.push("`regions.stores`".to_owned());
        }
        for warning in &new.brief_warnings {
            tracing::warn!("{}", warning.trim_end());
        }
        let server_config = self.server_config.as_ref();
        let policy = with_config(server_config, new.policy.clone(), &mut self.domains)?;
        self.rules.reload(policy, &self.switches);
        self.base = new.policy;
        if let Some(list) = list
            && let Some(peers) = self.store.as_ref().and_then(|store| store.remote()?.peers())
        {
            peers.use_list(&list);
        }
        let now = self.clock.now();
        self.status.loaded(now);
        self.reloads.worked(now);
        (self.running.policy, self.running.names, self.running.envoy) = (new.document, new_names, envoy);
        Ok((changes, restart))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate::{Call, OutageSettings, SharedLimiter};
    use tollgate_testkit::Scratch;

    /// Creates a reloader for a file, with its limiter.
    fn reloader(files: &Scratch, policy: &str) -> (Reloader, SharedLimiter<AnyStore>, Arc<Status>) {
        let inputs = Inputs { config: Some(files.write("policy.yaml", policy)), ..Inputs::default() };
        let configuration = inputs.load(LoadPhase::First).unwrap();
        let store = crate::store::open(&configuration.policy, None, Vec::new());
        let joined = RuleRegistry::join(&store, configuration.policy.clone());
        let (rules, policy, _) =
            tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(joined);
        let limiter = crate::store::limiter(policy, &store, &OutageSettings::default(), None);
        let secrets =
            Secrets::load(&configuration.settings, &Variables::default(), LoadPhase::First).unwrap();
        let (status, running) = (Arc::new(Status::new()), RunningConfig::new(&configuration, secrets));
        let switches = ModeOverrides::new(limiter.clone());
        let base = configuration.policy;
        let reloader =
            Reloader::new(inputs, switches, rules, Arc::clone(&status), Arc::default(), running, base);
        (reloader, limiter, status)
    }

    fn left(limiter: &SharedLimiter<AnyStore>) -> Option<u64> {
        let limiter = limiter.load();
        let left = limiter.try_decide(&Call::new("GET", "/"), |decision| {
            decision.limiting().map(|it| it.outcome().remaining)
        });
        left.expect("a store in memory answers at once")
    }

    #[test]
    fn a_new_policy_keeps_the_counts_and_an_invalid_one_changes_nothing() {
        let files = Scratch::new();
        let (mut reloader, limiter, status) =
            reloader(&files, "limits: [{name: a, by: global, bucket: 5/day}]");
        assert_eq!(left(&limiter), Some(4));
        for bad in ["limits: [{name: a, by: global, bucket: 0/day}]", "listen: {api: 1}\nlimits: []", ""] {
            files.write("policy.yaml", bad);
            assert!(reloader.reload("in a test").is_err(), "{bad}");
            assert_eq!((limiter.load().policy().limits().len(), status.version()), (1, 0), "{bad}");
        }
        assert_eq!(left(&limiter), Some(3));
        files.write("policy.yaml", "limits: [{name: a, by: global, bucket: 50/day}]");
        reloader.reload("in a test").unwrap();
        assert_eq!((left(&limiter), status.version()), (Some(47), 1));
    }

    #[test]
    fn the_error_of_an_invalid_file_does_not_quote_it() {
        let files = Scratch::new();
        let (mut reloader, ..) = reloader(&files, "limits: [{name: a, by: ip, bucket: 5/day}]");
        files.write(
            "policy.yaml",
            "limits: [{name: a, by: api_key, bucket: 5/day, overrides: {sk-live-51HzQ: 9/fortnight}}]",
        );
        let failure = reloader.attempt().map(drop).unwrap_err();
        let message = failure.brief();
        assert!(
            message.contains("policy.yaml:1:77: ") && message.contains("not a unit of time"),
            "{message}"
        );
        assert!(!message.contains("sk-live") && !message.contains('|'), "{message}");
    }

    #[test]
    fn changes_are_relative_to_the_last_reload_and_settings_to_the_start() {
        let files = Scratch::new();
        let (mut reloader, ..) = reloader(&files, "limits: [{name: a, by: ip, bucket: 5/day}]");
        let log = "\nlog: {level: warn}";
        for (limits, changes) in
            [("b", "added b; removed a"), ("b", "nothing is different"), ("a", "added a; removed b")]
        {
            files.write("policy.yaml", &format!("limits: [{{name: {limits}, by: ip, bucket: 5/day}}]{log}"));
            let (message, restart) = reloader.attempt().unwrap();
            assert_eq!((message.to_string().as_str(), restart.join(" ").as_str()), (changes, "log"));
        }
    }

    #[test]
    fn a_changed_store_is_reported_as_needing_a_restart() {
        let files = Scratch::new();
        let limits = "limits: [{name: a, by: ip, bucket: 5/day}]";
        let password = files.write("password", "one\n").display().to_string();
        let policy = format!("{limits}\nstore: {{url: redis://h, password_file: {password}}}");
        let (mut reloader, ..) = reloader(&files, &policy);
        let mut restart = |policy: &str, secret: &str| {
            files.write("policy.yaml", policy);
            files.write("password", secret);
            reloader.attempt().map(|(_, restart)| restart.join(", "))
        };
        assert_eq!(restart(&policy, "one\n").unwrap(), "");
        assert_eq!(restart(&policy, "two").unwrap(), "what the files of `store` hold");
        assert_eq!(restart(&policy.replace("//h", "//i"), "one").unwrap(), "store");
        assert_eq!(restart(limits, "one").unwrap(), "store");
        assert!(restart(&policy, "").unwrap_err().brief().contains("password is empty"));
    }
}
