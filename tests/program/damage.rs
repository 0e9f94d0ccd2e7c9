//! Files that were damaged, and what there is no room for: the program serves, or ends with one line and 1.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
};

use serde_json::json;

use crate::{
    damaged::{ADDRESSES, damaged},
    program::{Server, tito},
    specimen::{Kind, Specimen},
};

fn specimen(kind: Kind) -> Specimen {
    Specimen::new(kind, store_responses)
}

/// Has a server store some responses in a file.
fn store_responses(file: &Path) {
    let server = Server::start(&["--response-store", file.to_str().unwrap()]);
    for number in 0..12 {
        let input = "hello ".repeat(30 * number + 1);
        let stored = server.post("/v1/responses", &json!({ "input": input, "max_output_tokens": 16 }));
        let found = server.get(&format!("/v1/responses/{}", stored["id"].as_str().unwrap()));
        assert!(found.starts_with("HTTP/1.1 200"), "{found}");
    }
    server.stop("-TERM");
}

/// Runs the server until it serves or ends; whether it served, or the one line with which it ended.
fn run(arguments: &[&str]) -> Result<(), String> {
    let program = tito(arguments);
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("ulimit -v {ADDRESSES}; exec \"$0\" \"$@\"")).arg(program.get_program());
    command.args(program.get_args()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let mut child = command.spawn().unwrap();
    let mut seen = Vec::new();
    for line in BufReader::new(child.stderr.take().unwrap()).lines() {
        let line = line.unwrap();
        if line.contains(" | http") {
            child.kill().unwrap();
            child.wait().unwrap();
            return Ok(());
        }
        seen.push(line);
    }
    let status = child.wait().unwrap();
    if status.success() {
        return Ok(());
    }
    assert_eq!(status.code(), Some(1), "{arguments:?}: {status}, {seen:#?}");
    let errors: Vec<&String> = seen.iter().filter(|line| line.starts_with("error: ")).collect();
    let [error] = errors[..] else { panic!("{arguments:?}: {seen:#?}") };
    assert_eq!(seen.last(), Some(error), "the reason is the last line: {seen:#?}");
    assert!(!seen.iter().any(|line| line.contains("panicked") || line.contains("RUST_BACKTRACE")), "{seen:#?}");
    Err(error.clone())
}

const ON_A_FREE_PORT: [&str; 4] = ["--host", "127.0.0.1", "--port", "0"];

/// Kernels that need no trial, which takes its time where nothing is optimised.
const NATIVE: [&str; 6] = ["--engine", "native", "--threads", "1", "--kernels", "portable"];

fn serve(model: &Path, more: &[&str]) -> Result<(), String> {
    run(&[&["serve", model.to_str().unwrap()], &NATIVE[..], &ON_A_FREE_PORT[..], more].concat())
}

#[test]
fn the_server_and_the_converter_end_with_one_line_and_1_where_they_cannot_load() {
    for kind in Kind::ALL {
        let specimen = specimen(kind);
        let sound = specimen.sound();
        for number in 0..10 {
            fs::write(specimen.path(), damaged(&sound, number, kind.is_text())).unwrap();
            let outcome = if kind == Kind::Store {
                let model = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/tiny-model");
                let store = specimen.path();
                let scripted = ["serve", model, "--engine", "scripted", "--response-store", store.to_str().unwrap()];
                run(&[&scripted, &ON_A_FREE_PORT[..]].concat())
            } else {
                serve(&specimen.model(), &["--kv-cache-memory", "1M"])
            };
            println!("{kind:?} {number}: {outcome:?}");
            if kind == Kind::Gguf {
                let directory = specimen.path().with_extension(format!("{number}"));
                let converted = run(&["convert", specimen.path().to_str().unwrap(), directory.to_str().unwrap()]);
                assert_eq!(converted.is_ok(), directory.exists(), "{converted:?}");
            }
        }
    }
}

#[test]
fn a_line_break_of_a_file_does_not_break_the_line_that_quotes_it() {
    let specimen = specimen(Kind::Tokenizer);
    let mut tokenizer: serde_json::Value = serde_json::from_slice(&specimen.sound()).unwrap();
    tokenizer["version"] = json!("7\nerror: \u{1b}[2J");
    fs::write(specimen.path(), tokenizer.to_string()).unwrap();
    let line = serve(&specimen.model(), &["--kv-cache-memory", "1M"]).unwrap_err();
    assert!(line.contains("Unknown tokenizer version '7 error: \\u{1b}[2J'"), "{line}");
}

#[test]
fn memory_that_is_not_there_is_one_line() {
    let specimen = specimen(Kind::Config);
    let refusal = |arguments: &[&str]| serve(&specimen.model(), arguments).unwrap_err();
    let line = refusal(&["--kv-cache-memory", "900T"]);
    assert!(
        line.contains("--kv-cache-memory") && line.contains("of memory that this machine or container has"),
        "{line}"
    );
    // More than the process may address, whether or not the machine has as much.
    let line = refusal(&["--kv-cache-memory", "3G"]);
    assert!(line.contains("KV cache of 3221225472 bytes is too large") || line.contains(" has; "), "{line}");

    // A sparse file of 2 GB, of which nothing need be read to know that there is no room for it.
    let config: serde_json::Value = serde_json::from_slice(&specimen.sound()).unwrap();
    let wide = serde_json::json!({ "vocab_size": 1 << 24, "eos_token_id": 2 });
    let mut wider = config;
    wider.as_object_mut().unwrap().extend(wide.as_object().unwrap().clone());
    fs::write(specimen.path(), wider.to_string()).unwrap();
    widen_embeddings(&specimen.model().join("model.safetensors"), 1 << 24);
    let line = refusal(&["--kv-cache-memory", "1M", "--dtype", "bfloat16"]);
    assert!(line.contains("no room for the model's weights") || line.contains(" has; "), "{line}");
}

/// Makes the embeddings and the head of a file of tensors that many rows long, by a hole at its end.
fn widen_embeddings(path: &Path, rows: usize) {
    let file = fs::read(path).unwrap();
    let length = usize::try_from(u64::from_le_bytes(file[..8].try_into().unwrap())).unwrap();
    let mut header: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(&file[8..8 + length]).unwrap();
    header.remove("__metadata__");
    let mut end = 0;
    for (name, tensor) in &mut header {
        if name == "model.embed_tokens.weight" || name == "lm_head.weight" {
            tensor["shape"][0] = rows.into();
            tensor["dtype"] = "BF16".into();
        }
        let numbers: u64 = tensor["shape"].as_array().unwrap().iter().map(|len| len.as_u64().unwrap()).product();
        let bytes = numbers * if tensor["dtype"] == "F32" { 4 } else { 2 };
        tensor["data_offsets"] = serde_json::json!([end, end + bytes]);
        end += bytes;
    }
    let header = serde_json::Value::Object(header).to_string();
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.bytes());
    fs::write(path, &bytes).unwrap();
    fs::OpenOptions::new().write(true).open(path).unwrap().set_len(bytes.len() as u64 + end).unwrap();
}
