//! openapi/control-plane.json, of which the calls of the Python module are made, is written by hand: here it is compared
//! with what the control plane has and reads.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use axum::http::{Method, StatusCode};
use serde_json::{Value, json};
use tito::admin;

use super::control_effects::{Server, ask};
use crate::it::{layering::sources, rooms::CODE};

/// Paths that are not in the document, and why.
const LEFT_OUT: [(&str, &[&str]); 7] = [
    (
        "another trainer's words for a call of the document",
        &[
            "/areal_continue_generation",
            "/areal_pause_generation",
            "/areal_update_weights",
            "/abort_request",
            "/begin_weight_update",
            "/collective_rpc",
            "/continue_generation",
            "/end_weight_update",
            "/flush_cache",
            "/get_weight_version",
            "/pause_generation",
            "/release_kv_cache_memory",
            "/release_memory_occupation",
            "/resume_memory_occupation",
            "/update_weights_from_disk",
            "/weights_checker",
        ],
    ),
    ("a look at what an update finds out too", &["/fetch_weights", "/pull_weights"]),
    ("a look that answers with a list of any depth", &["/get_weights_by_name"]),
    (
        "adapters, whose calls answer with text: docs/adapters.md",
        &[
            "/areal_update_weights_lora",
            "/load_lora_adapter",
            "/load_lora_adapter_from_tensors",
            "/skyrl/v1/load_lora_adapter",
            "/unload_lora_adapter",
            "/v1/load_lora_adapter",
            "/v1/unload_lora_adapter",
        ],
    ),
    (
        "what trainers ask before they begin, and balancers all the time",
        &[
            "/get_model_info",
            "/get_server_info",
            "/get_world_size",
            "/health_generate",
            "/liveness",
            "/model_info",
            "/server_info",
            "/v1/loads",
        ],
    ),
    (
        "there is nothing to do",
        &[
            "/init_weight_transfer_engine",
            "/reset_encoder_cache",
            "/reset_mm_cache",
            "/post_process_weights",
            "/shutdown_weight_transfer_engine",
        ],
    ),
    (
        "always refused",
        &[
            "/areal_init_weights_update_group",
            "/areal_set_update_weight_meta",
            "/areal_set_update_weight_meta_lora",
            "/areal_update_weights_lora_xccl",
            "/areal_update_weights_xccl",
            "/close_session",
            "/destroy_weights_update_group",
            "/init_weights_update_group",
            "/open_session",
            "/start_draft_weight_update",
            "/update_weights_from_distributed",
            "/update_weights_from_ipc",
            "/update_weights_from_tensor",
        ],
    ),
];

/// Fields that calls of the document read and that it leaves out, and why.
const UNTOLD: [(&str, &str); 15] = [
    ("args", "of /collective_rpc"),
    ("init_info", "of /init_weight_transfer_engine"),
    ("kwargs", "of /collective_rpc"),
    ("local_checkpoint_dir", "of /pull_weights"),
    ("method", "of /collective_rpc"),
    ("offload_kv", "of /collective_rpc"),
    ("source_dir", "of /pull_weights"),
    ("sync_dir", "within `update_info`, and of /fetch_weights"),
    ("target_version", "within `update_info`, and of /fetch_weights"),
    ("weights_path", "of /collective_rpc"),
    ("config_format", "of /server_info"),
    ("include", "of /v1/loads"),
    ("include_dp", "of /get_world_size"),
    ("version", "the same as `target_version`"),
    ("reset_external", "of /reset_prefix_cache, which has no other cache to forget"),
];

/// Fields that are only read beside others.
fn beside(path: &str, field: &str) -> Value {
    match (path, field) {
        (_, "baseline") => json!({ "action": "compare" }),
        ("/update_weights", "weight_version") => json!({ "weight_dir": "/nowhere" }),
        _ => json!({}),
    }
}

