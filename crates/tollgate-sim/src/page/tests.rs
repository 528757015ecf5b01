//! Properties of every page, without a browser. `tests/page/report.mjs` of `tollgate-cli` checks pages in a browser.

use crate::distance::Disagreement;
use crate::replay::*;

fn heat(seed: u64) -> Heat {
    let requests: Vec<_> = (0..96_u64).map(|it| 40 + (it * it * 7 + seed) % 60 + it % 24 * 9).collect();
    let refused = requests
        .iter()
        .enumerate()
        .map(|(it, count)| if it % 24 > 17 { count / (2 + seed % 5) } else { 0 })
        .collect();
    Heat { from: 1_700_000_000, step: 900, requests, refused }
}

fn key(key: &str, requests: u64, refused: u64) -> TopKey {
    TopKey { key: key.to_owned(), requests, refused, ..TopKey::default() }
}

fn limit(name: &str, refused: u64) -> LimitReport {
    let point = |it: u32| {
        let factor = 2_f64.powi(it.cast_signed() - 3);
        let refused = refused * 8 / (1 << it);
        CurvePoint {
            amount: format!("{}/minute", 5 << it),
            value: 5 << it,
            factor,
            refused,
            keys_refused: refused / 9,
        }
    };
    let differ = Disagreement { requests: 10_000, refused_by_log: 60, too_lax: 60, too_strict: 58 };
    LimitReport {
        name: name.to_owned(),
        algorithm: "sliding-window".to_owned(),
        amount: "40/minute".to_owned(),
        by: "ip".to_owned(),
        mode: "enforce".to_owned(),
        checked: 10_000,
        refused,
        decided: refused / 2,
        without_key: 3,
        keys: Keys { seen: 1753, refused: 12, estimated: false },
        top: vec![key("192.0.2.7", 900, 300), key("2001:db8::/64", 400, 44), key("198.51.100.200", 90, 1)],
        heat: heat(refused),
        curve: Some(Curve {
            requests: 10_000,
            keys: 1753,
            estimated: false,
            rates: (0..7).map(point).collect(),
            bursts: (1..6).map(point).collect(),
        }),
        exactness: Some(Exactness { closed: differ, open: Some(differ), sampled: false }),
        suggestion: Some(Suggestion {
            target: "at most 1 % of requests".to_owned(),
            proposals: vec![Proposal {
                amount: "60/minute".to_owned(),
                varies: "rate".to_owned(),
                refused: 93,
                keys_refused: 4,
            }],
            estimated: false,
        }),
        ..LimitReport::default()
    }
}

fn report() -> Report {
    let policy = |name: &str, refused| PolicyReport {
        policy: name.to_owned(),
        requests: 10_000,
        refused,
        clients: Keys { seen: 1753, refused: 12, estimated: false },
        top_clients: vec![key("192.0.2.7", 900, 300), key("2001:db8::/64", 400, 44)],
        limits: vec![
            limit("login", refused),
            LimitReport { mode: "shadow".to_owned(), ..limit("search", 40) },
        ],
        heat: heat(refused),
        ..PolicyReport::default()
    };
    let moved = |name: &str| ChangedRequests {
        name: name.to_owned(),
        newly_refused: 60,
        newly_admitted: 13,
        estimated: false,
    };
    Report {
        policy: policy("policy.yaml", 345),
        skipped_lines: 7,
        from: Some("2023-11-14T22:13:20Z".to_owned()),
        to: Some("2023-11-15T22:13:20Z".to_owned()),
        compared: vec![Comparison {
            policy: policy("stricter.yaml", 392),
            newly_refused: 60,
            newly_admitted: 13,
            clients_moved: vec![moved("192.0.2.7"), moved("192.0.2.9")],
            endpoints_moved: vec![moved("GET /users/{n}"), moved("POST /login")],
            limits_moved: vec![moved("login")],
            examples: vec![Example {
                at: "2023-11-14T22:15:20Z".to_owned(),
                client: "192.0.2.7".to_owned(),
                method: "POST".to_owned(),
                path: "/login".to_owned(),
                before: "admitted".to_owned(),
                after: "refused by login".to_owned(),
            }],
        }],
        notes: vec!["3 requests had no address: `by: ip` counted them together.".to_owned()],
        ..Report::default()
    }
}

/// Returns the JSON paths of the numbers of a page, and the displayed numbers.
fn figures(page: &str) -> Vec<(String, String)> {
    let attribute =
        |tag: &str, name: &str| Some(tag.split(&format!(" {name}=\"")).nth(1)?.split('"').next()?.to_owned());
    let figure = |part: &str| {
        let (tag, rest) = part.split_once('>')?;
        let is_plain = ["data-of", "data-unit", "data-about"].iter().all(|it| !tag.contains(it));
        is_plain.then_some((attribute(tag, "data-path")?, rest.split('<').next()?.replace(',', "")))
    };
    page.split("<data").skip(1).filter_map(figure).collect()
}

