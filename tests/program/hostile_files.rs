//! Files that are not what they are said to be, or lie elsewhere: whoever may name files in calls need not be one who may
//! read them.

use std::{fs, os::unix::fs::symlink, path::Path};

use serde_json::{Value, json};

use crate::{
    program::Server,
    quantized::{model, serve},
};

const ADMIN: [&str; 3] = ["--enable-lora", "--admin-on-main-port", "--insecure-admin"];

fn configuration() -> String {
    json!({ "peft_type": "LORA", "r": 1, "lora_alpha": 1, "target_modules": ["q_proj"] }).to_string()
}

/// Safetensors with this header, and so many zeros.
fn framed(header: &str, zeros: usize) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &vec![0; zeros]].concat()
}

/// Writes an adapter of one module that changes nothing.
pub(crate) fn write_adapter(model: &Path, directory: &Path) {
    let config: Value = serde_json::from_slice(&fs::read(model.join("config.json")).unwrap()).unwrap();
    let size = |name: &str| usize::try_from(config[name].as_u64().unwrap()).unwrap();
    let (inner, heads) = (size("hidden_size"), size("num_attention_heads"));
    let outer = heads * config["head_dim"].as_u64().map_or(inner / heads, |dim| usize::try_from(dim).unwrap());
    let name = |end: &str| format!("base_model.model.model.layers.0.self_attn.q_proj.{end}.weight");
    let header = json!({
        name("lora_A"): { "dtype": "F32", "shape": [1, inner], "data_offsets": [0, 4 * inner] },
        name("lora_B"): { "dtype": "F32", "shape": [outer, 1], "data_offsets": [4 * inner, 4 * (inner + outer)] },
    });
    fs::create_dir_all(directory).unwrap();
    fs::write(directory.join("adapter_config.json"), configuration()).unwrap();
    fs::write(directory.join("adapter_model.safetensors"), framed(&header.to_string(), 4 * (inner + outer))).unwrap();
}

#[test]
fn no_link_of_an_adapter_leads_out_of_its_root() {
    let (model, outer) = (model("fp8_blocks", true), tempfile::tempdir().unwrap());
    let (root, away) = (outer.path().join("root"), outer.path().join("away"));
    for directory in [&away, &root.join("plain"), &root.join("blobs")] {
        write_adapter(model.path(), directory);
    }
    let names = ["adapter_config.json", "adapter_model.safetensors"];
    // As in the cache of Hugging Face, and with one of the two files elsewhere.
    for (directory, targets) in [
        ("cache", ["../blobs", "../blobs"]),
        ("settings", [away.to_str().unwrap(), "../blobs"]),
        ("tensors", ["../blobs", "../../away"]),
        ("nothing", ["../../nothing", "../blobs"]),
    ] {
        fs::create_dir(root.join(directory)).unwrap();
        for (name, target) in names.iter().zip(targets) {
            symlink(Path::new(target).join(name), root.join(directory).join(name)).unwrap();
        }
    }
    let server = serve(model.path(), &[&ADMIN[..], &["--lora-root", root.to_str().unwrap()]].concat());
    let load = |path: &str| server.ask("/v1/load_lora_adapter", &json!({ "lora_name": path, "lora_path": path }));
    for path in ["plain", "cache"] {
        let loaded = load(path);
        assert!(loaded.starts_with("HTTP/1.1 200"), "{path}: {loaded}");
    }
    for path in ["settings", "tensors", "nothing"] {
        let refused = load(path);
        assert!(refused.starts_with("HTTP/1.1 400"), "{path}: {refused}");
        assert!(refused.contains("it leads out of the directory that files may be read from"), "{path}: {refused}");
    }
    server.stop("-TERM");
}

/// What none of the files says that are named here.
const SECRET: &str = "hunter2";

