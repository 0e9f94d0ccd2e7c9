//! Files that are not what they are said to be, or lie elsewhere: whoever may name files in calls need not be one who may
//! read them.

use std::{fs, os::unix::fs::symlink, path::Path};

use serde_json::{Value, json};

use crate::quantized::{model, serve};

const ADMIN: [&str; 3] = ["--enable-lora", "--admin-on-main-port", "--insecure-admin"];

fn configuration() -> String {
    json!({ "peft_type": "LORA", "r": 1, "lora_alpha": 1, "target_modules": ["q_proj"] }).to_string()
}

/// Safetensors with this header, and so many zeros.
fn framed(header: &str, zeros: usize) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &vec![0; zeros]].concat()
}

/// Writes an adapter of one module that changes nothing.
fn write_adapter(model: &Path, directory: &Path) {
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
