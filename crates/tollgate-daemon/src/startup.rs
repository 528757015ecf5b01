//! The first step of a start: everything that files and variables contain, without a listener.
//!
//! A process reports mistakes of the configuration before it has a log, because the configuration says
//! how to log. [`Startup`] is the point between the two.

use tollgate::OutageSettings;

use crate::configuration::{Configuration, Inputs, LoadPhase};
use crate::daemon::Daemon;
use crate::failure::Failure;
use crate::logging::Log;
use crate::reload::{Secrets, Watch};

/// A configuration that was read with its secrets, and is ready to start.
pub struct Startup {
    pub(crate) inputs: Inputs,
    pub(crate) watch: Watch,
    pub(crate) configuration: Box<Configuration>,
    pub(crate) secrets: Secrets,
}

impl Startup {
    /// Reads all inputs, or returns all mistakes. Opens no socket.
    pub fn read(mut inputs: Inputs) -> Result<Self, Failure> {
        // Before reading, so that a change during the read is detected afterwards.
        let mut watch = Watch::new(inputs.files());
        let mut configuration = inputs.load(LoadPhase::First)?;
        inputs.pin_envoy_folder(&configuration);
        if let (Some(folder), Some(read)) = (&configuration.envoy.path, &configuration.envoy_files) {
            watch.add_folder(folder.clone(), read.looks.clone());
        }
        configuration.warnings.extend(inputs.unread_variables.iter().cloned());
        let secrets = Secrets::load(&configuration.settings, &inputs.tokens, LoadPhase::First)?;
        Ok(Self { inputs, watch, configuration: Box::new(configuration), secrets })
    }

    /// Returns the configuration.
    pub fn configuration(&self) -> &Configuration {
        &self.configuration
    }

    /// Starts the log that the configuration describes, on standard error, for the whole process.
    pub fn start_log(&self) -> Result<Log, Failure> {
        Log::start(self.configuration.settings.level, self.configuration.settings.format)
    }

    /// Opens the listeners and starts to serve. `log` is [`Log::default`] for a program that installs
    /// its own `tracing` subscriber. Needs a Tokio runtime, on which periodic work runs.
    pub async fn start(self, log: &Log) -> Result<Daemon, Failure> {
        Box::pin(Daemon::open(self, log)).await
    }

    pub(crate) fn outage(&self) -> OutageSettings {
        self.configuration.settings.store.outage()
    }
}
