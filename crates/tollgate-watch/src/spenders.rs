//! Who else spent from an allowance lately.

use std::net::IpAddr;

use tollgate::Timestamp;

/// Who spent from an allowance lately.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spender {
    /// The client's address, as `privacy` shows it.
    pub client: Option<Box<str>>,
    /// `GET` and so on.
    pub method: Box<str>,
    /// The path, cut where it is long.
    pub path: Box<str>,
    /// How much, as far as remembered.
    pub units: u64,
    /// When last.
    pub last: Timestamp,
}

/// Who spent lately, of the allowances that were spent from last.
pub(crate) struct Spenders;

impl Spenders {
    pub(crate) fn new() -> Self {
        Self
    }

    /// Somebody spent from an allowance.
    pub(crate) fn spent(
        &self,
        spot: u64,
        client: Option<IpAddr>,
        method: &str,
        path: &str,
        units: u64,
        at: Timestamp,
    ) {
        let _ = (spot, client, method, path, units, at);
    }

    /// Who spent from an allowance, the most first. `show` words an address.
    pub(crate) fn of(&self, spot: u64, show: &dyn Fn(IpAddr) -> String) -> Vec<Spender> {
        let _ = (spot, show);
        Vec::new()
    }
}
