//! The JSON Schema of the policy file, for editors.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};

use super::limit::candidate;
use super::{File, SERVER_SECTIONS};
use crate::lint::Lint;

/// Returns the JSON Schema of the policy file, generated from the structs that read it.
///
/// Editors with YAML support use it for completion and for checks while typing.
///
/// ```
/// let schema = tollgate_policy::schema();
/// assert!(schema["properties"]["limits"].is_object());
/// ```
pub fn schema() -> Value {
    let mut schema = schemars::schema_for!(File).to_value();
    without_null(&mut schema);
    let mut sections = server_sections();
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        for section in SERVER_SECTIONS {
            properties.insert(section.into(), sections[section].take());
        }
    }
    if let Some(definitions) = schema.get_mut("$defs").and_then(Value::as_object_mut) {
        definitions.extend(server_definitions());
        let candidate = candidate_definition(&definitions["Limit"]);
        definitions.insert("Candidate".into(), candidate);
        // The default key of a limit on descriptors is the descriptor.
        definitions["Limit"]["anyOf"] =
            json!([{"required": ["by"]}, {"required": ["descriptor"]}, {"required": ["rlqs"]}]);
    }
    schema
}

/// Returns the definition of a candidate: the words of a limit that set its amount.
fn candidate_definition(limit: &Value) -> Value {
    let words = candidate::WORDS.known.iter();
    let properties: Map<String, Value> =
        words.map(|word| ((*word).to_owned(), limit["properties"][word].clone())).collect();
    json!({
        "description": "Numbers that are evaluated beside a limit.",
        "type": "object",
        "additionalProperties": false,
        "properties": properties,
    })
}

/// Returns the sections that other crates read. Those crates test that their words are here.
fn server_sections() -> Value {
    serde_json::from_str(include_str!("server.schema.json")).unwrap_or_default()
}

/// Returns the definitions that those sections refer to.
fn server_definitions() -> [(String, Value); 6] {
    [
        ("Peers", json!({"type": "string", "pattern": "^tollgates?://.+$", "examples": ["tollgate://10.0.0.1:7379,10.0.0.2:7379"]})),
        ("Address", json!({"type": "string", "pattern": "^(off|.+:[0-9]{1,5})$", "examples": ["127.0.0.1:8080", "off"]})),
        ("Redis", json!({"type": "string", "pattern": "^(redis|valkey)s?(-sentinel|-cluster)?://.+$", "examples": ["redis://127.0.0.1:6379"]})),
        ("Upstream", json!({"type": "string", "pattern": "^(demo|(https?|h2c)://.+)$", "examples": ["http://127.0.0.1:3000"]})),
        ("Duration", json!({"type": "string", "pattern": "^[0-9_]+ *[a-z]+$", "examples": ["30s", "500ms"]})),
        ("Bytes", json!({"type": ["string", "integer"], "examples": ["64KiB", "8 MiB"]})),
    ]
    .map(|(name, schema)| (name.to_owned(), schema))
}

/// Removes `null` from optional properties.
fn without_null(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            for value in map.values_mut() {
                without_null(value);
            }
            lone_type(map);
            for word in ["anyOf", "enum"] {
                let Some(Value::Array(choices)) = map.get_mut(word) else { continue };
                choices.retain(|choice| !choice.is_null() && *choice != json!({"type": "null"}));
                if let ("anyOf", [Value::Object(only)]) = (word, choices.as_slice()) {
                    let only = only.clone();
                    map.remove(word);
                    for (key, value) in only {
                        map.entry(key).or_insert(value);
                    }
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(without_null),
        _ => {}
    }
}

fn lone_type(map: &mut Map<String, Value>) {
    if let Some(Value::Array(types)) = map.get_mut("type") {
        types.retain(|it| it != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            map.insert("type".into(), only);
        }
    }
}

/// Returns the codes of lints for `expect`.
fn codes() -> Vec<&'static str> {
    Lint::ALL.iter().filter(|it| **it != Lint::UnusedExpect).map(|it| it.code()).collect()
}

/// Implements the schema of a text with a pattern.
macro_rules! text_schema {
    ($($name:ident: $schema:tt;)*) => {$(
        pub(crate) struct $name;

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($schema)
            }
        }
    )*};
}

