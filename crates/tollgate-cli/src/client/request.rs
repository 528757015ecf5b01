//! Builds the JSON body of a request from arguments.

use serde_json::{Map, Value, json};
use tollgate_daemon::Failure;

use crate::arguments::Caller;

/// Builds the body from `[METHOD] PATH` and the attributes of the caller. Error messages name
/// `command`.
pub(super) fn body(command: &str, request: &[String], caller: &Caller) -> Result<Value, Failure> {
    let (method, path) = match request {
        [method, path] => (method.as_str(), path),
        [path] => ("GET", path),
        _ => return Err(Failure::new("give a path, or a method and a path")),
    };
    if !path.starts_with('/') {
        let message = format!("`{path}` is not a path: it begins with `/`");
        let help = format!("tollgate {command} POST /api/v1/login --ip 203.0.113.9");
        return Err(Failure::with_help(message, help));
    }
    let mut body = Map::new();
    body.insert("method".into(), json!(method.to_ascii_uppercase()));
    body.insert("path".into(), json!(path));
    for (name, value) in [
        ("ip", &caller.ip),
        ("user", &caller.user),
        ("api_key", &caller.api_key),
        ("tenant", &caller.tenant),
        ("plan", &caller.plan),
        ("host", &caller.host),
    ] {
        if let Some(value) = value {
            body.insert(name.into(), json!(value));
        }
    }
    if let Some(cost) = caller.cost {
        body.insert("cost".into(), json!(cost));
    }
    let headers = headers(&caller.headers)?;
    if !headers.is_empty() {
        body.insert("headers".into(), headers.into());
    }
    Ok(body.into())
}

/// Whether no attribute of the caller was given.
pub(super) fn is_anonymous(caller: &Caller) -> bool {
    let Caller { ip, user, api_key, tenant, plan, host, headers, cost } = caller;
    let words = [ip, user, api_key, tenant, plan, host];
    words.iter().all(|it| it.is_none()) && headers.is_empty() && cost.is_none()
}

fn headers(typed: &[String]) -> Result<Map<String, Value>, Failure> {
    let mut headers = Map::new();
    for header in typed {
        let Some((name, value)) = header.split_once(':').filter(|(name, _)| !name.trim().is_empty()) else {
            let message = format!("`{header}` is not a header");
            return Err(Failure::with_help(message, "--header 'X-Plan: pro'"));
        };
        let (name, value) = (name.trim().to_ascii_lowercase(), json!(value.trim()));
        // A header that is given twice is sent as a list.
        match headers.get_mut(&name) {
            None => drop(headers.insert(name, value)),
            Some(Value::Array(lines)) => lines.push(value),
            Some(first) => *first = Value::Array(vec![first.take(), value]),
        }
    }
    Ok(headers)
}
