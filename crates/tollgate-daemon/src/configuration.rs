//! Merges files, variables and flags into one document, and parses it into a policy and settings.
//!
//! The inputs ([`Inputs`]) are kept and read again at each reload, so that a reload has the same result
//! as a restart.
//!
//! - `envoys`: warnings about Envoy's files in combination with the policy.
//! - `files`: reads files; `folder`: reads a directory; `file_stamp`: detects changes.
//! - `address`: `host:port` or `off`.
//! - `admin`: access to the API.
//! - `endpoint`: URLs of receivers.
//! - `identity`: claims and plans that no request has.
//! - `observe`: observation, and the receivers of its data.
//! - `overlay`: values from flags and variables.
//! - `warning`: likely mistakes.
//! - `settings`: the sections of the server; `protocols`: Envoy's and Redis' protocols.
//! - `records`: the decision log on disk.
//! - `regions`: the stores of other regions.
//! - `served_tls`: TLS of a listener.
//! - `store`: the store of the counters.
//! - `token`: tokens of the API.
//! - `xds`: the configuration server of Envoy's limits.
//!
//! Reading the environment is in `environment`.

mod address;
mod admin;
mod endpoint;
mod envoys;
mod file_stamp;
mod files;
mod folder;
mod identity;
mod observe;
mod overlay;
mod protocols;
mod records;
mod regions;
mod served_tls;
mod settings;
mod state;
mod store;
mod token;
mod warning;
mod xds;

use std::path::{Path, PathBuf};

use tollgate::Policy;
use tollgate::policy::Lint;
use tollgate_document::{Diagnostics, Document, Kind, Node, Problems, Setting, Words};
use tollgate_envoy::{EnvoyConfig, EnvoyFile};
use tollgate_records::RecordLogSettings;
use tollgate_telemetry::MAX_NAMED_LIMITS;

pub(crate) use address::Listen;
pub(crate) use admin::AdminSettings;
pub(crate) use endpoint::Endpoint;
pub(crate) use file_stamp::{FileStamp, stamp};
pub use files::{LoadPhase, read as read_file};
pub(crate) use folder::{Folder, look_at as stamp_folder};
pub(crate) use observe::{ObserveSettings, Receiver, Refusals, TraceSettings};
pub use overlay::{Overlay, literal, yaml};
pub(crate) use protocols::{RespSection, RlsSection};
pub(crate) use regions::RegionsSection;
pub(crate) use served_tls::ServedTls;
pub use settings::LogFormat;
pub(crate) use settings::{Level, Settings};
pub(crate) use state::StateSettings;
pub(crate) use store::StoreSettings;
pub(crate) use token::{Token, Tokens, Variables};
pub use warning::ConfigWarning;

use crate::environment::Environment;
use crate::failure::Failure;
use crate::ratelimit::RatelimitPorts;
use crate::store::in_full;

/// The policy without a file.
const SAMPLE_POLICY: &str = include_str!("../sample.yaml");

/// The policy if only Envoy's files are given.
const EMPTY_POLICY: &str = "limits: []\ngateway: {upstream: demo}\n";

/// The policy if only services of the outbound gateway are given: the other listeners are off, except the API.
const OUTBOUND_POLICY: &str = "limits: []\nlisten: {gateway: off, rls: off, resp: off}\n";

/// Sections that a settings file may have. A change of any takes a restart.
pub(crate) const SECTIONS: [&str; 13] = [
    "listen", "gateway", "outbound", "rls", "resp", "store", "log", "admin", "state", "records", "observe",
    "traces", "alerts",
];

/// Sections that belong to the policy.
const POLICY_SECTIONS: [&str; 12] = [
    "limits", "plans", "allow", "deny", "identify", "client", "headers", "privacy", "expect", "max_keys",
    "regions", "tests",
];

/// All arguments and variables that affect the configuration.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    /// The policy file; `None` for the sample.
    pub(crate) config: Option<PathBuf>,
    /// The separate settings file.
    pub(crate) settings: Option<PathBuf>,
    /// The settings file with the services of the outbound gateway.
    pub(crate) outbound: Option<PathBuf>,
    /// Values that override the files; later ones override earlier ones.
    pub(crate) overlays: Vec<Overlay>,
    /// The directory of Envoy's files in use. Another one takes a restart.
    pub(crate) envoy: Option<EnvoyFolder>,
    /// The tokens from variables, which override those of files.
    pub(crate) tokens: Variables,
    /// Warnings about variables that are not read.
    pub(crate) unread_variables: Vec<String>,
    /// The further listeners of a process that replaces envoyproxy/ratelimit.
    pub(crate) ratelimit: Option<RatelimitPorts>,
}

