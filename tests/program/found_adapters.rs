//! Adapters that requests find by their names, as with vLLM's filesystem resolver, and adapters of the hub.

use std::{fs, path::Path};

use serde_json::{Value, json};

use crate::{
    hostile_files::write_adapter,
    program::{Server, failure_with},
    quantized::{model, serve_with},
};

const ALLOW: (&str, &str) = ("VLLM_ALLOW_RUNTIME_LORA_UPDATING", "1");
const DIRECTORY: &str = "VLLM_LORA_RESOLVER_CACHE_DIR";
const LORA: [&str; 3] = ["--enable-lora", "--max-loras", "1"];

/// Writes an adapter that says it was trained on `base`.
fn write(model: &Path, directory: &Path, base: &str) {
    write_adapter(model, directory);
    let file = directory.join("adapter_config.json");
    let mut settings: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    settings["base_model_name_or_path"] = base.into();
    fs::write(file, settings.to_string()).unwrap();
}

fn sample(model: &str) -> Value {
    json!({ "model": model, "prompt": [5], "max_tokens": 1, "return_weight_versions": true })
}

fn refused(server: &Server, model: &str, status: &str) -> Value {
    let answer = server.ask("/v1/completions", &sample(model));
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{model}: {answer}");
    serde_json::from_str::<Value>(body).unwrap()["error"].clone()
}

#[test]
fn an_adapter_of_the_hub_is_found_where_its_models_are() {
    let (model, home) = (model("fp8_blocks", true), tempfile::tempdir().unwrap());
    let repository = home.path().join("hub/models--org--policy");
    write(model.path(), &repository.join("snapshots/0123abcd"), "org/base");
    fs::create_dir(repository.join("refs")).unwrap();
    fs::write(repository.join("refs/main"), "0123abcd").unwrap();
    let variables = [("HF_HOME", home.path().to_str().unwrap())];
    let json = r#"{"name": "second", "path": "org/policy", "base_model_name": "org/base"}"#;
    let named = [&LORA[..], &["--lora-modules", "first=org/policy", json]].concat();
    let server = serve_with(model.path(), &named, &variables);
    for name in ["first", "second"] {
        let answer = server.post("/v1/completions", &sample(name));
        assert_eq!(answer["choices"][0]["weight_versions"][0]["version"], format!("{name}@1"), "{answer}");
    }
    server.stop("-TERM");
    // What is not there is told before any weights are read.
    let arguments = ["serve", model.path().to_str().unwrap(), "--enable-lora", "--lora-modules", "a=org/other"];
    let said = failure_with(&arguments, &variables);
    let beginning =
        "error: the adapter a cannot be served: org/other is neither a directory here nor in the local Hugging Face";
    assert!(said.starts_with(beginning) && said.contains("to download the adapter"), "{said}");
}

#[test]
fn every_dialect_finds_an_adapter_by_its_name() {
    let (model, root) = (model("fp8_blocks", true), tempfile::tempdir().unwrap());
    let messages = json!([{ "role": "user", "content": "a" }]);
    let dialects = [
        ("/v1/completions", json!({ "prompt": [5], "max_tokens": 1 })),
        ("/v1/chat/completions", json!({ "messages": messages, "max_tokens": 1 })),
        ("/v1/chat/completions/render", json!({ "messages": messages })),
        ("/v1/responses", json!({ "input": "a", "max_output_tokens": 1 })),
        ("/v1/messages", json!({ "messages": messages, "max_tokens": 1 })),
        ("/v1/messages/count_tokens", json!({ "messages": messages })),
        ("/inference/v1/generate", json!({ "token_ids": [5], "sampling_params": { "max_tokens": 1 } })),
        ("/generate", json!({ "input_ids": [5], "sampling_params": { "max_new_tokens": 1 } })),
        ("/tokenize", json!({ "prompt": "a" })),
        ("/detokenize", json!({ "tokens": [5] })),
    ];
    for (at, _) in dialects.iter().enumerate() {
        write(model.path(), &root.path().join(format!("policy-{at}")), model.path().to_str().unwrap());
    }
    let variables = [ALLOW, (DIRECTORY, root.path().to_str().unwrap())];
    let server = serve_with(
        model.path(),
        &[&LORA[..], &["--chat-template", "{{ messages[0]['content'] }}"]].concat(),
        &variables,
    );
    for (at, (path, mut body)) in dialects.into_iter().enumerate() {
        let named = if path == "/generate" { "lora_path" } else { "model" };
        body[named] = format!("policy-{at}").into();
        let answer = server.ask(path, &body);
        assert!(answer.starts_with("HTTP/1.1 200 "), "{path}: {answer}");
        let models = server.get("/v1/models");
        assert!(models.contains(&format!("\"policy-{at}\"")), "{path}: {models}");
    }
    server.stop("-TERM");
}

