//! Numbers to propose: the smallest that would have refused as little as was asked for.
//!
//! Only numbers that were tried are proposed, so that what is said of them was counted and not computed.
//!
//! Not here: trying them (`curve`), which ones are tried (`candidates`).

use super::amount;
use super::candidates::Axis;
use super::curve::{CandidateResult, Results};
use super::report::{Proposal, Suggestion};

/// A share of something, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share(pub u32);

impl Share {
    const WHOLE: u32 = 1_000_000;

    /// Reads `1%`, `0.5 %` or `0%`: at most a hundred, with at most four decimals. `None`: it is not one.
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

    /// Whether a part of a whole is no more than this share of it.
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

/// How little is to be refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Suggest {
    /// Of requests.
    pub requests: Option<Share>,
    /// Of a limit's keys, at least once.
    pub clients: Option<Share>,
}

impl Suggest {
    /// Whether anything is to be proposed.
    pub const fn is_asked(&self) -> bool {
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

    /// The smallest rate that does it, and where there is one, the smallest burst at the limit's own rate.
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
            asked: self.words(),
            proposals: proposals.into_iter().flatten().collect(),
            estimated: results.estimated,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_read_as_it_is_written() {
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
