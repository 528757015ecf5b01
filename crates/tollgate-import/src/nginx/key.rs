//! Converts the key of a zone: variables of nginx become keys of a policy.
//!
//! A `map` or `geo` in the same file may give a key to some callers and an empty key to others,
//! which is how nginx exempts callers. It is read, and a comment lists the exempt callers.

use std::collections::BTreeMap;

use super::tree::Directive;
use crate::output::quoted;

/// The maximum depth to which maps of maps are followed.
const MAX_MAP_DEPTH: usize = 8;
/// The maximum number of exempt networks that a comment lists.
const MAX_LISTED_NETWORKS: usize = 20;

/// A `map` or `geo`: the values of a variable.
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

/// A key of a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Key {
    /// The value of `by`; empty for one counter for all callers.
    pub(super) by: Vec<String>,
    /// The value of `missing`, if the default would decide differently from nginx.
    pub(super) missing: Option<&'static str>,
    /// Whether each server counts separately.
    pub(super) per_server: bool,
    /// Whether each host counts separately.
    pub(super) per_host: bool,
    /// Notes on differences.
    pub(super) notes: Vec<String>,
}

/// Returns the policy key for an nginx key, or why a policy cannot express it.
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
                    "Callers control `${name}`. `ip` is the client address: if proxies are in front, list them \
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
                "nginx does not limit requests that lack all of these; here the client address replaces a missing part."
                    .to_owned(),
            ),
        }
    }
    Ok(key)
}

/// Returns the key of a variable that the file itself defines.
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
            "the {kind} of line {} selects the limited callers, and {} is not a key",
            table.line,
            quoted(value)
        ));
    }
    let mut key = resolved(value, tables, depth + 1)?;
    key.notes.push(format!(
        "The {kind} of line {} exempts some callers from this limit; here it applies to all. {}",
        table.line,
        exceptions(table, tables)
    ));
    Ok(key)
}

/// Describes how to exempt the same callers, if they are networks.
fn exceptions(table: &Table, tables: &Tables) -> String {
    let generally = "Entries under `allow` exempt callers from all limits.".to_owned();
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
    format!("This exempts them from all limits: `allow: [{{ip: [{}]}}]`.", nets.join(", "))
}

/// Converts `x_api_key`, as nginx writes headers, to `x-api-key`.
fn header_name(variable: &str) -> String {
    variable.replace('_', "-")
}

enum Piece<'t> {
    Variable(&'t str),
    Literal,
}

/// Returns the variables, and whether there is text between them.
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