text_schema! {
    Whole: {"oneOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": "^[0-9]+(_[0-9]+)*$"}]};
    RateSchema: {
        "type": "string",
        "pattern": "^[0-9_]+ */ *[0-9_]* *(ms|millisecond|s|secs?|second|m|mins?|minute|h|hr|hour|d|day|w|week|month)s?( *, *burst +[0-9_]+)?$",
        "examples": ["10/minute", "1000/hour, burst 200", "5/2s"],
    };
    BucketSchema: {
        "type": "object",
        "additionalProperties": false,
        "required": ["domain", "bucket"],
        "properties": {
            "domain": {"type": "string", "minLength": 1},
            "bucket": {
                "type": "object",
                "minProperties": 1,
                "maxProperties": 16,
                "additionalProperties": {"type": ["string", "integer", "boolean"]},
            },
        },
        "examples": [{"domain": "edge", "bucket": {"name": "search", "tenant": "*"}}],
    };
    DurationSchema: {"type": "string", "pattern": "^[0-9_]+ *[a-z]+$", "examples": ["30s", "5m"]};
    LeaseSchema: {"anyOf": [{"enum": ["off", "auto"]}, {"$ref": "#/$defs/Duration"}]};
    NameSchema: {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$"};
    EndpointSchema: {"type": "string", "pattern": "^/", "examples": ["/login", "/users/{id}", "/files/**"]};
    EntrySchema: {"type": "string", "pattern": "^[^=*]+(=.+)?$", "examples": ["user", "plan=gold", "path=/v1/*"]};
    SourceSchema: {
        "type": "string",
        "pattern": "^(ip|user|api_key|tenant|global|descriptor|(header|cookie|query|path|claim|descriptor):.+)$",
    };
    CredentialSchema: {"type": "string", "pattern": "^(bearer|none|(header|cookie|query|claim):.+)$"};
    NetSchema: {"type": "string", "examples": ["10.0.0.0/8", "2001:db8::/32"]};
    PercentSchema: {"type": "string", "pattern": "^[0-9]{1,3}%$"};
    SoftSchema: {
        "anyOf": [
            {"type": "string", "pattern": "^[0-9]{1,3} *%$", "examples": ["80%"]},
            {
                "type": "object",
                "additionalProperties": false,
                "required": ["at"],
                "properties": {
                    "at": {"description": "The threshold in percent of the allowance, 1% to 100%.", "type": "string", "pattern": "^[0-9]{1,3} *%$"},
                    "tarpit": {"description": "The delay of requests above the threshold, 1ms to 10s. Default: requests are only marked.", "type": "string", "pattern": "^[0-9_]+ *[a-z]+$"},
                },
            },
        ],
    };
    QueueSchema: {
        "type": "object",
        "additionalProperties": false,
        "required": ["length"],
        "properties": {
            "length": {"description": "The number of requests above the rate that are admitted, or that wait for a slot.", "type": ["integer", "string"], "minimum": 1, "pattern": "^[0-9]+(_[0-9]+)*$"},
            "wait": {"description": "The longest wait, 1ms to 1d: a request that would wait longer is refused. Default: only the length bounds the wait; for a slot, 1s.", "type": "string", "pattern": "^[0-9_]+ *[a-z]+$"},
            "free": {"description": "The number of places that start immediately. Default 0; the length of the queue, if no request is to wait.", "type": ["integer", "string"], "minimum": 0, "pattern": "^[0-9]+(_[0-9]+)*$"},
        },
        "examples": [{"length": 50, "wait": "2s", "free": 5}],
    };
    SlotsSchema: {
        "anyOf": [
            {"type": "integer", "minimum": 1, "maximum": 65536},
            {"type": "string", "pattern": "^(adaptive|[0-9]+(_[0-9]+)*)$"},
            {
                "type": "object",
                "additionalProperties": false,
                "required": ["adaptive"],
                "properties": {
                    "adaptive": {
                        "type": "object",
                        "additionalProperties": false,
                        "properties": {
                            "min": {"description": "The least number of slots. Default 3.", "type": ["integer", "string"], "minimum": 1, "pattern": "^[0-9]+(_[0-9]+)*$"},
                            "max": {"description": "The largest number of slots. Default 1000.", "type": ["integer", "string"], "minimum": 1, "pattern": "^[0-9]+(_[0-9]+)*$"},
                            "algorithm": {"description": "The algorithm that learns the number. Default `gradient`.", "enum": ["gradient", "aimd", "vegas"]},
                        },
                    },
                },
            },
        ],
        "examples": [100, "adaptive", {"adaptive": {"min": 10, "max": 1000}}],
    };
    PrioritySchema: {
        "type": "object",
        "additionalProperties": false,
        "required": ["name"],
        "properties": {
            "name": {"description": "The name, in metrics, records and the header `Tollgate-Priority`.", "type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$"},
            "endpoint": {"description": "Paths: `/exact`, `/users/{id}`, `/files/**`.", "type": ["string", "array"]},
            "except": {"description": "Paths that the class does not match.", "type": ["string", "array"]},
            "method": {"description": "Methods. `GET` covers `HEAD` too.", "type": ["string", "array"]},
            "host": {"description": "Hosts: `api.example.com` or `*.example.com`.", "type": ["string", "array"]},
            "headers": {"description": "Headers that a request must have: a value, or `\"*\"` for any. They only lower the class of a request, unless `trust_headers` says otherwise.", "type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}},
            "plan": {"description": "Plans of callers. A plan from a header only lowers the class, unless `trust_headers` says otherwise.", "type": ["string", "array"]},
            "ip": {"description": "Client addresses and networks.", "type": ["string", "array"]},
            "user": {"description": "Users.", "type": ["string", "integer", "array"]},
            "api_key": {"description": "API keys.", "type": ["string", "integer", "array"]},
            "tenant": {"description": "Tenants.", "type": ["string", "integer", "array"]},
            "trust_headers": {"description": "Whether headers, cookies and query parameters, and credentials and plans that are read from them, may raise a request to this class. Default `false`.", "type": "boolean"},
        },
        "patternProperties": {"^(header|cookie|query|claim|descriptor):.+$": {"type": ["string", "integer", "array"]}},
        "examples": [{"name": "critical", "endpoint": "/payments/**"}],
    };
    FleetSchema: {
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "slots": {"description": "The number of concurrent requests.", "type": ["integer", "string"], "minimum": 1, "pattern": "^[0-9]+(_[0-9]+)*$"},
            "rate": {"description": "The rate of requests, such as `5000/second`.", "type": "string"},
            "reserve": {"description": "The part that is reserved for a class and all more important ones, by class: `20%` or a number.", "type": "object", "additionalProperties": {"type": ["string", "integer"]}},
            "ttl": {"description": "The time after which a slot that was never released is free again. Default `60s`.", "type": "string", "pattern": "^[0-9_]+ *[a-z]+$"},
            "mode": {"description": "Whether the shedder refuses. Default `enforce`; `shadow` only counts, `off` disables it.", "enum": ["enforce", "shadow", "off"]},
            "on_outage": {"description": "The behavior while the store does not answer. Default `allow`.", "enum": ["local", "allow", "deny"]},
            "on_hangup": {"description": "The handling of a slot whose caller disconnects. Default `hold`.", "enum": ["hold", "release"]},
        },
        "examples": [{"slots": 1000, "reserve": {"critical": "20%"}}],
    };
    LintSchema: {"enum": (codes())};
    CandidateSchema: {"$ref": "#/$defs/Candidate"};
    CostSchema: {
        "anyOf": [
            {"type": "integer", "minimum": 1},
            {"type": "string", "pattern": "^(header:.+|body:.+|[0-9_]+)$", "examples": ["header:X-Cost", "body:1KB"]},
            {
                "type": "object",
                "additionalProperties": false,
                "required": ["settle"],
                "properties": {
                    "reserve": {
                        "description": "The cost that is charged on arrival. Default 1.",
                        "anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": "^(header:.+|body:.+|[0-9_]+)$"}],
                    },
                    "settle": {
                        "description": "The source of the final cost: a header of the response, a number in its JSON, or its duration.",
                        "type": "string",
                        "pattern": "^(response:.+|json:.+|time:[0-9_]+ *[a-z]+)$",
                        "examples": ["response:X-Tokens-Used", "json:usage.total_tokens", "time:10ms"],
                    },
                },
            },
        ],
    };
    HeaderMapSchema: {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}};
    AllowanceMapSchema: {
        "type": "object",
        "additionalProperties": {"type": ["string", "integer", "array"]},
        "examples": [{"pro": "1000/minute, burst 200", "enterprise": "unlimited"}],
    };
}

