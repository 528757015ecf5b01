//! The bound: the rates that proxies apply at any instant add up to at most the limit.

use tollgate::{Clock as _, Policy, Span};

use crate::fleet::{Envoy, STEP, Service};

const LIMIT: f64 = 300.0;
const POLICY: &str = "limits: [{name: edge, rlqs: {domain: edge, bucket: {name: search}}, rate: 300/second}]";

/// A linear congruential generator, so that a seed repeats a run.
struct Rng(u64);

impl Rng {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn delay(&mut self) -> Span {
        Span::from_millis(self.below(200))
    }
}

/// Runs all Envoys for a time, and checks the sum of their rates at every step.
fn run(service: &Service, envoys: &mut [Envoy], seconds: u64, rng: &mut Rng, limit: f64, note: &str) {
    for step in 0..seconds * 20 {
        service.clock.advance(STEP);
        for envoy in &mut *envoys {
            envoy.step(service, rng.delay());
        }
        if step % 5 == 0 {
            service.quotas.tick();
        }
        let sum: f64 = envoys.iter().map(|it| it.rate(service.clock.now())).sum();
        assert!(sum <= limit + 1e-6, "{note}: {sum} of {limit} at step {step}");
    }
}

fn admitted_in(service: &Service, envoys: &mut [Envoy], seconds: u64, rng: &mut Rng) -> Vec<f64> {
    let before: Vec<u64> = envoys.iter().map(|it| it.admitted).collect();
    run(service, envoys, seconds, rng, LIMIT, "measured");
    #[allow(clippy::cast_precision_loss, reason = "small numbers")]
    let rate = |(it, before): (&Envoy, &u64)| (it.admitted - before) as f64 / seconds as f64;
    envoys.iter().zip(&before).map(rate).collect()
}

fn fleet(service: &Service, offered: &[f64], rng: &mut Rng) -> Vec<Envoy> {
    let now = service.clock.now();
    offered.iter().map(|rate| Envoy::new(*rate, Span::from_millis(rng.below(5_000)), now)).collect()
}

#[test]
fn demand_of_1_to_5_to_20_is_divided_max_min_fair() {
    let (service, mut rng) = (Service::new(POLICY), Rng(1));
    let mut envoys = fleet(&service, &[30.0, 150.0, 600.0], &mut rng);
    run(&service, &mut envoys, 20, &mut rng, LIMIT, "warm up");
    let rates = admitted_in(&service, &mut envoys, 30, &mut rng);
    for (rate, fair) in rates.iter().zip([30.0, 135.0, 135.0]) {
        assert!((rate / fair - 1.0).abs() < 0.1, "{rates:?}");
    }
    let sum: f64 = rates.iter().sum();
    assert!(sum >= 0.95 * LIMIT, "{rates:?}");
}

#[test]
fn the_share_of_a_killed_proxy_is_used_within_two_ticks_and_a_second() {
    let (service, mut rng) = (Service::new(POLICY), Rng(2));
    let mut envoys = fleet(&service, &[400.0, 400.0, 400.0], &mut rng);
    run(&service, &mut envoys, 20, &mut rng, LIMIT, "warm up");
    envoys[0].disconnect();
    // Its requests are gone as well, and nothing of it counts.
    envoys.remove(0);
    run(&service, &mut envoys, 11, &mut rng, LIMIT, "two ticks");
    let rates = admitted_in(&service, &mut envoys, 5, &mut rng);
    let sum: f64 = rates.iter().sum();
    assert!(sum >= 0.95 * LIMIT, "{rates:?}");
}

#[test]
fn a_restarted_service_hands_out_assignments_at_once_and_keeps_the_bound() {
    for seed in 0..20 {
        let (mut service, mut rng) = (Service::new(POLICY), Rng(seed));
        let mut envoys = fleet(&service, &[30.0, 150.0, 600.0], &mut rng);
        run(&service, &mut envoys, 20, &mut rng, LIMIT, "warm up");
        service.restart();
        envoys.iter_mut().for_each(Envoy::disconnect);
        // Reported admissions are counted over whole seconds, so an assignment can be a little above
        // the one before, until all proxies are back.
        run(&service, &mut envoys, 6, &mut rng, LIMIT * 1.1, &format!("seed {seed}, coming back"));
        run(&service, &mut envoys, 12, &mut rng, LIMIT * 1.1, &format!("seed {seed}, settled"));
        let rates = admitted_in(&service, &mut envoys, 20, &mut rng);
        assert!(rates.iter().sum::<f64>() >= 0.95 * LIMIT, "seed {seed}: {rates:?}");
    }
}

#[test]
fn proxies_that_come_go_and_change_their_demand_never_exceed_the_limit() {
    for seed in 0..30 {
        let (service, mut rng) = (Service::new(POLICY), Rng(seed));
        let mut envoys = fleet(&service, &[100.0], &mut rng);
        // The requests of proxies that were killed.
        let mut gone = (0, 0.0);
        for round in 0..40 {
            match rng.below(5) {
                0 if envoys.len() < 12 => {
                    #[allow(clippy::cast_precision_loss, reason = "small numbers")]
                    let offered = rng.below(600) as f64;
                    envoys.extend(fleet(&service, &[offered], &mut rng));
                }
                1 if envoys.len() > 1 => {
                    let at = usize::try_from(rng.below(envoys.len() as u64)).unwrap();
                    let mut killed = envoys.swap_remove(at);
                    killed.disconnect();
                    gone = (gone.0 + killed.admitted, gone.1 + killed.injected);
                }
                _ => {
                    let at = usize::try_from(rng.below(envoys.len() as u64)).unwrap();
                    #[allow(clippy::cast_precision_loss, reason = "small numbers")]
                    let offered = rng.below(600) as f64;
                    envoys[at].offered = offered;
                }
            }
            let seconds = 1 + rng.below(7);
            run(&service, &mut envoys, seconds, &mut rng, LIMIT, &format!("seed {seed}, round {round}"));
        }
        #[allow(clippy::cast_precision_loss, reason = "small numbers")]
        let admitted = (gone.0 + envoys.iter().map(|it| it.admitted).sum::<u64>()) as f64;
        let injected = gone.1 + envoys.iter().map(|it| it.injected).sum::<f64>();
        let elapsed = service.clock.now().since(tollgate::Timestamp::from_secs(1_000)).as_micros();
        #[allow(clippy::cast_precision_loss, reason = "small numbers")]
        let bound = LIMIT * elapsed as f64 / 1e6 + injected;
        assert!(admitted <= bound, "seed {seed}: {admitted} of {bound}");
    }
}

#[test]
fn a_lower_limit_is_pushed_at_once() {
    let (service, mut rng) = (Service::new(POLICY), Rng(5));
    let mut envoys = fleet(&service, &[400.0, 400.0], &mut rng);
    run(&service, &mut envoys, 20, &mut rng, LIMIT, "warm up");
    service.limiter.replace(Policy::parse(&POLICY.replace("300/second", "30/second")).unwrap());
    // Within a tick of the timer and the delay of a message.
    for _ in 0..10 {
        service.clock.advance(STEP);
        service.quotas.tick();
        for envoy in &mut envoys {
            envoy.step(&service, Span::from_millis(100));
        }
    }
    run(&service, &mut envoys, 20, &mut rng, 30.0, "lowered");
}
