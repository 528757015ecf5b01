//! Compares two policies: the requests that they decide differently, by client, endpoint and limit.
//!
//! Not here: the results of each policy (`run`).

use tollgate::policy::Mode;
use tollgate::{Policy, Request as _};
use tollgate_telemetry::{Sketch, SketchEntry};

use super::endpoint;
use super::report::{ChangedRequests, Comparison, Example, PolicyReport};
use super::run::{Run, Verdict};
use crate::Entry;
use crate::sample::key_hash;

/// The most clients and endpoints that the top lists track.
const MAX_RANKED: usize = 1_024;
/// The most examples of each kind.
const MAX_EXAMPLES: usize = 5;
/// The most characters of a path in an example.
const MAX_PATH_CHARS: usize = 120;
/// Name of the deny list in reports.
const DENY_LIST: &str = "deny list";
const AMBIGUOUS_PATH: &str = "ambiguous path";

/// Differences between the first policy and another.
#[derive(Debug, Default)]
pub(super) struct Fates {
    newly_refused: u64,
    newly_admitted: u64,
    clients: Ranking,
    endpoints: Ranking,
    limits: Ranking,
    examples: Vec<(bool, Example)>,
}

/// Counts of changed requests by name.
#[derive(Debug, Default)]
struct Ranking(Option<Sketch<String>>);

impl Ranking {
    fn note(&mut self, name: String, newly_refused: bool) {
        let key_hash = key_hash(name.as_bytes());
        self.0.get_or_insert_with(|| Sketch::new(MAX_RANKED)).add(key_hash, 1, newly_refused, || name);
    }

    fn top(&self, most: usize) -> Vec<ChangedRequests> {
        let mut entries: Vec<_> = self.0.iter().flat_map(Sketch::entries).collect();
        let sure = |entry: &SketchEntry<String>| entry.count - entry.error;
        entries.sort_by(|a, b| sure(b).cmp(&sure(a)).then_with(|| a.payload.cmp(&b.payload)));
        let moved = entries.into_iter().take(most).map(|entry| ChangedRequests {
            name: entry.payload.clone(),
            newly_refused: entry.marked,
            newly_admitted: sure(entry).saturating_sub(entry.marked),
            estimated: entry.error > 0,
        });
        moved.collect()
    }
}

impl Fates {
    /// Records a request that both policies decided differently.
    pub(super) fn note(&mut self, entry: &Entry, before: (&Run, Verdict), after: (&Run, Verdict)) {
        let newly_refused = match (before.1.is_admitted(), after.1.is_admitted()) {
            (true, false) => true,
            (false, true) => false,
            _ => return,
        };
        *(if newly_refused { &mut self.newly_refused } else { &mut self.newly_admitted }) += 1;
        let (run, verdict) = if newly_refused { after } else { before };
        self.limits.note(limiting(run.policy(), verdict).to_owned(), newly_refused);
        // If one of the policies hides keys, they stay hidden in the comparison.
        let strict = [before.0, after.0].into_iter().find(|run| hides(run.policy())).unwrap_or(after.0);
        let client = strict.shown.client(entry, strict.policy());
        let path = strict.shown.path(entry);
        let endpoint = endpoint::folded(entry.method(), &path);
        let shown_path = if hides(strict.policy()) {
            endpoint.split_once(' ').map_or("", |(_, path)| path).to_owned()
        } else {
            path.chars().take(MAX_PATH_CHARS).collect()
        };
        if self.examples.iter().filter(|(kind, _)| *kind == newly_refused).count() < MAX_EXAMPLES {
            let example = Example {
                at: super::moment(entry.at()),
                client: client.clone(),
                method: entry.method().chars().take(16).collect(),
                path: shown_path,
                before: fate(before.0.policy(), before.1),
                after: fate(after.0.policy(), after.1),
            };
            self.examples.push((newly_refused, example));
        }
        if !client.is_empty() {
            self.clients.note(client, newly_refused);
        }
        self.endpoints.note(endpoint, newly_refused);
    }

    /// Returns the report.
    pub(super) fn finish(self, policy: PolicyReport, top: usize) -> Comparison {
        Comparison {
            policy,
            newly_refused: self.newly_refused,
            newly_admitted: self.newly_admitted,
            clients_moved: self.clients.top(top),
            endpoints_moved: self.endpoints.top(top),
            limits_moved: self.limits.top(top),
            examples: self.examples.into_iter().map(|(_, example)| example).collect(),
        }
    }
}

fn hides(policy: &Policy) -> bool {
    policy.privacy() != tollgate::policy::KeyPrivacy::Plain
}

fn limiting(policy: &Policy, verdict: Verdict) -> &str {
    match verdict {
        Verdict::Refused(place) => policy.limits().get(place).map_or("", |limit| {
            debug_assert!(limit.mode() == Mode::Enforce, "limits in other modes do not refuse");
            limit.name()
        }),
        Verdict::Denied | Verdict::Admitted => DENY_LIST,
        Verdict::AmbiguousPath => AMBIGUOUS_PATH,
    }
}

fn fate(policy: &Policy, verdict: Verdict) -> String {
    match verdict {
        Verdict::Admitted => "admitted".to_owned(),
        Verdict::Refused(_) => format!("refused by {}", limiting(policy, verdict)),
        Verdict::Denied => "refused by the deny list".to_owned(),
        Verdict::AmbiguousPath => "refused for an ambiguous path".to_owned(),
    }
}
