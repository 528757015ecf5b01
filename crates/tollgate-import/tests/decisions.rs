//! An imported policy decides like the original.
//!
//! The model of nginx follows `ngx_http_limit_req_module`: it counts in
//! thousandths of a request and in milliseconds. A real nginx is compared, too.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;

use tollgate::policy::Descriptor;
use tollgate::{Call, Limiter, ManualClock, MemoryStore, Policy, Span, Timestamp};
use tollgate_import::{limitador, nginx};
use tollgate_testkit::{Program, Scratch, free_port, wait_for_port};

/// The state of a key in nginx, and the numbers of its zone.
struct Nginx {
    rate: i64,
    burst: i64,
    state: Option<(i64, i64)>,
}

impl Nginx {
    fn admits(&mut self, now: i64) -> bool {
        let Some((excess, last)) = self.state else {
            self.state = Some((0, now));
            return true;
        };
        let elapsed = (now - last).max(0);
        let excess = (excess - self.rate * elapsed / 1000 + 1000).max(0);
        let admitted = excess <= self.burst * 1000;
        if admitted {
            self.state = Some((excess, now));
        }
        admitted
    }
}

fn limiter(policy: &str, clock: &ManualClock) -> Limiter<MemoryStore<ManualClock>> {
    let policy = Policy::parse(policy).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    Limiter::with_store(policy, MemoryStore::with_clock(1_000, clock.clone()))
}

/// For rates of whole requests per second, request by request, over random traffic.
#[test]
fn a_burst_without_delay_admits_the_requests_that_nginx_admits() {
    let mut random = fastrand::Rng::with_seed(7);
    for (rate, burst) in [(1, 0), (10, 0), (10, 5), (5, 20), (100, 3), (2, 1), (1000, 50)] {
        let text = format!(
            "limit_req_zone $binary_remote_addr zone=z:1m rate={rate}r/s;\n\
             server {{ location / {{ limit_req zone=z burst={burst} nodelay; }} }}"
        );
        let clock = ManualClock::at(Timestamp::from_micros(1_700_000_000_000_000));
        let limiter = limiter(&nginx("nginx.conf", &text).unwrap().policy, &clock);
        let mut model = Nginx { rate: rate * 1000, burst, state: None };
        let (mut now, mut admitted) = (0, 0);
        for step in 0..5_000 {
            let wait = if random.u8(0..4) == 0 { random.i64(0..3_000 / rate) } else { 0 };
            now += wait;
            clock.advance(Span::from_millis(wait.unsigned_abs()));
            let call = Call::new("GET", "/x").ip([203, 0, 113, 9]);
            let expected = model.admits(now);
            assert_eq!(limiter.check(&call).is_allowed(), expected, "{rate}r/s burst={burst}, step {step}");
            admitted += u32::from(expected);
        }
        assert!(admitted > 10, "{rate}r/s burst={burst} admitted {admitted}");
    }
}

/// Sends requests, each this many milliseconds after the one before, to a policy that was imported from
/// this `limit_req`. Passes the answers of the model and of the limiter to `compare`: the wait in
/// microseconds, or `None` for a refusal. Returns how many requests were delayed.
fn with_delays(
    (rate, thousandths): (&str, i64),
    (burst, delay): (i64, i64),
    gaps: &[i64],
    compare: impl Fn(Option<i64>, Option<i64>, &str),
) -> u32 {
    let text = format!(
        "limit_req_zone $remote_addr zone=z:1m rate={rate};\n\
         server {{ limit_req zone=z burst={burst} delay={delay}; }}"
    );
    let clock = ManualClock::at(Timestamp::from_micros(1_700_000_000_000_000));
    let policy = nginx("nginx.conf", &text).unwrap().policy;
    assert!(policy.contains("algorithm: leaky-queue"), "{policy}");
    let limiter = limiter(&policy, &clock);
    let mut model = Nginx { rate: thousandths, burst, state: None };
    let (mut now, mut delayed) = (0, 0);
    for (step, &gap) in gaps.iter().enumerate() {
        now += gap;
        clock.advance(Span::from_millis(gap.unsigned_abs()));
        let theirs = model.admits(now).then(|| {
            let excess = model.state.map_or(0, |(excess, _)| excess - delay * 1_000).max(0);
            excess * 1_000 / thousandths * 1_000
        });
        let decision = limiter.check(&Call::new("GET", "/").ip([203, 0, 113, 9]));
        let wait = i64::try_from(decision.wait().as_micros()).unwrap();
        delayed += u32::from(wait > 0);
        compare(theirs, decision.is_allowed().then_some(wait), &format!("{rate}, step {step}\n{policy}"));
    }
    delayed
}

