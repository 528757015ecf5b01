//! The API of this process: its access rules and data sources.
//!
//! The API is in `tollgate_server`, its listener in `surfaces`.

use std::sync::Arc;

use tollgate::{SharedLimiter, SystemClock};
use tollgate_server::{Access, Api, ModeOverrides, Status};
use tollgate_telemetry::Watcher;

use crate::configuration::{Settings, Tokens};
use crate::process_metrics::ProcessMetrics;
use crate::store::AnyStore;

/// Creates the API with its data sources.
pub(crate) fn api(
    limiter: SharedLimiter<AnyStore>,
    status: &Arc<Status>,
    access: Access,
    switches: &ModeOverrides<AnyStore>,
    watcher: Option<&Watcher>,
    process_metrics: &Arc<ProcessMetrics>,
) -> Api<AnyStore> {
    let (measured, gauged) = (Arc::clone(process_metrics), Arc::clone(process_metrics));
    let api = Api::new(limiter, Arc::clone(status), access)
        .with_clock(SystemClock::new())
        .with_mode_overrides(switches.clone())
        .with_gauges(move || gauged.gauges())
        .with_metrics(move |out| measured.write(out));
    match watcher {
        Some(watcher) => api.with_watcher(watcher.clone()),
        None => api,
    }
}

/// Returns the access rules of the API.
pub(crate) fn access(settings: &Settings, tokens: &Tokens) -> Access {
    let is_guarded = tokens.admin.is_some() || settings.admin.knows_certificates();
    let access = if is_guarded { Access::guarded() } else { Access::open() };
    let access = match &tokens.admin {
        Some(token) => access.with_admin(token.expose()),
        None => access,
    };
    match &tokens.read {
        Some(token) => access.with_reader(token.expose()),
        None => access,
    }
}