#[cfg(test)]
mod tests {
    use crate::file_format::{self, limit, paths, priorities, privacy, regions, sections, shed};
    use tollgate_document::Words;

    #[test]
    fn every_word_is_in_the_schema_and_every_word_of_the_schema_is_read() {
        let schema = super::schema();
        let check = |at: &str, words: &Words| {
            let section = schema.pointer(at).unwrap_or_else(|| panic!("{at} in {schema:#}"));
            let mut found: Vec<&str> =
                section["properties"].as_object().unwrap().keys().map(String::as_str).collect();
            let mut known = words.known.to_vec();
            found.sort_unstable();
            known.sort_unstable();
            assert_eq!(found, known, "{}", words.section);
            assert_eq!(section["additionalProperties"], false, "{}", words.section);
            for (word, entry) in section["properties"].as_object().unwrap() {
                assert!(entry["description"].is_string(), "{word} of {} has a description", words.section);
            }
            for (here, _) in words.synonyms {
                let word = here.split([':', ' ']).next().unwrap();
                assert!(known.contains(&word), "{here} is a word of {}", words.section);
            }
        };
        check("", &file_format::WORDS);
        check("/$defs/Limit", &limit::WORDS);
        check("/$defs/Candidate", &limit::candidate::WORDS);
        check("/$defs/Limit/properties/soft/anyOf/1", &limit::soft::WORDS);
        check("/$defs/Limit/properties/queue", &limit::queue::WORDS);
        check("/$defs/Limit/properties/cost/anyOf/2", &limit::cost::WORDS);
        check("/$defs/Plans", &sections::PLANS);
        check("/$defs/Identify", &sections::IDENTIFY);
        check("/$defs/Client", &sections::CLIENT);
        check("/properties/paths/anyOf/1", &paths::WORDS);
        check("/properties/priorities/items", &priorities::WORDS);
        check("/$defs/Headers", &sections::HEADERS);
        check("/$defs/Shed", &shed::WORDS);
        check("/$defs/Shed/properties/fleet", &shed::fleet::WORDS);
        check("/$defs/NodeShed", &shed::node::WORDS);
        check("/$defs/Privacy", &privacy::PRIVACY);
        check("/properties/regions", &regions::WORDS);
    }
}