/// For rates of whole requests per second, nginx rounds only the wait, to a millisecond.
#[test]
fn a_burst_with_delay_waits_as_long_as_in_nginx_and_refuses_the_same_requests() {
    let mut random = fastrand::Rng::with_seed(11);
    for rate in [1, 2, 3, 7, 10, 100, 1_000] {
        for numbers in [(1, 0), (5, 0), (12, 8), (20, 19)] {
            let gap = |_| if random.u8(0..4) == 0 { random.i64(0..=2_500 / rate) } else { 0 };
            let gaps: Vec<_> = (0..3_000).map(gap).collect();
            let zone = format!("{rate}r/s");
            let delayed = with_delays((&zone, rate * 1_000), numbers, &gaps, |theirs, ours, case| {
                assert_eq!(ours.map(|it| it / 1_000 * 1_000), theirs, "{numbers:?} at {case}");
            });
            assert!(delayed > 100, "{rate}r/s, {numbers:?}: {delayed} were delayed");
        }
    }
}

/// nginx rounds rates per minute to thousandths of a request a second. It rounds its count in the same
/// way when time has passed, which moves a wait by the time of one thousandth.
#[test]
fn a_queue_by_the_minute_has_the_rate_to_which_nginx_rounds_it() {
    let mut random = fastrand::Rng::with_seed(12);
    for (rate, thousandths) in [(1, 16), (7, 116), (30, 500), (100, 1_666), (1_000, 16_666)] {
        let unit = 1_000_000 / thousandths;
        let mut gaps = Vec::new();
        for _ in 0..50 {
            // A burst to an empty queue, and one to a queue in which requests wait.
            gaps.extend([20 * unit, 0, 0, 0, 0, 0, 0, 0, 0, random.i64(0..3 * unit), 0, 0, 0]);
        }
        let zone = format!("{rate}r/m");
        let delayed = with_delays((&zone, thousandths), (6, 2), &gaps, |theirs, ours, case| {
            let (Some(theirs), Some(ours)) = (theirs, ours) else {
                return assert_eq!(theirs.is_some(), ours.is_some(), "{case}");
            };
            let rounded = 2 * 1_000_000 / thousandths + 2_000;
            assert!((theirs - ours).abs() <= rounded, "{theirs} us and {ours} us at {case}");
        });
        assert!(delayed > 100, "{rate}r/m: {delayed} were delayed");
    }
}

#[test]
fn an_inner_location_has_only_its_own_limits() {
    let text = "limit_req_zone $remote_addr zone=a:1m rate=10r/s;
        limit_req_zone $remote_addr zone=b:1m rate=1r/s;
        server {
            location / { limit_req zone=a burst=20; }
            location /n { limit_req zone=a burst=20 nodelay; }
            location = /one { limit_req zone=b; }
            location /off/ { return 204; }
        }";
    let clock = ManualClock::at(Timestamp::from_micros(1_700_000_000_000_000));
    let limiter = limiter(&nginx("nginx.conf", text).unwrap().policy, &clock);
    for (path, admitted, delayed) in
        [("/n/x", 21, 0), ("/one", 1, 0), ("/off/x", 30, 0), ("/", 21, 20), ("/nn", 0, 0), ("/n", 0, 0)]
    {
        let decisions: Vec<_> =
            (0..30).map(|_| limiter.check(&Call::new("GET", path).ip([203, 0, 113, 9]))).collect();
        let admitted_here = decisions.iter().filter(|it| it.is_allowed()).count();
        let delayed_here = decisions.iter().filter(|it| it.is_allowed() && !it.wait().is_zero()).count();
        assert_eq!((admitted_here, delayed_here), (admitted, delayed), "{path}");
    }
}

