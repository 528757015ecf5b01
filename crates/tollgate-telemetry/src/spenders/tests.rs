//! Callers and their units, in one thread and in several, with and without pending units.

use super::*;

fn at(second: u64) -> Timestamp {
    Timestamp::from_secs(1_000 + second)
}

fn spend(
    spenders: &Spenders,
    key_hash: u64,
    client: Option<IpAddr>,
    method: &str,
    path: &str,
    units: u64,
    at: Timestamp,
) {
    let asker = Asker { client, method, path };
    let caller = spenders.caller(&asker);
    spenders.spent(key_hash, (caller, &asker), units, at, Span::from_secs(600));
}

fn shown(spenders: &Spenders, key_hash: u64) -> Vec<(String, u64)> {
    let shown_keys = spenders.of(key_hash, &|client| client.to_string());
    let word = |it: Spender| format!("{} {} {}", it.client.unwrap_or_default(), it.method, it.path);
    shown_keys.into_iter().map(|it| (it.units, it)).map(|(units, it)| (word(it), units)).collect()
}

#[test]
fn spenders_are_sorted_by_units() {
    let spenders = Spenders::new();
    let (ann, bob) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
    spend(&spenders, 7, Some(ann), "GET", "/a", 1, at(0));
    spend(&spenders, 7, Some(bob), "POST", "/b", 5, at(1));
    spend(&spenders, 7, Some(ann), "GET", "/a", 1, at(2));
    spend(&spenders, 8, None, "GET", "/c", 1, at(3));
    let expected = [("192.0.2.2 POST /b".to_owned(), 5), ("192.0.2.1 GET /a".to_owned(), 2)];
    assert_eq!(shown(&spenders, 7), expected);
    assert_eq!(shown(&spenders, 8), [(" GET /c".to_owned(), 1)]);
    assert_eq!(shown(&spenders, 9), []);
}

#[test]
fn the_least_recent_callers_are_replaced() {
    let spenders = Spenders::new();
    for caller in 0..6 {
        spend(&spenders, 7, None, "GET", &format!("/{caller}"), caller, at(caller));
    }
    let paths: Vec<_> = shown(&spenders, 7).into_iter().map(|(words, _)| words).collect();
    assert_eq!(paths, [" GET /5", " GET /4", " GET /3", " GET /2"]);
}

#[test]
fn the_least_recent_allowances_are_replaced() {
    let spenders = Spenders::new();
    // All of these fall into one set.
    for key_hash in 0..6 {
        spend(&spenders, 1 + (key_hash << 40), None, "GET", "/", 1, at(key_hash));
    }
    let shown_keys = (0..6).filter(|key_hash| !shown(&spenders, 1 + (key_hash << 40)).is_empty());
    assert_eq!(shown_keys.collect::<Vec<_>>(), [2, 3, 4, 5]);
}

#[test]
fn the_callers_of_a_replaced_allowance_are_not_those_of_the_next() {
    let spenders = Spenders::new();
    // All of these fall into one set, and take each other's places.
    let paths = ["/a", "/b", "/a", "", "/a", "/a", "/b", "", "", "/b", "/b", "/a"];
    for (key_hash, path) in (0..).zip(paths) {
        spend(&spenders, 1 + (key_hash << 40), None, "GET", path, key_hash, at(key_hash));
        spend(&spenders, 1 + (key_hash << 40), None, "", path, 20, at(key_hash));
        if key_hash > 0 {
            let expected = [(format!("  {path}"), 20), (format!(" GET {path}"), key_hash)];
            assert_eq!(shown(&spenders, 1 + (key_hash << 40)), expected);
        }
    }
}

#[test]
fn spending_before_the_previous_period_is_dropped() {
    let spenders = Spenders::new();
    // Periods of ten minutes; one starts at 1,200 s.
    for (second, units) in [(190, 100), (200, 5), (700, 5), (800, 1)] {
        spend(&spenders, 7, None, "GET", "/a", units, at(second));
    }
    assert_eq!(shown(&spenders, 7), [(" GET /a".to_owned(), 11)]);
    spend(&spenders, 7, None, "GET", "/b", 2, at(1_400));
    let expected = [(" GET /b".to_owned(), 2), (" GET /a".to_owned(), 1)];
    assert_eq!(shown(&spenders, 7), expected);
    spend(&spenders, 7, None, "", "", 2, at(9_000));
    assert_eq!(shown(&spenders, 7), [("  ".to_owned(), 2)]);
    spenders.clear();
    assert_eq!(shown(&spenders, 7), []);
}