/// The location of envoyproxy/ratelimit files, if any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EnvoyFolder {
    /// The directory.
    pub(crate) path: Option<PathBuf>,
    /// Whether several files may share a domain.
    merge: bool,
}

/// A valid configuration.
#[derive(Debug)]
pub struct Configuration {
    /// The policy.
    pub(crate) policy: Policy,
    /// The settings of the server.
    pub(crate) settings: Settings,
    /// Warnings about likely mistakes.
    pub(crate) remarks: Vec<ConfigWarning>,
    /// The warnings as text.
    pub(crate) warnings: Vec<String>,
    /// The warnings as text without quotes of the file, for readers without access to it.
    pub(crate) brief_warnings: Vec<String>,
    /// The merged document.
    pub(crate) document: Document,
    /// The location of Envoy's files.
    pub(crate) envoy: EnvoyFolder,
    /// The contents and stamps of Envoy's files.
    pub(crate) envoy_files: Option<Folder>,
}

impl Configuration {
    /// Returns the policy.
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Returns the merged document of all inputs.
    pub const fn document(&self) -> &Document {
        &self.document
    }

    /// Returns the warnings as text.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Returns the warnings about likely mistakes in files.
    pub fn remarks(&self) -> &[ConfigWarning] {
        &self.remarks
    }

    /// Returns the format of the log.
    pub const fn log_format(&self) -> LogFormat {
        self.settings.format
    }

    /// Returns the upstreams of the gateway as written.
    pub fn upstreams(&self) -> &[String] {
        &self.settings.upstreams
    }

    /// Returns the address and the deadline of a remote store, without its password; `None` for memory.
    pub fn remote_store(&self) -> Option<String> {
        self.settings.store.shown()
    }

    /// Returns the state directory, if there is one.
    pub fn state_folder(&self) -> Option<&Path> {
        self.settings.state.as_ref().map(|it| it.folder.as_path())
    }

    /// Returns the settings of the decision log, if there is one.
    pub const fn records(&self) -> Option<&RecordLogSettings> {
        self.settings.records.as_ref()
    }

    /// Whether clients of the Redis protocol need a password.
    pub const fn has_resp_password(&self) -> bool {
        self.settings.resp.password_file.is_some()
    }

    /// Returns the directory of envoyproxy/ratelimit files, and their number.
    pub fn envoy_folder(&self) -> Option<(&Path, usize)> {
        let path = self.envoy.path.as_deref()?;
        Some((path, self.envoy_files.as_ref().map_or(0, |it| it.files.len())))
    }

    /// Checks the files that the settings name, such as certificates.
    pub fn check_files(&self) -> Result<(), Failure> {
        self.settings.check_files()
    }

    /// Whether there is such a warning that the policy does not expect.
    pub fn warns_of(&self, code: Lint) -> bool {
        self.remarks.iter().flat_map(ConfigWarning::views).any(|it| it.code == Some(code.code()))
    }

    /// Returns the name and the text of each of Envoy's files.
    pub(crate) fn envoy_texts(&self) -> Vec<(String, String)> {
        self.envoy_files.as_ref().map_or_else(Vec::new, |it| it.files.clone())
    }
}

impl Inputs {
    /// Returns the inputs that the `TOLLGATE_` variables describe.
    #[must_use]
    pub fn from_environment(environment: &Environment) -> Self {
        let variable = |name| environment.get(name).map(str::to_owned);
        Self {
            config: variable("CONFIG").map(Into::into),
            settings: variable("SETTINGS").map(Into::into),
            outbound: None,
            overlays: environment.overlays(),
            envoy: None,
            tokens: Variables { admin: variable("ADMIN_TOKEN"), read: variable("READ_TOKEN") },
            unread_variables: environment.warnings(),
            ratelimit: None,
        }
    }

    /// Reads the policy from this file, which may include settings.
    #[must_use]
    pub fn with_config(mut self, file: impl Into<PathBuf>) -> Self {
        self.config = Some(file.into());
        self
    }

    /// Reads settings from a separate file.
    #[must_use]
    pub fn with_settings(mut self, file: impl Into<PathBuf>) -> Self {
        self.settings = Some(file.into());
        self
    }

