//! JSON values that borrow from the body where possible.
//!
//! `Option<Cow<str>>` never borrows, whatever its attributes say, because serde's only implementation
//! for `Cow` copies. Strings therefore have their own type.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use tollgate_api::MAX_UNITS;

use crate::problem::Problem;

/// A string that is copied only if it has escapes.
#[derive(Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Text<'b>(#[serde(borrow)] Cow<'b, str>);

impl Text<'_> {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// A number of units: an integer, at least zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Units(u64);

impl Units {
    /// Returns the number, if it is at most [`MAX_UNITS`].
    pub(crate) fn count(self) -> Result<u64, Problem> {
        self.called("cost")
    }

    /// Like `count`, with the name of the field for the error.
    pub(crate) fn called(self, name: &str) -> Result<u64, Problem> {
        if self.0 > MAX_UNITS {
            return Err(Problem::senseless(format!("`{name}` is too large: it may be at most {MAX_UNITS}")));
        }
        Ok(self.0)
    }
}

impl<'de> Deserialize<'de> for Units {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = Units;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a whole number from 0 to {MAX_UNITS}")
            }

            fn visit_u64<E: Error>(self, count: u64) -> Result<Units, E> {
                Ok(Units(count))
            }

            /// Languages without integers write `1.0`.
            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                clippy::cast_precision_loss,
                reason = "only whole numbers that a double holds exactly get that far"
            )]
            fn visit_f64<E: Error>(self, count: f64) -> Result<Units, E> {
                if count.fract() == 0.0 && (0.0..=MAX_UNITS as f64).contains(&count) {
                    Ok(Units(count as u64))
                } else {
                    Err(E::invalid_value(Unexpected::Float(count), &self))
                }
            }
        }
        deserializer.deserialize_u64(Reader)
    }
}

/// An object of strings, in order. A name may occur twice or have a list of values, as headers do.
#[derive(Debug, Default)]
pub(crate) struct Pairs<'b>(Vec<(Text<'b>, OneOrMany<'b>)>);

impl Pairs<'_> {
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().flat_map(|(name, values)| values.iter().map(|value| (name.as_str(), value.as_str())))
    }
}

impl<'de: 'b, 'b> Deserialize<'de> for Pairs<'b> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Pairs<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of strings")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut pairs = Vec::new();
                while let Some(name) = map.next_key()? {
                    pairs.push((name, map.next_value_seed(TextOrList("a string or a list of strings"))?));
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(Reader)
    }
}

/// A string or a list of strings.
#[derive(Debug)]
pub(crate) enum OneOrMany<'b> {
    One(Text<'b>),
    Many(Vec<Text<'b>>),
}

impl<'b> OneOrMany<'b> {
    fn iter(&self) -> impl Iterator<Item = &Text<'b>> {
        match self {
            Self::One(text) => std::slice::from_ref(text),
            Self::Many(texts) => texts,
        }
        .iter()
    }
}

/// Parses a string or a list of strings; has the text for the expected type.
struct TextOrList(&'static str);

impl<'de> DeserializeSeed<'de> for TextOrList {
    type Value = OneOrMany<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for TextOrList {
    type Value = OneOrMany<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(OneOrMany::One(Text(Cow::Borrowed(text))))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(OneOrMany::One(Text(Cow::Owned(text.to_owned()))))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut texts: A) -> Result<Self::Value, A::Error> {
        let mut all = Vec::new();
        while let Some(text) = texts.next_element()? {
            all.push(text);
        }
        Ok(OneOrMany::Many(all))
    }
}

/// A value that must be an object. Serde also reads structs from lists.
pub(crate) struct Object<T>(pub(crate) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Reader<T> {
            type Value = Object<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }
        deserializer.deserialize_map(Reader(PhantomData))
    }
}

/// A key: one string, or a string for each part.
#[derive(Debug)]
pub(crate) struct Parts<'b>(OneOrMany<'b>);

impl Parts<'_> {
    pub(crate) fn as_strs(&self) -> Vec<&str> {
        self.0.iter().map(Text::as_str).collect()
    }
}

impl<'de: 'b, 'b> Deserialize<'de> for Parts<'b> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = "a string, or a list with a string for each part of the key";
        TextOrList(expected).deserialize(deserializer).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct Sample<'b> {
        #[serde(borrow)]
        text: Option<Text<'b>>,
    }

    #[test]
    fn a_string_without_escapes_is_not_copied() {
        for (json, borrowed) in [(r#"{"text":"plain"}"#, true), (r#"{"text":"a\nb"}"#, false)] {
            let sample: Sample<'_> = serde_json::from_str(json).unwrap();
            assert_eq!(matches!(sample.text, Some(Text(Cow::Borrowed(_)))), borrowed, "{json}");
        }
    }

    #[test]
    fn units_are_whole_and_not_negative() {
        for (json, units) in [
            ("0", Some(0)),
            ("7", Some(7)),
            ("7.0", Some(7)),
            ("1e3", Some(1_000)),
            ("7.5", None),
            ("-1", None),
            ("1e300", None),
            ("18446744073709551616", None),
            ("\"7\"", None),
            ("true", None),
        ] {
            assert_eq!(serde_json::from_str::<Units>(json).ok(), units.map(Units), "{json}");
        }
    }
}
