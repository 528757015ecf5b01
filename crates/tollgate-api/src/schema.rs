//! The JSON Schemas of the shapes, for the `OpenAPI` document.

use schemars::JsonSchema;
use schemars::Schema;
use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use serde_json::{Map, Value};

use crate::{Changes, Decision, Modes, Switched, SwitchedLimit};

/// Returns the schema of each shape by its name. References are relative to `#/components/schemas/`.
pub fn schemas() -> Map<String, Value> {
    let mut found = Map::new();
    add::<Decision>(&mut found);
    add::<Modes>(&mut found);
    add::<Switched>(&mut found);
    add::<SwitchedLimit>(&mut found);
    add::<Changes>(&mut found);
    found
}

/// Adds the schemas of a type and of the types that it contains, as the server writes them.
fn add<T: JsonSchema>(found: &mut Map<String, Value>) {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let settings = settings.with(|settings| settings.definitions_path = "/components/schemas".into());
    let settings = settings.with_transform(RecursiveTransform(without_widths as fn(&mut Schema)));
    let mut generator = settings.into_generator();
    let _reference = generator.subschema_for::<T>();
    found.extend(generator.take_definitions(true));
}

/// Removes the widths of Rust's integers, which mean nothing in JSON.
fn without_widths(schema: &mut Schema) {
    let is_width = |format: &str| format.starts_with("uint") || format.starts_with("int");
    if schema.get("format").and_then(Value::as_str).is_some_and(is_width) {
        schema.remove("format");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_of_a_decision_has_its_members_and_their_bounds() {
        let all = schemas();
        let decision = &all["Decision"];
        assert_eq!(decision["additionalProperties"], false);
        let required = ["allowed", "limit", "retry_after_ms", "wait_ms", "degraded", "soft", "limits"];
        assert_eq!(decision["required"], serde_json::json!(required));
        assert_eq!(decision["properties"]["limits"]["items"]["$ref"], "#/components/schemas/LimitOutcome");
        assert_eq!(decision["properties"]["id"]["type"], "string");
        let wait = &decision["properties"]["retry_after_ms"];
        assert_eq!((&wait["type"], &wait["minimum"]), (&serde_json::json!(["integer", "null"]), &0.into()));
        assert!(wait.get("format").is_none());
        for name in ["LimitOutcome", "Modes", "LimitSwitch", "Switched", "SwitchedLimit", "Changes", "Change"]
        {
            assert_eq!(all[name]["type"], "object", "{name}");
        }
    }
}
