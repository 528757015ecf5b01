//! Tests of the screen with canned responses, without a terminal and a server.
//!
//! `screens/` has the expected screens. For an intended change, write the output of the failing test
//! there.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Color;
use serde_json::{Value, json};

use super::draw::{Palette, draw};
use super::poll::Snapshot;
use super::state::{Action, Pane, State};
use super::{number, percent, plain, words};

const URL: &str = "http://127.0.0.1:7070";

fn overview() -> Value {
    let allowed: Vec<u64> = (0..300).map(|at| 40 + (at * 7) % 31).collect();
    let refused: Vec<u64> = (0..300).map(|at| if at > 200 { (at * 3) % 17 } else { 0 }).collect();
    json!({
        "now": "2026-11-15T12:05:00Z", "started_at": "2026-11-15T10:00:00Z", "version": "0.1.0", "role": "admin",
        "observing": true, "mode": "enforce",
        "policy": {"version": 3, "loaded_at": "2026-11-15T10:00:00Z", "reload_error": null, "limits": 5, "switched": 1},
        "store": {"kind": "memory", "address": null, "state": "ok", "breaker": "closed", "since": null, "error": null,
            "failures": 0, "degraded_decisions": 0, "nodes": 1, "ledger_keys": 0, "keys": 12_345, "evictions": 0, "outages": []},
        "totals": {"allowed": 1_234_567, "unlimited": 0, "limited": 8_901, "blocked": 3, "uncountable": 0, "shadow_limited": 0, "degraded": 0},
        "series": {"step_s": 1, "until": 1_794_744_300, "allowed": allowed, "refused": refused},
        "latency_us": {"p50": 2, "p90": 3, "p99": 9}, "alerts": [],
    })
}

fn limit(name: &str, mode: &str, limited: u64, allowed: u64, left: &Value) -> Value {
    json!({"name": name, "mode": mode, "policy_mode": "enforce", "candidate_of": null, "allowed": allowed, "limited": limited,
        "shadow_limited": if mode == "shadow" { 77 } else { 0 }, "blocked": 0, "exhausted": 0, "soft": 0, "degraded": 0,
        "remaining_min": left, "agreement": null, "series": null})
}

fn decision(seq: u64) -> Value {
    let allowed = !seq.is_multiple_of(3);
    json!({"seq": seq, "id": format!("{:016x}", 0x00c0_ffee_0000_0000_u64 + seq), "at": format!("2026-11-15T12:04:{:02}.5Z", seq % 60),
        "allowed": allowed, "fate": if allowed { "admitted" } else { "refused" }, "method": "GET", "path": "/api/v1/search",
        "client": format!("203.0.113.{seq}"), "limit": if allowed { Value::Null } else { json!("search") }, "key": "k",
        "retry_after_ms": null, "degraded": false, "took_us": 2})
}

fn look(overview: Value, limits: &Value, decisions: impl Iterator<Item = u64>) -> Snapshot {
    let keys = json!([{"limit": "search", "key": "203.0.113.9", "refused": 812, "refused_at_least": 800, "share": 0.91},
        {"limit": "login", "key": "ann@example.org", "refused": 40, "refused_at_least": 40, "share": 0.045}]);
    let routes = json!([{"method": "GET", "path": "/api/v1/search", "requests": 12_000, "refused": 812},
        {"method": "POST", "path": "/api/v1/login", "requests": 300, "refused": 40}]);
    let decisions: Vec<_> = decisions.map(decision).collect();
    read(
        overview,
        json!({"window_s": 300, "limits": limits}),
        json!({"keys": keys, "routes": routes}),
        json!({"next": 9, "decisions": decisions}),
    )
}

fn read(overview: Value, stats: Value, top: Value, decisions: Value) -> Snapshot {
    Snapshot {
        overview: serde_json::from_value(overview).unwrap(),
        fleet: None,
        stats: serde_json::from_value(stats).unwrap(),
        top: serde_json::from_value(top).unwrap(),
        decisions: serde_json::from_value(decisions).unwrap(),
    }
}

fn usual() -> Snapshot {
    let limits = json!([
        limit("api", "enforce", 0, 12_500, &json!(0.62)),
        limit("search", "enforce", 812, 11_188, &json!(0.0)),
        limit("login", "enforce", 40, 260, &json!(0.05)),
        limit("exports", "shadow", 0, 80, &json!(0.4)),
        limit("search.candidate", "off", 0, 0, &Value::Null),
    ]);
    look(overview(), &limits, 1..=9)
}

