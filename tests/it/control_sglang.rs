//! SGLang's calls of the control plane, as its trainers order them.

use std::path::Path;

use axum::{
    body::Body,
    http::{Method, Request, StatusCode},
};
use futures::StreamExt;
use serde_json::{Value, json};

use tito::{
    engine::{
        native::{DraftModelSettings, Drafting, ModelDrafts, NativeSettings, Speculation},
        scripted::Gate,
    },
    server::{self, AllowedHosts, ApiKeys, ServerConfig},
};
use tower::ServiceExt;

use super::{
    app::TestApp,
    control::{MODEL, settings},
    control_effects::{Server, ask, held},
    labels::admin_of,
    patience::until,
};

async fn posted(server: &Server, path: &str, body: &Value) -> (StatusCode, Value) {
    let (status, answer) = ask(server.router(), &Method::POST, path, "application/json", body.to_string()).await;
    (status, serde_json::from_slice(&answer).unwrap_or_default())
}

async fn looked(server: &Server, path: &str) -> (StatusCode, Value) {
    let (status, answer) = ask(server.router(), &Method::GET, path, "application/json", String::new()).await;
    (status, serde_json::from_slice(&answer).unwrap_or_default())
}

async fn done(server: &Server, path: &str, body: Value) -> Value {
    let (status, said) = posted(server, path, &body).await;
    assert_eq!(status, 200, "{path} {body}: {said}");
    said
}

async fn is_asleep(server: &Server) -> bool {
    looked(server, "/is_sleeping").await.1["is_sleeping"] == true
}

/// The weights that the server was started with.
fn model() -> Value {
    json!(Path::new(env!("CARGO_MANIFEST_DIR")).join(MODEL))
}

/// What a trainer releases, and in which order it resumes it. verl: both, then the weights, then keys and values. slime and
/// miles: all or some, then the weights, then the rest. SkyRL and verl with LoRA: keys and values only.
const ORDERS: [(&[&str], &[&[&str]]); 8] = [
    (&["weights"], &[&["weights"]]),
    (&["kv_cache"], &[&["kv_cache"]]),
    (&["kv_cache", "weights"], &[&["weights"], &["kv_cache"]]),
    (&["kv_cache", "weights"], &[&["kv_cache"], &["weights"]]),
    (&["kv_cache", "weights", "cuda_graph"], &[&["weights"], &["cuda_graph", "kv_cache"]]),
    (&["weights"], &[&["kv_cache", "cuda_graph"], &["weights"]]),
    (&["kv_cache"], &[&["weights"], &["kv_cache"]]),
    (&[], &[&["weights"], &["cuda_graph", "kv_cache"]]),
];

