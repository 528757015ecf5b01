//! The shedders, as the API and the metrics show them.

use std::borrow::Cow;

use tollgate::policy::{NODE_SHEDDER, THROTTLE};
use tollgate::{Limiter, Mode, NodeShed, Quota, Signals};
use tollgate_api::{
    ExplainedShed, FleetClass, FleetShedder, LoadSignal, NodeShedder, ShedClass, ShedderModes, Shedders,
    ThrottleShedder, ThrottledUpstream,
};
use tollgate_telemetry::MetricKind::{Counter, Gauge};
use tollgate_telemetry::{Exposition, Watcher};

use crate::decision_view::mode;
use crate::mode_overrides::{Modes, Switch};

type Text = Cow<'static, str>;

/// Returns the shedders in force.
pub(crate) fn shedders<S>(
    limiter: &Limiter<S>,
    modes: &Modes,
    watcher: Option<&Watcher>,
    upstreams: Vec<ThrottledUpstream>,
) -> Shedders {
    Shedders {
        node: node(limiter, modes),
        fleet: fleet(limiter, modes, watcher),
        throttle: throttle(limiter, modes, upstreams),
    }
}

fn fleet<S>(limiter: &Limiter<S>, modes: &Modes, watcher: Option<&Watcher>) -> Option<FleetShedder> {
    let policy = limiter.policy();
    let limit = policy.limits().iter().find(|limit| limit.is_shed())?;
    let quota = &limit.rules().first()?.quota;
    let class = |(class, rule): (&tollgate::PriorityClass, &tollgate::Rule)| FleetClass {
        name: class.name().to_owned(),
        max: rule.quota.capacity(),
    };
    let counts = watcher.and_then(|it| it.limit_window(limit.name())).map(|it| it.counts).unwrap_or_default();
    Some(FleetShedder {
        modes: modes_of(limit.name(), limit.mode(), modes),
        amount: quota.capacity(),
        counts_slots: matches!(quota, Quota::Concurrency(_)),
        shed: counts.limited,
        shadow_shed: counts.shadow_limited,
        classes: policy.priorities().iter().zip(limit.class_rules()).map(class).collect(),
    })
}

fn throttle<S>(
    limiter: &Limiter<S>,
    modes: &Modes,
    upstreams: Vec<ThrottledUpstream>,
) -> Option<ThrottleShedder> {
    let in_force = limiter.policy().throttle_mode()?;
    Some(ThrottleShedder { modes: modes_of(THROTTLE, in_force, modes), upstreams })
}

/// Returns the mode in force of a shedder, that of the policy file and the override, as words of the API.
fn modes_of(name: &str, in_force: Mode, modes: &Modes) -> ShedderModes {
    let policy_mode = modes.policy_mode(name).map(mode).unwrap_or_default().to_owned();
    let switch = modes.switch_of(name).word().to_owned();
    ShedderModes { mode: mode(in_force).to_owned(), policy_mode, switch }
}

fn node<S>(limiter: &Limiter<S>, modes: &Modes) -> Option<NodeShedder> {
    let (policy, shedder) = (limiter.policy(), limiter.node_shedder());
    let settings = policy.node_shed()?;
    let level = shedder.level();
    let classes = classes(limiter);
    let count = u8::try_from(classes.len()).unwrap_or(u8::MAX);
    let class = |(rank, name): (u8, Option<&str>)| {
        let (shed, shadow_shed) = shedder.shed_requests(rank);
        let share_percent = u64::from(level.share(rank, count) / 10);
        ShedClass { name: name.map(str::to_owned), share_percent, shed, shadow_shed }
    };
    Some(NodeShedder {
        modes: modes_of(NODE_SHEDDER, settings.mode, modes),
        level_percent: u64::from(level.thousandths() / 10),
        max_level_percent: u64::from(count.saturating_sub(settings.kept_classes)) * 100,
        in_flight: shedder.in_flight(),
        signals: signals(&shedder.signals()),
        classes: classes.into_iter().map(class).collect(),
    })
}

/// Returns the rank and the name of each class; one class without a name if the policy has none.
fn classes<S>(limiter: &Limiter<S>) -> Vec<(u8, Option<&str>)> {
    match limiter.policy().priorities() {
        [] => vec![(0, None)],
        classes => classes.iter().map(|class| (class.rank(), Some(class.name()))).collect(),
    }
}

fn signals<T: Default + From<&'static str>>(signals: &Signals) -> Vec<LoadSignal<T>> {
    let view = |(name, reading): (&'static str, tollgate::SignalReading)| {
        let (unit, divisor) = match name {
            "cpu" => ("percent", 10),
            "delay" => ("us", 1),
            _ => ("requests", 1),
        };
        let (value, target) = (reading.value / divisor, reading.target / divisor);
        LoadSignal { name: name.into(), unit: unit.into(), value, target }
    };
    signals.iter().map(view).collect()
}

/// Returns the state of the shedder at the time of a refusal.
pub(crate) fn explained(shed: &NodeShed) -> ExplainedShed<Text> {
    ExplainedShed {
        level_percent: u64::from(shed.level.thousandths() / 10),
        share_percent: u64::from(shed.share / 10),
        signals: signals(&shed.signals),
    }
}

/// Writes the metrics of the shedder of the node, if the policy has one.
pub(crate) fn write<S>(to: &mut Exposition<'_>, limiter: &Limiter<S>, modes: &Modes) {
    let Some(node) = node(limiter, modes) else { return };
    let help = "Classes that the shedder of the node sheds, in thousandths of a class.";
    let level = limiter.node_shedder().level();
    to.one("tollgate_shed_level_thousandths", Gauge, help, level.thousandths());
    let help = "Whether the level of the shedder of the node is frozen by an operator.";
    to.one("tollgate_shed_frozen", Gauge, help, u8::from(node.modes.switch == Switch::Frozen.word()));
    let help = "Requests in flight on this node.";
    to.one("tollgate_requests_in_flight", Gauge, help, node.in_flight);
    let help = "Requests that the shedder of the node refused, or would have refused in shadow mode.";
    let mut family = to.family("tollgate_shed_requests_total", Counter, help);
    for class in &node.classes {
        let name = class.name.as_deref().unwrap_or_default();
        family
            .value(&[("priority", name), ("mode", "enforce")], class.shed)
            .value(&[("priority", name), ("mode", "shadow")], class.shadow_shed);
    }
    let help = "Measured load of this node: inflight in requests, cpu in percent, delay in microseconds.";
    let mut family = to.family("tollgate_load_signal", Gauge, help);
    for signal in &node.signals {
        family.value(&[("signal", &signal.name)], signal.value);
    }
    let help = "Load above which this node sheds, in the units of tollgate_load_signal.";
    let mut family = to.family("tollgate_load_target", Gauge, help);
    for signal in &node.signals {
        family.value(&[("signal", &signal.name)], signal.target);
    }
}