fn state() -> State {
    State::new(URL.to_owned(), usual())
}

/// Returns the screen as text, without trailing spaces.
fn screen(state: &State, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, state, Palette { colors: true })).unwrap();
    let buffer = terminal.backend().buffer();
    let row = |y| -> String { (0..width).map(|x| buffer[(x, y)].symbol()).collect() };
    (0..height).map(|y| row(y).trim_end().to_owned() + "\n").collect()
}

fn press(state: &mut State, keys: &[KeyCode]) -> Action {
    let mut wish = Action::Nothing;
    for key in keys {
        wish = state.key(KeyEvent::new(*key, KeyModifiers::NONE));
    }
    wish
}

#[track_caller]
fn same(shown: &str, expected: &str) {
    assert!(shown == expected, "the screen differs:\n{shown}");
}

#[test]
fn all_panes_are_visible_in_80x24() {
    same(&screen(&state(), 80, 24), include_str!("screens/80x24.txt"));
}

#[test]
fn a_small_window_shows_the_focused_pane() {
    let mut state = state();
    press(&mut state, &[KeyCode::Tab, KeyCode::Tab, KeyCode::Tab]);
    same(&screen(&state, 50, 12), include_str!("screens/50x12.txt"));
}

#[test]
fn a_snapshot_is_plain_text() {
    same(&plain::snapshot(URL.to_owned(), usual()), include_str!("screens/once.txt"));
}

#[test]
fn the_sums_over_all_nodes_are_shown_and_their_texts_sanitized() {
    let counts = json!({"allowed": 12_345, "refused": 67, "shadow_limited": 0, "degraded": 8});
    let node = json!({"id": "0000000000000002", "name": "web-2\u{1b}[2J:1", "version": "0.1.0", "age_ms": 1_200,
        "window": counts, "leases": {"units": 512}, "store_degraded": true});
    let fleet = json!({"nodes": [{"name": "web-1:1", "this": true}, node], "silent": 1, "error": null,
        "totals": {"nodes": 2, "oldest_ms": 1_200, "window": counts, "leased_units": 512}});
    let snapshot = || Snapshot { fleet: serde_json::from_value(fleet.clone()).unwrap(), ..usual() };
    let said = "all 2 nodes, last 5 minutes: 12,345 allowed, 67 refused, 8 without the store, 512 units leased; \
                reports up to 1.2 s old; 1 more without a report";
    let shown = screen(&State::new(URL.to_owned(), snapshot()), 200, 30);
    assert!(shown.lines().nth(2).is_some_and(|line| line == said), "{shown}");
    let text = plain::snapshot(URL.to_owned(), snapshot());
    assert!(text.contains(said) && !text.contains('\u{1b}'), "{text}");
    let row = text.lines().find(|line| line.contains("web-2")).expect("a line for each node");
    for part in ["1.2 s ago", "12,345 allowed", "67 refused", "store degraded", "512 units leased"] {
        assert!(row.contains(part), "{row}");
    }
}

#[test]
fn every_size_can_be_drawn() {
    let mut state = state();
    for popup in [false, true] {
        if popup {
            press(&mut state, &[KeyCode::Char('?')]);
        }
        for (width, height) in [1, 2, 29, 39, 40, 41, 59, 60, 69, 70, 80, 200]
            .into_iter()
            .flat_map(|width| [1, 2, 3, 9, 10, 11, 21, 22, 24, 60].map(|height| (width, height)))
        {
            let shown = screen(&state, width, height);
            assert_eq!(shown.lines().count(), usize::from(height), "{width}x{height}");
        }
    }
}

