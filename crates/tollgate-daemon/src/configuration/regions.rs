//! The stores of other regions: `regions.stores`.
//!
//! Each is written as `store` is. The other words of `regions` are read with the limits that they split.

use tollgate_document::{Node, Problems};

use super::{LoadPhase, StoreSettings};
use crate::failure::Failure;
use crate::store::RemoteSettings;

/// Words of `store` that the store of another region does not have, with the reason.
const OTHER_WORDS: [(&str, &str); 3] = [
    ("deny_cache", "refusals of another region are not cached"),
    ("lease", "units are borrowed for as long as suits the limit"),
    ("outage", "a region that does not answer lends nothing"),
];

/// The stores of other regions, by their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RegionsSection {
    stores: Vec<(String, StoreSettings)>,
}

impl RegionsSection {
    /// Parses the stores. `near` is the store of this region.
    pub(crate) fn read(node: &Node, near: &StoreSettings, problems: &mut Problems) -> Self {
        // A map that is none, and unknown regions, are reported by the policy.
        let Some(stores) = node.get("stores") else { return Self::default() };
        let entries = stores.entries("`stores`", &mut Problems::default()).unwrap_or_default();
        let here = node.get("here").and_then(Node::text);
        let mut section = Self::default();
        for entry in entries.iter().filter(|entry| Some(&*entry.name.value) != here) {
            for (word, why) in OTHER_WORDS {
                if let Some(found) = entry.value.get(word) {
                    problems
                        .error(
                            found.place,
                            format!("`{word}` does not belong to the store of another region"),
                        )
                        .label("remove this")
                        .help(why);
                }
            }
            if entry.value.text() == Some("memory") {
                problems
                    .error(entry.value.place, "the memory of another region cannot be reached")
                    .help("name the store that its nodes share: `redis://HOST`");
                continue;
            }
            let settings = StoreSettings::read(&entry.value, problems).for_another_region(near, &entry.value);
            if let StoreSettings::Peers(_) = settings {
                problems
                    .error(entry.value.place, "units cannot be borrowed from the peers of another region")
                    .help("name a store that its nodes share: `redis://HOST` or `postgres://USER@HOST/DATABASE`");
                continue;
            }
            section.stores.push((entry.name.value.clone(), settings));
        }
        if *near == StoreSettings::Memory && !section.stores.is_empty() {
            problems
                .error(stores.place, "a node that borrows from other regions needs a store of its own region")
                .help("name it: `store: redis://HOST` or another server; without one, leave `stores` out");
        }
        section
    }

    /// Returns the settings of each store, with the contents of the files that they name.
    pub(crate) fn load(&self, reading: LoadPhase) -> Result<Vec<(String, RemoteSettings)>, Failure> {
        let load = |(region, store): &(String, StoreSettings)| {
            Ok(store.load(reading)?.map(|settings| (region.clone(), settings)))
        };
        self.stores.iter().filter_map(|it| load(it).transpose()).collect()
    }
}

#[cfg(test)]
mod tests {
    use tollgate_document::Document;

    use super::*;

    fn read(text: &str) -> (RegionsSection, Vec<String>) {
        let document = Document::parse(text).unwrap();
        let mut problems = Problems::default();
        let root = document.root();
        let near = root.get("store").map(|it| StoreSettings::read(it, &mut problems)).unwrap_or_default();
        let section = RegionsSection::read(root.get("regions").unwrap(), &near, &mut problems);
        let found = problems.into_diagnostics(&document);
        (section, found.iter().map(|it| it.message.clone()).collect())
    }

    #[test]
    fn stores_of_other_regions_have_a_long_deadline_and_no_cache() {
        let text = "store: {url: redis://eu, prefix: shop}\n\
                    regions: {here: eu, stores: {eu: redis://eu, us: 'rediss://:pw@us', ap: {url: redis://ap, deadline: 2s, prefix: x}}}";
        let (section, problems) = read(text);
        assert!(problems.is_empty(), "{problems:?}");
        let loaded = section.load(LoadPhase::First).unwrap();
        let seen: Vec<_> = loaded
            .iter()
            .map(|(region, store)| {
                let RemoteSettings::Redis(it) = store else { panic!("{store:?}") };
                format!("{region} {it} {:?} {:?} {}", it.deadline, it.deny_cache, it.prefix)
            })
            .collect();
        assert_eq!(seen, ["us rediss://:***@us:6379 1s 0ns shop", "ap redis://ap:6379 2s 0ns x"]);
    }

    #[test]
    fn a_database_of_another_region_has_a_long_deadline_and_the_prefix_of_this_one() {
        let text = "store: {url: 'postgres://u@eu', prefix: shop}\n\
                    regions: {here: eu, stores: {us: 'postgres://u@us', ap: {url: redis://ap}}}";
        let (section, problems) = read(text);
        assert!(problems.is_empty(), "{problems:?}");
        let seen: Vec<_> = section
            .load(LoadPhase::First)
            .unwrap()
            .into_iter()
            .map(|(_, store)| match store {
                RemoteSettings::Postgres(it) => (it.deadline.as_millis(), it.prefix),
                RemoteSettings::Redis(it) => (it.deadline.as_millis(), it.prefix),
                RemoteSettings::Peers(_) => panic!("no peers"),
            })
            .collect();
        assert_eq!(seen, [(1_000, "shop".to_owned()), (1_000, "shop".to_owned())]);
    }

    #[test]
    fn mistakes_are_reported() {
        for (text, expected) in [
            (
                "regions: {here: eu, stores: {us: redis://us}}",
                "a node that borrows from other regions needs a store of its own region",
            ),
            (
                "store: redis://eu\nregions: {here: eu, stores: {us: memory}}",
                "the memory of another region cannot be reached",
            ),
            (
                "store: redis://eu\nregions: {here: eu, stores: {us: 'tollgate://us:7379'}}",
                "units cannot be borrowed from the peers of another region",
            ),
            (
                "store: redis://eu\nregions: {here: eu, stores: {us: {url: redis://us, deny_cache: 1s}}}",
                "`deny_cache` does not belong to the store of another region",
            ),
            (
                "store: redis://eu\nregions: {here: eu, stores: {us: us.internal:6379}}",
                "this is not a URL of Redis: it has no scheme",
            ),
        ] {
            assert_eq!(read(text).1, [expected], "{text}");
        }
    }
}
