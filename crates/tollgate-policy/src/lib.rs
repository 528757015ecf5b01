//! The policy file of Tollgate: what is limited, by what, and how much.
//!
//! Text goes in, a [`Policy`] comes out, or a list of everything that is wrong with the text, each with
//! its line and what was probably meant ([`Diagnostics`]). A policy answers one question about a request
//! ([`Policy::survey`]): which limits apply, for which key, at what cost.
//!
//! Parsing goes from what was written to what it does: a located tree ([`Document`]), typed values,
//! compiled limits. The server reads its own sections from the same [`Document`]. [`schema`] is the JSON
//! Schema of the format, [`Trap`] the list of warnings, [`path::normal`] the form in which paths are matched.
//!
//! Not here: files, sockets, clocks (this crate sees text), counting (`tollgate_core`), deciding
//! (`tollgate`).
//!
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
mod key_display;
mod limit;
mod lists;
mod lookup;
mod matcher;
mod mistake;
mod net;
pub mod path;
mod pattern;
mod policy;
mod read_headers;
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
pub use identify::{Credential, Identify, OnAmbiguous};
pub use key::{Key, LONGEST_PART};
pub use key_display::{KeyDisplay, ShownPart};
pub use limit::{Allowance, HeaderMatch, Limit, Missing, Mode, OnHangup, OnOutage, Soft};
pub use lists::ListEntry;
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
pub use survey::{Block, BlockReason, Check, Checks, Granted, RuleCheck, Survey};
pub use trap::{Of as TrapOf, Trap};
pub use written::schema;