#[test]
fn text_from_callers_is_sanitized() {
    let nasty = "\u{1b}[2J\u{1b}]0;owned\u{7}\r\n\t\u{9b}31m\u{202e}\u{200b}x";
    let long = "\u{301}".repeat(5_000);
    let mut overview = overview();
    overview["version"] = json!(nasty);
    overview["store"]["state"] = json!("degraded");
    overview["store"]["error"] = json!(nasty);
    overview["alerts"] =
        json!([{"limit": nasty, "key": nasty, "since": nasty, "for_s": u64::MAX, "refused": 1}]);
    let limits = json!({"window_s": 300, "limits": [limit(nasty, nasty, u64::MAX, u64::MAX, &json!(-7.5))]});
    let top = json!({"keys": [{"limit": nasty, "key": long, "refused": u64::MAX, "share": 1e300}],
        "routes": [{"method": nasty, "path": nasty, "requests": u64::MAX, "refused": 1}]});
    let mut one = decision(1);
    for field in ["id", "at", "fate", "method", "path", "client", "limit"] {
        one[field] = json!(nasty);
    }
    let look = || {
        read(overview.clone(), limits.clone(), top.clone(), json!({"next": 2, "decisions": [one.clone()]}))
    };
    let mut state = State::new(URL.to_owned(), look());
    state.trouble = Some("trouble".to_owned());
    let mut shown = plain::snapshot(URL.to_owned(), look());
    for tabs in 0..4 {
        shown += &screen(&state, 200, 60);
        shown += &screen(&state, 44, 12);
        press(&mut state, &[KeyCode::Tab]);
        assert!(tabs < 4);
    }
    shown += &words::limit(&look().stats.limits[0]).join("\n");
    let odd: Vec<_> = shown
        .chars()
        .filter(|it| it.is_control() && *it != '\n' || matches!(it, '\u{202e}' | '\u{200b}'))
        .collect();
    assert!(odd.is_empty(), "{odd:?}");
    assert!(shown.len() < 200_000, "{}", shown.len());
}

#[test]
fn no_colors_are_used_if_disabled() {
    let mut state = state();
    state.trouble = Some("nothing listens there".to_owned());
    let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
    terminal.draw(|frame| draw(frame, &state, Palette { colors: false })).unwrap();
    let cells = &terminal.backend().buffer().content;
    assert!(cells.iter().all(|cell| cell.fg == Color::Reset && cell.bg == Color::Reset));
}

#[test]
fn limits_are_sorted_by_the_selected_order() {
    let mut state = state();
    let mut seen = Vec::new();
    for _ in 0..4 {
        seen.push(state.limits()[0].name.0.clone());
        press(&mut state, &[KeyCode::Char('s')]);
    }
    assert_eq!(seen, ["search", "api", "search", "api"]);
    assert_eq!(state.limits()[2].name.0, "exports");
}

#[test]
fn a_filter_applies_to_every_pane_until_it_is_cleared() {
    let mut state = state();
    let letters: Vec<_> = "/LOGn".chars().map(KeyCode::Char).collect();
    press(&mut state, &letters);
    press(&mut state, &[KeyCode::Backspace, KeyCode::Char('i'), KeyCode::Enter]);
    let counts = |state: &State| {
        [state.limits().len(), state.keys().len(), state.routes().len(), state.stream().len()]
    };
    assert_eq!(counts(&state), [1, 1, 1, 0]);
    assert!(screen(&state, 80, 24).contains("filter: LOGi (esc)"));
    // `q` is a letter while a filter is typed.
    assert_eq!(press(&mut state, &[KeyCode::Char('/'), KeyCode::Char('q'), KeyCode::Esc]), Action::Nothing);
    assert_eq!(counts(&state), [5, 2, 2, 9]);
}

#[test]
fn enter_requests_the_selected_row() {
    let mut state = state();
    assert_eq!(press(&mut state, &[KeyCode::Enter]), Action::Show("search".to_owned()));
    assert_eq!(press(&mut state, &[KeyCode::Esc, KeyCode::BackTab, KeyCode::Down]), Action::Nothing);
    assert_eq!(state.focus, Pane::Decisions);
    assert_eq!(press(&mut state, &[KeyCode::Enter]), Action::Explain("00c0ffee00000008".to_owned()));
    state.answer("decision".to_owned(), vec!["Refused by `search`".to_owned()]);
    assert!(screen(&state, 80, 24).contains("Refused by `search`"));
    // Closed before the response arrived: it does not open again.
    press(&mut state, &[KeyCode::Char('q')]);
    state.answer("decision".to_owned(), vec!["too late".to_owned()]);
    assert!(!screen(&state, 80, 24).contains("too late"));
    assert_eq!(press(&mut state, &[KeyCode::Char('q')]), Action::Quit);
}

#[test]
fn the_selected_row_stays_while_new_rows_arrive() {
    let mut state = state();
    press(&mut state, &[KeyCode::BackTab, KeyCode::Down, KeyCode::Down]);
    let looked_at = |state: &State| state.stream()[state.selected(Pane::Decisions)].seq;
    assert_eq!(looked_at(&state), 7);
    let next = || look(overview(), &json!([]), 5..=20);
    state.see(next());
    assert_eq!((looked_at(&state), state.stream().len()), (7, 20));
    // A decision that was already seen is not listed twice.
    state.see(next());
    assert_eq!(state.stream().len(), 20);
}

