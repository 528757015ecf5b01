//! Whom a zone counts: variables of nginx as keys of a policy.
//!
//! A `map` or `geo` of the same file that gives one key for some callers and none for others
//! (how nginx is told of exceptions) is read; who is excepted is said in a comment.

use std::collections::BTreeMap;

use super::tree::Directive;
use crate::output::quoted;

/// Maps that speak of maps are followed this far.
const MAX_MAP_DEPTH: usize = 8;
/// The most excepted networks that a comment lists.
const MAX_LISTED_NETWORKS: usize = 20;

/// A `map` or `geo`: which value a variable has.
#[derive(Clone, Debug)]
pub(super) struct Table {
    line: u32,
    is_geo: bool,
    source: String,
    entries: Vec<(String, String)>,
}

/// The tables of a file, by the variable they set.
pub(super) type Tables = BTreeMap<String, Table>;

/// Adds a `map` or `geo`.
pub(super) fn table(directive: &Directive, tables: &mut Tables) {
    let is_geo = directive.name == "geo";
    let (source, variable) = match (directive.argument(0), directive.argument(1)) {
        (Some(source), Some(variable)) => (source, variable),
        (Some(variable), None) if is_geo => ("$remote_addr", variable),
        _ => return,
    };
    let entries = directive
        .block
        .iter()
        .filter(|it| !matches!(it.name.as_str(), "hostnames" | "volatile" | "ranges" | "proxy"));
    let entries = entries.map(|it| (it.name.clone(), it.argument(0).unwrap_or_default().to_owned()));
    let table =
        Table { line: directive.place.line, is_geo, source: source.to_owned(), entries: entries.collect() };
    tables.insert(variable.to_owned(), table);
}

/// A key in the words of a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Key {
    /// For `by`; empty for one count for all.
    pub(super) by: Vec<String>,
    /// For `missing`, where the default would decide otherwise than nginx.
    pub(super) missing: Option<&'static str>,
    /// Each server counts apart.
    pub(super) per_server: bool,
    /// Each host counts apart.
    pub(super) per_host: bool,
    /// What differs.
    pub(super) notes: Vec<String>,
}

/// The key that a text of nginx stands for, or why it cannot be said.
pub(super) fn key(text: &str, tables: &Tables) -> Result<Key, String> {
    resolved(text, tables, 0)
}

fn resolved(text: &str, tables: &Tables, depth: usize) -> Result<Key, String> {
    let (mut key, mut optional, mut literal) = (Key::default(), 0, false);
    for piece in pieces(text) {
        let Piece::Variable(name) = piece else {
            literal = true;
            continue;
        };
        let by = match (name, name.split_once('_')) {
            ("binary_remote_addr" | "remote_addr", _) => "ip".to_owned(),
            ("http_x_forwarded_for" | "http_x_real_ip" | "proxy_add_x_forwarded_for", _) => {
                key.notes.push(format!(
                    "`${name}` is what callers say. `ip` is who they are: where proxies stand in front, list them \
                     under `client: {{trusted_proxies: [...]}}`."
                ));
                "ip".to_owned()
            }
            ("server_name", _) => {
                key.per_server = true;
                continue;
            }
            ("host" | "http_host", _) => {
                key.per_host = true;
                continue;
            }
            (_, Some(("http", header))) => {
                optional += 1;
                format!("header:{}", header_name(header))
            }
            (_, Some(("arg", parameter))) => {
                optional += 1;
                format!("query:{parameter}")
            }
            (_, Some(("cookie", cookie))) => {
                optional += 1;
                format!("cookie:{cookie}")
            }
            (_, Some(("jwt", claim))) if claim.starts_with("claim_") => {
                optional += 1;
                format!("claim:{}", claim.trim_start_matches("claim_"))
            }
            _ => {
                let inner = of_table(name, tables, depth)?;
                if pieces(text).len() == 1 {
                    return Ok(inner);
                }
                key.notes.extend(inner.notes);
                key.per_server |= inner.per_server;
                key.per_host |= inner.per_host;
                key.by.extend(inner.by);
                continue;
            }
        };
        if !key.by.contains(&by) {
            key.by.push(by);
        }
    }
    if optional > 0 && optional == key.by.len() && !key.per_server && !key.per_host {
        match (literal, optional) {
            (true, _) => key.missing = Some("shared"),
            (false, 1) => {
                key.missing = Some("skip");
                key.notes.push(
                    "As in nginx, requests without it are not limited; without `missing: skip` they are counted by \
                     their address."
                        .to_owned(),
                );
            }
            (false, _) => key.notes.push(
                "nginx does not limit requests that have none of these; here the address stands in for what is missing."
                    .to_owned(),
            ),
        }
    }
    Ok(key)
}

