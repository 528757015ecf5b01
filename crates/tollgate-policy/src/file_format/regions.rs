//! The regions that share limits: `regions`.
//!
//! The stores of the other regions are read by the server, as `store` is. Here only their names count.

use tollgate_document::{Document, Entry, Located, Node, Problems, Words, hint, whole_number};

/// The largest number of regions.
const MAX_REGIONS: usize = 16;

/// The longest name of a region.
const MAX_NAME_BYTES: usize = 64;

pub(crate) const WORDS: Words = Words {
    section: "`regions`",
    known: &["here", "shares", "stores"],
    synonyms: &[
        ("here", &["region", "name", "local", "self"]),
        ("shares", &["share", "weights", "split"]),
        ("stores", &["store", "urls", "redis"]),
    ],
};

/// The regions that share limits, and the region of this node.
#[derive(Clone, Debug)]
pub(crate) struct Regions {
    /// The index of the region of this node.
    pub(crate) here: usize,
    /// The name of each region, with its share in percent.
    pub(crate) shares: Vec<(String, u8)>,
    /// Whether the stores of the other regions are known, so that a key that runs short can borrow.
    pub(crate) borrows: bool,
}

/// The section, as far as it can be read.
#[derive(Clone, Debug, Default)]
pub(crate) enum RegionsText {
    /// The file has no such section.
    #[default]
    Absent,
    /// It has mistakes, which were reported.
    Invalid,
    /// It is valid.
    Valid(Regions),
}

impl RegionsText {
    /// Reads the section.
    pub(crate) fn read(document: &Document, problems: &mut Problems) -> Self {
        match document.root().get("regions") {
            None => Self::Absent,
            Some(node) => read(node, problems).map_or(Self::Invalid, Self::Valid),
        }
    }

    /// Returns the regions, if they are valid.
    pub(crate) const fn valid(&self) -> Option<&Regions> {
        if let Self::Valid(regions) = self { Some(regions) } else { None }
    }
}

fn read(node: &Node, problems: &mut Problems) -> Option<Regions> {
    let fields = node.fields(&WORDS, problems)?;
    if !fields.mentions("shares") {
        problems
            .error(fields.place(), "`regions` has no `shares`")
            .help("the share of each region in limits of all regions: `shares: {eu: 60%, us: 40%}`");
    }
    if !fields.mentions("here") {
        problems
            .error(fields.place(), "`regions` does not name the region of this node")
            .help("`here: eu`, or one file for all regions and the variable TOLLGATE_REGION=eu");
    }
    let shares = fields.get("shares").and_then(|node| shares(node, problems))?;
    let names = || shares.iter().map(|(name, _)| &*name.value);
    let here = fields.get("here").and_then(|node| node.word("`here`", problems));
    let at = here.and_then(|here| {
        let at = names().position(|name| name == here.value);
        if at.is_none() {
            unknown(here, names(), problems);
        }
        at
    });
    let stores = fields.get("stores");
    let borrows = match stores {
        None => !fields.mentions("stores"),
        Some(node) => stores_fit(node, here.map(|it| it.value), names(), problems),
    };
    let (Some(here), true) = (at, borrows) else { return None };
    let shares: Vec<_> = shares.into_iter().map(|(name, share)| (name.value, share)).collect();
    Some(Regions { here, borrows: stores.is_some() && shares.len() > 1, shares })
}

/// Reads the share of each region.
fn shares(node: &Node, problems: &mut Problems) -> Option<Vec<(Located<String>, u8)>> {
    let entries = node.entries("`shares`", problems)?;
    if entries.is_empty() || entries.len() > MAX_REGIONS {
        problems
            .error(node.place, format!("`shares` names 1 to {MAX_REGIONS} regions"))
            .label(format!("these are {}", entries.len()));
        return None;
    }
    let read: Vec<_> = entries.iter().filter_map(|entry| share(entry, problems)).collect();
    if read.len() < entries.len() {
        return None;
    }
    let sum: u32 = read.iter().map(|(_, share)| u32::from(*share)).sum();
    if sum != 100 {
        let label = match sum {
            0..100 => format!("{}% belong to no region", 100 - sum),
            _ => format!("{}% too many", sum - 100),
        };
        problems
            .error(node.place, format!("the shares of the regions are {sum}% in all, not 100%"))
            .label(label)
            .help("whole percents: `shares: {eu: 50%, us: 30%, ap: 20%}`");
        return None;
    }
    Some(read)
}

fn share(entry: &Entry, problems: &mut Problems) -> Option<(Located<String>, u8)> {
    let name = &entry.name;
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if name.value.is_empty() || name.value.len() > MAX_NAME_BYTES || !name.value.bytes().all(is_name) {
        problems
            .error(name.place, "this is not the name of a region")
            .help("letters, digits, `.`, `_` and `-`, at most 64: such as `eu-west-1`");
        return None;
    }
    let text = entry.value.word("a share", problems)?.value;
    let number = text.strip_suffix('%').unwrap_or(text).trim_end();
    let share = whole_number(number).and_then(|it| u8::try_from(it).ok()).filter(|it| (1..=100).contains(it));
    if share.is_none() {
        problems
            .error(entry.value.place, format!("a share is 1% to 100%, not {}", entry.value.describe()))
            .help("whole percents; a region that is to have nothing is left out");
    }
    Some((name.clone(), share?))
}

/// Reports stores of unknown regions, and regions without a store. Returns whether there are none.
fn stores_fit<'n>(
    node: &Node,
    here: Option<&str>,
    names: impl Iterator<Item = &'n str> + Clone,
    problems: &mut Problems,
) -> bool {
    let Some(entries) = node.entries("`stores`", problems) else { return false };
    let mut fits = true;
    for entry in entries {
        if !names.clone().any(|name| name == entry.name.value) {
            let name = Located::new(&*entry.name.value, entry.name.place);
            unknown(name, names.clone(), problems);
            fits = false;
        }
    }
    let has_store = |name: &str| entries.iter().any(|entry| entry.name.value == name);
    let without: Vec<_> = names.filter(|name| Some(*name) != here && !has_store(name)).collect();
    if let (Some(first), Some(_)) = (without.first(), here) {
        problems
            .error(node.place, format!("no store of {} is named", regions_in_words(&without)))
            .label(format!("no `{first}` here"))
            .help(format!("add `{first}: redis://HOST`, or leave `stores` out: then no region borrows"));
        fits = false;
    }
    fits
}

fn regions_in_words(names: &[&str]) -> String {
    let quoted: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    let noun = if names.len() == 1 { "region" } else { "regions" };
    format!("{noun} {}", quoted.join(", "))
}

fn unknown<'n>(name: Located<&str>, known: impl Iterator<Item = &'n str>, problems: &mut Problems) {
    problems
        .error(name.place, format!("`shares` has no region `{}`", name.value))
        .help(hint(name.value, "regions", known));
}
