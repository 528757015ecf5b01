//! The fields of a compiled limit that do not depend on its place in a policy.

use std::sync::Arc;

use foldhash::HashMap;
use tollgate_core::Rule;

use super::{Allowance, ChargeTime, HeaderMatch, Missing, OnHangup, OnOutage, RegionShare, Soft};
use crate::adaptive::AdaptiveSlots;
use crate::bucket_pattern::BucketPattern;
use crate::cost::{Cost, Settle};
use crate::descriptor::DescriptorPattern;
use crate::envoy_match::EnvoyMatch;
use crate::key::Key;
use crate::pattern::{HostPattern, PathPattern};
use crate::settings::Dialect;
use crate::slot_queue::SlotQueue;
use crate::source::KeySource;

/// The name in responses of the limit for ad-hoc rules.
const AD_HOC_NAME: &str = "(unwritten)";

/// The definition of a [`Limit`](super::Limit), which policies share.
#[derive(Clone, Debug)]
pub struct LimitDefinition {
    pub(crate) name: Arc<str>,
    pub(crate) soft: Option<Soft>,
    pub(crate) endpoints: Vec<PathPattern>,
    /// Paths of its endpoints that the limit does not cover.
    pub(crate) except: Vec<PathPattern>,
    pub(crate) hosts: Vec<HostPattern>,
    /// In upper case; empty means all.
    pub(crate) methods: Vec<Box<str>>,
    pub(crate) headers: Vec<HeaderMatch>,
    /// The descriptors it covers. A limit on descriptors has no endpoints, hosts, methods or headers.
    pub(crate) descriptor: Option<DescriptorPattern>,
    /// The domains of the descriptors; empty means all.
    pub(crate) domains: Vec<Box<str>>,
    /// The description of its coverage, if requests are not matched against the limit.
    pub(crate) envoy_match: Option<EnvoyMatch>,
    /// The buckets it covers. Such a limit has no endpoints and no descriptor, and proxies count.
    pub(crate) rlqs: Option<BucketPattern>,
    pub(crate) ahead: Option<u64>,
    pub(crate) by: Vec<KeySource>,
    pub(crate) missing: Missing,
    pub(crate) cost: Cost,
    pub(crate) settle: Option<Settle>,
    pub(crate) charge: ChargeTime,
    /// The key of the entry that names the owner of a slot.
    pub(crate) owner: Option<Box<str>>,
    pub(crate) count_denied: bool,
    pub(crate) on_outage: OnOutage,
    pub(crate) on_hangup: OnHangup,
    /// The queue of requests that wait for a slot.
    pub(crate) slot_queue: Option<Box<SlotQueue>>,
    pub(crate) dialects: Vec<Dialect>,
    pub(crate) rules: Vec<Rule>,
    /// The bounds of a learned number of slots. Such a limit has no rules.
    pub(crate) adaptive: Option<AdaptiveSlots>,
    pub(crate) plans: HashMap<Box<str>, Allowance>,
    pub(crate) overrides: HashMap<Key, Allowance>,
    /// The share of this region, for a limit that regions share.
    pub(crate) region_share: Option<RegionShare>,
    /// Whether an override blocks its key.
    pub(crate) blocks_keys: bool,
    /// Whether the limit protects the service from overload, and not a caller's quota.
    pub(crate) sheds: bool,
    /// The rules of the priority classes of a shedder, by rank: the same state with other numbers.
    pub(crate) class_rules: Vec<Rule>,
}

impl LimitDefinition {
    /// Creates the definition of the limit for ad-hoc rules.
    pub(crate) fn ad_hoc() -> Self {
        Self { name: AD_HOC_NAME.into(), by: vec![KeySource::Global], ..Self::blank() }
    }

    /// Creates a definition without a name, a key and options. It allocates nothing.
    pub(crate) fn blank() -> Self {
        Self {
            name: Arc::default(),
            soft: None,
            endpoints: Vec::new(),
            except: Vec::new(),
            hosts: Vec::new(),
            methods: Vec::new(),
            headers: Vec::new(),
            descriptor: None,
            domains: Vec::new(),
            envoy_match: None,
            rlqs: None,
            ahead: None,
            by: Vec::new(),
            missing: Missing::default(),
            cost: Cost::Fixed(1),
            settle: None,
            charge: ChargeTime::default(),
            owner: None,
            count_denied: false,
            on_outage: OnOutage::default(),
            on_hangup: OnHangup::default(),
            slot_queue: None,
            dialects: Vec::new(),
            rules: Vec::new(),
            adaptive: None,
            plans: HashMap::default(),
            overrides: HashMap::default(),
            region_share: None,
            blocks_keys: false,
            sheds: false,
            class_rules: Vec::new(),
        }
    }
}
