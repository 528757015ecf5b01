//! Builds the JSON body of a request from arguments.

use tollgate_api::{CheckRequest, OneOrMany, Pairs};
use tollgate_daemon::Failure;

use crate::arguments::Caller;

/// Builds the body from `[METHOD] PATH` and the attributes of the caller. Error messages name
/// `command`.
pub(super) fn body(command: &str, request: &[String], caller: &Caller) -> Result<CheckRequest, Failure> {
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
    let Caller { ip, user, api_key, tenant, plan, host, headers, cost } = caller.clone();
    let headers = pairs(&headers)?;
    Ok(CheckRequest {
        method: Some(method.to_ascii_uppercase()),
        path: path.clone(),
        ip,
        user,
        api_key,
        tenant,
        plan,
        host,
        headers: if headers.is_empty() { None } else { Some(headers) },
        claims: None,
        cost,
    })
}

/// Whether no attribute of the caller was given.
pub(super) fn is_anonymous(caller: &Caller) -> bool {
    let Caller { ip, user, api_key, tenant, plan, host, headers, cost } = caller;
    let words = [ip, user, api_key, tenant, plan, host];
    words.iter().all(|it| it.is_none()) && headers.is_empty() && cost.is_none()
}

fn pairs(typed: &[String]) -> Result<Pairs, Failure> {
    let mut headers = Pairs::new();
    for header in typed {
        let Some((name, value)) = header.split_once(':').filter(|(name, _)| !name.trim().is_empty()) else {
            let message = format!("`{header}` is not a header");
            return Err(Failure::with_help(message, "--header 'X-Plan: pro'"));
        };
        let (name, value) = (name.trim().to_ascii_lowercase(), value.trim().to_owned());
        // A header that is given twice is sent as a list.
        let values = match headers.remove(&name) {
            None => OneOrMany::One(value),
            Some(OneOrMany::One(first)) => OneOrMany::Many(vec![first, value]),
            Some(OneOrMany::Many(lines)) => OneOrMany::Many([lines, vec![value]].concat()),
        };
        headers.insert(name, values);
    }
    Ok(headers)
}