fn embedded(page: &str) -> serde_json::Value {
    let (_, json) = page.split_once("<script type=\"application/json\" id=\"report\">").unwrap();
    serde_json::from_str(json.split_once("</script>").unwrap().0).unwrap()
}

#[test]
fn every_displayed_number_equals_the_report() {
    let report = report();
    let page = super::html(&report);
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(embedded(&page), json);
    let figures = figures(&page);
    for (path, shown) in &figures {
        let found = json.pointer(&format!("/{}", path.replace('.', "/")));
        assert_eq!(found.map(ToString::to_string).as_deref(), Some(shown.as_str()), "{path}");
    }
    for path in [
        "refused",
        "skipped_lines",
        "clients.refused",
        "limits.1.top.2.refused",
        "limits.0.curve.bursts.4.keys_refused",
        "limits.0.exactness.open.too_strict",
        "limits.0.suggestion.proposals.0.refused",
        "compared.0.endpoints_moved.1.newly_admitted",
        "compared.0.limits.1.curve.rates.0.refused",
    ] {
        assert!(figures.iter().any(|it| it.0 == path), "{path} is not shown");
    }
}

#[test]
fn text_from_outside_is_escaped_and_truncated() {
    let hostile = format!(
        "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'&\u{202e}\0{}",
        "x".repeat(10_000)
    );
    let mut report = report();
    let moved = ChangedRequests { name: hostile.clone(), ..ChangedRequests::default() };
    report.policy.policy.clone_from(&hostile);
    report.notes.push(hostile.clone());
    report.from = Some(hostile.clone());
    report.policy.top_clients[0].key.clone_from(&hostile);
    for limit in &mut report.policy.limits {
        for text in [&mut limit.name, &mut limit.amount, &mut limit.by, &mut limit.algorithm, &mut limit.mode]
        {
            text.clone_from(&hostile);
        }
        limit.top[0].key.clone_from(&hostile);
        limit.suggestion.as_mut().unwrap().target.clone_from(&hostile);
        limit.curve.as_mut().unwrap().rates[0].amount.clone_from(&hostile);
    }
    let second = &mut report.compared[0];
    second.clients_moved.push(moved.clone());
    second.endpoints_moved.push(moved);
    let example = &mut second.examples[0];
    for text in
        [&mut example.at, &mut example.client, &mut example.method, &mut example.path, &mut example.after]
    {
        text.clone_from(&hostile);
    }
    let page = super::html(&report);
    assert_eq!(embedded(&page)["policy"], hostile.as_str(), "the JSON is whole");
    let (head, rest) = page.split_once("<script type=\"application/json\"").unwrap();
    assert!(!rest.split_once("</script>").unwrap().0.contains('<'));
    assert!(
        !head.contains("<script")
            && !head.contains("<img")
            && !head.contains('\u{202e}')
            && !head.contains('\0')
    );
    assert!(!head.contains(&"x".repeat(1001)), "nothing is shown at length");
    let body = head.split_once("<body>").unwrap().1;
    let elements = crate::plot::tests::markup::elements(body).unwrap();
    assert!(elements.iter().all(|it| !["iframe", "object", "style", "link", "meta"].contains(&it.as_str())));
}

#[test]
fn an_empty_report_renders_as_a_page() {
    let page = super::html(&Report::default());
    assert!(page.contains("No request in the log") && page.contains("The policy has no limits"));
    let empty = LimitReport { checked: 1, heat: Heat::default(), ..LimitReport::default() };
    let policy = PolicyReport { requests: 1, limits: vec![empty], ..PolicyReport::default() };
    let page = super::html(&Report { policy, ..Report::default() });
    assert!(page.contains("Nobody would have been refused") && page.contains("Nobody was refused."));
}

#[test]
fn a_thousand_limits_have_panels_only_for_the_most_refusals() {
    let limits: Vec<_> = (0..1000).map(|it| limit(&format!("limit-{it}"), it)).collect();
    let policy = PolicyReport { requests: 10_000, refused: 999, limits, ..PolicyReport::default() };
    let page = super::html(&Report { policy, ..Report::default() });
    assert_eq!(page.matches("class=\"panel limit\"").count(), 60);
    assert!(page.contains("id=\"limit-999\"") && !page.contains("id=\"limit-939\""));
    assert!(page.contains("The 60 that refused most are shown one by one below."));
}

#[test]
fn a_time_above_an_hour_is_shown_in_several_units() {
    for (seconds, words) in
        [(0, "0 s"), (90, "90 s"), (1_800, "30 min"), (5_400, "1 h 30 min"), (86_400, "1 d")]
    {
        let figure = super::sheet::Figure::new("gap_s", seconds);
        assert!(figure.seconds().contains(&format!(">{words}<")), "{seconds}");
    }
}
