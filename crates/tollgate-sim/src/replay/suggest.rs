//! Proposes numbers: the smallest ones that meet a target of refusals.
//!
//! Only numbers that were tried are proposed, so their results were counted and not estimated.
//!
//! Not here: trying numbers (`curve`), choosing numbers to try (`candidates`).

use super::amount;
use super::candidates::Axis;
use super::curve::{CandidateResult, Results};
use super::report::{Proposal, Suggestion};

/// A share, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share(pub u32);

impl Share {
    const WHOLE: u32 = 1_000_000;

    /// Parses `1%`, `0.5 %` or `0%`: at most 100 %, with at most four decimals. `None` for other texts.
    ///
    /// ```
    /// # use tollgate_sim::replay::Share;
    /// assert_eq!(Share::parse("0.5%"), Some(Share(5_000)));
    /// assert_eq!(Share::parse("0.5"), None);
    /// assert_eq!(Share::parse("101%"), None);
    /// ```
    pub fn parse(text: &str) -> Option<Self> {
        let number = text.strip_suffix('%')?.trim_end();
        let (whole, decimals) = number.split_once('.').unwrap_or((number, "0"));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(whole) || !digits(decimals) || decimals.len() > 4 || whole.len() > 3 {
            return None;
        }
        let parts: u32 = format!("{whole}{decimals:0<4}").parse().ok()?;
        (parts <= Self::WHOLE).then_some(Self(parts))
    }

    /// Whether `part` is at most this share of `whole`.
    fn covers(self, part: u64, whole: u64) -> bool {
        u128::from(part) * u128::from(Self::WHOLE) <= u128::from(self.0) * u128::from(whole)
    }
}

impl std::fmt::Display for Share {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (whole, rest) = (self.0 / 10_000, self.0 % 10_000);
        let decimals = format!("{rest:04}");
        match decimals.trim_end_matches('0') {
            "" => write!(f, "{whole} %"),
            decimals => write!(f, "{whole}.{decimals} %"),
        }
    }
}

/// The target of a proposal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Suggest {
    /// Largest share of refused requests.
    pub requests: Option<Share>,
    /// Largest share of a limit's keys that are refused at least once.
    pub clients: Option<Share>,
}

impl Suggest {
    /// Whether proposals are requested.
    pub const fn is_requested(&self) -> bool {
        self.requests.is_some() || self.clients.is_some()
    }

    fn is_met(&self, results: &Results<'_>, tried: &CandidateResult<'_>) -> bool {
        self.requests.is_none_or(|share| share.covers(tried.refused, results.requests))
            && self.clients.is_none_or(|share| share.covers(tried.keys_refused, results.keys))
    }

    fn words(&self) -> String {
        let requests = self.requests.map(|share| format!("at most {share} of requests"));
        let clients = self.clients.map(|share| format!("at most {share} of keys"));
        requests.into_iter().chain(clients).collect::<Vec<_>>().join(" and ")
    }

    /// Returns the smallest rate that meets the target, and the smallest burst at the limit's own rate.
    pub(super) fn propose(&self, results: &Results<'_>) -> Suggestion {
        let smallest = |axis: Axis, varies: &str| {
            let mut of_axis =
                results.tried.iter().filter(|it| it.candidate.axis == axis && it.candidate.is_nice);
            of_axis.find(|it| self.is_met(results, it)).map(|it| Proposal {
                amount: amount::all_written(&it.candidate.quotas),
                varies: varies.to_owned(),
                refused: it.refused,
                keys_refused: it.keys_refused,
            })
        };
        let proposals = [smallest(Axis::Rate, "rate"), smallest(Axis::Burst, "burst")];
        Suggestion {
            target: self.words(),
            proposals: proposals.into_iter().flatten().collect(),
            estimated: results.estimated,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_parsed() {
        for (text, parts) in
            [("1%", 10_000), ("0.5%", 5_000), ("0%", 0), ("100 %", 1_000_000), ("0.0001%", 1)]
        {
            assert_eq!(Share::parse(text), Some(Share(parts)), "{text}");
        }
        for text in ["1", "%", "-1%", "1.%", ".5%", "100.0001%", "1e3%", "0.00001%", "4294967296%"] {
            assert_eq!(Share::parse(text), None, "{text}");
        }
        assert_eq!(
            [Share(10_000), Share(5_000), Share(1)].map(|it| it.to_string()),
            ["1 %", "0.5 %", "0.0001 %"]
        );
    }
}