/// Releases these, and resumes them in this order.
async fn release_and_resume((released, order): (&[&str], &[&[&str]])) {
    let server = Server::new();
    let checksums = async || done(&server, "/weight_checker", json!({ "action": "checksum" })).await;
    let before = checksums().await;
    assert_eq!(done(&server, "/release_memory_occupation", json!({ "tags": released })).await, Value::Null);
    for (done_before, tags) in order.iter().enumerate() {
        assert!(is_asleep(&server).await, "{released:?}, {done_before} of {order:?}");
        assert_eq!(done(&server, "/resume_memory_occupation", json!({ "tags": tags })).await, Value::Null);
    }
    assert!(!is_asleep(&server).await, "{released:?}, {order:?}");
    let lost = released.contains(&"weights");
    let health = looked(&server, "/health_generate").await.0;
    assert_eq!(health, if lost { 503 } else { 200 }, "{released:?}");
    if lost {
        done(&server, "/update_weights_from_disk", json!({ "model_path": model() })).await;
        assert_eq!(looked(&server, "/health_generate").await.0, 200);
    }
    assert_eq!(checksums().await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_tag_is_released_and_resumed_by_itself_and_requests_come_back_once_all_is_resumed() {
    futures::stream::iter(ORDERS).map(release_and_resume).buffered(4).collect::<()>().await;
}

#[tokio::test]
async fn weights_may_come_between_the_two_halves_of_what_is_resumed() {
    let server = Server::new();
    done(&server, "/release_memory_occupation", json!({ "tags": ["kv_cache", "weights"] })).await;
    let (status, said) = posted(&server, "/update_weights_from_disk", &json!({ "model_path": model() })).await;
    assert_eq!((status.as_u16(), &said["success"]), (400, &json!(false)), "{said}");
    done(&server, "/resume_memory_occupation", json!({ "tags": ["weights"] })).await;
    done(&server, "/update_weights_from_disk", json!({ "model_path": model(), "weight_version": "1" })).await;
    assert!(is_asleep(&server).await);
    done(&server, "/resume_memory_occupation", json!({ "tags": ["kv_cache"] })).await;
    assert_eq!(looked(&server, "/health_generate").await.0, 200);
    assert_eq!(looked(&server, "/get_weight_version").await.1["weight_version"], "1");
}

#[tokio::test]
async fn a_way_to_load_weights_that_is_not_taken_is_refused_by_name() {
    let server = Server::new();
    for format in [json!(null), json!("auto"), json!("safetensors")] {
        done(&server, "/update_weights_from_disk", json!({ "model_path": model(), "load_format": format })).await;
    }
    for format in [json!("dummy"), json!("pt"), json!("Auto"), json!(""), json!(["auto"])] {
        let body = json!({ "model_path": model(), "load_format": format, "weight_version": "9" });
        let (status, said) = posted(&server, "/update_weights_from_disk", &body).await;
        assert_eq!((status.as_u16(), &said["error"]["param"]), (400, &json!("body.load_format")), "{format}: {said}");
    }
    assert_ne!(looked(&server, "/get_weight_version").await.1["weight_version"], "9");
}

/// miles 0.0.2 and slime begin an update, send weights, and end it.
#[tokio::test]
async fn an_update_between_a_begin_and_an_end_is_done_as_a_whole() {
    let server = Server::new();
    assert_eq!(
        done(&server, "/begin_weight_update", json!({})).await,
        json!({ "success": true, "message": "Success" })
    );
    let (status, said) = posted(&server, "/begin_weight_update", &json!({ "selector": "target" })).await;
    assert_eq!((status.as_u16(), &said["success"]), (400, &json!(false)));
    assert!(said["message"].as_str().unwrap().contains("Call end_weight_update first"), "{said}");
    let part = json!({ "model_path": model(), "weight_version": "7", "load_format": "auto" });
    let said = done(&server, "/update_weights_from_disk", part).await;
    assert!(said["success"] == true && said["message"].as_str().unwrap().contains("/end_weight_update"), "{said}");
    assert_eq!(looked(&server, "/get_weight_version").await.1["weight_version"], "default");
    done(&server, "/end_weight_update", json!({})).await;
    assert_eq!(looked(&server, "/get_weight_version").await.1["weight_version"], "7");
    let (status, said) = posted(&server, "/end_weight_update", &json!({})).await;
    assert_eq!((status.as_u16(), &said["success"]), (400, &json!(false)));
    assert!(said["message"].as_str().unwrap().contains("begin_weight_update"), "{said}");
}

#[tokio::test]
async fn an_update_that_brings_nothing_or_fails_leaves_the_old_weights() {
    let server = Server::new();
    let checksums = async || done(&server, "/weight_checker", json!({ "action": "checksum" })).await;
    let before = checksums().await;
    done(&server, "/begin_weight_update", json!({ "selector": "all" })).await;
    let (status, said) = posted(&server, "/end_weight_update", &json!({})).await;
    assert_eq!((status.as_u16(), &said["success"]), (400, &json!(false)), "{said}");
    done(&server, "/begin_weight_update", json!({})).await;
    let (status, said) = posted(&server, "/update_weights_from_disk", &json!({ "model_path": "/none" })).await;
    assert_eq!((status.as_u16(), &said["success"]), (400, &json!(false)), "{said}");
    // It has ended the update.
    assert_eq!(posted(&server, "/end_weight_update", &json!({})).await.0, 400);
    assert_eq!(checksums().await, before);
    assert_eq!(looked(&server, "/health_generate").await.0, 200);
    for selector in [json!("draft"), json!("both"), json!(["all"])] {
        let (status, said) = posted(&server, "/begin_weight_update", &json!({ "selector": selector })).await;
        assert_eq!((status.as_u16(), &said["error"]["param"]), (400, &json!("body.selector")), "{said}");
    }
    assert_eq!(looked(&server, "/health_generate").await.0, 200);
}

/// slime sends its weights from memory to memory, which is refused: what it wrote before must not count as the whole update.
#[tokio::test]
async fn a_refused_part_ends_the_update_and_the_next_one_can_be_begun() {
    let server = Server::new();
    let checksums = async || done(&server, "/weight_checker", json!({ "action": "checksum" })).await;
    let before = checksums().await;
    let parts = [
        ("/update_weights_from_tensor", json!({ "serialized_named_tensors": ["gASV"] }), 501),
        ("/update_weights_from_distributed", json!({ "names": ["a"] }), 501),
        ("/areal_update_weights_xccl", json!({}), 501),
        ("/update_weights", json!({ "update_info": { "names": ["a"] } }), 501),
        ("/update_weights", json!({ "update_info": 1 }), 400),
        ("/update_weights_from_disk", json!({ "model_path": model(), "load_format": "dummy" }), 400),
        ("/update_weights_from_disk", json!({}), 400),
        ("/update_weights_from_disk", json!([]), 400),
        ("/update_weights_from_disk?weight_version=7", json!({ "model_path": model() }), 400),
        ("/update_weights_from_tensor?a=1", json!({}), 400),
        ("/update_weights_from_distributed?a=1", json!({}), 400),
        ("/update_weights_from_ipc?a=1", json!({}), 400),
        ("/areal_update_weights_xccl?a=1", json!({}), 400),
        ("/update_weights?a=1", json!({ "update_info": { "weight_dir": model() } }), 400),
        ("/update_weights", json!("update_info"), 400),
        ("/update_weights", json!({ "updateinfo": { "weight_dir": model() } }), 400),
        ("/update_weights", json!({ "weight_dir": null }), 400),
        ("/update_weights", json!({ "weight_dir": 5 }), 400),
        ("/update_weights", json!({ "weight_dir": model(), "x": 1 }), 400),
        ("/update_weights?weight_version=7", json!({ "weight_dir": model() }), 400),
        ("/post_process_weights", json!({ "post_load_weights": true }), 501),
    ];
    for (path, body, refused) in parts {
        done(&server, "/begin_weight_update", json!({})).await;
        done(&server, "/update_weights_from_disk", json!({ "model_path": model(), "weight_version": "7" })).await;
        assert_eq!(posted(&server, path, &body).await.0, refused, "{path} {body}");
        let (status, said) = posted(&server, "/end_weight_update", &json!({})).await;
        assert_eq!((status.as_u16(), &said["success"]), (400, &json!(false)), "{path}: {said}");
        assert_eq!(looked(&server, "/health_generate").await.0, 200, "{path}");
    }
    assert_eq!(checksums().await, before);
    assert_eq!(looked(&server, "/get_weight_version").await.1["weight_version"], "default");
}

/// miles posts both around each update, and catches the refusal of the first one.
#[tokio::test]
async fn groups_are_not_there_and_weights_are_ready_by_themselves() {
    let server = Server::new();
    let (status, said) = posted(&server, "/destroy_weights_update_group", &json!({ "group_name": "miles-pp_0" })).await;
    let told = json!({ "success": false, "message": "The group to be destroyed does not exist." });
    assert_eq!((status.as_u16(), said), (400, told));
    let asked = json!({
        "restore_weights_before_load": false, "post_process_quantization": true, "post_load_weights": false,
    });
    let told = done(&server, "/post_process_weights", asked.clone()).await;
    assert!(told["message"].as_str().unwrap().contains("nothing to do"), "{told}");
    done(&server, "/begin_weight_update", json!({})).await;
    let (status, said) = posted(&server, "/post_process_weights", &asked).await;
    assert_eq!((status.as_u16(), &said["success"]), (400, &json!(false)), "{said}");
    done(&server, "/update_weights_from_disk", json!({ "model_path": model() })).await;
    done(&server, "/end_weight_update", json!({})).await;
    let (status, said) = posted(&server, "/post_process_weights", &json!({ "post_load_weights": true })).await;
    assert_eq!((status.as_u16(), &said["error"]["param"]), (501, &json!("body.post_load_weights")), "{said}");
}

/// AReaL's client reads `success` and the message, whatever the status is.
#[tokio::test]
async fn an_adapter_that_areal_cannot_load_is_told_in_its_shape() {
    let server = Server::new();
    let asked = json!({ "lora_name": "a", "lora_model_path": "/none", "lora_int_id": 1, "base_model_name": "tiny" });
    let (status, said) = posted(&server, "/areal_update_weights_lora", &asked).await;
    assert_eq!((status.as_u16(), &said["success"]), (400, &json!(false)), "{said}");
    assert!(said["message"].as_str().unwrap().starts_with("TP rank: 0 failed. reason: "), "{said}");
}

#[tokio::test]
async fn what_an_update_does_not_do_is_refused_or_said() {
    let server = Server::new();
    let asked = |more: Value| {
        let mut body = json!({ "model_path": model() });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let told = done(&server, "/update_weights_from_disk", asked(json!({ "flush_cache": false }))).await;
    assert!(told["message"].as_str().unwrap().contains("The prefix cache is empty all the same"), "{told}");
    let told =
        done(&server, "/update_weights_from_disk", asked(json!({ "flush_cache": true, "is_async": true }))).await;
    assert!(!told["message"].as_str().unwrap().contains("prefix cache"), "{told}");
    for (name, value) in [
        ("keep_pause", json!(true)),
        ("token_step", json!(3)),
        ("manifest", json!({ "a": {} })),
        ("selector", json!("draft")),
        ("weight_name", json!("9")),
    ] {
        let body = asked(json!({ name: value, "weight_version": "9" }));
        let (status, said) = posted(&server, "/update_weights_from_disk", &body).await;
        assert_eq!((status.as_u16(), &said["error"]["param"]), (400, &json!(format!("body.{name}"))), "{said}");
    }
    assert_ne!(looked(&server, "/get_weight_version").await.1["weight_version"], "9");
    done(&server, "/pause_generation", json!({ "mode": "in_place" })).await;
    done(&server, "/update_weights_from_disk", asked(json!({ "keep_pause": true }))).await;
    assert_eq!(looked(&server, "/is_paused").await.1["is_paused"], true);
    done(&server, "/continue_generation", json!({ "torch_empty_cache": true })).await;
    for (path, body) in [
        ("/pause_generation", json!({ "modus": "abort" })),
        ("/abort_request", json!({ "abort_all": true, "abort_message": "enough" })),
        ("/weights_checker", json!({ "action": "checksum", "skip_tensor_list": ["norm"] })),
        ("/release_memory_occupation", json!({ "tag": ["weights"] })),
        ("/resume_memory_occupation", json!({ "tag": ["weights"] })),
        ("/end_weight_update", json!({ "version": "7" })),
    ] {
        let (status, said) = posted(&server, path, &body).await;
        assert_eq!(status, 400, "{path} {body}: {said}");
        let param = said["error"]["param"].as_str().unwrap().trim_start_matches("body.");
        assert!(body.get(param).is_some(), "{path}: {said}");
    }
    assert!(!is_asleep(&server).await);
}

#[tokio::test]
async fn pickled_adapters_are_refused_with_what_to_send_instead() {
    let server = Server::new();
    let body = json!({ "lora_name": "a", "config_dict": { "r": 8 }, "serialized_named_tensors": ["gASV"] });
    let (status, said) = posted(&server, "/load_lora_adapter_from_tensors", &body).await;
    assert_eq!(status, 501, "{said}");
    assert!(said["error"]["message"].as_str().unwrap().contains("/v1/load_lora_adapter?lora_name=NAME"), "{said}");
    let (status, said) = posted(&server, "/load_lora_adapter_from_tensors", &json!({})).await;
    assert_eq!((status.as_u16(), &said["error"]["param"]), (400, &json!("body.lora_name")), "{said}");
}

/// All numbers of lists of lists, in their order.
fn flat(value: &Value) -> Vec<f32> {
    match value {
        Value::Array(rows) => rows.iter().flat_map(flat).collect(),
        // The same text as that of the number, whatever a reader makes of its last bit in f64.
        number => vec![number.to_string().parse().unwrap()],
    }
}

#[tokio::test]
async fn the_numbers_of_a_tensor_are_those_of_the_file() {
    let server = Server::new();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(MODEL).join("model.safetensors");
    let file = std::fs::read(path).unwrap();
    let start = 8 + usize::try_from(u64::from_le_bytes(file[..8].try_into().unwrap())).unwrap();
    let header: Value = serde_json::from_slice(&file[8..start]).unwrap();
    for (name, of) in header.as_object().unwrap().iter().filter(|(name, _)| *name != "__metadata__") {
        assert_eq!(of["dtype"], "F32", "{name}");
        let bytes = &file[start + usize::try_from(of["data_offsets"][0].as_u64().unwrap()).unwrap()..];
        let shape: Vec<usize> = serde_json::from_value(of["shape"].clone()).unwrap();
        let width = shape.iter().skip(1).product::<usize>();
        let rows = shape[0].min(5);
        let expected: Vec<f32> =
            bytes.as_chunks().0.iter().take(rows * width).map(|bytes| f32::from_le_bytes(*bytes)).collect();
        let said = done(&server, "/get_weights_by_name", json!({ "name": name, "truncate_size": 5 })).await;
        let shown = said.as_array().unwrap();
        assert!(shown.len() == rows && shown.iter().all(|row| row.is_number() == (shape.len() == 1)), "{name}");
        assert_eq!(flat(&said), expected, "{name}");
    }
    // Where nobody says how many, at most a hundred rows, as in SGLang, whose own clients ask with GET.
    let body = json!({ "name": "model.embed_tokens.weight" }).to_string();
    let (status, said) = ask(server.router(), &Method::GET, "/get_weights_by_name", "application/json", body).await;
    let said: Vec<Value> = serde_json::from_slice(&said).unwrap();
    assert_eq!((status.as_u16(), said.len()), (200, 96));
}

#[tokio::test]
async fn numbers_that_are_not_there_are_refused_by_name() {
    let server = Server::new();
    for (body, param) in [
        (json!({ "truncate_size": 3 }), "body.name"),
        (json!({ "name": "lm_head.bias" }), "body.name"),
        (json!({ "name": "a\u{7}" }), "body.name"),
        (json!({ "name": "model.norm.weight", "truncate_size": -1 }), "body.truncate_size"),
        (json!({ "name": "model.norm.weight", "truncate_size": "3" }), "body.truncate_size"),
    ] {
        let (status, said) = posted(&server, "/get_weights_by_name", &body).await;
        assert_eq!((status.as_u16(), &said["error"]["param"]), (400, &json!(param)), "{body}: {said}");
    }
    let norm = json!({ "name": "model.norm.weight" });
    done(&server, "/begin_weight_update", json!({})).await;
    assert_eq!(posted(&server, "/get_weights_by_name", &norm).await.0, 409);
    posted(&server, "/end_weight_update", &json!({})).await;
    done(&server, "/release_memory_occupation", json!({ "tags": ["weights"] })).await;
    assert_eq!(posted(&server, "/get_weights_by_name", &norm).await.0, 503);
}

#[tokio::test]
async fn a_session_is_neither_opened_nor_closed_as_if_it_were_there() {
    let server = Server::new();
    for path in ["/open_session", "/close_session"] {
        for method in [Method::GET, Method::POST] {
            let body = json!({ "session_id": "a", "capacity_of_str_len": 1000 }).to_string();
            let (status, said) = ask(server.router(), &method, path, "application/json", body).await;
            let said: Value = serde_json::from_slice(&said).unwrap();
            let message = said["error"]["message"].as_str().unwrap();
            if path == "/open_session" {
                assert!(status == 501 && message.contains("`input_ids`"), "{status} {message}");
            } else {
                assert_eq!((status.as_u16(), &said["error"]["param"]), (400, &json!("body.session_id")));
                assert!(message.starts_with("Invalid request: session id a does not exist"), "{message}");
            }
        }
    }
}

/// A model that drafts has weights of its own: a call is for the weights of one of both, and says whose.
#[tokio::test]
async fn the_weights_of_a_draft_model_are_replaced_by_a_call_that_names_it() {
    let plain = settings();
    let NativeSettings { source, config, dtype, max_model_len, .. } = plain.clone();
    let drafting = Drafting::Required(Speculation::Model(ModelDrafts { num_speculative_tokens: 4, cost: Some(0.1) }));
    let draft_model = Some(Box::new(DraftModelSettings { source, config, dtype, max_model_len }));
    let server = Server::of(&NativeSettings { drafting, draft_model, ..plain });
    let told = done(&server, "/update_weights_from_disk", json!({ "model_path": model(), "selector": "draft" })).await;
    assert_eq!(told["message"], "Succeeded to update the weights of the draft model.");
    assert_eq!(looked(&server, "/weight_info").await.1["updates"], 0);
    let (status, said) =
        posted(&server, "/update_weights_from_disk", &json!({ "model_path": "/none", "selector": "draft" })).await;
    assert_eq!((status.as_u16(), &said["success"]), (400, &json!(false)), "{said}");
    assert!(said["message"].as_str().unwrap().contains("the draft model: cannot read /none"), "{said}");
    for (path, body) in [
        ("/update_weights_from_disk", json!({ "model_path": model(), "selector": "all" })),
        ("/begin_weight_update", json!({ "selector": "all" })),
        ("/begin_weight_update", json!({ "selector": "draft" })),
        ("/weights_checker", json!({ "action": "checksum", "selector": "draft" })),
        ("/weights_checker", json!({ "action": "checksum", "selector": "all" })),
    ] {
        let (status, said) = posted(&server, path, &body).await;
        assert_eq!((status.as_u16(), &said["error"]["param"]), (400, &json!("body.selector")), "{path}: {said}");
    }
    let versioned = json!({ "model_path": model(), "selector": "draft", "weight_version": "7" });
    let (status, said) = posted(&server, "/update_weights_from_disk", &versioned).await;
    assert_eq!((status.as_u16(), &said["error"]["param"]), (400, &json!("body.weight_version")), "{said}");
    let (status, said) = posted(&server, "/start_draft_weight_update", &json!({})).await;
    assert_eq!(status, 501);
    assert!(said["error"]["message"].as_str().unwrap().contains("/update_weights_from_disk"), "{said}");
    // While the model's weights are replaced, those of the draft model are not.
    done(&server, "/begin_weight_update", json!({ "selector": "target" })).await;
    let (status, said) =
        posted(&server, "/update_weights_from_disk", &json!({ "model_path": model(), "selector": "draft" })).await;
    assert_eq!((status.as_u16(), &said["success"]), (400, &json!(false)), "{said}");
    done(&server, "/update_weights_from_disk", json!({ "model_path": model() })).await;
    done(&server, "/end_weight_update", json!({})).await;
    assert_eq!(looked(&server, "/weight_info").await.1["updates"], 1);
}

#[tokio::test]
async fn an_engine_that_has_no_room_for_one_request_more_is_well() {
    let app = TestApp::new().gate(&Gate::shut()).seats(1).max_waiting(0);
    let running = app.open("/v1/completions", json!({ "prompt": "hello", "stream": true })).await;
    app.until_load(1, 0).await;
    let port =
        server::admin_app(&admin_of(&app), ApiKeys::default(), AllowedHosts::default(), &ServerConfig::default());
    let (status, _) = ask(&port, &Method::GET, "/health_generate", "application/json", String::new()).await;
    assert_eq!(status, 200);
    drop(running);
}

#[tokio::test]
async fn an_engine_whose_seats_are_taken_is_well_as_long_as_it_works() {
    let gate = Gate::shut();
    let app = TestApp::new().gate(&gate).seats(1);
    let mut running =
        app.open("/v1/completions", json!({ "prompt": "hello", "stream": true, "ignore_eos": true })).await;
    app.until_load(1, 0).await;
    let port =
        server::admin_app(&admin_of(&app), ApiKeys::default(), AllowedHosts::default(), &ServerConfig::default());
    let asked =
        tokio::spawn(
            async move { ask(&port, &Method::GET, "/health_generate", "application/json", String::new()).await },
        );
    // The token that is asked for waits for the only seat, which stays taken.
    app.until_load(1, 1).await;
    gate.pass(1);
    running.next().await.unwrap();
    assert_eq!(asked.await.unwrap().0, 200);
    app.until_load(1, 0).await;
    drop(running);
}

/// The cache is not forgotten while requests hold some of it; the same call is done once they have ended.
#[tokio::test]
async fn a_cache_that_is_in_use_is_flushed_by_the_same_call_later() {
    let server = Server::new();
    let running = held(&server).await;
    let request = Request::post("/flush_cache").body(Body::empty()).unwrap();
    let refused = server.router().clone().oneshot(request).await.unwrap();
    assert_eq!(refused.status(), StatusCode::BAD_REQUEST);
    assert_eq!(refused.headers()["x-retry"], "here; done=nothing");
    drop(running);
    until("the cache is flushed", async || looked(&server, "/flush_cache").await.0 == 200).await;
}
