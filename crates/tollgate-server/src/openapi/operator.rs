//! The description of the operator API: overview, explanations, modes and the files of the dashboard.

use serde_json::{Map, Value, json};
use tollgate_api::{MAX_DECISIONS, MAX_HISTORY_STEPS, MAX_UNITS};

use super::{json_of, operation, read, reference, without_token};
use crate::stats::{MAX_SERIES_LIMITS, MAX_TOP};

/// Describes the paths.
pub(super) fn paths() -> Map<String, Value> {
    let limit = json!({
        "name": "limit", "in": "query", "description": "Adds the series of these limits.",
        "schema": {"type": "array", "items": {"type": "string"}, "maxItems": MAX_SERIES_LIMITS},
        "explode": true,
    });
    let bucket = json!({"name": "bucket", "in": "query", "required": true, "description": "The entries of a bucket, as in `/v1/quotas`.",
                        "schema": {"type": "string"}});
    let domain = json!({"name": "domain", "in": "query", "description": "The domain of the bucket, if several have it.", "schema": {"type": "string"}});
    let id = json!({"name": "id", "in": "path", "required": true, "description": "The id of a decision, from `Tollgate-Decision`.",
                    "schema": {"type": "string", "pattern": "^[0-9A-Fa-f]{16}$"}});
    let file = json!({"name": "name", "in": "path", "required": true, "description": "A file of the dashboard.",
                      "schema": {"type": "string", "pattern": "^[A-Za-z0-9._-]+$"}});
    let book = json!({"name": "name", "in": "path", "required": true, "description": "A file of the book, such as `guide.html`.",
                      "schema": {"type": "string", "pattern": "^[A-Za-z0-9._-]+$"}});
    let of_switch = ["400", "401", "403", "404", "408", "413", "415", "422", "503"];
    let mut of_everything = look("modes", "The modes and overrides of limits", "Modes", &[], &[]);
    of_everything["put"] = operation(
        "switchEverything",
        "Changes the mode of everything: `enforce` leaves each limit unchanged",
        "SwitchRequest",
        "Switched",
        &of_switch,
    );
    let mut of_limit = super::named_parameters();
    of_limit["put"] = operation(
        "switchLimit",
        "Changes the mode of one limit; `policy` removes the override",
        "SwitchLimitRequest",
        "SwitchedLimit",
        &["400", "401", "403", "404", "408", "409", "413", "415", "422", "503"],
    );
    let of_explain = ["400", "401", "403", "408", "409", "413", "415", "422", "503"];
    [
        ("/page/{name}", page("page", "A file of the page", &file)),
        ("/book/{name}", page("book", "A page of the documentation, if the program embeds it", &book)),
        ("/v1/overview", look("overview", "The health of the server", "Overview", &[], &[])),
        ("/v1/fleet", look("fleet", "The nodes that share the store, with the sums over all of them", "Fleet", &[], &[])),
        ("/v1/quotas", look("quotas", "The limits that are divided over proxies, and what each proxy has", "Quotas", &[], &[])),
        (
            "/v1/quotas/bucket",
            look("explainBucket", "Explains why each proxy has its part of a bucket", "ExplainedBucket", &[bucket, domain], &["404"]),
        ),
        ("/v1/stats", look("stats", "The counts of each limit in the last five minutes", "Stats", &[limit], &["409", "422"])),
        (
            "/v1/top",
            look(
                "top", "The keys refused most and the routes requested most in the last five minutes", "Top",
                &[number("most", 1, MAX_TOP, "How many; 20 unless given.")], &["409"],
            ),
        ),
        ("/v1/decisions/{id}", look("explainDecision", "Explains a past decision", "Explanation", &[id], &["404", "409", "422"])),
        (
            "/v1/explain",
            json!({"post": operation(
                "explain", "Explains the decision that a request would get now. Charges nothing", "CheckRequest", "Explanation", &of_explain
            )}),
        ),
        ("/v1/policy", look("policy", "The policy as parsed, without its limits", "Policy", &[], &[])),
        ("/v1/mode", of_everything),
        ("/v1/limits/{name}/mode", of_limit),
        (
            "/v1/lab/simulate",
            json!({"post": operation(
                "simulate", "Compares algorithms on generated traffic, in virtual time. Does not use the store and charges nothing",
                "SimulateRequest", "Simulated", &["400", "401", "403", "408", "413", "415", "422", "503"]
            )}),
        ),
        (
            "/v1/lab/overload",
            json!({"post": operation(
                "simulateOverload", "Compares protections of a service against overload, in virtual time. Charges nothing",
                "OverloadRequest", "SimulatedOverload", &["400", "401", "403", "408", "413", "415", "422", "503"]
            )}),
        ),
        ("/v1/changes", look("changes", "The recorded changes of modes, the newest first", "Changes", &[], &[])),
    ]
    .into_iter()
    .chain(past_paths())
    .map(|(path, item)| (path.to_owned(), item))
    .collect()
}

