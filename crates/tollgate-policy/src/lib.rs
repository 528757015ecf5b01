//! The policy file of Tollgate: the limits, their keys and their amounts.
//!
//! [`Policy::parse`] turns text into a [`Policy`], or into a list of all mistakes in the text, each with
//! its line and a suggestion ([`Diagnostics`]). [`Policy::match_request`] returns the limits that apply to
//! a request, with their keys and costs.
//!
//! Parsing has three steps: a located tree ([`Document`]), typed values, compiled limits. The server reads
//! its own sections from the same [`Document`]. [`schema`] returns the JSON Schema of the format, [`Lint`]
//! lists the warnings, and [`path::normal`] returns the form in which paths are matched.
//!
//! This crate sees text only: it opens no files or sockets and reads no clock. Counting is in
//! `tollgate_core`, deciding is in `tollgate`.
//!
#![doc = include_str!("../FORMAT.md")]

mod builder;
mod compile;
mod cost;
mod descriptor;
mod diagnostic;
mod document;
mod envoy_match;
mod extract;
mod file_format;
mod identify;
mod key;
mod key_display;
mod key_text;
mod limit;
mod lint;
mod lists;
mod lookup;
mod match_request;
mod matcher;
mod mistake;
mod net;
pub mod path;
mod pattern;
mod policy;
mod read_headers;
mod redact;
mod request;
pub mod sanitize;
mod settings;
mod source;
mod suggest;

pub use builder::{BuildError, LimitBuilder};
pub use cost::{Cost, Settle, whole_units};
pub use descriptor::{Descriptor, DescriptorPattern, EntryPattern, Glob};
pub use diagnostic::{Diagnostic, DiagnosticView, Diagnostics, Located, Place, Problems, Severity, redacted};
pub use document::{Document, Entry, Fields, Kind, Node, Setting, Words};
pub use envoy_match::EnvoyMatch;
pub use file_format::schema;
pub use identify::{Credential, Identify, OnAmbiguous};
pub use key::{Key, MAX_PART_BYTES};
pub use key_display::{KeyDisplay, ShownPart};
pub use limit::{Allowance, HeaderMatch, Limit, Missing, Mode, OnHangup, OnOutage, Soft};
pub use lint::{Lint, LintScope};
pub use lists::ListEntry;
pub use match_request::{Block, BlockReason, Check, Checks, Grant, Matched, RuleCheck};
pub use net::{Net, NetSet};
pub use pattern::{HostPattern, PathPattern, without_port};
pub use policy::Policy;
pub use read_headers::are_lookalikes;
pub use request::{Call, Request};
pub use settings::{
    ClientAddress, Dialect, ForwardedHeader, HeaderSettings, IetfHeaders, KeyPrivacy, PathReading,
    PathSettings, XRateLimit,
};
pub use source::KeySource;
pub use suggest::{hint, nearest};
