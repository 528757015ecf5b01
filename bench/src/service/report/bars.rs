//! Targets of the service, and results.

use crate::report::Bar;
use crate::sample::{Row, Sample, ratio};
use crate::service::contestant::{GRPC, GRPC_VARIED, HTTP, RESP_1, RESP_16};
use crate::service::idle::Weight;

pub(super) fn all(rows: &[Row]) -> Vec<Bar> {
    let of = |case, ours, peer, number: fn(&Sample) -> f64| ratio(rows, (case, ours), (case, peer), number);
    let speed = |case, ours, peer| of(case, ours, peer, |it| it.per_second);
    // The ratio to the fastest peer is the smallest of all ratios; to the peer with the least CPU time, the largest.
    let peers = |number| ["throttlecrab", "redis-script"].map(|peer| of(RESP_1, "tollgate", peer, number));
    let [crab, script] = peers(|it| it.per_second);
    let fastest = crab.zip(script).map(|(crab, script)| crab.min(script));
    let [crab, script] = peers(|it| it.cpu_us);
    let thriftiest = crab.zip(script).map(|(crab, script)| crab.max(script));
    // Load generators hold servers back, that of gRPC more than others, so CPU is compared.
    let thrift = |case, ours| of(case, "throttlecrab", ours, |it| it.cpu_us);
    vec![
        Bar::at_least(1.0, "RESP: tollgate / fastest peer", fastest),
        Bar::at_most(1.0, "RESP: CPU per request, tollgate / any peer", thriftiest),
        Bar::at_least(1.0, "RESP, 16 in flight: tollgate / INCR", speed(RESP_16, "tollgate", "redis-incr")),
        Bar::at_least(
            2.5,
            "RESP, 16 in flight: tollgate / script",
            speed(RESP_16, "tollgate", "redis-script"),
        ),
        Bar::at_least(1.4, "HTTP: CPU, throttlecrab / v1/check", thrift(HTTP, "tollgate")),
        Bar::at_least(1.4, "HTTP: CPU, throttlecrab / throttle", thrift(HTTP, "tollgate-throttle")),
        Bar::at_least(1.6, "gRPC: CPU, throttlecrab / ShouldRateLimit", thrift(GRPC, "tollgate")),
        Bar::at_least(1.8, "gRPC: CPU, throttlecrab / with Envoy's files", thrift(GRPC, "tollgate-envoy")),
        Bar::at_least(2.0, "gRPC: CPU, throttlecrab / Throttle", thrift(GRPC, "tollgate-throttle")),
        Bar::at_least(
            1.6,
            "gRPC, headers that vary: CPU, throttlecrab / ShouldRateLimit",
            thrift(GRPC_VARIED, "tollgate"),
        ),
        Bar::at_least(
            2.0,
            "gRPC, headers that vary: CPU, throttlecrab / Throttle",
            thrift(GRPC_VARIED, "tollgate-throttle"),
        ),
    ]
}

/// The memory of 10,000 HTTP/2 connections with one stream each, in MiB.
const MAX_STREAM_MIB: f64 = 120.0;

/// Returns the bars on memory; none if no memory was measured.
pub(super) fn memory(weights: &[Weight]) -> Option<Bar> {
    let grpc = weights.iter().find(|it| it.case == GRPC && it.subject == "tollgate")?;
    let mib = grpc.open_stream.map(|open| grpc.bytes_of_each(open) * 10_000.0 / f64::from(1 << 20));
    Some(Bar::at_most(MAX_STREAM_MIB, "gRPC: MiB of 10,000 connections with a stream each", mib))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_against_the_fastest_peer_and_the_one_with_the_least_cpu_time() {
        let rows = [
            row(RESP_1, "tollgate", 40.0, 10.0),
            row(RESP_1, "throttlecrab", 39.0, 9.0),
            row(RESP_1, "redis-script", 50.0, 30.0),
        ];
        let bars = all(&rows);
        assert_eq!(bars[0].got.map(f64::to_bits), Some(0.8_f64.to_bits()));
        assert_eq!((bars[0].met, bars[1].met), (Some(false), Some(false)));
        assert!(bars[2..].iter().all(|bar| bar.met.is_none()), "nothing else was measured");
    }

    #[test]
    fn bars_have_the_documented_bounds() {
        let mut rows = Vec::new();
        for (case, subject, per_second, cpu_us) in [
            (RESP_16, "tollgate", 1_000.0, 1.0),
            (RESP_16, "redis-incr", 1_000.0, 1.0),
            (RESP_16, "redis-script", 400.0, 1.0),
            (HTTP, "tollgate", 100.0, 1.0),
            (HTTP, "throttlecrab", 100.0, 1.39),
            (GRPC, "tollgate", 1.0, 10.0),
            (GRPC, "tollgate-envoy", 1.0, 9.0),
            (GRPC, "throttlecrab", 1.0, 16.0),
        ] {
            rows.push(row(case, subject, per_second, cpu_us));
        }
        let met: Vec<_> = all(&rows).iter().map(|bar| bar.met).collect();
        let [yes, no] = [Some(true), Some(false)];
        assert_eq!(met, [None, None, yes, yes, no, None, yes, no, None, None, None]);
    }

    fn row(case: &'static str, subject: &'static str, per_second: f64, cpu_us: f64) -> Row {
        Row::new((case, subject), vec![Sample { per_second, cpu_us, busy: 1.0, ..Sample::default() }; 3])
    }
}