#[test]
fn a_pause_freezes_the_screen() {
    let mut state = state();
    press(&mut state, &[KeyCode::Char('p')]);
    state.see(look(overview(), &json!([]), 10..=20));
    assert_eq!((state.limits().len(), state.stream().len()), (5, 9));
    assert!(screen(&state, 80, 24).contains("PAUSED"));
    press(&mut state, &[KeyCode::Char('p')]);
    state.see(look(overview(), &json!([]), 10..=20));
    assert_eq!((state.limits().len(), state.stream().len()), (0, 20));
}

#[test]
fn a_server_restart_resets_the_decisions() {
    let mut state = state();
    state.trouble = Some("cannot reach a Tollgate: nothing listens there".to_owned());
    let shown = screen(&state, 80, 24);
    assert!(shown.contains("RECONNECTING") && shown.contains("nothing listens there"), "{shown}");
    assert!(shown.contains("login"), "the last data stays: {shown}");
    let mut anew = overview();
    anew["started_at"] = json!("2026-11-15T12:10:00Z");
    state.see(look(anew, &json!([]), 1..=2));
    assert_eq!(state.stream().len(), 2);
    assert!(screen(&state, 80, 24).contains("enforcing"));
}

#[test]
fn ten_thousand_limits_can_be_scrolled() {
    let limits: Vec<_> =
        (0..10_000).map(|at| limit(&format!("limit-{at:05}"), "enforce", at, 1, &Value::Null)).collect();
    let mut state = State::new(URL.to_owned(), look(overview(), &json!(limits), 0..0));
    press(&mut state, &[KeyCode::End]);
    let shown = screen(&state, 80, 24);
    assert!(shown.contains("limit-00000") && shown.contains("10000/10,000"), "{shown}");
    press(&mut state, &[KeyCode::Home]);
    assert!(screen(&state, 80, 24).contains("limit-09999"));
}

#[test]
fn severe_notices_are_in_the_header() {
    for (path, value, expected) in [
        ("/store/state", json!("degraded"), "DEGRADED"),
        ("/mode", json!("shadow"), "SHADOW, yet 793 refused in 5 min: deny list, or before"),
        ("/mode", json!("off"), "OFF, yet 793 refused in 5 min: deny list, or before"),
        ("/observing", json!(false), "`observe: off`"),
        ("/policy/reload_error", json!("line 3: no such word"), "line 3: no such word"),
        ("/policy/reload_error", json!("line 3: odd\nline 5: odd\n"), "mistake: line 3: odd (and 1 more)"),
        (
            "/alerts",
            json!([{"limit": "search", "key": "sk-l…", "tag": "9c1f0b7d52e86a34", "for_s": 1_272_924}]),
            "nothing left for 14 d 18 h: sk-l… #9c1f0b7d of search",
        ),
        (
            "/alerts",
            json!([{"limit": "search", "key": "acme", "for_s": 420}, {"limit": "x", "key": "y", "for_s": 1}]),
            "nothing left for 7 min: acme of search, and 1 more",
        ),
    ] {
        let mut overview = overview();
        *overview.pointer_mut(path).unwrap() = value;
        let state = State::new(URL.to_owned(), look(overview, &json!([]), 0..0));
        let shown = screen(&state, 80, 24);
        assert!(shown.contains(expected), "{path}: {shown}");
    }
}

#[test]
fn a_snapshot_uses_one_tag_per_customer_and_one_window() {
    let mut overview = overview();
    overview["window"] = json!({"from": 1, "until": 2, "allowed": 12, "refused": 34});
    overview["policy"]["reload_error"] = json!("p.yaml:3:1: odd\np.yaml:5:1: odd");
    let key = |limit: &str| json!({"limit": limit, "key": "sk-l…", "tag": "9c1f0b7d52e86a34", "refused": 1, "share": 0.5});
    let top = json!({"keys": [key("short"), key("long")], "routes": []});
    let mut refused = decision(3);
    (refused["key"], refused["tag"]) = (json!("sk-l…"), json!("9c1f0b7d52e86a34"));
    let decisions = json!({"next": 9, "decisions": [refused]});
    let shown = plain::snapshot(
        URL.to_owned(),
        read(overview, json!({"window_s": 300, "limits": []}), top, decisions),
    );
    assert!(shown.contains("last 5 minutes: 12 allowed, 34 refused"), "{shown}");
    assert_eq!(shown.matches("sk-l… #9c1f0b7d").count(), 2, "{shown}");
    assert!(shown.contains("search #9c1f0b7d"), "{shown}");
    assert_eq!(shown.matches("the policy file has a mistake: p.yaml:").count(), 2, "{shown}");
    assert!(!shown.contains("u{a}"), "{shown}");
}

