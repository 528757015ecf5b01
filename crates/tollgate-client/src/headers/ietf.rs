//! `RateLimit` and `RateLimit-Policy` of the IETF drafts.
//!
//! | draft | `RateLimit` | `RateLimit-Policy` |
//! |---|---|---|
//! | 8 to 11 | `"name";r=9;t=5` | `"name";q=10;w=60` |
//! | 7 | `limit=10, remaining=9, reset=5` | `10;w=60` |
//! | 0 to 6 | `RateLimit-Limit`, `-Remaining`, `-Reset` (`headers::triple`) | `10;w=60`, or after the limit |
//!
//! A malformed field is ignored as a whole, as the drafts require.

use http::HeaderMap;
use sfv::{BareItem, Dictionary, Item, List, ListEntry, Parser};
use tollgate::Span;

use super::{BucketKind, BucketName, BucketReport, MAX_BUCKETS, MAX_FIELD_BYTES, Reset};

/// One member of a `RateLimit-Policy`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Policy {
    /// The name; `None` in drafts up to 7, which have only the quota.
    name: Option<String>,
    quota: Option<u64>,
    window: Option<Span>,
    kind: BucketKind,
}

/// Returns the value of a field whose lines are combined, if it is short enough.
fn field(headers: &HeaderMap, name: &str) -> Option<String> {
    let mut joined = String::new();
    for value in headers.get_all(name) {
        if !joined.is_empty() {
            joined.push(',');
        }
        joined.push_str(value.to_str().ok()?);
        if joined.len() > MAX_FIELD_BYTES {
            return None;
        }
    }
    (!joined.is_empty()).then_some(joined)
}

/// Reads the policies of a response.
pub(super) fn policies(headers: &HeaderMap) -> Vec<Policy> {
    let Some(text) = field(headers, "ratelimit-policy") else { return Vec::new() };
    let Ok(list) = Parser::new(&text).parse::<List>() else { return Vec::new() };
    list.iter().filter_map(policy).take(MAX_BUCKETS).collect()
}

/// Returns the window of the policy with this quota, for fields that name no policy.
pub(super) fn window_of(policies: &[Policy], quota: u64) -> Option<Span> {
    policies.iter().find(|policy| policy.quota == Some(quota)).and_then(|policy| policy.window)
}

fn policy(entry: &ListEntry) -> Option<Policy> {
    let ListEntry::Item(item) = entry else { return None };
    let (name, quota) = match &item.bare_item {
        BareItem::Integer(quota) => (None, u64::try_from(i64::from(*quota)).ok()),
        _ => (Some(name(item)?), parameter(item, "q")),
    };
    let kind = match item.params.get("qu").map(text_of) {
        None | Some(Some("request" | "requests")) => BucketKind::Requests,
        Some(Some("concurrent-requests")) => BucketKind::Slots,
        Some(_) => BucketKind::Other,
    };
    let window = parameter(item, "w").filter(|seconds| *seconds > 0).map(Span::from_secs);
    Some(Policy { name, quota, window, kind })
}

/// Reads `RateLimit` of drafts 7 to 11.
pub(super) fn read<'h>(headers: &HeaderMap, policies: &[Policy], reports: &mut impl FnMut(BucketReport<'h>)) {
    let Some(text) = field(headers, "ratelimit") else { return };
    if let Ok(list) = Parser::new(&text).parse::<List>()
        && list.iter().all(|entry| matches!(entry, ListEntry::Item(item) if name(item).is_some()))
        && list.iter().any(|entry| matches!(entry, ListEntry::Item(item) if parameter(item, "r").is_some()))
    {
        for entry in list.iter().take(MAX_BUCKETS) {
            let ListEntry::Item(item) = entry else { continue };
            let (Some(name), Some(remaining)) = (name(item), parameter(item, "r")) else { continue };
            let policy = policies.iter().find(|policy| policy.name.as_ref() == Some(&name));
            reports(BucketReport {
                limit: policy.and_then(|it| it.quota),
                remaining: Some(remaining),
                reset: parameter(item, "t").map(|seconds| Reset::After(Span::from_secs(seconds))),
                window: policy.and_then(|it| it.window),
                kind: policy.map_or(BucketKind::Requests, |it| it.kind),
                ..BucketReport::new(BucketName::Shared(name.into()))
            });
        }
        return;
    }
    let Ok(members) = Parser::new(&text).parse::<Dictionary>() else { return };
    let member = |key: &str| match members.get(key) {
        Some(ListEntry::Item(Item { bare_item: BareItem::Integer(value), .. })) => {
            u64::try_from(i64::from(*value)).ok()
        }
        _ => None,
    };
    if let (Some(limit), Some(reset)) = (member("limit"), member("reset")) {
        reports(BucketReport {
            limit: Some(limit),
            remaining: member("remaining"),
            reset: Some(Reset::After(Span::from_secs(reset))),
            window: window_of(policies, limit),
            ..BucketReport::new(BucketName::Route(""))
        });
    }
}

/// Returns the name of a policy: a string, or a token as some servers write it.
fn name(item: &Item) -> Option<String> {
    text_of(&item.bare_item).map(str::to_owned)
}

fn text_of(item: &BareItem) -> Option<&str> {
    match item {
        BareItem::String(text) => Some(text.as_str()),
        BareItem::Token(text) => Some(text.as_str()),
        _ => None,
    }
}

fn parameter(item: &Item, key: &str) -> Option<u64> {
    match item.params.get(key) {
        Some(BareItem::Integer(value)) => u64::try_from(i64::from(*value)).ok(),
        _ => None,
    }
}