    /// Reads the services of the outbound gateway from a separate file of settings.
    #[must_use]
    pub fn with_outbound(mut self, file: impl Into<PathBuf>) -> Self {
        self.outbound = Some(file.into());
        self
    }

    /// Overrides a value of the files and of earlier overlays.
    #[must_use]
    pub fn with_overlay(mut self, overlay: Overlay) -> Self {
        self.overlays.push(overlay);
        self
    }

    /// Overrides the value at a path such as `listen.api` with YAML.
    #[must_use]
    pub fn set(self, path: &str, value: &str) -> Self {
        let typed = format!("{path}: ");
        let (path, value) = (path.to_owned(), yaml(path, value));
        self.with_overlay(Overlay { origin: "in the program", typed, path, value })
    }

    /// Returns the policy file, if there is one.
    pub fn config(&self) -> Option<&Path> {
        self.config.as_deref()
    }

    /// Returns the separate settings file, if there is one.
    pub fn settings(&self) -> Option<&Path> {
        self.settings.as_deref()
    }

    /// Returns the separate file of the outbound gateway, if there is one.
    pub fn outbound(&self) -> Option<&Path> {
        self.outbound.as_deref()
    }

    /// Keeps the directory of Envoy's files: a reload does not move to another.
    pub fn pin_envoy_folder(&mut self, configuration: &Configuration) {
        self.envoy = Some(configuration.envoy.clone());
    }

