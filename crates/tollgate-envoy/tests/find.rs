//! The limit that a descriptor finds, and the counter that it charges.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::fs;
use std::path::Path;

use tollgate::Policy;
use tollgate_envoy::{DescriptorMatch, Domains, EnvoyConfig, EnvoyFile, Metadata, Unit};

fn policy(files: &[EnvoyFile]) -> Policy {
    let config = EnvoyConfig::read(files, false).unwrap_or_else(|wrong| panic!("{wrong:?}"));
    config.apply(Policy::default()).unwrap()
}

/// Returns the policy of all good files.
fn all_good() -> Policy {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("good");
    let read = |path: std::path::PathBuf| EnvoyFile {
        name: path.display().to_string(),
        text: fs::read_to_string(path).unwrap(),
    };
    policy(&fs::read_dir(folder).unwrap().map(|entry| read(entry.unwrap().path())).collect::<Vec<_>>())
}

/// Parses `key=value` for each entry of the tables below.
fn entries<'t>(text: &[&'t str]) -> Vec<(&'t str, &'t str)> {
    text.iter().map(|entry| entry.split_once('=').unwrap()).collect()
}

/// Formats the result: the numbers of the limit, or why there are none.
fn found(policy: &Policy, domain: &str, text: &[&str]) -> String {
    match Domains::of(policy).unwrap().find(domain, &entries(text)) {
        DescriptorMatch::UnknownDomain => "unknown".into(),
        DescriptorMatch::NoLimit => "none".into(),
        DescriptorMatch::Unlimited(leaf) => {
            assert!(leaf.limit(policy).is_none());
            "unlimited".into()
        }
        DescriptorMatch::Limited(leaf) => {
            format!("{}/{}", leaf.requests_per_unit().unwrap(), leaf.unit().unwrap())
        }
    }
}

#[test]
fn a_descriptor_finds_the_limit_that_the_files_give_it() {
    let policy = all_good();
    for (domain, text, expected) in [
        // A named value, and the bare key for all other values.
        ("depot", &["queue=letters"][..], "40/second"),
        ("depot", &["queue=parcels"], "4/second"),
        ("depot", &["queue=post"], "400/second"),
        ("depot", &["queue="], "400/second"),
        ("depot", &["Queue=letters"], "none"),
        ("Depot", &["queue=letters"], "unknown"),
        ("depot", &[], "none"),
        // Nesting.
        ("post", &["kind=advert", "reader=ann"], "5/day"),
        ("post", &["reader=ann"], "100/day"),
        ("post", &["reader=ann", "kind=advert"], "none"),
        ("post", &["kind=letter", "reader=ann"], "none"),
        ("post", &["kind=advert"], "none"),
        // One blocked address.
        ("gatehouse", &["remote_address=203.0.113.66"], "0/second"),
        ("gatehouse", &["remote_address=203.0.113.6"], "10/second"),
        // The depth must match.
        ("library", &["shelf=rare"], "3/hour"),
        ("library", &["shelf=rare", "book=7"], "1/hour"),
        ("library", &["shelf=rare", "book=7", "page=1"], "none"),
        ("library", &["shelf=new", "book=7"], "none"),
        ("library", &["room=2"], "none"),
        ("library", &["room=2", "seat=3"], "7/hour"),
        // Unlimited.
        ("office", &["intranet=wiki"], "unlimited"),
        ("office", &["internet=news"], "90/minute"),
        // Wildcards: exact before patterns, the first pattern before later ones, all before the bare key.
        ("archive", &["file=reports/2026/annual.pdf"], "3/minute"),
        ("archive", &["file=reports/2026/other.pdf"], "1/minute"),
        ("archive", &["file=reports/"], "1/minute"),
        ("archive", &["file=notes.pdf"], "2/minute"),
        ("archive", &["file=notes.txt"], "4/minute"),
        ("archive", &["file=*.pdf"], "2/minute"),
        ("archive", &["path=/v1/shop/export"], "5/minute"),
        ("archive", &["path=/v1//export"], "5/minute"),
        ("archive", &["path=/v1/export"], "none"),
        ("archive", &["path=/v2/a/items/b/undo"], "6/minute"),
        ("archive", &["path=/v2/a/items/b/redo"], "none"),
        // Values are text, even those that YAML would convert.
        ("7", &["5=010"], "1/minute"),
        ("7", &["5=8"], "none"),
        ("7", &["day=2026-11-15"], "2/minute"),
        ("7", &["open=yes"], "3/minute"),
        ("7", &["open=true"], "4/minute"),
        // A descriptor without a limit exempts its value.
        ("7", &["open=exempt"], "none"),
        ("quiet", &["a=b"], "none"),
        // Key and value are never confused.
        ("apart", &["a=b_c"], "1/minute"),
        ("apart", &["a_b=c"], "2/minute"),
        ("apart", &["a_b_c=d"], "3/minute"),
        ("apart", &["a=c"], "none"),
        ("clock", &["e=1"], "5/week"),
        ("clock", &["f=1"], "6/month"),
        ("clock", &["g=1"], "4294967295/year"),
    ] {
        assert_eq!(found(&policy, domain, text), expected, "{domain}: {text:?}");
    }
}

