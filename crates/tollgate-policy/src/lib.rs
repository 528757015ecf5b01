//! The policy file of Tollgate: the limits, their keys and their amounts.
//!
//! [`Policy::parse`] turns text into a [`Policy`], or into a list of all mistakes in the text, each with
//! its line and a suggestion ([`Diagnostics`]). [`Policy::match_request`] returns the limits that apply to
//! a request, with their keys and costs; [`Policy::match_descriptor`] those of an Envoy descriptor.
//!
//! Parsing has three steps: a tree with positions ([`tollgate_document::Document`]), typed values, compiled
//! limits. The server reads its own sections from the same document. `schema` returns the JSON Schema of
//! the format, [`Lint`] lists the warnings, and [`path::normal`] returns the form in which paths are
//! matched.
//!
//! Features: `yaml` (default) is the policy file; without it, [`LimitBuilder`] builds policies. `schema` is
//! its JSON Schema. `calendar` are windows of a calendar, with the time zone database.
//!
//! This crate sees text only: it opens no files or sockets and reads no clock. Counting is in
//! `tollgate_core`, deciding is in `tollgate`.
//!
#![doc = include_str!("../FORMAT.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    not(feature = "yaml"),
    allow(dead_code, reason = "the reader of the policy file uses more of the types than the builder does")
)]

mod adaptive;
mod bucket_pattern;
mod builder;
mod carry_over;
#[cfg(feature = "yaml")]
mod compile;
mod cost;
mod descriptor;
mod envoy_match;
mod extract;
#[cfg(feature = "yaml")]
mod file_format;
mod identify;
mod input;
mod key;
mod key_display;
mod key_text;
mod limit;
mod limit_group;
mod lint;
mod lists;
mod lookup;
mod match_request;
mod matcher;
mod net;
pub mod path;
mod pattern;
mod policy;
mod priority;
mod properties;
mod read_headers;
mod redact;
mod request;
mod rule_set;
mod settings;
mod shed;
mod slot_queue;
mod source;

pub use adaptive::{AdaptiveAlgorithm, AdaptiveSlots};
pub use bucket_pattern::BucketPattern;
pub use builder::{BuildError, LimitBuilder};
pub use cost::{Cost, Settle, whole_units};
pub use descriptor::{Descriptor, DescriptorPattern, EntryPattern, Glob};
pub use envoy_match::{EnvoyMatch, EnvoyMatchEntry};
#[cfg(feature = "schema")]
pub use file_format::{format_words, schema};
pub use identify::{Credential, Identify, OnAmbiguous};
pub use input::{Input, Subject};
pub use key::{Key, MAX_PART_BYTES};
pub use key_display::{KeyDisplay, ShownPart};
pub use limit::{
    Allowance, ChargeTime, HeaderMatch, Limit, Missing, Mode, OnHangup, OnOutage, RegionShare, Scope, Soft,
};
pub use limit_group::LimitGroup;
pub use lint::{Lint, LintScope};
pub use lists::ListEntry;
pub use match_request::{
    AdaptiveCheck, Block, BlockReason, Check, Checks, DetachedChecks, Grant, Matched, RuleCheck,
};
pub use net::{Net, NetSet};
pub use pattern::{HostPattern, PathPattern, without_port};
pub use policy::Policy;
pub use priority::PriorityClass;
pub use read_headers::are_lookalikes;
pub use request::{Call, Request};
pub use rule_set::{MAX_RULE_SET_BYTES, RuleSet, RuleSetError};
pub use settings::{
    ClientAddress, Dialect, ForwardedHeader, HeaderSettings, IetfHeaders, KeyPrivacy, PathReading,
    PathSettings, XRateLimit,
};
pub use shed::{NODE_SHEDDER, NodeShedSettings, THROTTLE};
pub use slot_queue::SlotQueue;
pub use source::KeySource;
pub use tollgate_document::{Diagnostic, Diagnostics, Place, Severity};
