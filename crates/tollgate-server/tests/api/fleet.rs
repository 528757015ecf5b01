//! Several nodes on one board: their sums, and explanations of each other's decisions.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tollgate::store::node_board::{BoardFuture, NodeId, NodeRecord, NodeRecords, Question};
use tollgate::store::{Answer, Check, Holding, ManualClock, NodeBoard, Outcomes};
use tollgate::{
    Adjustment, Limiter, MemoryStore, Outcome, Policy, Rule, SharedLimiter, Span, Store, StoreError,
    Timestamp, Verdict,
};
use tollgate_server::{Access, Api, Status};
use tollgate_telemetry::{WatchSettings, Watcher};

use crate::support::Subject;

const POLICY: &str = "
privacy: {keys: truncated}
limits: [{name: api, by: api_key, missing: skip, bucket: 5/minute, lease: 100ms}]
";

/// The board that all nodes share.
#[derive(Default)]
struct Shared {
    records: Vec<NodeRecord>,
    questions: Vec<Question>,
    answers: Vec<(Question, Vec<u8>)>,
    unreadable: u64,
    is_down: bool,
}

#[derive(Clone, Default)]
struct Board(Arc<Mutex<Shared>>);

/// A node at the board. A question is answered before `ask` returns, by the closure.
struct NodeAt {
    board: Board,
    node: NodeId,
    others: Box<dyn Fn() + Send + Sync>,
}

fn now<T: Send + 'static>(result: Result<T, StoreError>) -> BoardFuture<'static, T> {
    Box::pin(std::future::ready(result))
}

impl NodeBoard for NodeAt {
    fn node(&self) -> NodeId {
        self.node
    }

    fn publish<'b>(&'b self, record: &'b [u8]) -> BoardFuture<'b, Vec<Question>> {
        let mut shared = self.board.0.lock();
        shared.records.retain(|it| it.node != self.node);
        let record = NodeRecord { node: self.node, age: Duration::from_millis(700), record: record.into() };
        shared.records.push(record);
        now(Ok(shared.questions.clone()))
    }

    fn read(&self) -> BoardFuture<'_, NodeRecords> {
        let shared = self.board.0.lock();
        if shared.is_down {
            return now(Err(StoreError::Failed("\u{1b}[31mgone".into())));
        }
        now(Ok(NodeRecords { records: shared.records.clone(), unreadable: shared.unreadable }))
    }

    fn withdraw(&self) -> BoardFuture<'_, ()> {
        self.board.0.lock().records.retain(|it| it.node != self.node);
        now(Ok(()))
    }

    fn ask(&self, question: Question) -> BoardFuture<'_, Option<Vec<u8>>> {
        self.board.0.lock().questions.push(question);
        (self.others)();
        let shared = self.board.0.lock();
        now(Ok(shared.answers.iter().find(|it| it.0 == question).map(|it| it.1.clone())))
    }

    fn answer<'b>(&'b self, question: Question, answer: &'b [u8]) -> BoardFuture<'b, ()> {
        self.board.0.lock().answers.push((question, answer.into()));
        now(Ok(()))
    }
}

/// A store that two nodes share, and that admits from leases.
struct LeasingStore {
    inner: MemoryStore<ManualClock>,
    holdings: Vec<Holding>,
}

fn leased(mut outcomes: Outcomes) -> Outcomes {
    for outcome in &mut outcomes {
        if outcome.units() > 0 {
            outcome.verdict = Verdict::admitted_from_lease(outcome.units());
        }
    }
    outcomes
}

