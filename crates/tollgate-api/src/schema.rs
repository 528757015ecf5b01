//! The JSON Schemas of the shapes, for the `OpenAPI` document.

use schemars::JsonSchema;
use schemars::Schema;
use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use serde_json::{Map, Value};

use crate::words::SWITCHES;
use crate::{
    BatchDecision, BatchRequest, Changes, Decision, Decisions, ExplainedBucket, Explanation, Fleet, History,
    KeyRequest, Limits, Modes, Overview, Policy, Problem, Quotas, Readiness, Refusal, ReleaseRequest,
    Released, RenewRequest, Renewed, ResetRequest, SettleRequest, Settled, Stats, SwitchRequest, Switched,
    SwitchedLimit, ThrottleRequest, Throttled, Top,
};

/// Returns the schema of each shape by its name. References are relative to `#/components/schemas/`.
pub fn schemas() -> Map<String, Value> {
    let mut found = Map::new();
    for add in [
        add_response::<BatchDecision>,
        add_response::<Changes>,
        add_response::<Decision>,
        add_response::<Decisions>,
        add_response::<Explanation>,
        add_response::<Fleet>,
        add_response::<History>,
        add_response::<Limits>,
        add_response::<Modes>,
        add_response::<Overview>,
        add_response::<Policy>,
        add_response::<Problem>,
        add_response::<Quotas>,
        add_response::<ExplainedBucket>,
        add_response::<Readiness>,
        add_response::<Refusal>,
        add_response::<Released>,
        add_response::<Renewed>,
        add_response::<Settled>,
        add_response::<Stats>,
        add_response::<Switched>,
        add_response::<SwitchedLimit>,
        add_response::<Throttled>,
        add_response::<Top>,
        add_request::<BatchRequest>,
        add_request::<KeyRequest>,
        add_request::<ReleaseRequest>,
        add_request::<RenewRequest>,
        add_request::<ResetRequest>,
        add_request::<SettleRequest>,
        add_request::<SwitchRequest>,
        add_request::<ThrottleRequest>,
    ] {
        add(&mut found);
    }
    // The mode of one limit has one more word.
    let mut of_limit = found["SwitchRequest"].clone();
    of_limit["properties"]["mode"]["enum"] = SWITCHES.into_iter().collect();
    found.insert("SwitchLimitRequest".to_owned(), of_limit);
    found
}

/// Adds the schemas of a response and of the types that it contains, as a server writes them: with
/// exactly these members.
pub fn add_response<T: JsonSchema>(found: &mut Map<String, Value>) {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    add::<T>(settings.with_transform(RecursiveTransform(closed as fn(&mut Schema))), found);
}

/// Adds the schemas of a request and of the types that it contains, as a server reads them.
pub fn add_request<T: JsonSchema>(found: &mut Map<String, Value>) {
    add::<T>(SchemaSettings::draft2020_12().for_deserialize(), found);
}

fn add<T: JsonSchema>(settings: SchemaSettings, found: &mut Map<String, Value>) {
    let settings = settings.with(|settings| settings.definitions_path = "/components/schemas".into());
    let settings = settings.with_transform(RecursiveTransform(plain as fn(&mut Schema)));
    let mut generator = settings.into_generator();
    let _reference = generator.subschema_for::<T>();
    found.extend(generator.take_definitions(true));
}

/// Excludes members that are not described.
fn closed(schema: &mut Schema) {
    if schema.get("properties").is_some() {
        schema.insert("additionalProperties".to_owned(), false.into());
    }
}

/// Removes the widths of Rust's numbers, which mean nothing in JSON, and the values that a reader takes
/// for absent members.
fn plain(schema: &mut Schema) {
    let is_width = |format: &str| ["uint", "int", "double"].iter().any(|width| format.starts_with(width));
    if schema.get("format").and_then(Value::as_str).is_some_and(is_width) {
        schema.remove("format");
    }
    schema.remove("default");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_of_a_decision_has_its_members_and_their_bounds() {
        let all = schemas();
        let decision = &all["Decision"];
        assert_eq!(decision["additionalProperties"], false);
        let required =
            ["allowed", "limit", "retry_after_ms", "wait_ms", "degraded", "priority", "soft", "limits"];
        assert_eq!(decision["required"], serde_json::json!(required));
        assert_eq!(decision["properties"]["limits"]["items"]["$ref"], "#/components/schemas/LimitOutcome");
        assert_eq!(decision["properties"]["id"]["type"], "string");
        let wait = &decision["properties"]["retry_after_ms"];
        assert_eq!((&wait["type"], &wait["minimum"]), (&serde_json::json!(["integer", "null"]), &0.into()));
        assert!(wait.get("format").is_none());
    }

    #[test]
    fn a_response_has_exactly_its_members_and_a_request_at_least_the_required_ones() {
        let all = schemas();
        for (name, schema) in &all {
            assert_eq!(schema["type"], "object", "{name}");
            // throttlecrab ignores members that it does not know.
            let is_open = schema.get("additionalProperties").is_none();
            assert_eq!(is_open, name == "ThrottleRequest", "{name}");
        }
        assert_eq!(all["CheckRequest"]["required"], serde_json::json!(["path"]));
        assert!(all["KeyRequest"].get("required").is_none());
        let members = |name: &str| all[name]["properties"].as_object().unwrap().len();
        for name in ["Overview", "StoreInFull", "Stats", "LimitStats", "Top", "Decisions", "Explanation"] {
            // An explanation has `wait_ms` if the request waited.
            let optional = usize::from(name == "Explanation");
            assert_eq!(all[name]["required"].as_array().unwrap().len() + optional, members(name), "{name}");
        }
        assert!(!serde_json::Value::Object(all).to_string().contains("\"default\""));
    }
}