    /// Returns the files that are read.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        self.config.iter().chain(&self.settings).chain(&self.outbound).cloned().collect()
    }

    /// Returns the name of the configuration for messages.
    pub fn name(&self) -> String {
        if self.ratelimit.is_some() && self.config.is_none() {
            return "the environment".to_owned();
        }
        let folder = self.envoy.as_ref().and_then(|it| it.path.as_deref());
        self.config.as_deref().or(folder).map_or_else(|| "the sample policy".to_owned(), shown)
    }

    /// Reads the configuration, or returns all mistakes.
    pub fn load(&self, reading: LoadPhase) -> Result<Configuration, Failure> {
        let document = self.document(reading)?;
        let mut problems = Problems::default();
        let settings = Settings::read(document.root(), &mut problems);
        let settings_wrong = problems.has_errors();
        let about_settings = problems.into_diagnostics(&document);
        let policy = Policy::from_document(&document);
        let envoy = self.envoy.clone().unwrap_or_else(|| EnvoyFolder::of(&settings));
        let envoy_files = envoy.path.as_deref().map(|it| Folder::read(it, reading)).transpose();
        let envoy_config = match &envoy_files {
            Ok(Some(folder)) => envoy.read(folder).map(Some),
            _ => Ok(None),
        };
        let mut failures = Vec::new();
        if let Err(wrong) = &policy {
            failures.push(Failure::about(wrong, &self.name()));
        }
        if settings_wrong {
            failures.push(Failure::about(&about_settings, &self.name()));
        }
        failures.extend(envoy_files.as_ref().err().cloned());
        failures.extend(envoy_config.as_ref().err().cloned());
        let (Ok(policy), Ok(envoy_files), Ok(envoy_config), []) =
            (policy, envoy_files, envoy_config, failures.as_slice())
        else {
            return Err(Failure::all(&failures));
        };
        let name = self.name();
        let own = [(name.as_str(), policy.warnings()), (name.as_str(), &about_settings)];
        let envoys = envoy_config.iter().flat_map(EnvoyConfig::warnings).map(|(name, it)| (&**name, it));
        let found = own.into_iter().chain(envoys).map(|(name, it)| ConfigWarning::found(name, it.clone()));
        let mut remarks: Vec<_> = found.flatten().collect();
        if let (Some(path), Some(folder), Some(config)) = (&envoy.path, &envoy_files, &envoy_config) {
            remarks.extend(envoys::remarks(path, folder, config, &policy));
        }
        let policy = match envoy_config {
            Some(config) => config.apply(policy).map_err(|error| Failure::new(in_full(&error)))?,
            None => policy,
        };
        let policy = match settings.forwarding.throttle {
            Some(throttle) => policy.with_throttle_mode(throttle.mode),
            None => policy,
        };
        remarks.extend(too_many(&policy, &settings));
        let mut unprovided = Problems::default();
        identity::stamp(&document, &policy, &settings, &mut unprovided);
        remarks.extend(ConfigWarning::found(&name, unprovided.into_diagnostics(&document)));
        let expected = |lint| policy.expects(lint);
        let remarks: Vec<_> = remarks.into_iter().filter_map(|it| it.without(expected)).collect();
        let (warnings, brief_warnings) = remarks.iter().map(|it| (it.text(), it.brief())).unzip();
        Ok(Configuration {
            policy,
            settings,
            remarks,
            warnings,
            brief_warnings,
            document,
            envoy,
            envoy_files,
        })
    }

    /// Merges the files with the values that override them. Without a policy file it uses the sample,
    /// or an empty policy if Envoy's files or services of the outbound gateway are given.
    fn document(&self, reading: LoadPhase) -> Result<Document, Failure> {
        // Read once, because it may be a pipe.
        let read = |path: &PathBuf| Ok((shown(path), files::read(path, reading)?));
        if let Some(path) = &self.config
            && reading == LoadPhase::First
            && matches!(path.try_exists(), Ok(false))
        {
            let name = shown(path);
            return Err(Failure::with_help(
                format_args!("cannot read {name}: there is no such file"),
                format_args!("`tollgate init {name}` writes one to begin with"),
            ));
        }
        let config = self.config.as_ref().map(read).transpose()?;
        let settings: Vec<_> =
            self.settings.iter().chain(&self.outbound).map(read).collect::<Result<_, _>>()?;
        if let Some((_, text)) = &config {
            return self.joined(text, &settings);
        }
        if self.outbound.is_some() {
            return self.joined(OUTBOUND_POLICY, &settings);
        }
        let document = self.joined(SAMPLE_POLICY, &settings)?;
        let is_envoys = |rls: &Node| rls.get("envoy_config").is_some() || rls.get("xds").is_some();
        if document.root().get("rls").is_some_and(is_envoys) {
            self.joined(EMPTY_POLICY, &settings)
        } else {
            Ok(document)
        }
    }

    /// Merges a policy with settings and the values that override both.
    fn joined(&self, config: &str, settings: &[(String, String)]) -> Result<Document, Failure> {
        let parse = |text: &str, name: &str| {
            Document::parse(text).map_err(|mistakes| Failure::about(&mistakes, name))
        };
        let mut document = parse(config, &self.name())?;
        for (at, (name, text)) in settings.iter().enumerate() {
            let other = parse(text, name)?;
            only_settings(&other, name)?;
            let is_outbound = self.outbound.is_some() && at + 1 == settings.len();
            if is_outbound && other.root().get("outbound").is_none() {
                return Err(Failure::with_help(
                    format_args!("{name} has no `outbound`"),
                    "list the services in it: `outbound: [{listen: 127.0.0.1:9000, upstream: https://api.example.com}]`",
                ));
            }
            if self.config.is_none() && at == 0 {
                // The sample is no file of the user, so a section in both is not a conflict.
                SECTIONS
                    .iter()
                    .filter(|it| other.root().get(it).is_some())
                    .for_each(|it| document.remove(it));
            }
            document.join(&other, name).map_err(|mistakes| Failure::about(&mistakes, &self.name()))?;
        }
        let mut failures = Vec::new();
        for Overlay { origin, typed, path, value } in &self.overlays {
            if let Err(mistakes) = document.set(&Setting { origin, typed, path, value }) {
                failures.push(Failure::about(&mistakes, &self.name()));
            }
        }
        if failures.is_empty() { Ok(document) } else { Err(Failure::all(&failures)) }
    }
}

/// Returns the mistakes of several files.
pub fn about_each(mistakes: &[(String, Diagnostics)]) -> Failure {
    let failures: Vec<_> = mistakes.iter().map(|(name, wrong)| Failure::about(wrong, name)).collect();
    Failure::all(&failures)
}

impl EnvoyFolder {
    /// Returns the directory that the settings name.
    fn of(settings: &Settings) -> Self {
        Self { path: settings.rls.envoy_config.clone(), merge: settings.rls.merge_domains }
    }

    /// Parses the files.
    fn read(&self, folder: &Folder) -> Result<EnvoyConfig, Failure> {
        let file = |(name, text): &(String, String)| EnvoyFile { name: name.clone(), text: text.clone() };
        let files: Vec<_> = folder.files.iter().map(file).collect();
        EnvoyConfig::read(&files, self.merge).map_err(|mistakes| about_each(&mistakes))
    }
}