/// The key behind a variable that the file sets itself.
fn of_table(name: &str, tables: &Tables, depth: usize) -> Result<Key, String> {
    let unknown = || Err(format!("a policy has no key for `${name}`"));
    let Some(table) = tables.get(&format!("${name}")) else { return unknown() };
    if depth >= MAX_MAP_DEPTH {
        return unknown();
    }
    let mut values: Vec<_> = table.entries.iter().map(|(_, value)| value.as_str()).collect();
    values.retain(|it| !it.is_empty());
    values.dedup();
    let kind = if table.is_geo { "geo" } else { "map" };
    let [value] = values[..] else {
        return Err(format!(
            "the {kind} of line {} gives {} several values",
            table.line,
            quoted(&format!("${name}"))
        ));
    };
    if !value.contains('$') {
        return Err(format!(
            "the {kind} of line {} decides who is limited, and {} is no key",
            table.line,
            quoted(value)
        ));
    }
    let mut key = resolved(value, tables, depth + 1)?;
    key.notes.push(format!(
        "The {kind} of line {} excepts some callers from this limit; here it is for all. {}",
        table.line,
        exceptions(table, tables)
    ));
    Ok(key)
}

/// How to except the same callers, where they are networks.
fn exceptions(table: &Table, tables: &Tables) -> String {
    let generally = "Entries under `allow` except callers from all limits.".to_owned();
    let Some(geo) = tables.get(&table.source).filter(|it| it.is_geo && !table.is_geo) else {
        return generally;
    };
    let value =
        |key: &str| table.entries.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str());
    let fallback = value("default").unwrap_or_default();
    let excepted = geo
        .entries
        .iter()
        .filter(|(net, group)| net != "default" && value(group).unwrap_or(fallback).is_empty());
    let nets: Vec<_> = excepted.map(|(net, _)| net.as_str()).take(MAX_LISTED_NETWORKS).collect();
    if nets.is_empty() {
        return generally;
    }
    format!("This excepts them, from all limits: `allow: [{{ip: [{}]}}]`.", nets.join(", "))
}

/// `x_api_key` as `x-api-key`: nginx writes headers so.
fn header_name(variable: &str) -> String {
    variable.replace('_', "-")
}

enum Piece<'t> {
    Variable(&'t str),
    Literal,
}

/// Variables, and whether something stands between them.
fn pieces(text: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let Some(at) = rest.find('$') else {
            pieces.push(Piece::Literal);
            break;
        };
        if at > 0 {
            pieces.push(Piece::Literal);
        }
        let behind = &rest[at + 1..];
        let braced = behind.strip_prefix('{').and_then(|it| it.split_once('}'));
        let (name, behind) = braced.unwrap_or_else(|| {
            let end =
                behind.find(|it: char| !it.is_ascii_alphanumeric() && it != '_').unwrap_or(behind.len());
            behind.split_at(end)
        });
        pieces.push(if name.is_empty() { Piece::Literal } else { Piece::Variable(name) });
        rest = behind;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, by: &str, missing: Option<&str>) {
        let key = key(text, &Tables::new()).unwrap_or_else(|why| panic!("{text}: {why}"));
        assert_eq!((key.by.join(" ").as_str(), key.missing), (by, missing), "{text}");
    }

    #[test]
    fn variables_become_keys() {
        check("$binary_remote_addr", "ip", None);
        check("${remote_addr}", "ip", None);
        check("$http_x_api_key", "header:x-api-key", Some("skip"));
        check("$arg_token", "query:token", Some("skip"));
        check("$cookie_session", "cookie:session", Some("skip"));
        check("$binary_remote_addr$http_user_agent", "ip header:user-agent", None);
        check("$binary_remote_addr:$arg_q", "ip query:q", None);
        check("api:$http_x", "header:x", Some("shared"));
        check("$http_a$http_b", "header:a header:b", None);
        check("everybody", "", None);
        check("$server_name", "", None);
        check("$jwt_claim_sub", "claim:sub", Some("skip"));
        assert!(key("$binary_remote_addr$uri", &Tables::new()).is_err());
        assert!(key("$request_method", &Tables::new()).is_err());
    }
}