#[test]
fn a_settled_cost_replaces_the_reserved_cost() {
    let spenders = Spenders::new();
    spend(&spenders, 7, None, "POST", "/chat", 1_000, at(190));
    spend(&spenders, 7, None, "POST", "/chat", 50, at(210));
    let caller = spenders.caller(&Asker { client: None, method: "POST", path: "/chat" });
    spenders.settle(7, caller, 50, 80);
    assert_eq!(shown(&spenders, 7), [(" POST /chat".to_owned(), 1_080)]);
    spenders.settle(7, caller, 1_000, 37);
    assert_eq!(shown(&spenders, 7), [(" POST /chat".to_owned(), 117)]);
    spenders.settle(7, caller + 1, 100, 0);
    spenders.settle(8, caller, 100, 0);
    assert_eq!(shown(&spenders, 7), [(" POST /chat".to_owned(), 117)]);
}

/// Spends a unit several times in a row, so that the thread gets a place for the caller.
fn spend_often(spenders: &Spenders, key_hash: u64, path: &str, times: u64) {
    (0..times).for_each(|_| spend(spenders, key_hash, None, "GET", path, 1, at(0)));
}

#[test]
fn pending_units_are_shown_to_all_threads() {
    let spenders = Spenders::new();
    spend_often(&spenders, 7, "/a", 10);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(shown(&spenders, 7), [(" GET /a".to_owned(), 10)]);
            spend_often(&spenders, 7, "/a", 10);
        });
    });
    assert_eq!(shown(&spenders, 7), [(" GET /a".to_owned(), 20)]);
    spend_often(&spenders, 7, "/a", 5);
    assert_eq!(shown(&spenders, 7), [(" GET /a".to_owned(), 25)]);
}

#[test]
fn pending_units_are_added_when_another_pair_gets_the_place() {
    let spenders = Spenders::new();
    // All of these have one place, and the first two are one allowance.
    for round in 1..=3 {
        for (key_hash, path) in [(7, "/a"), (7, "/b"), (8, "/c")] {
            spend_often(&spenders, key_hash, path, 4);
            let units: Vec<_> = shown(&spenders, key_hash).into_iter().map(|(_, units)| units).collect();
            assert!(units.iter().all(|units| units % 4 == 0), "{units:?}");
            assert!(units.contains(&(4 * round)), "{path} in round {round}: {units:?}");
        }
    }
}

#[test]
fn a_caller_whose_units_are_pending_is_not_the_least_recent() {
    let spenders = Spenders::new();
    let spend_one = |path: &str, second| spend(&spenders, 7, None, "GET", path, 1, at(second));
    spend_one("/busy", 0);
    spend_one("/busy", 0);
    for path in ["/1", "/2", "/3"] {
        spend_one(path, 0);
    }
    let busy = spenders.caller(&Asker { client: None, method: "GET", path: "/busy" });
    // Less than a second later, so the units are pending.
    let later = at(0) + Span::from_micros(1_000);
    let own = spenders.pending.own();
    assert!(own.is_none_or(|own| own.try_add(7, busy, 1, later)), "it has a place");
    spend(&spenders, 7, None, "GET", "/4", 1, later);
    let paths: Vec<_> = shown(&spenders, 7).into_iter().map(|(words, _)| words).collect();
    assert!(own.is_none() || paths.contains(&" GET /busy".to_owned()), "{paths:?}");
}

#[test]
fn pending_units_are_settled_and_cleared() {
    let spenders = Spenders::new();
    let caller = spenders.caller(&Asker { client: None, method: "GET", path: "/a" });
    spend_often(&spenders, 7, "/a", 10);
    spenders.settle(7, caller, 8, 1);
    assert_eq!(shown(&spenders, 7), [(" GET /a".to_owned(), 3)]);
    spend_often(&spenders, 7, "/a", 10);
    spenders.clear();
    assert_eq!(shown(&spenders, 7), []);
    spend_often(&spenders, 7, "/a", 10);
    assert_eq!(shown(&spenders, 7), [(" GET /a".to_owned(), 10)]);
}

#[test]
fn long_texts_are_cut_between_characters() {
    let spenders = Spenders::new();
    spend(&spenders, 7, None, "PROPFIND-AND-MORE", &format!("/{}", "é".repeat(40)), 1, at(0));
    let expected = format!(" PROPFIN… /{}…", "é".repeat(22));
    assert_eq!(shown(&spenders, 7), [(expected, 1)]);
}