/// Warns if there are more limits than are counted separately.
fn too_many(policy: &Policy, settings: &Settings) -> Option<ConfigWarning> {
    settings.observing.watched()?;
    let limits = policy.limits().len();
    let message = format!(
        "{limits} limits, and {MAX_NAMED_LIMITS} are counted each on its own: all others share the metrics of `_other`, and \
         the page has no numbers for them"
    );
    let help = "they are still enforced; one limit with `overrides` or `plans` can often replace many";
    (limits > MAX_NAMED_LIMITS).then(|| ConfigWarning::Plain {
        code: Lint::UncountedLimits,
        messages: vec![message],
        more: 0,
        help: help.to_owned(),
    })
}

const SETTINGS_FILE: Words = Words {
    section: "a file of settings",
    known: &SECTIONS,
    synonyms: &[
        ("listen", &["server"]),
        ("store", &["redis"]),
        ("gateway", &["upstream"]),
        ("log", &["logging"]),
        ("traces", &["tracing", "otlp"]),
        ("alerts", &["webhook"]),
    ],
};

/// Checks that a settings file contains only settings. A limit in it would be hard to find.
fn only_settings(document: &Document, name: &str) -> Result<(), Failure> {
    let mut problems = Problems::default();
    let root = document.root();
    if let Kind::Map(entries) = &root.kind {
        let (policy, rest): (Vec<_>, Vec<_>) =
            entries.iter().partition(|entry| POLICY_SECTIONS.contains(&entry.name.value.as_str()));
        for entry in policy {
            problems
                .error(entry.name.place, format!("`{}` is not a setting", entry.name.value))
                .label("belongs to the policy")
                .help("put it into the file that `--config` names");
        }
        let rest = Node { place: root.place, kind: Kind::Map(rest.into_iter().cloned().collect()) };
        rest.fields(&SETTINGS_FILE, &mut problems);
    } else if root.kind != Kind::Null {
        root.fields(&SETTINGS_FILE, &mut problems);
    }
    if problems.has_errors() {
        return Err(Failure::about(&problems.into_diagnostics(document), name));
    }
    Ok(())
}

/// Returns a path as typed.
pub fn shown(path: &Path) -> String {
    path.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(path: &str, value: &str) -> Overlay {
        Overlay {
            origin: "on the command line",
            typed: format!("--set {path}="),
            path: path.to_owned(),
            value: value.to_owned(),
        }
    }

    #[test]
    fn the_sample_is_valid_and_has_no_warnings() {
        let sample = Inputs::default().load(LoadPhase::First).unwrap();
        assert_eq!(sample.policy.limits().len(), 7);
        assert_eq!(sample.warnings, [""; 0]);
        assert_eq!(sample.settings.upstreams, ["demo"]);
    }

    #[test]
    fn mistakes_of_policy_and_settings_are_reported_together() {
        let overlays = vec![set("limits", "[{by: ip, bucket: 0/s}]"), set("log.level", "loud")];
        let wrong = Inputs { overlays, ..Inputs::default() }.load(LoadPhase::First).unwrap_err().to_string();
        assert!(wrong.contains("a rate of zero") && wrong.contains("`level` cannot be `loud`"), "{wrong}");
    }

    #[test]
    fn too_many_limits_cause_one_warning() {
        let many = |count: usize| -> String {
            let limits: Vec<_> =
                (0..count).map(|at| format!("{{name: n{at}, by: ip, bucket: 1/s}}")).collect();
            format!("[{}]", limits.join(","))
        };
        let load = |count, observe: &str| {
            let overlays = vec![set("limits", &many(count)), set("observe", observe)];
            Inputs { overlays, ..Inputs::default() }.load(LoadPhase::First).unwrap()
        };
        let loaded = load(MAX_NAMED_LIMITS + 1, "{records: 100}");
        for warnings in [&loaded.warnings, &loaded.brief_warnings] {
            let about: Vec<_> = warnings.iter().filter(|it| it.contains("2001 limits")).collect();
            assert!(about.len() == 1 && about[0].contains("`_other`"), "{warnings:?}");
        }
        for quiet in [load(MAX_NAMED_LIMITS, "{records: 100}"), load(MAX_NAMED_LIMITS + 1, "off")] {
            assert!(!quiet.warnings.iter().any(|it| it.contains("`_other`")), "{:?}", quiet.warnings);
        }
    }

    #[test]
    fn the_last_overlay_wins() {
        let overlays = vec![set("max_keys", "1"), set("max_keys", "2")];
        let configuration = Inputs { overlays, ..Inputs::default() }.load(LoadPhase::First).unwrap();
        assert_eq!(configuration.policy.max_keys(), 2);
    }
}