impl Store for LeasingStore {
    async fn decide(&self, checks: &[Check<'_>]) -> Result<Answer, StoreError> {
        let answer = self.inner.decide(checks).await?;
        Ok(Answer { outcomes: leased(answer.outcomes), ..answer })
    }

    async fn adjust(&self, rule: &Rule, key: &[u8], adjustment: Adjustment) -> Result<Outcome, StoreError> {
        self.inner.adjust(rule, key, adjustment).await
    }

    fn nodes(&self) -> usize {
        2
    }

    fn holding(&self, rule: &Rule, key: &[u8]) -> Option<Holding> {
        rule.lease?;
        let none = Holding { rule: rule.name.clone(), key: key.into(), units: 0, expires_in: Span::ZERO };
        Some(self.holdings.iter().find(|it| *it.key == *key).cloned().unwrap_or(none))
    }

    fn holdings(&self, max_keys: usize) -> Vec<Holding> {
        self.holdings.iter().take(max_keys).cloned().collect()
    }
}

fn node(board: &Board, node: u64, others: Box<dyn Fn() + Send + Sync>) -> Subject<LeasingStore> {
    let clock = ManualClock::at(Timestamp::from_secs(1_772_366_400));
    let policy = Policy::parse(POLICY).unwrap();
    let key = policy.key(&policy.limits()[0], &["sk-live-4711"]).unwrap();
    let rule = policy.limits()[0].rules()[0].name.clone();
    let holdings =
        vec![Holding { rule, key: key.as_bytes().into(), units: 512, expires_in: Span::from_millis(80) }];
    let store = LeasingStore { inner: MemoryStore::with_seed(1_000, clock.clone(), 7), holdings };
    let watcher = Watcher::new(&WatchSettings { records: 200, ..WatchSettings::default() });
    let limiter =
        Limiter::with_store(policy, store).with_observer_on(Arc::new(watcher.clone()), clock.clone());
    let (limiter, status) = (SharedLimiter::from(limiter), Arc::new(Status::new()));
    let at = NodeAt { board: board.clone(), node: NodeId(node), others };
    let api = Api::new(limiter.clone(), Arc::clone(&status), Access::open())
        .with_clock(clock.clone())
        .with_watcher(watcher)
        .with_node_board(Arc::new(at), &format!("host-{node}:1"));
    Subject { api, limiter, status, clock }
}

fn alone() -> Box<dyn Fn() + Send + Sync> {
    Box::new(|| {})
}

fn publish(subject: &Subject<LeasingStore>) {
    pollster::block_on(subject.api.publish_node()).unwrap();
}

fn check(subject: &Subject<LeasingStore>, key: &str) -> Value {
    subject.ask("/v1/check", &format!(r#"{{"path":"/","ip":"203.0.113.9","api_key":"{key}"}}"#))
}

#[test]
fn a_node_sums_the_reports_of_all_nodes() {
    let board = Board::default();
    let [one, other] = [1, 2].map(|id| node(&board, id, alone()));
    let alone = one.get("/v1/fleet").json();
    assert_eq!((&alone["totals"]["nodes"], &alone["silent"]), (&json!(1), &json!(1)), "{alone}");
    // As in the process, where the first second is ticked before the first request.
    publish(&other);
    for _ in 0..7 {
        check(&other, "a");
    }
    check(&one, "a");
    for subject in [&one, &other] {
        subject.advance(Span::from_secs(2));
        publish(subject);
    }
    let fleet = one.get("/v1/fleet").json();
    let counts = |allowed: u64, refused: u64| json!({"allowed": allowed, "refused": refused, "shadow_limited": 0, "degraded": 0});
    assert_eq!(fleet["totals"]["window"], counts(6, 2), "{fleet}");
    assert_eq!(fleet["totals"]["lately"], counts(6, 2), "{fleet}");
    assert_eq!(
        (&fleet["totals"]["leased_units"], &fleet["totals"]["oldest_ms"]),
        (&json!(1024), &json!(700))
    );
    assert_eq!((&fleet["silent"], &fleet["ignored"], &fleet["error"]), (&json!(0), &json!(0), &Value::Null));
    let [first, second] = [0, 1].map(|at| fleet["nodes"][at].clone());
    assert_eq!(
        (&first["this"], &first["name"], &first["age_ms"]),
        (&json!(true), &json!("host-1:1"), &json!(0))
    );
    assert_eq!(
        (&second["this"], &second["name"], &second["age_ms"]),
        (&json!(false), &json!("host-2:1"), &json!(700))
    );
    assert_eq!(second["window"], counts(5, 2));
    assert_eq!(second["leases"]["limits"], json!([{"limit": "api", "units": 512, "expires_in_ms": 80}]));
    pollster::block_on(other.api.withdraw_node()).unwrap();
    one.advance(Span::from_secs(1));
    assert_eq!(one.get("/v1/fleet").json()["totals"]["nodes"], 1);
}

#[test]
fn garbage_is_counted_and_an_unreachable_store_is_reported() {
    let board = Board::default();
    let subject = node(&board, 1, alone());
    publish(&subject);
    {
        let mut shared = board.0.lock();
        shared.unreadable = 2;
        for (at, record) in [&b"\xff"[..], b"{\"v\":9,\"node\":{}}", b"<script>"].into_iter().enumerate() {
            let node = NodeId(90 + at as u64);
            shared.records.push(NodeRecord { node, age: Duration::ZERO, record: record.into() });
        }
    }
    let fleet = subject.get("/v1/fleet").json();
    assert_eq!((&fleet["totals"]["nodes"], &fleet["ignored"]), (&json!(1), &json!(5)), "{fleet}");
    board.0.lock().is_down = true;
    subject.advance(Span::from_secs(1));
    let fleet = subject.get("/v1/fleet");
    assert_eq!(fleet.status, 200);
    let error = fleet.json()["error"].as_str().unwrap().to_owned();
    assert!(error.contains("gone") && !error.contains('\u{1b}'), "{error}");
    assert_eq!(fleet.json()["totals"]["nodes"], 1);
}

#[test]
fn a_decision_of_another_node_is_explained_by_that_node() {
    let board = Board::default();
    let other = Arc::new(node(&board, 2, alone()));
    let answering = Arc::clone(&other);
    let one = node(&board, 1, Box::new(move || publish(&answering)));
    let last = (0..6).map(|_| check(&other, "sk-live-4711")).reduce(|_, it| it).unwrap();
    let id = last["id"].as_str().unwrap();
    let explained = one.get(&format!("/v1/decisions/{id}")).json();
    assert_eq!(
        (&explained["node"], &explained["allowed"]),
        (&json!("host-2:1"), &json!(false)),
        "{explained}"
    );
    let own = other.get(&format!("/v1/decisions/{id}")).json();
    assert_eq!((&own["node"], &own["limits"]), (&Value::Null, &explained["limits"]));
    assert!(!explained.to_string().contains("4711"), "{explained}");
    let unknown = one.get("/v1/decisions/0123456789abcdef");
    assert_eq!(unknown.status, 404);
    assert!(unknown.text().contains("no other node has answered"), "{}", unknown.text());
    assert_eq!(one.get("/v1/decisions/why").status, 422, "and no question is asked");
    assert_eq!(board.0.lock().questions.len(), 2);
}

#[test]
fn leases_are_in_the_overview_in_explanations_and_in_the_state_of_a_key() {
    let subject = node(&Board::default(), 1, alone());
    let overview = subject.get("/v1/overview").json();
    let leases = &overview["leases"];
    assert_eq!((&leases["keys"], &leases["units"]), (&json!(1), &json!(512)));
    let limit = json!({"limit": "api", "lease_ms": 100, "keys": 1, "units": 512, "expires_in_ms": 80});
    assert_eq!(leases["limits"], json!([limit]));
    let held = &leases["held"][0];
    assert_eq!(
        (&held["limit"], &held["units"], &held["expires_in_ms"]),
        (&json!("api"), &json!(512), &json!(80))
    );
    assert!(held["key"].as_str().unwrap().contains('…'), "{held}");

    let id = check(&subject, "sk-live-4711")["id"].as_str().unwrap().to_owned();
    let explained = subject.get(&format!("/v1/decisions/{id}")).json();
    assert_eq!(explained["limits"][0]["leased"], true, "{explained}");
    let arithmetic = explained["limits"][0]["arithmetic"].to_string();
    assert!(arithmetic.contains("decided by this node from units that it had leased"), "{arithmetic}");
    let peek = |key: &str| {
        subject.ask("/v1/limits/api/peek", &format!(r#"{{"key":"{key}"}}"#))["limits"][0]["held"].clone()
    };
    assert_eq!((peek("sk-live-4711"), peek("other")), (json!(512), json!(0)));
}
