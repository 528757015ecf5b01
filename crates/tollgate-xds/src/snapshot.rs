//! The configuration of one response: its domains, sorted by name.
//!
//! Resources are compared by a hash of their bytes, so a resource that has not changed is not read
//! again, and the same resources in another order are no change.

use std::hash::BuildHasher as _;
use std::sync::Arc;

use foldhash::HashMap;
use foldhash::quality::FixedState;
use tollgate_envoy::{Domain, EnvoyConfig};

use crate::discovery::{AnyResource, DiscoveryResponse, RESOURCE_TYPE_URL};
use crate::resource::{self, MAX_DESCRIPTORS, ResourceError, quoted};

/// Two hashes of the bytes of a resource, with different seeds.
type Fingerprint = (u64, u64);

/// The resources of a response that was read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    domains: HashMap<Fingerprint, Arc<Domain>>,
}

fn fingerprint(bytes: &[u8]) -> Fingerprint {
    (FixedState::with_seed(1).hash_one(bytes), FixedState::with_seed(2).hash_one(bytes))
}

impl Snapshot {
    /// Whether a response has exactly these resources, in any order.
    pub(crate) fn is_of(&self, response: &DiscoveryResponse<'_>) -> bool {
        response.resources.len() == self.domains.len()
            && response.resources.iter().all(|it| self.domains.contains_key(&fingerprint(it.value)))
    }

    /// Reads the resources of a response. Resources of `self` are not read again.
    pub(crate) fn read(&self, response: &DiscoveryResponse<'_>) -> Result<Self, ResourceError> {
        if response.type_url != RESOURCE_TYPE_URL && !response.type_url.is_empty() {
            return Err(wrong_type("the response", response.type_url));
        }
        let mut left = MAX_DESCRIPTORS;
        let mut domains = HashMap::default();
        for AnyResource { type_url, value } in &response.resources {
            if *type_url != RESOURCE_TYPE_URL {
                return Err(wrong_type("a resource", type_url));
            }
            let id = fingerprint(value);
            let domain = match self.domains.get(&id) {
                Some(known) => {
                    left = left.saturating_sub(known.descriptors.len());
                    Arc::clone(known)
                }
                None => Arc::new(resource::read(value, &mut left)?),
            };
            if let Some(twice) = domains.insert(id, domain) {
                let name = quoted(&twice.name);
                return Err(ResourceError::new(format!(
                    "two resources define the domain {name}, and are equal"
                )));
            }
        }
        Ok(Self { domains })
    }

    /// Combines the domains into a configuration, sorted by name: the order of a response is random.
    pub(crate) fn config(&self, merge: bool) -> Result<EnvoyConfig, String> {
        let mut sorted: Vec<_> = self.domains.values().cloned().collect();
        sorted.sort_by(|one, other| (&one.name, &one.file).cmp(&(&other.name, &other.file)));
        EnvoyConfig::of_domains(sorted, merge).map_err(|error| error.to_string())
    }
}

fn wrong_type(part: &str, type_url: &str) -> ResourceError {
    ResourceError::new(format!(
        "{part} has the type {}, and only {RESOURCE_TYPE_URL} was requested",
        quoted(type_url)
    ))
}
