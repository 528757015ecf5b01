//! The `metadata` of a limit: any YAML, passed on unchanged.

use tollgate_document::{Kind, Node};

/// A tree of values in `metadata`. The service passes it to the proxy with its responses.
#[derive(Clone, Debug, PartialEq)]
pub enum Metadata {
    /// An empty value, `~` or `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A finite number.
    Number(f64),
    /// Any other scalar, and every quoted one.
    Text(Box<str>),
    /// The items of a list, in order.
    List(Vec<Self>),
    /// The entries of a map, in order.
    Map(Vec<(Box<str>, Self)>),
}

impl Metadata {
    /// Converts a node. The depth of the file bounds the recursion.
    pub(crate) fn of(node: &Node) -> Self {
        match &node.kind {
            Kind::Null => Self::Null,
            Kind::Scalar { text, quoted: true } => Self::Text(text.as_str().into()),
            Kind::Scalar { text, .. } => Self::plain(text),
            Kind::List(items) => Self::List(items.iter().map(Self::of).collect()),
            Kind::Map(entries) => {
                let entry =
                    |it: &tollgate_document::Entry| (it.name.value.as_str().into(), Self::of(&it.value));
                Self::Map(entries.iter().map(entry).collect())
            }
        }
    }

    fn plain(text: &str) -> Self {
        match text {
            "true" | "True" | "TRUE" => return Self::Bool(true),
            "false" | "False" | "FALSE" => return Self::Bool(false),
            _ => {}
        }
        let digits = text.trim_start_matches(['-', '+']);
        // `007` is a code rather than a number, and `inf` and `nan` are words.
        let padded = digits.len() > 1 && digits.starts_with('0') && !digits.starts_with("0.");
        match text.parse::<f64>() {
            Ok(number)
                if number.is_finite() && digits.starts_with(|it: char| it.is_ascii_digit()) && !padded =>
            {
                Self::Number(number)
            }
            _ => Self::Text(text.into()),
        }
    }

    /// Returns the value of a name in a map.
    pub fn get(&self, name: &str) -> Option<&Self> {
        match self {
            Self::Map(entries) => entries.iter().find(|(known, _)| **known == *name).map(|(_, value)| value),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use tollgate_document::Document;

    use super::*;

    #[test]
    fn plain_values_get_the_type_they_look_like() {
        let text =
            "a: true\nb: '5'\nc: 5\nd: -1.5e3\ne: 007\nf: .inf\ng: ~\nh: [x, {y: 0}]\ni: 1e999\nj: nan\n";
        let tree = Metadata::of(Document::parse(text).unwrap().root());
        let text = |it: &str| Metadata::Text(it.into());
        for (name, expected) in [
            ("a", Metadata::Bool(true)),
            ("b", text("5")),
            ("c", Metadata::Number(5.0)),
            ("d", Metadata::Number(-1_500.0)),
            ("e", text("007")),
            ("f", text(".inf")),
            ("g", Metadata::Null),
            ("h", Metadata::List(vec![text("x"), Metadata::Map(vec![("y".into(), Metadata::Number(0.0))])])),
            ("i", text("1e999")),
            ("j", text("nan")),
        ] {
            assert_eq!(tree.get(name), Some(&expected), "{name}");
        }
    }
}