#[test]
fn each_set_of_values_has_a_counter_unless_the_pattern_is_shared() {
    let policy = all_good();
    let domains = Domains::of(&policy).unwrap();
    for (domain, text, expected) in [
        ("depot", &["queue=post"][..], "queue=post"),
        ("depot", &["queue=letters"], "queue=letters"),
        ("post", &["kind=advert", "reader=ann"], "kind=advert, reader=ann"),
        ("archive", &["file=reports/a"], "file=reports/a"),
        ("printers", &["tray=a4-left"], "tray=a4-*"),
        ("printers", &["tray=a4-right"], "tray=a4-*"),
        ("printers", &["slot=a5-left"], "slot=a5-left"),
        ("printers", &["floor=f1", "room=r2", "user=ann"], "floor=f*, room=r2, user=ann"),
    ] {
        let entries = entries(text);
        let DescriptorMatch::Limited(leaf) = domains.find(domain, &entries) else { panic!("{text:?}") };
        assert_eq!(leaf.key(&entries).display().to_string(), expected);
    }
    // Joined by `_`, these two would be one counter.
    let leaf = |text: &[&str]| match domains.find("apart", &entries(text)) {
        DescriptorMatch::Limited(leaf) => (leaf.place(), leaf.key(&entries(text))),
        other => panic!("{other:?}"),
    };
    assert_ne!(leaf(&["a=b_c"]), leaf(&["a_b=c"]));
}

#[test]
fn metrics_are_named_as_the_files_ask() {
    let policy = all_good();
    let domains = Domains::of(&policy).unwrap();
    for (text, varies, expected) in [
        (&["hall=a", "door=north2", "visitor=ann"][..], true, "museum.hall_a.door_north2.visitor"),
        (&["hall=", "door=north", "visitor=ann"], true, "museum.hall.door_north.visitor"),
        (&["hall=a", "door=south2", "visitor=ann"], true, "museum.hall_a.door_south*.visitor"),
        (&["guide=tom"], true, "museum.guide_tom"),
        (&["guide=anna"], false, "museum.guide_anna"),
        (&["wing=east/2", "visitor=ann"], true, "museum.wing_east/*.visitor_ann"),
    ] {
        let entries = entries(text);
        let DescriptorMatch::Limited(leaf) = domains.find("museum", &entries) else { panic!("{text:?}") };
        assert_eq!(leaf.stat_of(&entries), expected);
        assert_eq!(leaf.stat_varies(), varies, "{text:?}");
    }
}

#[test]
fn other_fields_of_a_limit_are_kept() {
    let policy = all_good();
    let domains = Domains::of(&policy).unwrap();
    let leaf = |domain: &str, text: &[&str]| match domains.find(domain, &entries(text)) {
        DescriptorMatch::Limited(leaf) | DescriptorMatch::Unlimited(leaf) => leaf,
        other => panic!("{other:?}"),
    };
    let by_member = leaf("club", &["member=ann"]);
    let guests = leaf("club", &["guest_of=tom", "member=ann"]);
    assert_eq!(by_member.name(), Some("by_member"));
    assert!(guests.replaces_name("by_member") && !by_member.replaces_name("by_member"));
    assert_eq!(guests.replaces().collect::<Vec<_>>(), ["by_member"]);

    let understudy = leaf("rehearsal", &["stage=1", "actor=understudy"]);
    let lead = leaf("rehearsal", &["stage=1", "actor=lead"]);
    assert!(understudy.shadow_mode() && !lead.shadow_mode());
    assert_eq!(understudy.limit(&policy).unwrap().mode(), tollgate::Mode::Shadow);
    assert_eq!(lead.limit(&policy).unwrap().mode(), tollgate::Mode::Enforce);

    let stone = leaf("bakery", &["oven=stone"]);
    assert!(stone.quota_mode());
    let oven = stone.metadata().and_then(|it| it.get("oven")).unwrap();
    assert_eq!(oven.get("name"), Some(&Metadata::Text("stone".into())));
    assert_eq!(oven.get("shelves"), Some(&Metadata::Number(3.0)));
    assert_eq!(oven.get("lit"), Some(&Metadata::Bool(true)));
}

#[test]
fn windows_begin_at_multiples_of_their_unit_since_1970() {
    let seconds = [1, 60, 3_600, 86_400, 604_800, 2_592_000, 31_536_000];
    for (unit, seconds) in Unit::ALL.into_iter().zip(seconds) {
        assert_eq!(unit.length(), tollgate::Span::from_secs(seconds), "{unit}");
        assert_eq!(Unit::named(&unit.name().to_uppercase()), Some(unit));
    }
}

#[test]
fn ten_thousand_patterns_keep_file_order() {
    let numbered = |number: u32| {
        let part = number % 5_000 + number / 5_000 * 100_000;
        format!(
            "  - {{key: path, value: '/{part}/*', rate_limit: {{unit: day, requests_per_unit: {number}}}}}\n"
        )
    };
    let all: Vec<_> = (0..10_000).map(numbered).collect();
    let mut text = format!("domain: big\ndescriptors:\n{}", all.concat());
    text += "  - {key: path, value: '*', rate_limit: {unit: day, requests_per_unit: 77777}}\n";
    text += "  - {key: path, value: '/7*', rate_limit: {unit: day, requests_per_unit: 88888}}\n";
    let policy = policy(&[EnvoyFile { name: "big.yaml".into(), text }]);
    assert_eq!(policy.limits().len(), 10_002);
    assert_eq!(found(&policy, "big", &["path=/7/a"]), "7/day");
    assert_eq!(found(&policy, "big", &["path=/104999/a"]), "9999/day");
    assert_eq!(found(&policy, "big", &["path=/7x"]), "77777/day");
}