/// What files say that were never weights.
fn texts() -> [String; 10] {
    [
        format!("root:x:0:0:{SECRET}:/root:/bin/sh\n{SECRET}:x:1:1::/:/bin/false\n"),
        format!("{SECRET}\n"),
        format!("\"{SECRET} {SECRET}\""),
        format!(r#"{{"{SECRET}": "{SECRET}"}}"#),
        format!(r#"{{"peft_type": "{SECRET}", "quantization_config": "{SECRET}"}}"#),
        format!(r#"{{"peft_type": "LORA", "r": "{SECRET}", "quantization_config": {{"quant_method": "{SECRET}"}}}}"#),
        format!(r#"{{"weight_map": {{}}, "metadata": {{"delta_encoding": "{SECRET}", "version": "{SECRET}"}}}}"#),
        format!(r#"{{"version": "{SECRET}", "base_version": 1, "tensors": [{{"{SECRET}": "{SECRET}"}}]}}"#),
        format!(r#"{{"weight_map": {{"a": "../{SECRET}"}}}}"#),
        format!(r#"{{"version": 1, "base_version": 0, "payload_files": ["../{SECRET}"]}}"#),
    ]
}

/// What would tell what a file begins with.
fn telling(content: &[u8]) -> Vec<String> {
    let mut telling = vec![SECRET.to_owned(), "root:x".to_owned()];
    if let Some(first) = content.first_chunk::<8>() {
        telling.extend([u64::from_le_bytes(*first), u64::from_be_bytes(*first)].map(|number| number.to_string()));
    }
    // Lengths of headers are small numbers, which every answer may have.
    telling.retain(|part| part.len() > 4);
    telling
}

/// What a path is said to be in a call.
#[derive(Debug, Clone, Copy)]
enum Said {
    Weights,
    Versions,
    Adapter,
}

/// The answers of every call that takes such a path.
fn answers(server: &Server, path: &Path, said: Said) -> Vec<(&'static str, String)> {
    let calls = match said {
        Said::Weights => vec![
            ("/update_weights", json!({ "weight_dir": path })),
            ("/update_weights_from_disk", json!({ "model_path": path })),
            ("/areal_update_weights", json!({ "model_path": path })),
            ("/collective_rpc", json!({ "method": "reload_weights", "kwargs": { "weights_path": path } })),
        ],
        Said::Versions => vec![
            ("/fetch_weights", json!({ "sync_dir": path, "target_version": 1 })),
            ("/pull_weights", json!({ "local_checkpoint_dir": "/none", "source_dir": path, "target_version": 1 })),
        ],
        Said::Adapter => ["/v1/load_lora_adapter", "/load_lora_adapter", "/skyrl/v1/load_lora_adapter"]
            .map(|call| (call, json!({ "lora_name": "a", "lora_path": path })))
            .into(),
    };
    let ask = |(call, body): (&'static str, Value)| (call, server.ask(call, &body));
    let mut answers: Vec<_> = calls.into_iter().map(ask).collect();
    // And the part of an update.
    let part = match said {
        Said::Weights => json!({ "path": path }),
        Said::Versions => json!({ "sync_dir": path, "target_version": 1 }),
        Said::Adapter => return answers,
    };
    let phases = [
        ("/start_weight_update", json!({})),
        ("/update_weights", json!({ "update_info": part })),
        ("/finish_weight_update", json!({})),
    ];
    answers.extend(phases.map(ask));
    answers
}

/// Writes files into a directory, and refuses answers that tell what the first of them says.
fn tells_nothing(server: &Server, said: Said, folder: &str, files: &[(&str, &[u8])]) {
    let directory = tempfile::tempdir().unwrap();
    let inner = directory.path().join(folder);
    fs::create_dir_all(&inner).unwrap();
    for (name, bytes) in files {
        fs::write(inner.join(name), bytes).unwrap();
    }
    let (name, secret) = files[0];
    let path = if name == "passwd" { inner.join(name) } else { directory.path().to_owned() };
    for (call, answer) in answers(server, &path, said) {
        for told in telling(secret) {
            let shown = String::from_utf8_lossy(secret);
            assert!(!answer.contains(&told), "{call} of {folder}/{name} with {shown}: {answer}");
        }
        // Deltas are looked for.
        assert!(call != "/fetch_weights" || name != "manifest.json" || answer.contains(folder), "{answer}");
    }
}

#[test]
fn no_answer_tells_what_a_file_says_that_is_none_of_weights() {
    let model = model("fp8_blocks", true);
    // Nobody reads the log meanwhile, and a pipe that is full would hold the server up.
    let server = serve(model.path(), &[&ADMIN[..], &["--disable-uvicorn-access-log", "--log-level", "ERROR"]].concat());
    // A trainer's version, so that deltas are looked for.
    let updated = server.post("/update_weights", &json!({ "weight_dir": model.path(), "weight_version": "0" }));
    assert_eq!(updated["status"], "ok", "{updated}");
    let (texts, configuration) = (texts(), configuration());
    let plain = texts[..2].iter().map(|text| text.clone().into_bytes());
    for secret in plain.chain(texts.iter().map(|text| framed(text, 0))) {
        for name in ["passwd", "model.safetensors", "x.safetensors"] {
            tells_nothing(&server, Said::Weights, "", &[(name, &secret)]);
        }
        let adapter: [(&str, &[u8]); 2] =
            [("adapter_model.safetensors", &secret), ("adapter_config.json", configuration.as_bytes())];
        tells_nothing(&server, Said::Adapter, "", &adapter);
    }
    for secret in &texts {
        let secret = secret.as_bytes();
        for (folder, name) in [("delta-00000001", "manifest.json"), ("weight_v000001", "model.safetensors.index.json")]
        {
            tells_nothing(&server, Said::Weights, "", &[(name, secret)]);
            tells_nothing(&server, Said::Versions, folder, &[(name, secret)]);
        }
        tells_nothing(&server, Said::Adapter, "", &[("adapter_config.json", secret)]);
    }
    // Last, as some of these are weights.
    let sound = fs::read(model.path().join("model.safetensors")).unwrap();
    for secret in &texts[2..6] {
        for name in ["config.json", "hf_quant_config.json"] {
            let files: [(&str, &[u8]); 2] = [(name, secret.as_bytes()), ("model.safetensors", &sound)];
            tells_nothing(&server, Said::Weights, "", &files);
        }
    }
    let (_, log) = server.stop("-TERM");
    assert!(!log.contains("panicked"), "{log}");
}

#[test]
fn labels_are_short_and_keep_to_their_line() {
    let model = model("fp8_blocks", true);
    let server = serve(model.path(), &ADMIN);
    let directory = model.path();
    let long = "é".repeat(257);
    for label in [long.as_str(), "a\u{1b}[2J", "a\nb", "a\u{85}b"] {
        for (path, body, field) in [
            ("/update_weight_version", json!({ "new_version": label }), "new_version"),
            ("/update_weights", json!({ "weight_dir": directory, "weight_version": label }), "weight_version"),
            (
                "/update_weights_from_disk",
                json!({ "model_path": directory, "weight_version": label }),
                "weight_version",
            ),
            ("/finish_weight_update", json!({ "weight_version": label }), "weight_version"),
            (
                "/v1/load_lora_adapter",
                json!({ "lora_name": "a", "lora_path": directory, "base_model_name": label }),
                "base_model_name",
            ),
        ] {
            let refused = server.post(path, &body);
            let error = &refused["error"];
            assert_eq!((&error["code"], &error["param"]), (&json!(400), &json!(format!("body.{field}"))), "{refused}");
            assert!(refused.to_string().len() < 400, "{refused}");
        }
    }
    let longest = "é".repeat(256);
    assert_eq!(server.post("/update_weight_version", &json!({ "new_version": longest }))["new_version"], longest);
    server.stop("-TERM");
}
