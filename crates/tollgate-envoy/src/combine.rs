//! Combines domains that do not come from files, such as those of a configuration server.
//!
//! The checks are those of files: a domain is defined once, unless domains are merged, and the keys of
//! its first level are defined once. The other checks are made where the domains are read.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::config::{Domain, EnvoyConfig};
use crate::file_format::shown;
use crate::section::quoted;

/// The reason why domains cannot be combined.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CombineError {
    /// Two resources define one domain.
    #[error("two resources define the domain {domain}: {first} and {second}")]
    DuplicateDomain {
        /// The domain.
        domain: String,
        /// The name of the first resource.
        first: String,
        /// The name of the second resource.
        second: String,
    },
    /// Two resources of one domain define the same descriptor.
    #[error("{descriptor} is defined twice in the domain {domain}")]
    DuplicateDescriptor {
        /// The domain.
        domain: String,
        /// The descriptor.
        descriptor: String,
    },
}

impl EnvoyConfig {
    /// Combines domains, in this order. With `merge`, domains with one name are merged; otherwise that
    /// is an error.
    pub fn of_domains(
        domains: impl IntoIterator<Item = Arc<Domain>>,
        merge: bool,
    ) -> Result<Self, CombineError> {
        let mut combined: Vec<Arc<Domain>> = Vec::new();
        let mut places: HashMap<String, usize> = HashMap::new();
        for domain in domains {
            let Some(&place) = places.get(&domain.name) else {
                places.insert(domain.name.clone(), combined.len());
                combined.push(domain);
                continue;
            };
            let first = &mut combined[place];
            if !merge {
                return Err(CombineError::DuplicateDomain {
                    domain: quoted(&domain.name),
                    first: quoted(&first.file),
                    second: quoted(&domain.file),
                });
            }
            let known: HashSet<_> =
                first.descriptors.iter().map(|it| (it.key.value.as_str(), it.value.as_deref())).collect();
            let is_known =
                |it: &&crate::Descriptor| known.contains(&(it.key.value.as_str(), it.value.as_deref()));
            if let Some(twice) = domain.descriptors.iter().find(is_known) {
                return Err(CombineError::DuplicateDescriptor {
                    domain: quoted(&domain.name),
                    descriptor: shown(twice),
                });
            }
            Arc::make_mut(first).descriptors.extend(domain.descriptors.iter().cloned());
        }
        Ok(Self { domains: combined, warnings: Vec::new() })
    }
}