fn document() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("openapi/control-plane.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// A call of the document.
struct Call {
    path: String,
    method: Method,
    said: Value,
}

impl Call {
    fn parameters(&self) -> &[Value] {
        self.said["parameters"].as_array().map_or(&[], Vec::as_slice)
    }

    /// The fields of a JSON body.
    fn body(&self) -> Option<&Value> {
        self.said.pointer("/requestBody/content/application~1json/schema")
    }

    fn fields(&self) -> BTreeMap<&str, &Value> {
        let fields = self.body().and_then(|schema| schema["properties"].as_object());
        fields.into_iter().flatten().map(|(name, of)| (name.as_str(), of)).collect()
    }

    fn required(&self) -> Vec<&str> {
        let names = self.body().and_then(|schema| schema["required"].as_array());
        names.into_iter().flatten().filter_map(Value::as_str).collect()
    }

    /// A body in which all fields that must be there are right.
    fn least(&self) -> Value {
        let fields = self.fields();
        let values = self.required().into_iter().map(|name| (name.to_owned(), right(fields[name]).remove(0)));
        Value::Object(values.collect())
    }

    async fn ask(&self, server: &Server, query: &str, body: &str) -> (StatusCode, Value) {
        let uri = if query.is_empty() { self.path.clone() } else { format!("{}?{query}", self.path) };
        let (status, answer) = ask(server.router(), &self.method, &uri, "application/json", body.to_owned()).await;
        (status, serde_json::from_slice(&answer).unwrap_or_default())
    }
}

fn calls() -> Vec<Call> {
    let document = document();
    let of_path = |(path, methods): (&String, &Value)| {
        let call = |(method, said): (&String, &Value)| Call {
            path: path.clone(),
            method: method.to_uppercase().parse().unwrap(),
            said: said.clone(),
        };
        methods.as_object().unwrap().iter().map(call).collect::<Vec<_>>()
    };
    document["paths"].as_object().unwrap().iter().flat_map(of_path).collect()
}

/// Every value of an enumeration, or one of any other schema.
fn right(schema: &Value) -> Vec<Value> {
    if let Some(values) = schema["enum"].as_array() {
        return values.clone();
    }
    vec![match schema["type"].as_str().unwrap() {
        "array" => json!(right(&schema["items"])),
        "boolean" => json!(true),
        "object" => json!({}),
        "string" => json!("a"),
        other => panic!("{other}"),
    }]
}

/// A value that a schema does not have, as JSON.
fn wrong(schema: &Value) -> Value {
    match schema["type"].as_str() {
        Some("string") => json!({}),
        Some(_) => json!(7),
        None => json!("no-such"),
    }
}

/// The same within a query, where everything is text.
fn wrong_in_a_query(schema: &Value) -> &'static str {
    // Of texts, only those that no label may be are refused.
    if schema["type"] == "string" { "a%07" } else { "no-such" }
}

fn in_a_query(value: &Value) -> String {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    value.as_array().map_or_else(|| text(value), |values| text(&values[0]))
}

#[tokio::test]
async fn every_call_of_the_control_plane_is_in_the_document_or_left_out_for_a_reason() {
    let server = Server::new();
    let mut there = BTreeSet::new();
    for path in admin::paths() {
        for method in [Method::GET, Method::POST, Method::PUT, Method::DELETE, Method::PATCH] {
            let (status, _) = ask(server.router(), &method, path, "application/json", "{}".to_owned()).await;
            if status != StatusCode::METHOD_NOT_ALLOWED {
                there.insert((path.to_owned(), method.to_string()));
            }
        }
    }
    let left_out: BTreeSet<&str> = LEFT_OUT.iter().flat_map(|(_, paths)| *paths).copied().collect();
    let paths: BTreeSet<&str> = admin::paths().into_iter().collect();
    assert_eq!(left_out.difference(&paths).collect::<Vec<_>>(), Vec::<&&str>::new(), "there are no such paths");
    there.retain(|(path, _)| !left_out.contains(path.as_str()));
    let told: BTreeSet<(String, String)> =
        calls().into_iter().map(|call| (call.path, call.method.to_string())).collect();
    assert_eq!(told, there, "the document, and what there is");
}

#[tokio::test]
async fn every_parameter_and_field_of_the_document_is_read() {
    let server = Server::new();
    for call in calls() {
        for parameter in call.parameters() {
            let (name, schema) = (parameter["name"].as_str().unwrap(), &parameter["schema"]);
            let media_type = parameter["x-media-type"].as_str().unwrap_or("application/json");
            let schema = if schema["type"] == "array" { &schema["items"] } else { schema };
            let uri = format!("{}?{name}={}", call.path, wrong_in_a_query(schema));
            let (status, answer) = ask(server.router(), &call.method, &uri, media_type, String::new()).await;
            let answer: Value = serde_json::from_slice(&answer).unwrap();
            assert_eq!((status.as_u16(), &answer["error"]["param"]), (400, &json!(format!("query.{name}"))), "{uri}");
        }
        for (name, schema) in call.fields() {
            let mut body = call.least();
            body.as_object_mut().unwrap().extend(beside(&call.path, name).as_object().unwrap().clone());
            body[name] = wrong(schema);
            let (status, answer) = call.ask(&server, "", &body.to_string()).await;
            let refused = (status.as_u16(), &answer["error"]["param"]);
            // vLLM names no field for this one, but in its sentence.
            let param = if name == "baseline" { Value::Null } else { json!(format!("body.{name}")) };
            assert_eq!(refused, (400, &param), "{} {body}: {answer}", call.path);
        }
    }
}

