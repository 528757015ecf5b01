//! The `OpenAPI` 3.1 description of the API.
//!
//! The schemas are generated from the types that are written and read: the shapes of `tollgate_api`, the
//! parameters of a simulation, and its results. Paths and statuses are written by hand;
//! `tests/api/openapi.rs` sends requests and compares the responses with them.
//!
//! `/json` is not described, because Envoy's protobuf files define its messages.

mod auth;
mod operator;

use serde_json::{Map, Value, json};
use tollgate_sim::overload::OverloadReport;
use tollgate_sim::simulate::Round;

use crate::lab::{OverloadRequest, SimulateRequest};

/// Returns the `OpenAPI` 3.1 description of the API, as in `docs/openapi.json` and as served by `GET
/// /openapi.json`.
///
/// ```
/// let api = tollgate_server::openapi();
/// assert_eq!(api["openapi"], "3.1.0");
/// assert!(api["paths"]["/v1/check"]["post"].is_object());
/// ```
pub fn openapi() -> Value {
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Tollgate",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Decides whether requests may pass. A refusal is an answer, and so 200; \
                            errors are application/problem+json with a detail that says what to change. Not described here: \
                            `POST /json`, Envoy's `RateLimitRequest` in the JSON of protobuf (envoy.service.ratelimit.v3), \
                            where a refusal is 429.",
            "license": {"name": "Apache-2.0 OR MIT", "identifier": "Apache-2.0 OR MIT"},
        },
        "servers": [{"url": "/"}],
        "security": [{}, {"bearer": []}, {"token": []}],
        "paths": paths(),
        "components": {
            "schemas": schemas(),
            "responses": responses(),
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "token": {"type": "apiKey", "in": "header", "name": "Tollgate-Token"},
            },
        },
    })
}

fn schemas() -> Map<String, Value> {
    let mut schemas = tollgate_api::schemas();
    tollgate_api::add_request::<SimulateRequest>(&mut schemas);
    tollgate_api::add_response::<Round>(&mut schemas);
    tollgate_api::add_request::<OverloadRequest>(&mut schemas);
    tollgate_api::add_response::<OverloadReport>(&mut schemas);
    schemas
}

fn paths() -> Value {
    let text = json!({"text/plain": {"schema": {"type": "string"}}});
    let mut paths = json!({
        "/": page("index", "The index of the API; the dashboard for clients that accept HTML", &json!({
            "text/plain": {"schema": {"type": "string"}}, "text/html": {"schema": {"type": "string"}},
        })),
        "/healthz": page("healthz", "Whether the process is alive", &text),
        "/health": page("health", "Liveness, at the path of throttlecrab", &text),
        "/readyz": readyz(),
        "/metrics": page("metrics", "Metrics in the Prometheus text format", &text),
        "/openapi.json": page("openapi", "This document", &json!({"application/json": {"schema": {"type": "object"}}})),
        "/v1/limits": page("limits", "The limits in force", &json_of("Limits")),
        "/v1/check": {"post": with_links(operation(
            "check", "Decides about a request, and charges it", "CheckRequest", "Decision", &["400", "401", "403", "408", "413", "415", "422"]
        ))},
        "/v1/check/batch": {"post": operation(
            "checkBatch",
            "Decides about several requests, in order and independently. If one is invalid, all are rejected.",
            "BatchRequest", "BatchDecision", &["400", "401", "403", "408", "413", "415", "422"]
        )},
        "/v1/settle": {"post": operation(
            "settle",
            "Reports the final cost of an earlier request. The first settlement is final: the same cost again changes nothing, another cost is 409.",
            "SettleRequest", "Settled", &["400", "401", "403", "404", "408", "409", "413", "415", "422", "503"]
        )},
        "/v1/release": {"post": operation(
            "release",
            "Releases the slots of an earlier request. Releasing twice is harmless.",
            "ReleaseRequest", "Released", &["400", "401", "403", "404", "408", "409", "413", "415", "422", "503"]
        )},
        "/v1/renew": {"post": operation(
            "renew",
            "Starts the leases of the slots of an earlier request again, for a request that runs for longer than their `ttl`. A slot that was released, or whose lease has ended, is not taken again.",
            "RenewRequest", "Renewed", &["400", "401", "403", "404", "408", "413", "415", "422", "503"]
        )},
        "/v1/auth": auth::by_query(),
        "/v1/auth/original": auth::by_path("Original", None),
        "/v1/auth/original/{status}": auth::by_path("Original", Some("WithStatus")),
        "/v1/auth/forwarded": auth::by_path("Forwarded", None),
        "/v1/auth/forwarded/{status}": auth::by_path("Forwarded", Some("WithStatus")),
        "/throttle": {"post": operation(
            "throttle",
            "throttlecrab's API, in which the call sets the limit. A refusal is also 200; seconds are truncated.",
            "ThrottleRequest", "Throttled", &["400", "401", "403", "408", "409", "413", "415", "422"]
        )},
    });
    if let Some(paths) = paths.as_object_mut() {
        for (word, summary) in [
            ("check", "Decides by one limit about one key, and charges it"),
            ("peek", "Returns the state of a key. Charges nothing"),
            ("grant", "Returns units to a key, up to a full allowance"),
            ("reset", "Resets a key to its full allowance"),
            ("refund", "Returns the last charges of a key, up to a full allowance"),
        ] {
            paths.insert(format!("/v1/limits/{{name}}/{word}"), named(word, summary));
        }
        paths.extend(operator::paths());
    }
    paths
}

