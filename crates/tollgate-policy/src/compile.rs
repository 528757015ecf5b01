//! From what was written to what it does.
//!
//! Everything that takes more than one value to see is found here: options of
//! another algorithm, keys that no request can have, names that collide.
//!
//! - `amount`: how much a limit grants, to whom.
//! - `limit`: one limit, and the rules it checks.
//! - `name`: names for limits that have none.
//! - `warn`: what works and is probably not meant.

mod amount;
mod limit;
mod name;
mod warn;

use foldhash::HashMap;

use crate::diagnostic::{Diagnostics, Problems};
use crate::document::Document;
use crate::identify::Identify;
use crate::limit::Limit;
use crate::lists::List;
use crate::matcher::Matcher;
use crate::policy::Policy;
use crate::settings::{ClientAddress, HeaderSettings, KeyPrivacy};
use crate::source::KeySource;
use crate::written::{File, sections};

/// The default of `max_keys`.
const MAX_KEYS: u64 = 1_000_000;

/// A policy, or everything that is wrong with the document. `problems` are
/// those found before.
pub(crate) fn compile(document: &Document, mut problems: Problems) -> Result<Policy, Diagnostics> {
    let mut file = File::read(document, &mut problems);
    let client = file.client.take();
    warn::about_client(client.as_ref(), &mut problems);
    let client = client.as_ref().map(client_address).unwrap_or_default();
    let drafts: Vec<_> =
        file.limits.iter().filter_map(|limit| limit::draft(limit, &client, &mut problems)).collect();
    let names = name::all(&file.limits, &mut problems);
    warn::about_limits(&file, &mut problems);
    if problems.has_errors() {
        return Err(problems.errors().about(document.source()));
    }
    let limits: Vec<_> = drafts.into_iter().zip(names).map(|(draft, name)| draft.finish(&name)).collect();
    let (default_plan, plan_from) = file.plans.map_or((None, None), |it| (it.default, it.from));
    let list = |entries: Vec<crate::written::lists::Entry>| {
        List::new(entries.into_iter().map(|entry| (entry.meaning, entry.conditions)).collect())
    };
    let parts = Parts {
        limits,
        allow: list(file.allow),
        deny: list(file.deny),
        identify: file.identify.map(identify).unwrap_or_default(),
        default_plan: default_plan.map(|it| it.value.into()),
        plan_from: plan_from.map(|it| it.value),
        client,
        headers: file.headers.map(header_settings).unwrap_or_default(),
        privacy: file.privacy.and_then(|it| it.keys).unwrap_or_default(),
        max_keys: file.max_keys.map_or(MAX_KEYS, |it| it.value),
        warnings: problems.about(document.source()),
    };
    Ok(parts.assemble())
}

/// What a policy is made of, before its limits can be found.
pub(crate) struct Parts {
    pub(crate) limits: Vec<Limit>,
    pub(crate) allow: List,
    pub(crate) deny: List,
    pub(crate) identify: Identify,
    pub(crate) default_plan: Option<Box<str>>,
    pub(crate) plan_from: Option<KeySource>,
    pub(crate) client: ClientAddress,
    pub(crate) headers: HeaderSettings,
    pub(crate) privacy: KeyPrivacy,
    pub(crate) max_keys: u64,
    pub(crate) warnings: Diagnostics,
}

/// A file that says nothing.
impl Default for Parts {
    fn default() -> Self {
        Self {
            limits: Vec::new(),
            allow: List::new(Vec::new()),
            deny: List::new(Vec::new()),
            identify: Identify::default(),
            default_plan: None,
            plan_from: None,
            client: ClientAddress::default(),
            headers: HeaderSettings::default(),
            privacy: KeyPrivacy::default(),
            max_keys: MAX_KEYS,
            warnings: Diagnostics::default(),
        }
    }
}

impl Parts {
    /// Files the limits by what they cover.
    pub(crate) fn assemble(self) -> Policy {
        let mut matcher = Matcher::default();
        let mut routes = Vec::new();
        for (index, limit) in (0..).zip(&self.limits) {
            for (at, pattern) in (0..).zip(&limit.endpoints) {
                let route = u32::try_from(routes.len()).unwrap_or(u32::MAX);
                routes.push((index, at));
                if limit.hosts.is_empty() {
                    matcher.add(None, pattern, route);
                }
                limit.hosts.iter().for_each(|host| matcher.add(Some(host), pattern, route));
            }
        }
        let by_name: HashMap<_, _> =
            self.limits.iter().enumerate().map(|(at, it)| (it.name.clone(), at)).collect();
        Policy {
            limits: self.limits,
            by_name,
            routes,
            matcher,
            allow: self.allow,
            deny: self.deny,
            identify: self.identify,
            default_plan: self.default_plan,
            plan_from: self.plan_from,
            client: self.client,
            headers: self.headers,
            privacy: self.privacy,
            max_keys: self.max_keys,
            warnings: self.warnings,
        }
    }
}

fn client_address(written: &sections::Client) -> ClientAddress {
    let default = ClientAddress::default();
    ClientAddress {
        trusted_proxies: written.trusted_proxies.iter().map(|net| net.value).collect(),
        header: written.header.unwrap_or(default.header),
        ipv4_prefix: written.ipv4_prefix.unwrap_or(default.ipv4_prefix),
        ipv6_prefix: written.ipv6_prefix.map_or(default.ipv6_prefix, |it| it.value),
    }
}

fn identify(written: sections::Identify) -> Identify {
    let default = Identify::default();
    Identify {
        user: written.user.unwrap_or(default.user),
        api_key: written.api_key.unwrap_or(default.api_key),
        tenant: written.tenant.unwrap_or(default.tenant),
    }
}

fn header_settings(written: sections::Headers) -> HeaderSettings {
    let default = HeaderSettings::default();
    HeaderSettings {
        x_ratelimit: written.x_ratelimit.unwrap_or(default.x_ratelimit),
        ietf: written.ietf.unwrap_or(default.ietf),
        retry_after_jitter: written.retry_after_jitter.unwrap_or(default.retry_after_jitter),
        dialects: written.dialects,
    }
}
