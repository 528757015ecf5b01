//! The API, described for machines (`OpenAPI` 3.1).
//!
//! Written by hand beside the handlers, and held to them by
//! `tests/openapi.rs`, which sends what it promises to answer.
//!
//! Not here: `/json`, whose shapes are Envoy's and stand in its protobuf files.

mod auth;
mod lab;
mod operator;
mod schemas;

use serde_json::{Map, Value, json};

/// The API, described as `OpenAPI` 3.1. `docs/openapi.json` is this, and so is what
/// `GET /openapi.json` answers.
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
            "schemas": all_schemas(),
            "responses": responses(),
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "token": {"type": "apiKey", "in": "header", "name": "Tollgate-Token"},
            },
        },
    })
}

fn all_schemas() -> Value {
    let mut all = schemas::all();
    if let Some(all) = all.as_object_mut() {
        all.extend(operator::schemas());
        all.extend(lab::schemas());
    }
    all
}

fn paths() -> Value {
    let mut paths = json!({
        "/": page("index", "What is here; to those who read HTML, the page for people", json!({
            "text/plain": {"schema": {"type": "string"}}, "text/html": {"schema": {"type": "string"}},
        })),
        "/healthz": page("healthz", "Whether the process is alive", json!({"text/plain": {"schema": {"type": "string"}}})),
        "/health": page(
            "health", "The same, where throttlecrab's clients look", json!({"text/plain": {"schema": {"type": "string"}}})
        ),
        "/readyz": readyz(),
        "/metrics": page(
            "metrics", "Counts, in the text format of Prometheus", json!({"text/plain": {"schema": {"type": "string"}}})
        ),
        "/openapi.json": page("openapi", "This document", json!({"application/json": {"schema": {"type": "object"}}})),
        "/v1/limits": page("limits", "The limits in force", json_of("Limits")),
        "/v1/check": {"post": with_links(operation(
            "check", "May this request pass?", "CheckRequest", "Decision", &["400", "401", "403", "408", "413", "415", "422"]
        ))},
        "/v1/check/batch": {"post": operation(
            "checkBatch",
            "May these requests pass? Each is decided on its own, in their order; a mistake in one turns down all.",
            "BatchRequest", "BatchDecision", &["400", "401", "403", "408", "413", "415", "422"]
        )},
        "/v1/settle": {"post": operation(
            "settle",
            "What an earlier request cost in the end. The first word is final: the same cost again changes nothing, another one is 409.",
            "SettleRequest", "Settled", &["400", "401", "403", "404", "408", "409", "413", "415", "422", "503"]
        )},
        "/v1/release": {"post": operation(
            "release",
            "An earlier request is over: its slots are given back. Doing so twice does no harm.",
            "ReleaseRequest", "Released", &["400", "401", "403", "404", "408", "409", "413", "415", "422", "503"]
        )},
        "/v1/auth": auth::by_query(),
        "/v1/auth/original": auth::by_path("Original", None),
        "/v1/auth/original/{status}": auth::by_path("Original", Some("WithStatus")),
        "/v1/auth/forwarded": auth::by_path("Forwarded", None),
        "/v1/auth/forwarded/{status}": auth::by_path("Forwarded", Some("WithStatus")),
        "/throttle": {"post": operation(
            "throttle",
            "throttlecrab's question: the limit comes with the call. A refusal is 200, too; seconds are whole and cut.",
            "ThrottleRequest", "Throttled", &["400", "401", "403", "408", "409", "413", "415", "422"]
        )},
    });
    if let Some(paths) = paths.as_object_mut() {
        for (word, summary) in [
            ("check", "Decides by one limit about one key, and charges it"),
            ("peek", "How a key stands. Charges nothing"),
            ("grant", "Gives back up to a full allowance, never more than the limit holds"),
            ("reset", "Forgets what a key has spent"),
            ("refund", "Gives back what a key was charged last, up to a full allowance"),
        ] {
            paths.insert(format!("/v1/limits/{{name}}/{word}"), named(word, summary));
        }
        paths.extend(operator::paths());
        paths.extend(lab::paths());
    }
    paths
}

