//! Adapters, and who may load them: the calls of the control plane that vLLM opens by a variable.

use serde_json::{Value, json};

use crate::{
    hostile_files::write_adapter,
    ports::answer,
    program::Server,
    quantized::{model, serve, serve_with},
};

const ALLOW: &str = "VLLM_ALLOW_RUNTIME_LORA_UPDATING";
const LORA: [&str; 5] = ["--enable-lora", "--max-loras", "1", "--max-cpu-loras", "2"];

#[test]
fn vllms_variable_opens_its_calls_about_adapters_and_no_other() {
    let (model, adapter) = (model("fp8_blocks", true), tempfile::tempdir().unwrap());
    write_adapter(model.path(), adapter.path());
    let body = |name: &str| json!({ "lora_name": name, "lora_path": adapter.path() });
    let closed = "this is a call of the control plane, which is not open here";
    for (value, is_open) in [("True", true), ("1", true), ("0", false), ("yes", false), ("", false)] {
        let server = serve_with(model.path(), &LORA, &[(ALLOW, value)]);
        let loaded = server.ask("/v1/load_lora_adapter", &body("policy"));
        let unloaded = server.ask("/v1/unload_lora_adapter", &json!({ "lora_name": "policy" }));
        for answer in [&loaded, &unloaded] {
            let status = if is_open { "HTTP/1.1 200" } else { "HTTP/1.1 404" };
            assert!(answer.starts_with(status), "{value:?}: {answer}");
            assert_eq!(answer.contains(closed), !is_open, "{value:?}: {answer}");
        }
        for path in ["/load_lora_adapter", "/skyrl/v1/load_lora_adapter", "/pause", "/update_weights"] {
            let answer = server.ask(path, &body("policy"));
            assert!(answer.starts_with("HTTP/1.1 404") && answer.contains(closed), "{value:?} {path}: {answer}");
        }
        assert_eq!(server.said.contains("can load and unload its adapters"), is_open, "{}", server.said);
        server.stop("-TERM");
    }
    // A key of the API opens them where it has some.
    let server = serve_with(model.path(), &[&LORA[..], &["--api-key", "k"]].concat(), &[(ALLOW, "true")]);
    let answer = server.ask("/v1/load_lora_adapter", &body("policy"));
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    server.stop("-TERM");
}

#[test]
fn a_loop_that_loads_one_policy_after_the_other_goes_on() {
    let (model, adapter) = (model("fp8_blocks", true), tempfile::tempdir().unwrap());
    write_adapter(model.path(), adapter.path());
    let server = serve(model.path(), &[&LORA[..], &["--admin-on-main-port", "--insecure-admin"]].concat());
    for version in 1..=4 {
        let name = format!("policy-v{version}");
        let loaded = server.ask("/v1/load_lora_adapter", &json!({ "lora_name": name, "lora_path": adapter.path() }));
        assert!(loaded.starts_with("HTTP/1.1 200"), "{name}: {loaded}");
        let sampled = server.post("/v1/completions", &json!({ "model": name, "prompt": [5], "max_tokens": 1 }));
        assert_eq!(sampled["model"], name.as_str(), "{sampled}");
    }
    let gone = server.ask("/v1/completions", &json!({ "model": "policy-v1", "prompt": [5], "max_tokens": 1 }));
    assert!(gone.starts_with("HTTP/1.1 404"), "{gone}");
    let models = server.get("/v1/models");
    assert!(models.contains("policy-v3") && models.contains("policy-v4") && !models.contains("policy-v2"), "{models}");
    server.stop("-TERM");
}

/// The answer to a client with a key; with a body, to a POST.
fn asked(server: &Server, key: &str, path: &str, body: Option<&Value>) -> String {
    let (method, body) = (if body.is_some() { "POST" } else { "GET" }, body.map_or_else(String::new, Value::to_string));
    let headers = format!("Host: localhost\r\nConnection: close\r\nAuthorization: Bearer {key}\r\n");
    let length = format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
    answer(server.address, &format!("{method} {path} HTTP/1.1\r\n{headers}{length}\r\n{body}"))
}

#[test]
fn adapters_belong_to_the_server_and_not_to_the_key_that_loaded_them() {
    let (model, adapter) = (model("fp8_blocks", true), tempfile::tempdir().unwrap());
    write_adapter(model.path(), adapter.path());
    let load = json!({ "lora_name": "policy", "lora_path": adapter.path(), "load_inplace": true });
    let (unload, sample) =
        (json!({ "lora_name": "policy" }), json!({ "model": "policy", "prompt": [5], "max_tokens": 1 }));
    let keys = [&LORA[..], &["--api-key", "a", "b"]].concat();
    // With vLLM's variable, each key loads, replaces and unloads what any of them uses.
    let server = serve_with(model.path(), &keys, &[(ALLOW, "1")]);
    let ok = |key: &str, path: &str, body: Option<&Value>| {
        let answer = asked(&server, key, path, body);
        assert!(answer.starts_with("HTTP/1.1 200"), "{key} {path}: {answer}");
        answer
    };
    ok("a", "/v1/load_lora_adapter", Some(&load));
    assert!(ok("b", "/v1/models", None).contains("\"policy\""));
    ok("b", "/v1/completions", Some(&sample));
    ok("b", "/v1/load_lora_adapter", Some(&load));
    ok("b", "/v1/unload_lora_adapter", Some(&unload));
    assert!(asked(&server, "a", "/v1/completions", Some(&sample)).starts_with("HTTP/1.1 404"));
    server.stop("-TERM");
    // With a key of the control plane, none of the API's does.
    let admin = ["--admin-on-main-port", "--admin-api-key", "k"];
    let server = serve(model.path(), &[&keys[..], &admin].concat());
    for (path, body) in [("/v1/load_lora_adapter", &load), ("/v1/unload_lora_adapter", &unload)] {
        assert!(asked(&server, "a", path, Some(body)).starts_with("HTTP/1.1 401"), "{path}");
    }
    assert!(asked(&server, "k", "/v1/load_lora_adapter", Some(&load)).starts_with("HTTP/1.1 200"));
    assert!(asked(&server, "a", "/v1/completions", Some(&sample)).starts_with("HTTP/1.1 200"));
    server.stop("-TERM");
}