#[test]
fn limits_that_do_not_refuse_are_not_shown_as_refusing() {
    let said = |mode: &str, refused: Value| {
        let mut overview = overview();
        (overview["mode"], overview["series"]["refused"]) = (json!(mode), refused);
        words::condition(&serde_json::from_value(overview).unwrap())
    };
    assert_eq!(said("off", json!([0, 0])), "OFF: no limit counts or refuses");
    assert_eq!(said("shadow", json!([])), "SHADOW: no limit refuses");
    assert_eq!(said("off", json!([0, 3, 1])), "OFF, yet 4 refused in 5 min: deny list, or before");
}

#[test]
fn totals_include_every_decision() {
    let mut overview = overview();
    overview["totals"] =
        json!({"allowed": 1, "unlimited": 20, "limited": 300, "blocked": 4_000, "uncountable": 50_000});
    let said = words::totals(&serde_json::from_value(overview).unwrap());
    assert_eq!(said, "since start 21 allowed, 54,300 refused");
}

#[test]
fn a_limit_is_shown_with_its_series_and_the_agreement_of_its_candidate() {
    let mut candidate = limit("search.candidate", "shadow", 3, 7, &json!(0.25));
    candidate["candidate_of"] = json!("search");
    candidate["agreement"] =
        json!({"both_allow": 1, "only_candidate_allows": 2, "only_live_allows": 3, "both_refuse": 4});
    candidate["series"] = json!({"allowed": [0, 1, 8], "limited": [0, 0, 0], "remaining": [null, 1.0, 0.0]});
    candidate["agreement"]["since"] = json!("2026-03-01T12:00:00Z");
    let lines = words::limit(&serde_json::from_value(candidate).unwrap()).join("\n");
    for expected in [
        "shadow; the policy says enforce",
        "candidate of  search",
        "allowed   ▁█",
        "left     ·█ ",
        "only it refuses   3",
        "it and the live limit, since 2026-03-01T12:00:00Z",
    ] {
        assert!(lines.contains(expected), "{expected}: {lines}");
    }
}

#[test]
fn unknown_numbers_are_not_shown_as_zero() {
    let mut uncounted = limit("n2001", "enforce", 0, 0, &Value::Null);
    uncounted["counted"] = json!(false);
    for unknown in ["allowed", "limited", "shadow_limited", "blocked", "exhausted", "soft", "degraded"] {
        uncounted[unknown] = Value::Null;
    }
    let lines = words::limit(&serde_json::from_value(uncounted.clone()).unwrap()).join("\n");
    assert!(lines.contains("not counted") && !lines.contains("allowed"), "{lines}");
    let once = || look(overview(), &json!([uncounted]), 0..0);
    let said = plain::snapshot(URL.to_owned(), once());
    assert!(said.contains("not counted") && !said.contains("0 allowed"), "{said}");
    let shown = screen(&State::new(URL.to_owned(), once()), 80, 24);
    assert!(shown.lines().any(|line| line.contains("n2001") && line.contains('-')), "{shown}");
}

#[test]
fn a_route_is_shown_with_its_lower_bound() {
    let route = |requests: u64, least: Value| -> String {
        let route = json!({"method": "GET", "path": "/", "requests": requests, "requests_at_least": least});
        super::data::requests(&serde_json::from_value(route).unwrap())
    };
    assert_eq!(route(252, json!(1)), "~1");
    assert_eq!(route(1_200, json!(1_200)), "1,200");
    assert_eq!(route(7, Value::Null), "7");
}

#[test]
fn numbers_are_formatted_for_reading() {
    assert_eq!([0, 999, 1_000, 1_234_567].map(number), ["0", "999", "1,000", "1,234,567"]);
    assert_eq!([0.0, 0.999, 1.0, 7.0, f64::NAN].map(percent), ["0 %", "99 %", "100 %", "100 %", "NaN %"]);
}
