//! Names for limits: readable, unique, and stable over reloads and restarts.
//!
//! Usage is stored by name, so a name depends on the coverage of a limit and not on its
//! position in a file. A name that is too long, or that contains invalid characters, gets
//! a few digits of a hash over the exact path.

use std::collections::{HashMap, HashSet};

use tollgate::RuleId;

use crate::leaf::Step;

/// The maximum length of a limit's name, in bytes.
const MAX_NAME_BYTES: usize = 64;

/// The path of a limit, and its preferred name.
pub(crate) struct NameCandidate {
    readable: String,
    /// Whether the readable name represents the path completely.
    faithful: bool,
    id: u64,
}

impl NameCandidate {
    pub(crate) fn new(domain: &str, path: &[Step]) -> Self {
        let mut candidate = Self { readable: String::new(), faithful: true, id: id(domain, path) };
        candidate.write(domain);
        for step in path {
            candidate.readable.push('.');
            candidate.write(&step.key);
            if let Some(value) = &step.value {
                candidate.readable.push('_');
                candidate.write(value);
            }
        }
        candidate.faithful &= candidate.readable.len() <= MAX_NAME_BYTES;
        candidate
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

    /// Returns the readable name with a distinguishing suffix.
    fn with(&self, mark: &str) -> String {
        let room = MAX_NAME_BYTES - mark.len() - 1;
        // The name is ASCII, so every position is a character boundary.
        let head = self.readable.get(..room).unwrap_or(&self.readable);
        format!("{}-{mark}", head.trim_end_matches(['-', '.']))
    }
}

fn id(domain: &str, path: &[Step]) -> u64 {
    let words = path.iter().flat_map(|step| match &step.value {
        Some(value) => ["=", &*step.key, &**value],
        None => ["any", &*step.key, ""],
    });
    RuleId::of(std::iter::once(domain).chain(words)).0
}

/// Returns a name for each candidate, in order. `taken` are the names of other limits.
pub(crate) fn all<'c>(
    candidates: impl Iterator<Item = &'c NameCandidate> + Clone,
    taken: &HashSet<&str>,
) -> Vec<String> {
    let mut counts: HashMap<&str, u32> = HashMap::new();
    for candidate in candidates.clone().filter(|candidate| candidate.faithful) {
        *counts.entry(&candidate.readable).or_default() += 1;
    }
    let mut used: HashSet<String> = HashSet::new();
    let name = |candidate: &NameCandidate| {
        let readable = candidate.readable.as_str();
        let alone = candidate.faithful && counts.get(readable) == Some(&1) && !taken.contains(readable);
        // If eight digits collide, sixteen do with a chance of 2^-64; numbers resolve that.
        let marks = (0_u32..).map(|number| match number {
            0 => format!("{:08x}", candidate.id >> 32),
            1 => format!("{:016x}", candidate.id),
            _ => format!("{:016x}-{number}", candidate.id),
        });
        let marked = marks.map(|mark| candidate.with(&mark));
        let mut names = alone.then(|| readable.to_owned()).into_iter().chain(marked);
        let name = names.find(|name| !used.contains(name) && !taken.contains(name.as_str()));
        let name = name.unwrap_or_default();
        used.insert(name.clone());
        name
    };
    candidates.map(name).collect()
}