fn json_of(schema: &str) -> Value {
    json!({"application/json": {"schema": {"$ref": format!("#/components/schemas/{schema}")}}})
}

/// Something to look at.
fn page(id: &str, summary: &str, content: Value) -> Value {
    let operation = |id: String, content: Option<Value>| {
        let mut ok = json!({"description": "It is here."});
        if let (Some(ok), Some(content)) = (ok.as_object_mut(), content) {
            ok.insert("content".into(), content);
        }
        json!({
            "operationId": id, "summary": summary,
            "responses": {"200": ok, "401": reference("401"), "403": reference("403")},
        })
    };
    json!({"get": operation(id.to_owned(), Some(content)), "head": operation(format!("{id}Head"), None)})
}

fn readyz() -> Value {
    let operation = |id: &str, content: Option<Value>| {
        let said = |description: &str| {
            let mut said = json!({"description": description});
            if let (Some(said), Some(content)) = (said.as_object_mut(), &content) {
                said.insert("content".into(), content.clone());
            }
            said
        };
        json!({
            "operationId": id, "summary": "Whether requests should be sent here", "security": [{}],
            "responses": {"200": said("Ready."), "503": said("No policy yet, or about to stop.")},
        })
    };
    json!({"get": operation("readyz", Some(json_of("Readiness"))), "head": operation("readyzHead", None)})
}

/// Something to ask for.
fn operation(id: &str, summary: &str, asked: &str, told: &str, problems: &[&str]) -> Value {
    let mut responses = Map::new();
    responses.insert("200".into(), json!({"description": "The answer.", "content": json_of(told)}));
    responses.extend(problems.iter().map(|status| ((*status).to_owned(), reference(status))));
    json!({
        "operationId": id, "summary": summary,
        "requestBody": {
            "required": true, "content": json_of(asked),
            "description": "JSON. So it is read, too, without a type and by those that tools write by themselves: \
                            application/x-www-form-urlencoded (curl -d) and text/plain.",
        },
        "responses": responses,
    })
}

/// What can be done later with the id of an answer.
fn with_links(mut operation: Value) -> Value {
    let id = "$response.body#/id";
    operation["responses"]["200"]["links"] = json!({
        "settle": {"operationId": "settle", "requestBody": {"id": id, "cost": 1}},
        "release": {"operationId": "release", "requestBody": {"id": id}},
    });
    operation
}

fn named(word: &str, summary: &str) -> Value {
    let asked = if word == "reset" { "ResetRequest" } else { "KeyRequest" };
    let problems = ["400", "401", "403", "404", "408", "409", "413", "415", "422", "503"];
    let id = format!("{word}Limit");
    let mut named = named_parameters();
    named["post"] = operation(&id, summary, asked, "Decision", &problems);
    named
}

/// A path that names a limit.
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
        "400": problem("The request cannot be read; the detail says where."),
        "401": problem("The token is missing or wrong."),
        "403": problem("The token may only look, and this takes the admin token; or a page of another site asks, by its Origin or by Sec-Fetch-Site; or, where no token is wanted, the Host is a name that others can own."),
        "404": problem("No such limit, key, decision or file."),
        "408": problem("The body did not arrive in time."),
        "409": problem("Nothing is observed (`observe: off`); or the limit counts slots, which are neither granted nor refunded; or the decision is settled at another cost; or the store holds data under this key that Tollgate did not write; or the numbers of a throttle do not go together."),
        "413": problem("The body is too long."),
        "415": problem("The body is something else than JSON by its type, or packed; or it is a browser's and not JSON by its type."),
        "422": problem("The request can be read and makes no sense; the detail says why."),
        "503": problem("The store gives no answer; or, of a switch or a simulation, too many are made at once."),
    })
}