#[test]
fn what_is_found_by_its_name_is_loaded_once_and_never_read_again() {
    let (model, root) = (model("fp8_blocks", true), tempfile::tempdir().unwrap());
    let base = model.path().to_str().unwrap();
    write(model.path(), &root.path().join("policy"), base);
    write(model.path(), &root.path().join("another"), "org/another");
    let variables = [ALLOW, (DIRECTORY, root.path().to_str().unwrap()), ("VLLM_PLUGINS", "a,lora_filesystem_resolver")];
    let server = serve_with(model.path(), &LORA, &variables);
    std::thread::scope(|scope| {
        let asked: Vec<_> = (0..8).map(|_| scope.spawn(|| server.post("/v1/completions", &sample("policy")))).collect();
        for answer in asked {
            let answer = answer.join().unwrap();
            assert_eq!(answer["choices"][0]["weight_versions"][0]["version"], "policy@1", "{answer}");
            assert_eq!(answer["model"], "policy", "{answer}");
        }
    });
    let models = server.get("/v1/models");
    assert!(models.contains(&format!("\"root\":\"{}\"", root.path().join("policy").display())), "{models}");
    fs::remove_dir_all(root.path().join("policy")).unwrap();
    let answer = server.post("/v1/completions", &sample("policy"));
    assert_eq!(answer["choices"][0]["weight_versions"][0]["version"], "policy@1", "{answer}");
    // Nothing there, another model's, and names that lead elsewhere.
    write(model.path(), &root.path().join("deep/policy"), base);
    for name in ["none", "another", "deep/policy", "../policy", "..", ".", "a\0b"] {
        let error = refused(&server, name, "404");
        let message = format!("The model `{name}` does not exist. Valid aliases: {base}.");
        // Paths are not shown.
        assert_eq!((&error["type"], &error["param"]), (&json!("NotFoundError"), &json!("model")), "{error}");
        assert_eq!(error["message"].as_str().unwrap()[..20], message[..20], "{error}");
    }
    // What is there, and cannot be served.
    write(model.path(), &root.path().join("broken"), base);
    fs::write(root.path().join("broken/adapter_model.safetensors"), "").unwrap();
    fs::create_dir(root.path().join("unsaid")).unwrap();
    fs::write(root.path().join("unsaid/adapter_config.json"), "{").unwrap();
    for (name, reason) in [("broken", "the stream ended early"), ("unsaid", "its JSON ends too early")] {
        let error = refused(&server, name, "400");
        let message = error["message"].as_str().unwrap();
        let begin = format!("LoRA adapter '{name}' was found but could not be loaded. The reason: ");
        assert!(message.starts_with(&begin) && message.contains(reason), "{error}");
        assert_eq!(error["type"], "BadRequestError");
        // It is looked for again, so that one that is complete by now is served.
        fs::remove_dir_all(root.path().join(name)).unwrap();
        write(model.path(), &root.path().join(name), base);
        assert_eq!(server.post("/v1/completions", &sample(name))["model"], name);
    }
    let (_, said) = server.stop("-TERM");
    assert_eq!(said.matches("an adapter was loaded").count(), 3, "{said}");
}

#[test]
fn an_adapter_that_is_found_needs_room_as_one_that_is_loaded() {
    let (model, root) = (model("fp8_blocks", true), tempfile::tempdir().unwrap());
    for name in ["one", "two", "named"] {
        write(model.path(), &root.path().join(name), model.path().to_str().unwrap());
    }
    let named = format!("named={}", root.path().join("named").display());
    let variables = [ALLOW, (DIRECTORY, root.path().to_str().unwrap())];
    let with_room = |most: &str| {
        serve_with(
            model.path(),
            &[&LORA[..], &["--max-cpu-loras", most, "--lora-modules", &named]].concat(),
            &variables,
        )
    };
    let server = with_room("2");
    for (name, version) in [("one", "one@1"), ("two", "two@1"), ("one", "one@2")] {
        let answer = server.post("/v1/completions", &sample(name));
        assert_eq!(answer["choices"][0]["weight_versions"][0]["version"], version, "{answer}");
    }
    server.stop("-TERM");
    let server = with_room("1");
    let error = refused(&server, "one", "409");
    assert!(error["message"].as_str().unwrap().contains("as many as --max-cpu-loras allows"), "{error}");
    server.stop("-TERM");
    // A server without adapters says how to get them.
    let server = serve_with(model.path(), &[], &variables);
    let error = refused(&server, "one", "400");
    assert!(error["message"].as_str().unwrap().contains("--enable-lora"), "{error}");
    server.stop("-TERM");
}

#[test]
fn adapters_are_found_only_where_the_environment_says() {
    let (model, root) = (model("fp8_blocks", true), tempfile::tempdir().unwrap());
    write(model.path(), &root.path().join("policy"), model.path().to_str().unwrap());
    let directory = (DIRECTORY, root.path().to_str().unwrap());
    for variables in [&[directory][..], &[ALLOW], &[ALLOW, (DIRECTORY, "")], &[ALLOW, directory, ("VLLM_PLUGINS", "")]]
    {
        let server = serve_with(model.path(), &LORA, variables);
        refused(&server, "policy", "404");
        assert_eq!(server.said.contains("has no effect without"), variables.len() == 1 && variables[0] == directory);
        server.stop("-TERM");
    }
    let serve = ["serve", model.path().to_str().unwrap(), "--engine", "native", "--port", "0", "--enable-lora"];
    let missing = root.path().join("nothing").display().to_string();
    let line = failure_with(&serve, &[(DIRECTORY, &missing)]);
    assert_eq!(line, format!("error: VLLM_LORA_RESOLVER_CACHE_DIR must name a directory, but {missing} is not one"));
    let elsewhere = tempfile::tempdir().unwrap();
    let rooted = [&serve[..], &["--lora-root", elsewhere.path().to_str().unwrap()]].concat();
    let line = failure_with(&rooted, &[ALLOW, directory]);
    assert!(line.starts_with("error: VLLM_LORA_RESOLVER_CACHE_DIR must name a directory within --lora-root"), "{line}");
}
