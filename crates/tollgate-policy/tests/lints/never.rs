//! A limit that is reported never to fire never fires: random limits in virtual time.
//!
//! A model of the store (all are charged or none) decides requests with the
//! arithmetic of the core, independently of the code of the lints.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use tollgate_core::{Amount, RuleId, State, Timestamp};
use tollgate_policy::{Call, Checks, Key, Matched, Policy};

/// Printed on failure.
const SEED: u64 = 0x7472_6170_7301;
const POLICIES: u64 = 3_000;
const REQUESTS: usize = 300;
const MILLION: u64 = 1_000_000;

struct Rng(u64);

impl Rng {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[usize::try_from(self.roll(from.len() as u64)).unwrap()]
    }
}

/// Returns a policy with one limit per line, and the number of windows of each.
fn policy(rng: &mut Rng) -> (String, Vec<Vec<usize>>) {
    let mut text = String::from("limits:\n");
    let mut windows = Vec::new();
    // Half of the files are plain, so that limits are often redundant.
    let is_plain = rng.roll(2) == 0;
    for at in 0..=rng.roll(3) {
        let endpoint = rng.pick(&["/**", "/**", "/a", "/b", "[/a, /b]", "/a/**"]);
        let by = rng.pick(&["ip", "ip", "user", "global", "[ip, user]"]);
        let mut option = |words: &[&'static str]| if is_plain { "" } else { rng.pick(words) };
        let method = option(&["", "", "", ", method: GET"]);
        let missing = option(&["", "", ", missing: shared", ", missing: skip"]);
        let mode = option(&["", "", "", "", ", mode: shadow"]);
        let denied = option(&["", "", "", "", ", count_denied: true"]);
        let cost = option(&["", "", "", ", cost: 2"]);
        let plans = option(&["", "", "", "1", "unlimited"]);
        let algorithm = rng.pick(&[
            "token-bucket",
            "token-bucket",
            "gcra",
            "leaky-queue",
            "fixed-window",
            "sliding-window",
            "sliding-log",
        ]);
        let align = if algorithm == "fixed-window" { rng.pick(&["", ", align: first-request"]) } else { "" };
        let queue = match algorithm {
            "leaky-queue" => rng.pick(&[
                ", queue: {length: 1}",
                ", queue: {length: 5, free: 5}",
                ", queue: {length: 20, wait: 1500ms, free: 1}",
            ]),
            _ => "",
        };
        let mut line = format!(
            "  - {{name: l{at}, endpoint: {endpoint}, by: {by}{method}{missing}{mode}{denied}{cost}, algorithm: {algorithm}{align}{queue}"
        );
        let has_burst = matches!(algorithm, "token-bucket" | "gcra");
        let rate = |rng: &mut Rng, seconds: u64| {
            // A cost of two must fit.
            let count = 2 + rng.roll(7 * seconds);
            let burst = if has_burst && rng.roll(3) > 0 {
                format!(", burst {}", 2 + rng.roll(8))
            } else {
                String::new()
            };
            let burst = if algorithm == "gcra" && burst.is_empty() { ", burst 2".to_owned() } else { burst };
            format!("'{count}/{seconds}s{burst}'")
        };
        let lengths: Vec<u64> = match rng.roll(if is_plain { 6 } else { 3 }) {
            0 => vec![1 + rng.roll(4), 5 + rng.roll(8)],
            1 => vec![5 + rng.roll(3), 1 + rng.roll(3), 10],
            _ => vec![1 + rng.roll(5)],
        };
        line.push_str(", windows: [");
        let mut columns = Vec::new();
        for (nth, seconds) in lengths.iter().enumerate() {
            line.push_str(if nth > 0 { ", " } else { "" });
            columns.push(line.len() + 1);
            line.push_str(&rate(rng, *seconds));
        }
        line.push(']');
        match plans {
            "" => {}
            "unlimited" => line.push_str(", plans: {pro: unlimited}"),
            _ => {
                let rates: Vec<_> = lengths.iter().map(|it| rate(rng, *it)).collect();
                write!(line, ", plans: {{pro: [{}]}}", rates.join(", ")).unwrap();
            }
        }
        writeln!(text, "{line}}}").unwrap();
        windows.push(columns);
    }
    (text, windows)
}

/// Returns the windows that are reported never to fire, by limit and index.
fn said_idle(policy: &Policy, windows: &[Vec<usize>]) -> HashSet<(usize, usize)> {
    let mut idle = HashSet::new();
    for warning in policy.warnings().iter() {
        let Some("never-fires") = warning.code else { continue };
        let limit = usize::try_from(warning.place.line).unwrap() - 2;
        if warning.message.contains("window") {
            let column = usize::try_from(warning.place.column).unwrap();
            let window = windows[limit].iter().position(|it| *it == column);
            idle.insert((limit, window.unwrap_or_else(|| panic!("{warning:?} in {windows:?}"))));
        } else {
            idle.extend((0..windows[limit].len()).map(|window| (limit, window)));
        }
    }
    idle
}

/// Sends requests, and returns the windows that were the only ones to refuse a request.
fn refusers(policy: &Policy, idle: &HashSet<(usize, usize)>, rng: &mut Rng) -> Option<String> {
    let mut states: HashMap<(RuleId, Key), State> = HashMap::new();
    let mut now = 1_700_000_000 * MILLION + rng.roll(20 * MILLION);
    let greedy = rng.roll(2) == 0;
    for nth in 0..REQUESTS {
        if !greedy || rng.roll(4) == 0 {
            now += match rng.roll(8) {
                0 => 0,
                1 => 1,
                2 => MILLION,
                3 => MILLION - 1,
                // Up to a border, or one microsecond before it.
                4 => MILLION - now % MILLION - rng.roll(2),
                5 => 10 * MILLION - now % (10 * MILLION) - rng.roll(2),
                6 => rng.roll(300_000),
                _ => rng.roll(4 * MILLION),
            };
        }
        let time = Timestamp::from_micros(now);
        let client = u8::try_from(rng.roll(2)).unwrap();
        let path = rng.pick(&["/a", "/a", "/b", "/a/c", "/z"]);
        let mut call = Call::new(rng.pick(&["GET", "POST", "HEAD"]), path).ip([192, 0, 2, client]);
        if rng.roll(3) > 0 {
            call = call.user(rng.pick(&["ann", "bob"]));
        }
        if rng.roll(3) == 0 {
            call = call.plan("pro");
        }
        let mut checks = Checks::new();
        if policy.match_request(&call, &mut checks) != Matched::Applies {
            continue;
        }
        let mut after = Vec::new();
        let mut refused = Vec::new();
        for check in checks.iter() {
            let id = (check.rule.id, check.key.clone());
            let mut state = states.get(&id).cloned().unwrap_or_else(|| check.rule.quota.fresh());
            let admitted = check.rule.quota.step(&mut state, Amount::Exactly(check.cost), time).is_admitted();
            let window = position(check);
            if !admitted && check.limit.mode() == tollgate_policy::Mode::Enforce {
                refused.push((check.limit.place(), window));
            }
            after.push((id, state, admitted, check));
        }
        if !refused.is_empty() && refused.iter().all(|it| idle.contains(it)) {
            return Some(format!("request {nth} at {now} is refused by {refused:?} alone"));
        }
        for (id, state, admitted, check) in after {
            // Refused requests are charged if the limit says so, up to its capacity.
            if refused.is_empty() || (check.limit.count_denied() && admitted) {
                states.insert(id, state);
            }
        }
    }
    None
}

/// Returns the index of the check's window in its limit: plans have the same number of windows.
fn position(check: &tollgate_policy::Check<'_>) -> usize {
    check.limit.rules().iter().position(|rule| rule.name == check.rule.name).unwrap()
}

#[test]
fn a_limit_reported_never_to_fire_never_fires() {
    let mut rng = Rng(SEED);
    let (mut said, mut whole) = (0, 0);
    for nth in 0..POLICIES {
        let (text, windows) = policy(&mut rng);
        let policy = Policy::parse(&text).unwrap_or_else(|wrong| panic!("{text}\n{wrong}"));
        let idle = said_idle(&policy, &windows);
        if idle.is_empty() {
            continue;
        }
        said += idle.len();
        let several = policy.limits().len() > 1;
        whole += usize::from(
            several && policy.warnings().iter().any(|it| it.message.starts_with("this limit never")),
        );
        if let Some(wrong) = refusers(&policy, &idle, &mut rng) {
            panic!("seed {SEED:#x}, policy {nth}\n{text}\n{}\n{wrong}", policy.warnings());
        }
    }
    assert!(said > 500 && whole > 100, "{said} windows and {whole} limits were said to be idle");
}

#[test]
fn the_model_notices_limits_that_fire() {
    let mut rng = Rng(SEED);
    let mut fired = 0;
    for _ in 0..100 {
        let (text, windows) = policy(&mut rng);
        let policy = Policy::parse(&text).unwrap_or_else(|wrong| panic!("{text}\n{wrong}"));
        let all = windows
            .iter()
            .enumerate()
            .flat_map(|(limit, it)| (0..it.len()).map(move |window| (limit, window)));
        fired += usize::from(refusers(&policy, &all.collect(), &mut rng).is_some());
    }
    assert!(fired > 50, "{fired} of 100 policies refused a request");
}
