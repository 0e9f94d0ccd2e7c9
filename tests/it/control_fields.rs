//! Fields and parameters of the control plane's calls: what a call does not have or does not serve is refused by its name,
//! and what trainers' clients send is taken.

use std::path::Path;

use axum::http::{Method, StatusCode};
use serde_json::{Value, json};
use tito::{admin, generation::Finish};

use super::{
    control::MODEL,
    control_effects::{Server, ask, ended, held},
};

async fn asked(server: &Server, method: &Method, uri: &str, body: &Value) -> (StatusCode, Value) {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let (status, answer) = ask(server.router(), method, uri, "application/json", body).await;
    (status, serde_json::from_slice(&answer).unwrap_or_default())
}

/// What a server shows of itself, and that it still computes.
async fn state(server: &Server) -> Vec<Value> {
    let mut shown = Vec::new();
    for path in ["/is_paused", "/is_sleeping", "/weight_info"] {
        shown.push(asked(server, &Method::GET, path, &Value::Null).await.1);
    }
    assert_eq!(asked(server, &Method::GET, "/health_generate", &Value::Null).await.0, 200);
    shown
}

/// What a call has to have beside a field of another name before it looks at that.
fn least(path: &str) -> Value {
    match path {
        "/collective_rpc" => json!({ "method": "reload_weights" }),
        "/init_weight_transfer_engine" => json!({ "init_info": {} }),
        "/load_lora_adapter_from_tensors" => json!({ "lora_name": "a" }),
        "/update_weights" => json!({ "weight_dir": "/nowhere" }),
        "/weights_checker" => json!({ "action": "checksum" }),
        _ => json!({}),
    }
}

#[tokio::test]
async fn no_call_takes_a_field_or_a_parameter_that_it_does_not_have() {
    let server = Server::new();
    let (before, mut refused) = (state(&server).await, 0);
    for path in admin::paths() {
        let mut body = least(path);
        body["no_such"] = json!("a");
        match asked(&server, &Method::POST, path, &body).await {
            (StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED, _) => {}
            // No session is there that could be closed.
            _ if path == "/close_session" => {}
            (status, said) => {
                let param = &said["error"]["param"];
                assert_eq!((status.as_u16(), param), (400, &json!("body.no_such")), "{path} {body}: {said}");
                refused += 1;
            }
        }
        for method in [Method::GET, Method::POST] {
            let (status, said) = asked(&server, &method, &format!("{path}?no_such=1"), &least(path)).await;
            if status != StatusCode::METHOD_NOT_ALLOWED {
                let param = &said["error"]["param"];
                assert_eq!((status.as_u16(), param), (400, &json!("query.no_such")), "{method} {path}: {said}");
            }
        }
    }
    assert!(refused > 30, "{refused}");
    assert_eq!(state(&server).await, before);
}

/// The directory of the weights that the server was started with.
fn model() -> Value {
    json!(Path::new(env!("CARGO_MANIFEST_DIR")).join(MODEL))
}