#[tokio::test]
async fn what_the_document_says_must_be_there_must_be_and_the_rest_need_not() {
    let server = Server::new();
    for call in calls() {
        let is_required = call.said.pointer("/requestBody/required") == Some(&json!(true));
        let (status, answer) = call.ask(&server, "", "").await;
        let is_missed = answer["error"]["message"] == "Invalid JSON format";
        assert_eq!(is_missed, is_required, "{}: {status} {answer}", call.path);
        for name in call.required() {
            let mut body = call.least();
            body.as_object_mut().unwrap().remove(name);
            let (status, answer) = call.ask(&server, "", &body.to_string()).await;
            let refused = (status.as_u16(), &answer["error"]["param"]);
            assert_eq!(refused, (400, &json!(format!("body.{name}"))), "{} {body}", call.path);
        }
    }
}

#[tokio::test]
async fn every_value_that_the_document_names_is_taken() {
    let mut taken = 0;
    for call in calls() {
        for parameter in call.parameters().iter().filter(|parameter| parameter["x-media-type"].is_null()) {
            for value in right(&parameter["schema"]) {
                let query = format!("{}={}", parameter["name"].as_str().unwrap(), in_a_query(&value));
                let (status, answer) = call.ask(&Server::new(), &query, "").await;
                assert_eq!(status, 200, "{}?{query}: {answer}", call.path);
                taken += 1;
            }
        }
        for (name, schema) in call.fields().into_iter().filter(|(_, schema)| schema["enum"].is_array()) {
            for value in right(schema) {
                let body = json!({ name: value, "baseline": {} }).to_string();
                let (status, answer) = call.ask(&Server::new(), "", &body).await;
                assert_eq!(status, 200, "{} {body}: {answer}", call.path);
                taken += 1;
            }
        }
    }
    assert!(taken > 12, "{taken}");
}

/// The names of what code reads from queries and bodies.
fn names_read(code: &str) -> BTreeSet<&str> {
    let reads = [
        "truth(\"",
        "one_of(\"",
        "all(\"",
        "get(\"",
        "contains_key(\"",
        "truth_of(&fields, \"",
        "truth_of(arguments, \"",
        "text_of(&fields, \"",
        "label_of(&fields, \"",
        "required_text(&fields, \"",
    ];
    let read = reads.iter().flat_map(|read| code.split(read).skip(1));
    read.filter_map(|rest| rest.split('"').next()).collect()
}

#[test]
fn every_field_that_the_calls_of_the_document_read_is_in_it() {
    let files = ["src/admin/pausing.rs", "src/admin/query.rs", "src/admin/sleeping.rs", "src/admin/vllm.rs"];
    let files: BTreeSet<&str> = files.into_iter().chain(["src/admin/weights.rs", "src/admin/info.rs"]).collect();
    let sources = sources(&CODE);
    let mut code = String::new();
    for source in sources.iter().filter(|source| files.contains(source.path.as_str())) {
        code.extend(source.code().flat_map(|(_, line)| [line, "\n"]));
    }
    let calls = calls();
    let parameters = calls.iter().flat_map(Call::parameters).filter_map(|parameter| parameter["name"].as_str());
    let told: BTreeSet<&str> = parameters.chain(calls.iter().flat_map(|call| call.fields().into_keys())).collect();
    let untold: BTreeSet<&str> = UNTOLD.iter().map(|(name, _)| *name).collect();
    let read = names_read(&code);
    assert!(read.len() > 15, "{read:?}");
    let unknown: Vec<_> = read.iter().filter(|name| !told.contains(*name) && !untold.contains(*name)).collect();
    assert_eq!(unknown, Vec::<&&str>::new(), "read, and neither told nor left out");
    let idle: Vec<_> = untold.iter().filter(|name| told.contains(*name) || !read.contains(*name)).collect();
    assert_eq!(idle, Vec::<&&str>::new(), "left out for nothing");
}
