//! The compared protections, each as a policy.

use schemars::JsonSchema;
use serde::Serialize;
use tollgate::{Policy, PolicyError};

use super::scenario::Scenario;

/// The share of the capacity that the rate limit admits. An operator has measured the capacity and keeps a reserve.
const RATE_SHARE: f64 = 0.95;

/// The classes of the calls, the most important first, with their share of the calls, in percent, and the last segment
/// of their path.
pub(super) const CLASSES: [(&str, u8, &str); 3] =
    [("critical", 10, "checkout"), ("normal", 30, "browse"), ("bulk", 60, "export")];

/// A protection of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum Protection {
    /// None: all calls reach the service.
    None,
    /// A rate limit slightly below the capacity of the healthy service.
    Rate,
    /// As many slots as the service has workers, with a queue of the same length.
    Slots,
    /// A learned number of slots.
    Adaptive,
    /// A learned number of slots, with priority classes.
    AdaptiveClasses,
}

impl Protection {
    /// All protections. The position determines the color in charts: append, do not insert.
    pub const ALL: [Self; 5] = [Self::None, Self::Rate, Self::Slots, Self::Adaptive, Self::AdaptiveClasses];

    /// Returns the name on the command line and in JSON.
    pub const fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Rate => "rate",
            Self::Slots => "slots",
            Self::Adaptive => "adaptive",
            Self::AdaptiveClasses => "adaptive-classes",
        }
    }

    /// Returns the protection of this name.
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.word() == word)
    }

    /// Returns the text of the policy. A service with several routes has limits for each route.
    pub(super) fn policy_text(self, scenario: &Scenario) -> String {
        let routes = u32::from(scenario.shape.routes());
        let scope = if routes > 1 { "endpoint: '/{route}/**', by: path:route" } else { "by: global" };
        let slots = scenario.workers.div_ceil(routes);
        let limit = match self {
            Self::None => return "limits: []\n".to_owned(),
            Self::Rate => {
                let rate = rate(scenario.capacity() * RATE_SHARE / f64::from(routes));
                format!("{{name: service, {scope}, bucket: '{rate}, burst {slots}'}}")
            }
            Self::Slots => {
                format!("{{name: service, {scope}, slots: {slots}, queue: {{length: {slots}, wait: 500ms}}}}")
            }
            Self::Adaptive | Self::AdaptiveClasses => format!("{{name: service, {scope}, slots: adaptive}}"),
        };
        let mut text = String::new();
        if self == Self::AdaptiveClasses {
            text.push_str(
                "priorities:\n  - {name: critical, endpoint: '/{route}/checkout'}\n  - {name: normal}\n  \
                 - {name: bulk, endpoint: '/{route}/export'}\n",
            );
        }
        text + &format!("limits:\n  - {limit}\n")
    }

    pub(super) fn policy(self, scenario: &Scenario) -> Result<Policy, PolicyError> {
        Policy::parse(&self.policy_text(scenario))
    }
}

/// Formats a number of calls per second as a rate.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a positive number below 2^53")]
fn rate(per_second: f64) -> String {
    if per_second >= 100.0 {
        format!("{}/second", per_second as u64)
    } else {
        format!("{}/minute", ((per_second * 60.0) as u64).max(1))
    }
}