/// A call of `reload_weights` with these fields.
fn reload(more: &Value) -> Value {
    let mut body = json!({ "method": "reload_weights" });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

/// A call, and the field or parameter that is refused.
type Refused = (&'static str, Value, &'static str);

/// Posts each, and compares the status and what is named; the server is as before.
async fn compare(status: u16, calls: &[Refused]) {
    let server = Server::new();
    let before = state(&server).await;
    for (uri, body, param) in calls {
        let (answered, said) = asked(&server, &Method::POST, uri, body).await;
        let named = said["error"]["param"].as_str().unwrap_or_default();
        assert_eq!((answered.as_u16(), named), (status, *param), "{uri} {body}: {said}");
    }
    assert_eq!(state(&server).await, before);
}

#[tokio::test]
async fn what_belongs_elsewhere_is_refused_by_its_name() {
    let by_name = json!({ "lora_name": "b", "lora_path": "/a" });
    compare(
        400,
        &[
            ("/pause", json!({ "mode": "keep" }), "body.mode"),
            ("/sleep", json!({ "level": 2 }), "body.level"),
            ("/wake_up", json!({ "tags": ["weights"] }), "body.tags"),
            ("/resume", json!([]), ""),
            ("/update_weights?weight_version=7", json!({ "weight_dir": model() }), "query.weight_version"),
            ("/update_weights?weight_version=7", of_part(&json!({ "path": model() })), "query.weight_version"),
            ("/v1/load_lora_adapter?lora_name=a", by_name.clone(), "query.lora_name"),
            ("/load_lora_adapter?load_inplace=false", by_name, "query.load_inplace"),
        ],
    )
    .await;
    let (_, said) = asked(&Server::new(), &Method::POST, "/pause", &json!({ "mode": "keep" })).await;
    assert!(said["error"]["message"].as_str().unwrap().contains("POST /pause?mode="), "{said}");
}

#[tokio::test]
async fn a_method_of_the_workers_has_only_arguments_that_it_follows() {
    let path = || json!({ "weights_path": model() });
    let of_skyrl = |method: &str, more: &str, argument: Value| json!({ "method": method, more: argument });
    let calls = [
        (reload(&json!({ "kwargs": { "weights_path": [model()] } })), "body.kwargs.weights_path"),
        (reload(&json!({ "kwargs": { "path": model() } })), "body.kwargs.path"),
        (reload(&json!({ "kwargs": { "is_checkpoint_format": false } })), "body.kwargs.is_checkpoint_format"),
        (reload(&json!({ "kwargs": model() })), "body.kwargs"),
        (reload(&json!({ "args": [7] })), "body.args"),
        (reload(&json!({ "args": model() })), "body.args"),
        (reload(&json!({ "args": [model(), true] })), "body.args"),
        (reload(&json!({ "args": [model()], "kwargs": path() })), "body.args"),
        (reload(&json!({ "args": [model()], "timeout": 3 })), "body.timeout"),
        (of_skyrl("skyrl_sleep_for_weight_sync", "args", json!([true])), "body.args"),
        (of_skyrl("skyrl_wake_for_weight_sync", "kwargs", json!({ "tag": 1 })), "body.kwargs.tag"),
    ];
    compare(400, &calls.map(|(body, param)| ("/collective_rpc", body, param))).await;
}

/// The body of a part of an update.
fn of_part(part: &Value) -> Value {
    json!({ "update_info": part })
}

#[tokio::test]
async fn a_part_of_an_update_has_one_source_and_nothing_beside_it() {
    let of_deltas = |more: &str, value: Value| {
        let mut part = json!({ "sync_dir": "/a", "target_version": 1 });
        part[more] = value;
        of_part(&part)
    };
    let calls = [
        (of_part(&json!([])), "body.update_info"),
        (of_part(&json!({ "weight_dir": model(), "path": model() })), "body.update_info.path"),
        (of_part(&json!({ "weight_dir": model(), "names": ["a"] })), "body.update_info.names"),
        (of_part(&json!({ "weight_dir": [model()] })), "body.update_info.weight_dir"),
        (of_deltas("path", json!("/a")), "body.update_info.path"),
        (of_deltas("version", json!(2)), "body.version"),
        (json!({ "update_info": { "path": model() }, "weight_version": "7" }), "body.weight_version"),
    ];
    compare(400, &calls.map(|(body, param)| ("/update_weights", body, param))).await;
}

#[tokio::test]
async fn what_is_not_served_is_refused_by_its_name() {
    let of_areal = |more: &str, value: &str| json!({ "model_path": model(), more: value });
    compare(
        400,
        &[
            ("/start_weight_update", json!({ "is_checkpoint_format": false }), "body.is_checkpoint_format"),
            ("/areal_update_weights", of_areal("load_format", "dummy"), "body.load_format"),
            ("/areal_update_weights", of_areal("abort_all_requests", "no"), "body.abort_all_requests"),
            ("/areal_update_weights_lora", json!({ "lora_name": "a" }), "body.lora_model_path"),
            ("/areal_update_weights_lora", json!({ "lora_model_path": "/a" }), "body.lora_name"),
            ("/destroy_weights_update_group", json!({ "group": "a" }), "body.group"),
            ("/post_process_weights", json!({ "post_load_weights": 1 }), "body.post_load_weights"),
            ("/continue_generation", json!({ "torch_empty_cache": "no" }), "body.torch_empty_cache"),
            ("/reset_prefix_cache?reset_external=maybe", Value::Null, "query.reset_external"),
            ("/flush_cache?timeout=3", Value::Null, "query.timeout"),
            ("/pause?mode=keep&mode=wait", Value::Null, "query.mode"),
            ("/update_weights?weight_version=a&weight_version=b", Value::Null, "query.weight_version"),
            ("/update_weights", json!({ "weight_dir": model(), "weight_version": "" }), "body.weight_version"),
            ("/update_weights_from_disk", of_areal("weight_version", ""), "body.weight_version"),
            ("/finish_weight_update", json!({ "weight_version": "" }), "body.weight_version"),
            ("/update_weight_version", json!({ "new_version": "" }), "body.new_version"),
            ("/skyrl/v1/load_lora_adapter", json!({ "lora_name": "a", "in_memory": true }), "body.in_memory"),
        ],
    )
    .await;
    let connection = json!({ "init_info": { "trainer_actor_names": ["a"] } });
    compare(501, &[("/init_weight_transfer_engine", connection, "body.init_info.trainer_actor_names")]).await;
}

/// What clients send, or what vLLM's and SGLang's own calls have, and what makes no difference here.
#[tokio::test]
async fn what_clients_send_is_taken() {
    let server = Server::new();
    for (method, uri, body) in [
        // TRL.
        (Method::POST, "/start_weight_update", json!({ "is_checkpoint_format": true })),
        (Method::POST, "/update_weights", json!({ "update_info": { "weight_dir": model() } })),
        (Method::POST, "/finish_weight_update", json!({})),
        (Method::GET, "/get_world_size?include_dp=false", Value::Null),
        // SkyRL.
        (Method::POST, "/pause?mode=keep&clear_cache=false", Value::Null),
        (Method::POST, "/reset_prefix_cache", json!({ "reset_running_requests": true })),
        (Method::POST, "/resume", Value::Null),
        (Method::POST, "/sleep?level=1&tags=weights&tags=kv_cache", Value::Null),
        (Method::POST, "/wake_up?tags=weights&tags=kv_cache", json!({})),
        (Method::POST, "/wake_up", Value::Null),
        (
            Method::POST,
            "/init_weight_transfer_engine",
            json!({ "init_info": { "base_model_path": "/a", "local_checkpoint_dir": "/b", "cloud_download_workers": 4 } }),
        ),
        // AReaL.
        (Method::POST, "/sleep", json!({})),
        (Method::POST, "/wake_up", json!({})),
        (Method::POST, "/areal_pause_generation", json!({})),
        (Method::POST, "/areal_update_weights", json!({ "model_path": model(), "load_format": "auto" })),
        (Method::POST, "/areal_continue_generation", json!({})),
        // NeMo-RL, and vLLM's own.
        (Method::POST, "/collective_rpc", reload(&json!({ "kwargs": { "weights_path": model() } }))),
        (Method::POST, "/collective_rpc", reload(&json!({ "args": [model()], "kwargs": {}, "timeout": null }))),
        (Method::POST, "/reset_prefix_cache?reset_external=true", Value::Null),
        // slime and miles.
        (Method::POST, "/continue_generation", json!({ "torch_empty_cache": false })),
        (Method::GET, "/flush_cache?timeout=0", Value::Null),
        (Method::GET, "/v1/loads?include=core", Value::Null),
    ] {
        let (status, said) = asked(&server, &method, uri, &body).await;
        assert_eq!(status, 200, "{method} {uri} {body}: {said}");
    }
    let unload = json!({ "lora_name": "a", "lora_int_id": 3 });
    assert_eq!(asked(&server, &Method::POST, "/v1/unload_lora_adapter", &unload).await.0, 404);
}

/// SGLang's call ends requests and vLLM's of the same name does not: a client that says neither is told.
#[tokio::test]
async fn a_new_name_of_the_weights_says_that_requests_go_on() {
    let server = Server::new();
    let renamed = async |body: Value| {
        let (status, said) = asked(&server, &Method::POST, "/update_weight_version", &body).await;
        assert_eq!(status, 200, "{said}");
        said["message"].as_str().unwrap().to_owned()
    };
    assert_eq!(renamed(json!({ "new_version": "1" })).await, "Weight version updated to 1");
    let running = held(&server).await;
    let told = renamed(json!({ "new_version": "2" })).await;
    assert!(told.starts_with("Weight version updated to 2. Requests that run go on"), "{told}");
    for aborts in [false, true] {
        let told = renamed(json!({ "new_version": "3", "abort_all_requests": aborts })).await;
        assert_eq!(told, "Weight version updated to 3");
    }
    assert_eq!(ended(&server, running).await, Finish::Abort);
}

/// JSON readers take a number for the nearest one that they can hold, which would be another name.
#[tokio::test]
async fn a_name_that_is_a_number_is_taken_to_the_digit_or_refused() {
    let server = Server::new();
    let renamed = async |number: &str| {
        let body = format!(r#"{{"new_version": {number}}}"#);
        let (status, said) =
            ask(server.router(), &Method::POST, "/update_weight_version", "application/json", body).await;
        (status.as_u16(), serde_json::from_slice::<Value>(&said).unwrap())
    };
    for number in ["7", "0", "-3", "18446744073709551615", "-9223372036854775808"] {
        let (status, said) = renamed(number).await;
        assert_eq!((status, &said["new_version"]), (200, &json!(number)), "{said}");
    }
    for number in ["123456789012345678901234567890", "7.10", "1e3", "-0", "18446744073709551616"] {
        let (status, said) = renamed(number).await;
        assert_eq!((status, &said["error"]["param"]), (400, &json!("body.new_version")), "{said}");
        assert!(said["error"]["message"].as_str().unwrap().ends_with("write it in quotes"), "{said}");
    }
    compare(
        400,
        &[
            ("/update_weights", json!({ "weight_dir": model(), "weight_version": 7.5 }), "body.weight_version"),
            ("/finish_weight_update", json!({ "weight_version": 7.5 }), "body.weight_version"),
            ("/v1/load_lora_adapter", json!({ "lora_name": 7.5, "lora_path": "/a" }), "body.lora_name"),
            ("/abort_request", json!({ "rid": 7.5 }), "body.rid"),
        ],
    )
    .await;
}

#[tokio::test]
async fn a_checksum_that_is_no_text_is_refused() {
    let server = Server::new();
    let checker = async |body: Value| asked(&server, &Method::POST, "/weight_checker", &body).await;
    let (_, said) = checker(json!({ "action": "checksum" })).await;
    for extra in [Value::Null, json!(5), json!(["a"])] {
        for name in ["model.norm.weight", "no.tensor"] {
            let mut baseline = said["checksums"].clone();
            baseline[name] = extra.clone();
            let (status, said) = checker(json!({ "action": "compare", "baseline": baseline })).await;
            assert_eq!((status.as_u16(), &said["error"]["param"]), (400, &json!("body.baseline")), "{said}");
            assert!(said["error"]["message"].as_str().unwrap().contains(name), "{said}");
        }
    }
    let (status, said) = checker(json!({ "action": "compare", "baseline": said["checksums"] })).await;
    assert_eq!((status.as_u16(), &said["match"]), (200, &json!(true)));
}
