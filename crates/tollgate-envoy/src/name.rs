//! Names for limits: readable, unique, and the same after a reload or a restart.
//!
//! Usage is kept by name, so a name depends on what a limit covers and not on where
//! it stands in a file. What cannot be written in a name, or is too long for one, is
//! told apart by a few digits made of the exact path.

use std::collections::{HashMap, HashSet};

use tollgate::RuleId;

use crate::leaf::Step;

/// The longest name that a limit may have.
const MAX_NAME_BYTES: usize = 64;

/// The path of a limit, and how it wants to be called.
pub(crate) struct NameCandidate {
    readable: String,
    /// Whether the readable name says all.
    faithful: bool,
    id: u64,
}

impl NameCandidate {
    pub(crate) fn new(domain: &str, path: &[Step]) -> Self {
        let mut wish = Self { readable: String::new(), faithful: true, id: id(domain, path) };
        wish.write(domain);
        for step in path {
            wish.readable.push('.');
            wish.write(&step.key);
            if let Some(value) = &step.value {
                wish.readable.push('_');
                wish.write(value);
            }
        }
        wish.faithful &= wish.readable.len() <= MAX_NAME_BYTES;
        wish
    }

    fn write(&mut self, text: &str) {
        for char in text.chars() {
            let fits = char.is_ascii_alphanumeric() || "._-".contains(char);
            self.faithful &= fits;
            if fits {
                self.readable.push(char);
            } else if !self.readable.ends_with(['-', '_', '.']) {
                self.readable.push('-');
            }
            // A name is cut anyway; a value may be megabytes long.
            if self.readable.len() > MAX_NAME_BYTES {
                self.faithful = false;
                return;
            }
        }
    }

    /// The readable name with something behind it that tells it from others.
    fn with(&self, mark: &str) -> String {
        let room = MAX_NAME_BYTES - mark.len() - 1;
        // ASCII alone, so any place is one to cut at.
        let head = self.readable.get(..room).unwrap_or(&self.readable);
        format!("{}-{mark}", head.trim_end_matches(['-', '.']))
    }
}

fn id(domain: &str, path: &[Step]) -> u64 {
    let step = |step: &'_ Step| match step.value.clone() {
        Some(value) => ["=".into(), step.key.clone(), value],
        None => ["any".into(), step.key.clone(), "".into()],
    };
    let words: Vec<Box<str>> = path.iter().flat_map(step).collect();
    RuleId::of(std::iter::once(domain).chain(words.iter().map(|word| &**word))).0
}

/// A name for each wish, in their order. `taken` are names that others have.
pub(crate) fn all<'w>(
    wishes: impl Iterator<Item = &'w NameCandidate> + Clone,
    taken: &HashSet<&str>,
) -> Vec<String> {
    let mut often: HashMap<&str, u32> = HashMap::new();
    for wish in wishes.clone().filter(|wish| wish.faithful) {
        *often.entry(&wish.readable).or_default() += 1;
    }
    let mut used: HashSet<String> = HashSet::new();
    let name = |wish: &NameCandidate| {
        let readable = wish.readable.as_str();
        let alone = wish.faithful && often.get(readable) == Some(&1) && !taken.contains(readable);
        // Sixteen digits differ where eight do not, but for one chance in 2^64; then numbers do.
        let marks = [format!("{:08x}", wish.id >> 32), format!("{:016x}", wish.id)];
        let numbered = (2_u32..).map(|number| format!("{:016x}-{number}", wish.id));
        let marked = marks.into_iter().chain(numbered).map(|mark| wish.with(&mark));
        let mut names = alone.then(|| readable.to_owned()).into_iter().chain(marked);
        let name = names.find(|name| !used.contains(name) && !taken.contains(name.as_str()));
        let name = name.unwrap_or_default();
        used.insert(name.clone());
        name
    };
    wishes.map(name).collect()
}