/// Describes a number in the query.
fn number(name: &str, least: u64, most: u64, description: &str) -> Value {
    json!({"name": name, "in": "query", "description": description,
           "schema": {"type": "integer", "minimum": least, "maximum": most}})
}

/// The pattern of a point in time: how long ago it was, or a date. More forms are accepted.
const POINT_IN_TIME: &str = "^([1-9][0-9]{0,2}[smhd]|20[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]Z)$";

/// Describes the paths of past decisions.
fn past_paths() -> [(&'static str, Value); 2] {
    let text = |name: &str, description: &str| json!({"name": name, "in": "query", "description": description, "schema": {"type": "string"}});
    let time = |name: &str, description: &str| json!({"name": name, "in": "query", "description": description, "schema": {"type": "string", "pattern": POINT_IN_TIME}});
    let refused = json!({"name": "refused", "in": "query", "description": "Only refusals.", "schema": {"type": "boolean"}});
    [
        (
            "/v1/decisions",
            look(
                "decisions",
                "Recent decisions, or those that a search found, the newest last: refusals and a sample of admitted requests",
                "Decisions",
                &[
                    number(
                        "after",
                        0,
                        MAX_UNITS,
                        "Returns later decisions only: `next` of the last response.",
                    ),
                    number("most", 1, MAX_DECISIONS, "How many; 100 unless given."),
                    refused,
                    time("since", "Searches from here: how long ago, such as `2h`, or a date."),
                    time("until", "Searches up to here: how long ago, or a date."),
                    text("limit", "Searches for decisions by this limit."),
                    text("key", "Searches for this key or address, as it is shown, or for its tag."),
                    json!({"name": "before", "in": "query", "description": "Continues a search: `earlier` of the last response.",
                           "schema": {"type": "string", "pattern": "^[0-9]{1,19}-[0-9]{1,19}$"}}),
                ],
                &["409", "503"],
            ),
        ),
        (
            "/v1/history",
            look(
                "history",
                "The counts of the last hours and days, from the decision log on disk",
                "History",
                &[
                    time("since", "From here: how long ago, such as `7d`, or a date; `24h` unless given."),
                    number("steps", 1, MAX_HISTORY_STEPS, "How many steps at most; 180 unless given."),
                ],
                &["409"],
            ),
        ),
    ]
}

/// Describes a read with parameters.
fn look(id: &str, summary: &str, response: &str, parameters: &[Value], problems: &[&str]) -> Value {
    let mut resource = read(id, summary, &json_of(response), |with_content| {
        let problems = ["400", "401", "403"].iter().chain(problems);
        let problems = problems.map(|status| ((*status).to_owned(), reference(status)));
        [("200".to_owned(), with_content("The answer."))].into_iter().chain(problems).collect()
    });
    resource["parameters"] = parameters.into();
    resource
}

/// Describes a file of the dashboard or of the book, which needs no token and contains no data.
fn page(id: &str, summary: &str, parameter: &Value) -> Value {
    let kinds = [
        "text/html",
        "text/css",
        "text/javascript",
        "image/svg+xml",
        "image/png",
        "image/x-icon",
        "application/json",
        "application/octet-stream",
    ];
    let content = kinds.iter().map(|kind| ((*kind).to_owned(), json!({}))).collect();
    let mut resource = without_token(read(id, summary, &content, |with_content| {
        json!({
            "200": with_content("The file."), "304": {"description": "Not modified, by `If-None-Match`."},
            "403": reference("403"), "404": reference("404"),
        })
    }));
    resource["parameters"] = json!([parameter]);
    resource
}
