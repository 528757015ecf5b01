//! Reads lines of JSON, one object per line.
//!
//! Names may be nested (`request.headers.user-agent`) or contain dots literally. Of a list, the first element counts.
//! A line is a request if it has a time and at least one other property, because programs write other events into the
//! same file. With `--field time=…`, every line with that field is a request.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::batch::Batch;
use super::fields::{Field, Fields};
use super::row::{FieldName, Row};
use super::text;
use super::time::Times;

/// A parser of JSON lines.
#[derive(Debug)]
pub(super) struct Json {
    tree: Node,
    wanted: Vec<FieldName>,
    row: Row,
    time_suffices: bool,
}

/// The names to look for in one object.
#[derive(Debug, Default)]
struct Node {
    /// Indices of the properties that the value itself supplies.
    here: Vec<usize>,
    within: HashMap<String, Node>,
}

impl Node {
    /// Adds a name in every reading of its dots.
    fn want(&mut self, name: &str, wanted: usize) {
        self.within.entry(name.to_owned()).or_default().here.push(wanted);
        for (dot, _) in name.match_indices('.') {
            self.within.entry(name[..dot].to_owned()).or_default().want(&name[dot + 1..], wanted);
        }
    }

    fn child(&self, name: &str) -> Option<&Self> {
        if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
            self.within.get(name.to_ascii_lowercase().as_str())
        } else {
            self.within.get(name)
        }
    }
}

impl Json {
    pub(super) fn new(fields: &Fields) -> Self {
        let (row, wanted) = Row::new(fields);
        let mut tree = Node::default();
        for (index, wanted) in wanted.iter().enumerate() {
            tree.want(&wanted.name, index);
        }
        Self { tree, wanted, row, time_suffices: fields.names(&Field::Time) }
    }

    /// Whether a line is a JSON object.
    pub(super) fn is_object(line: &[u8]) -> bool {
        line.trim_ascii().starts_with(b"{") && serde_json::from_slice::<IgnoredAny>(line).is_ok()
    }

    /// Reads a line into a batch. Returns `false` and leaves the batch unchanged if the line is not a request.
    pub(super) fn read(&mut self, line: &[u8], times: &mut Times, batch: &mut Batch) -> bool {
        let line = std::str::from_utf8(line).map_or_else(|_| Cow::Owned(text::lossless(line)), Cow::Borrowed);
        self.row.clear();
        let object = Object { node: &self.tree, wanted: &self.wanted, row: &mut self.row };
        let mut deserializer = serde_json::Deserializer::from_str(&line);
        let is_read = object.deserialize(&mut deserializer).is_ok() && deserializer.end().is_ok();
        is_read && (self.time_suffices || self.row.says_something()) && self.row.finish(times, batch)
    }
}

/// Deserializes the wanted members of an object into a row.
struct Object<'a> {
    node: &'a Node,
    wanted: &'a [FieldName],
    row: &'a mut Row,
}

impl Object<'_> {
    fn take(&mut self, node: &Node, value: &str) {
        match value.as_bytes().first() {
            Some(b'{') if !node.within.is_empty() => {
                let inner = Object { node, wanted: self.wanted, row: self.row };
                // The value was parsed as raw JSON before, so this cannot fail.
                let _ = inner.deserialize(&mut serde_json::Deserializer::from_str(value));
            }
            None | Some(b'{') => {}
            Some(b'[') => {
                let first = serde_json::from_str::<Vec<&RawValue>>(value);
                if let Some(first) = first.ok().and_then(|it| it.first().map(|it| it.get().to_owned()))
                    && !first.starts_with(['[', '{'])
                {
                    self.take(node, &first);
                }
            }
            Some(b'"') => {
                if let Ok(text) = serde_json::from_str::<Text<'_>>(value) {
                    self.offer(node, text.0.as_bytes());
                }
            }
            Some(_) if value == "null" => {}
            Some(_) => self.offer(node, value.as_bytes()),
        }
    }

    fn offer(&mut self, node: &Node, value: &[u8]) {
        for index in &node.here {
            self.row.offer(&self.wanted[*index], value);
        }
    }
}

/// A string, borrowed if it contains no escapes.
#[derive(serde::Deserialize)]
struct Text<'t>(#[serde(borrow)] Cow<'t, str>);

impl<'de> DeserializeSeed<'de> for Object<'_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Object<'_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        let node = self.node;
        while let Some(child) = map.next_key_seed(Name(node))? {
            match child {
                Some(child) => {
                    let value: &'de RawValue = map.next_value()?;
                    self.take(child, value.get());
                }
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

/// Deserializes the name of a member into the node that wants its value.
struct Name<'a>(&'a Node);

impl<'de, 'a> DeserializeSeed<'de> for Name<'a> {
    type Value = Option<&'a Node>;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'a> Visitor<'_> for Name<'a> {
    type Value = Option<&'a Node>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.child(name))
    }
}
