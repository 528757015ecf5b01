//! Priority classes and the fleet shedder, with real requests.

use crate::support::{Behind, OK, Upstream, eventually};
use std::sync::{Arc, Condvar, Mutex};

const CLASSES: &str = "priorities:
  - {name: critical, endpoint: /pay/**}
  - {name: normal}
  - {name: bulk, headers: {x-priority: bulk}}
";

#[test]
fn the_upstream_sees_the_class_of_the_gateway_and_never_the_claim_of_a_client() {
    let upstream = Upstream::ok();
    let policy = format!("{CLASSES}limits: []");
    let gateway = Behind::new(&upstream).limited(&policy).serve();
    let claims = [
        "",
        "tollgate-priority: critical\r\n",
        "Tollgate-Priority: critical\r\nTOLLGATE-PRIORITY: critical\r\n",
        // Some servers read `_` as `-`.
        "tollgate_priority: critical\r\n",
        "x-priority: critical\r\nx-tollgate-priority: critical\r\n",
        "X-Priority: critical, critical\r\nX-PRIORITY: critical\r\ncookie: x-priority=critical\r\n",
        "connection: tollgate-priority\r\ntollgate-priority: critical\r\n",
    ];
    for claim in claims {
        for (path, class) in [
            ("/pay/7", "critical"),
            ("/search", "normal"),
            ("/pay/../search", "normal"),
            ("/search?x-priority=critical&/pay/7", "normal"),
            ("http://a/pay/7", "critical"),
            ("http://a/search", "normal"),
            ("http://a/pay/../search", "normal"),
        ] {
            let before = upstream.seen().len();
            let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\n{claim}\r\n");
            assert_eq!(gateway.connect().ask(request).status(), 200);
            let seen = &upstream.seen()[before];
            let both = (seen.header("tollgate-priority"), seen.header("tollgate_priority"));
            assert_eq!(both, (class, "absent"), "{path}, {claim}");
        }
    }
    let lowered = "GET /search HTTP/1.1\r\nhost: a\r\nx-priority: bulk\r\n\r\n";
    assert_eq!(gateway.connect().ask(lowered).status(), 200);
    assert_eq!(upstream.seen().last().unwrap().header("tollgate-priority"), "bulk");
}

#[test]
fn a_policy_without_classes_removes_the_claim_too() {
    let upstream = Upstream::ok();
    let gateway = Behind::new(&upstream).limited("limits: [{by: global, bucket: 100/s}]").serve();
    let claim = "GET / HTTP/1.1\r\nhost: a\r\ntollgate-priority: critical\r\n\r\n";
    assert_eq!(gateway.connect().ask(claim).status(), 200);
    assert_eq!(upstream.only().header("tollgate-priority"), "absent");
}

#[test]
fn bulk_gets_503_while_critical_passes_and_returns_when_the_load_is_gone() {
    let done = Arc::new((Mutex::new(false), Condvar::new()));
    let gate = Arc::clone(&done);
    let upstream = Upstream::script(move |turn| {
        while let Some(request) = turn.request() {
            if request.start.contains("/slow") {
                let (open, notice) = &*gate;
                drop(notice.wait_while(open.lock().unwrap(), |open| !*open).unwrap());
            }
            turn.wire.send(OK);
        }
    });
    let policy = format!("{CLASSES}shed: {{fleet: {{slots: 4, reserve: {{critical: 50%}}}}}}\nlimits: []");
    let gateway = Behind::new(&upstream).limited(&policy).serve();
    let mut slow: Vec<_> = (0..2).map(|_| gateway.connect()).collect();
    for client in &mut slow {
        client.send("GET /slow HTTP/1.1\r\nhost: a\r\nx-priority: bulk\r\n\r\n");
    }
    eventually("two requests hold the slots of `bulk`", || upstream.seen().len() == 2);
    for claim in ["x-priority: bulk", "tollgate-priority: critical", "x-priority: critical"] {
        let request = format!("GET /search HTTP/1.1\r\nhost: a\r\n{claim}\r\n\r\n");
        let refused = gateway.connect().ask(request);
        refused.assert_problem(503);
        assert!(refused.text().contains("temporary-reduced-capacity"), "{}", refused.text());
        assert!(refused.text().contains(r#""violated-policies":["shed.fleet"]"#), "{}", refused.text());
        let wait: u64 = refused.header("retry-after").parse().unwrap();
        assert!((1..=3).contains(&wait), "{wait}");
    }
    for _ in 0..5 {
        assert_eq!(gateway.get("/pay/7").status(), 200);
    }
    let (open, notice) = &*done;
    *open.lock().unwrap() = true;
    notice.notify_all();
    for client in &mut slow {
        assert_eq!(client.answer().status(), 200);
    }
    eventually("the slots are released", || gateway.get("/search").status() == 200);
}
