//! The `shed` section: shedders, which refuse requests while the service is overloaded.
//!
//! - `fleet`: the shedder of all nodes together.
//! - `node`: the shedder of a node.

pub(crate) mod fleet;
pub(crate) mod node;

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use tollgate_document::{Node, Problems, Words};

/// Shedders, which refuse the least important requests while the service is overloaded.
#[derive(Debug)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(deny_unknown_fields))]
pub(crate) struct Shed {
    /// Bounds the requests of all nodes together, counted in the store.
    #[cfg_attr(feature = "schema", schemars(with = "Option<super::schema::FleetSchema>"))]
    pub(crate) fleet: Option<fleet::Fleet>,
    /// Protects this node: refuses requests of the last priority class first, while a signal of the node exceeds its target.
    pub(crate) node: Option<node::NodeShed>,
}

pub(crate) const WORDS: Words = Words {
    section: "`shed`",
    known: &["fleet", "node"],
    synonyms: &[("fleet", &["global", "cluster"]), ("node", &["worker", "local", "host", "process"])],
};

impl Shed {
    pub(super) fn read(node: &Node, problems: &mut Problems) -> Option<Self> {
        let fields = node.fields(&WORDS, problems)?;
        let fleet = fields.get("fleet").and_then(|node| fleet::read(node, problems));
        let node = fields.get("node").and_then(|node| node::NodeShed::read(node, problems));
        Some(Self { fleet, node })
    }
}
