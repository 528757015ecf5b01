//! The policy file of Tollgate: what is limited, by what, and how much.
#![doc = include_str!("../FORMAT.md")]

mod apart;
mod builder;
mod compile;
mod cost;
mod descriptor;
mod diagnostic;
mod document;
mod extract;
mod identify;
mod key;
mod limit;
mod lists;
mod matcher;
mod mistake;
mod net;
pub mod path;
mod pattern;
mod policy;
mod request;
mod settings;
mod source;
mod suggest;
mod survey;
mod trap;
mod typed;
mod veil;
mod written;

pub use apart::Apart;
pub use builder::{BuildError, LimitBuilder};
pub use cost::{Cost, Settle, whole_units};
pub use descriptor::{Descriptor, DescriptorPattern, EntryPattern, Glob};
pub use diagnostic::{Diagnostic, Diagnostics, Located, Place, Problems, Severity, Told, veiled};
pub use document::{Document, Entry, Fields, Kind, Node, Setting, Words};
pub use identify::{Credential, Identify};
pub use key::{Key, LONGEST_PART};
pub use limit::{Allowance, HeaderMatch, Limit, Missing, Mode, OnOutage, Soft};
pub use lists::ListEntry;
pub use net::{Net, NetSet};
pub use pattern::{HostPattern, PathPattern, without_port};
pub use policy::Policy;
pub use request::{Call, Request};
pub use settings::{
    ClientAddress, Dialect, ForwardedHeader, HeaderSettings, IetfHeaders, KeyPrivacy, PathReading,
    PathSettings, XRateLimit,
};
pub use source::KeySource;
pub use suggest::nearest;
pub use survey::{Block, BlockReason, Check, Checks, Granted, Survey};
pub use trap::{Of as TrapOf, Trap};
pub use written::schema;