/// Compares with a real nginx, at a rate so low that the duration of the test does not matter.
#[test]
fn the_real_nginx_admits_as_many_as_what_was_imported_from_its_file() {
    let (files, address) = (Scratch::new(), SocketAddr::from(([127, 0, 0, 1], free_port())));
    let text = format!(
        "daemon off; master_process off; pid nginx.pid; error_log error.log;\n\
         events {{}}\n\
         http {{\n\
             access_log off; client_body_temp_path bodies; proxy_temp_path proxied; fastcgi_temp_path fastcgi;\n\
             uwsgi_temp_path uwsgi; scgi_temp_path scgi;\n\
             limit_req_zone $binary_remote_addr zone=ip:1m rate=1r/m;\n\
             limit_req_zone $http_x_key zone=key:1m rate=1r/m;\n\
             limit_req_zone $binary_remote_addr zone=outer:1m rate=1r/m;\n\
             limit_req_status 429;\n\
             server {{\n\
                 listen {address};\n\
                 root {root};\n\
                 location /nodelay/ {{ limit_req zone=ip burst=9 nodelay; try_files /ok =404; }}\n\
                 location ~ ^/(a|b)$ {{ limit_req zone=key burst=3 nodelay; try_files /ok =404; }}\n\
                 location = /none {{ limit_req zone=key; try_files /ok =404; }}\n\
                 location /outer/ {{\n\
                     limit_req zone=outer burst=1 nodelay; try_files /ok =404;\n\
                     location /outer/inner/ {{ limit_req zone=ip burst=12 nodelay; try_files /ok =404; }}\n\
                     location = /outer/open {{ limit_req_dry_run on; try_files /ok =404; }}\n\
                 }}\n\
             }}\n\
         }}\n",
        root = files.path().display(),
    );
    files.write("ok", "ok");
    let main = files.write("nginx.conf", &text);
    let mut command = Command::new("nginx");
    command.arg("-p").arg(files.path()).arg("-c").arg(main).args(["-e", "error.log"]);
    let mut program = Program::start(command);
    wait_for_port(&mut program, address);

    let clock = ManualClock::at(Timestamp::from_micros(1_700_000_000_000_000));
    let limiter = limiter(&nginx("nginx.conf", &text).unwrap().policy, &clock);
    for (path, key) in [
        ("/nodelay/x", ""),
        ("/a", "ann"),
        ("/b", "ann"),
        ("/b", "bob"),
        ("/a", ""),
        ("/none", "zoe"),
        ("/other", ""),
        ("/nodelay/y", ""),
        ("/outer/x", ""),
        ("/outer/open", ""),
    ] {
        let (mut real, mut imported) = (0, 0);
        for _ in 0..15 {
            real += u32::from(status(address, path, key) != 429);
            let call = Call::new("GET", path).ip([127, 0, 0, 1]);
            let call = if key.is_empty() { call } else { call.header("X-Key", key) };
            imported += u32::from(limiter.check(&call).is_allowed());
        }
        assert_eq!(imported, real, "{path} with {key:?}");
    }
}

fn status(address: SocketAddr, path: &str, key: &str) -> u16 {
    let mut stream = TcpStream::connect(address).unwrap();
    let key = if key.is_empty() { String::new() } else { format!("X-Key: {key}\r\n") };
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{key}\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_window_of_limitador_begins_with_its_first_request_and_counts_by_its_variables() {
    let text = "- {namespace: shop, max_value: 3, seconds: 60, conditions: [\"method == 'POST'\"], variables: [user]}";
    let clock = ManualClock::at(Timestamp::from_micros(1_700_000_030_000_000));
    let limiter = limiter(&limitador("limits.yaml", text).unwrap().policy, &clock);
    let admitted = |domain, method, user| {
        let entries = [("method", method), ("user", user)];
        let descriptor = Descriptor::new(domain, &entries);
        (0..5).filter(|_| limiter.check(&descriptor).is_allowed()).count()
    };
    assert_eq!(admitted("shop", "POST", "ann"), 3);
    assert_eq!(admitted("shop", "POST", "bob"), 3, "each user counts apart");
    assert_eq!(admitted("shop", "GET", "ann"), 5, "the condition does not hold");
    assert_eq!(admitted("other", "POST", "ann"), 5, "another namespace");
    clock.advance(Span::from_secs(59));
    assert_eq!(admitted("shop", "POST", "ann"), 0, "no new window before a whole one is over");
    clock.advance(Span::from_secs(1));
    assert_eq!(admitted("shop", "POST", "ann"), 3);
}
