//! The description of forward auth.
//!
//! It covers all methods, because a proxy may keep the method of its client.

use serde_json::{Map, Value, json};

const METHODS: [&str; 8] = ["get", "head", "post", "put", "patch", "delete", "options", "trace"];

/// Describes `/v1/auth`, with the family and the status in the query.
pub(super) fn by_query() -> Value {
    let mut path = methods("auth", "with `deny`", "the status that `deny` names");
    let deny = json!({
        "name": "deny", "in": "query", "description": "The status of a refusal, instead of 429.",
        "schema": {"type": "integer", "minimum": 400, "maximum": 499},
    });
    let headers = json!({
        "name": "headers", "in": "query",
        "description": "Which headers name the original request, since clients can add the others. `forwarded` for \
                        Traefik and Caddy, which send X-Forwarded-Uri and X-Forwarded-Method instead of those below. \
                        Better in the path: a proxy that appends the query of its client asks with that instead.",
        "schema": {"enum": ["original"]},
    });
    let [uri, method] = original("Original");
    path.insert("parameters".into(), json!([deny, headers, uri, method]));
    Value::Object(path)
}

/// Describes a path with the family and optionally the status; `with_status` is the suffix of its ids.
pub(super) fn by_path(family: &str, with_status: Option<&str>) -> Value {
    let id = format!("auth{family}{}", with_status.unwrap_or_default());
    let mut path = methods(&id, "with that status in the path", "the status in the path");
    let mut parameters = original(family).to_vec();
    if with_status.is_some() {
        parameters.push(json!({
            "name": "status", "in": "path", "required": true,
            "description": "The status of a refusal, instead of 429.",
            "schema": {"type": "integer", "minimum": 400, "maximum": 499},
        }));
    }
    path.insert("parameters".into(), Value::Array(parameters));
    Value::Object(path)
}

/// Describes the headers of a family.
fn original(family: &str) -> [Value; 2] {
    let uri = if family == "Original" { "URI" } else { "Uri" };
    [
        json!({
            "name": format!("X-{family}-{uri}"), "in": "header", "required": true,
            "description": "The path and query of the original request, or its URL.",
            "schema": {"type": "string", "pattern": "^(/|\\*$)"},
        }),
        json!({
            "name": format!("X-{family}-Method"), "in": "header",
            "description": "The method of the original request, if it differs from this request's.",
            "schema": {"type": "string", "pattern": "^[!#$%&'*+.^_`|~0-9A-Za-z-]*$"},
        }),
    ]
}

fn methods(id: &str, wished: &str, status: &str) -> Map<String, Value> {
    let empty = json!({"description": "The request is admitted. The headers have the state of its limits."});
    let problem = json!({"schema": {"$ref": "#/components/schemas/Refusal"}});
    let refusal = |description: String| {
        json!({"description": description, "content": {
            "application/problem+json": problem.clone(), "application/json": problem.clone(),
            "text/plain": {"schema": {"type": "string"}},
        }})
    };
    let operation = |method: &str| {
        json!({
            "operationId": format!("{id}{}", method.to_ascii_uppercase()),
            "summary": "Forward auth: decides about the request that these headers name",
            "security": [{}, {"token": []}],
            "responses": {
                "200": empty,
                "400": refusal(format!(
                    "The request cannot be read; or it gives several different values for a credential, and the \
                     policy refuses such; or refused, {wished}."
                )),
                "401": refusal(format!("The token is missing or wrong; or refused, {wished}.")),
                "403": refusal(format!("The caller is on a deny list or blocked; or refused, {wished}.")),
                "4XX": refusal(format!("Refused: 429, or {status}.")),
                "503": refusal("The store does not answer, and a limit has `on_outage: deny`.".into()),
            },
        })
    };
    METHODS.iter().map(|method| ((*method).to_owned(), operation(method))).collect()
}