fn json_of(schema: &str) -> Value {
    json!({"application/json": {"schema": {"$ref": format!("#/components/schemas/{schema}")}}})
}

/// Describes a resource that is read with `GET` and `HEAD`. `responses` describes a response with the content that it
/// has to `GET`.
fn read(
    id: &str,
    summary: &str,
    content: &Value,
    responses: impl Fn(&dyn Fn(&str) -> Value) -> Value,
) -> Value {
    let operation = |id: &str, is_get: bool| {
        let with_content = |description: &str| {
            let mut response = json!({"description": description});
            if is_get {
                response["content"] = content.clone();
            }
            response
        };
        json!({"operationId": id, "summary": summary, "responses": responses(&with_content)})
    };
    json!({"get": operation(id, true), "head": operation(&format!("{id}Head"), false)})
}

/// Adds that a resource needs no token.
fn without_token(mut resource: Value) -> Value {
    for method in ["get", "head"] {
        resource[method]["security"] = json!([{}]);
    }
    resource
}

fn page(id: &str, summary: &str, content: &Value) -> Value {
    read(
        id,
        summary,
        content,
        |with_content| json!({"200": with_content("Success."), "401": reference("401"), "403": reference("403")}),
    )
}

fn readyz() -> Value {
    without_token(read(
        "readyz",
        "Whether requests should be sent here",
        &json_of("Readiness"),
        |with_content| json!({"200": with_content("Ready."), "503": with_content("No policy yet, or about to stop.")}),
    ))
}

/// Describes an operation.
fn operation(id: &str, summary: &str, request: &str, response: &str, problems: &[&str]) -> Value {
    let mut responses = Map::new();
    responses.insert("200".into(), json!({"description": "The answer.", "content": json_of(response)}));
    responses.extend(problems.iter().map(|status| ((*status).to_owned(), reference(status))));
    json!({
        "operationId": id, "summary": summary,
        "requestBody": {
            "required": true, "content": json_of(request),
            "description": "JSON. So it is read, too, without a type and by those that tools write by themselves: \
                            application/x-www-form-urlencoded (curl -d) and text/plain.",
        },
        "responses": responses,
    })
}

/// Adds links to the operations that take the id of the response.
fn with_links(mut operation: Value) -> Value {
    let id = "$response.body#/id";
    operation["responses"]["200"]["links"] = json!({
        "settle": {"operationId": "settle", "requestBody": {"id": id, "cost": 1}},
        "release": {"operationId": "release", "requestBody": {"id": id}},
        "renew": {"operationId": "renew", "requestBody": {"id": id}},
    });
    operation
}

fn named(word: &str, summary: &str) -> Value {
    let request = if word == "reset" { "ResetRequest" } else { "KeyRequest" };
    let problems = ["400", "401", "403", "404", "408", "409", "413", "415", "422", "503"];
    let id = format!("{word}Limit");
    let mut named = named_parameters();
    named["post"] = operation(&id, summary, request, "Decision", &problems);
    named
}

/// Describes the path parameter that names a limit.
fn named_parameters() -> Value {
    json!({
        "parameters": [{
            "name": "name", "in": "path", "required": true, "description": "The limit's name in the policy.",
            "schema": {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$"},
        }],
    })
}

fn reference(status: &str) -> Value {
    json!({"$ref": format!("#/components/responses/{status}")})
}

fn responses() -> Value {
    let problem = |description: &str| {
        json!({"description": description, "content": {
            "application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}},
        }})
    };
    json!({
        "400": problem("The request cannot be parsed; the detail has the position."),
        "401": problem("The token is missing or wrong."),
        "403": problem("The token permits reads only, and this needs the admin token; or the request comes from a page of another origin, by its Origin or Sec-Fetch-Site; or, without a token, the Host is neither an address nor localhost."),
        "404": problem("No such limit, key, decision or file."),
        "408": problem("The body did not arrive in time."),
        "409": problem("Observation is off (`observe: off`); or the limit counts slots, which can be neither granted nor refunded; or the decision is already settled at another cost; or the store holds data under this key that Tollgate did not write; or the numbers of a throttle are inconsistent."),
        "413": problem("The body is too long."),
        "415": problem("The content type is not JSON, or the body is compressed; or a browser sent it without the JSON content type."),
        "422": problem("The request was parsed and is invalid; the detail has the reason."),
        "503": problem("The store does not answer; or there are too many concurrent mode changes or simulations."),
    })
}
