//! Starts that fail: one sentence that says what to do next.

use std::{
    io::{Read, Write},
    net::TcpListener,
    path::Path,
};

use crate::program::{TINY_MODEL, failure, failure_with, run, run_command, serve_arguments, tito};

/// The line of a command line that makes no sense.
fn misuse(arguments: &[&str]) -> String {
    let run = run(arguments);
    assert_eq!((run.code, run.out.as_str()), (Some(2), ""), "{arguments:?}: {}", run.err);
    assert_eq!(run.err.lines().count(), 1, "one sentence: {}", run.err);
    run.err.trim_end().to_owned()
}

#[test]
fn a_start_without_a_model_says_what_to_pass() {
    let said = "error: no model is given; pass a hub id, a model directory or a .gguf file, for example: \
                tito serve HuggingFaceTB/SmolLM2-135M-Instruct";
    assert_eq!(misuse(&["serve"]), said);
    assert_eq!(misuse(&["serve", "--port", "0"]), said);
    assert_eq!(misuse(&["doctor"]), said);
}

#[test]
fn flags_that_make_no_sense_end_with_another_status_than_what_is_missing() {
    let scripted = |more: &[&str]| run(&[&["serve", TINY_MODEL, "--engine", "scripted", "--port", "0"], more].concat());
    let senseless = scripted(&["--otlp-traces-endpoint", "ftp://x"]);
    assert_eq!((senseless.code, senseless.err.lines().count()), (Some(2), 1), "{}", senseless.err);
    let missing = scripted(&["--script", "/no/such/script"]);
    assert_eq!(missing.code, Some(1), "{}", missing.err);
}

#[test]
fn variables_of_vllm_that_are_ignored_are_named_once() {
    let variables = [("VLLM_USE_MODELSCOPE", "1"), ("VLLM_NOT_A_THING", "1"), ("VLLM_USE_DEEP_GEMM", "0")];
    let said = "ignored environment variables, without effect here: VLLM_USE_MODELSCOPE (models come from the Hugging Face hub, or \
                from the directory that is given as MODEL); unknown: VLLM_NOT_A_THING";
    for command in ["serve", "doctor"] {
        let given = |more: &[&str]| {
            let arguments = [&[command, "./no/such/model", "--device", "cpu", "--port", "0"], more].concat();
            run_command(tito(&arguments).envs(variables))
        };
        let warned = given(&[]);
        let lines: Vec<_> = warned.err.lines().filter(|line| line.contains("environment variables")).collect();
        assert!(warned.code == Some(1) && lines.len() == 1 && lines[0].ends_with(said), "{}", warned.err);
        let refused = given(&["--fail-on-environ-validation"]);
        assert!(refused.code == Some(2) && refused.err.contains("VLLM_NOT_A_THING"), "{}", refused.err);
    }
    assert!(!run(&["serve", "./no/such/model", "--port", "0"]).err.contains("environment variables"));
}

#[test]
fn flags_of_other_servers_are_answered_with_their_names_here() {
    for (flags, sentences) in [
        (&["--ctx-size", "4096"][..], "--ctx-size is llama.cpp's: tito and vLLM call it --max-model-len"),
        (&["-c", "4096"], "-c is llama.cpp's: tito and vLLM call it --max-model-len"),
        (
            &["-ngl", "99"],
            "-ngl is llama.cpp's, and tito has no such flag: --device says where the whole model is computed",
        ),
        (&["-np", "4"], "-np is llama.cpp's: tito and vLLM call it --max-num-seqs"),
        (&["-hf", "org/name"], "-hf is llama.cpp's: tito and vLLM call it MODEL, the argument without a flag"),
        (&["--lora", "a"], "--lora is llama.cpp's: tito and vLLM call it --enable-lora --lora-modules NAME=DIR"),
        (
            &["--max-total-tokens", "4096"],
            "--max-total-tokens is SGLang's and TGI's: tito calls it --kv-cache-memory BYTES where it is for all sequences",
        ),
        (&["--context-length=4096"], "--context-length is SGLang's: tito and vLLM call it --max-model-len"),
        (
            &["--disable_radix_cache"],
            "--disable-radix-cache is SGLang's: tito and vLLM call it --no-enable-prefix-caching",
        ),
        (
            &["--tp", "2", "--random-seed", "7"],
            "--tp is SGLang's: tito and vLLM call it --tensor-parallel-size, whose only value here is 1; --random-seed is \
             SGLang's: tito and vLLM call it --seed",
        ),
        (
            &["--num-shard", "2"],
            "--num-shard is TGI's, and tito has no such flag: one process computes the whole model",
        ),
    ] {
        let line = misuse(&[&["serve", TINY_MODEL], flags].concat());
        assert!(line.starts_with(&format!("error: {sentences}")), "{line}");
    }
    let line = misuse(&["serve", "--model-path", TINY_MODEL]);
    assert_eq!(line, "error: --model-path is SGLang's: tito and vLLM call it MODEL, the argument without a flag");
}

#[test]
fn a_port_in_use_is_said_to_be_another_programs() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let line = failure(&["serve", TINY_MODEL, "--engine", "scripted", "--host", "127.0.0.1", "--port", &port]);
    let said = format!(
        "error: cannot use 127.0.0.1:{port}: another program listens there; stop it, or choose another address with --host \
         and --port"
    );
    assert_eq!(line, said);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let _taken = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let shown = path.to_str().unwrap();
    let line = failure(&["serve", TINY_MODEL, "--engine", "scripted", "--uds", shown]);
    let said =
        format!("error: cannot use --uds {shown}: another program listens there; stop it, or choose another path");
    assert_eq!(line, said);
}

#[test]
fn a_path_that_is_wrong_says_what_may_be_passed() {
    let said = "error: no such file or directory: ./no/such; pass a .gguf file, a model directory or a hub id such as \
                Qwen/Qwen3-0.6B";
    assert_eq!(failure(&serve_arguments("./no/such", &[])), said);
}

#[test]
fn a_context_longer_than_the_models_says_how_long_it_may_be() {
    let line = failure(&serve_arguments(TINY_MODEL, &["--max-model-len", "8192"]));
    let said = "error: --max-model-len 8192 is more than the 4096 tokens that the model is made for; leave it out, or pass at \
                most 4096";
    assert_eq!(line, said);
}

/// A hub that answers every request with `answer`, and is gone once the test is.
fn hub(answer: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            let _ = connection.read(&mut [0; 4096]);
            let _ = connection.write_all(answer.as_bytes());
        }
    });
    format!("http://{address}")
}

fn refused_by(hub: &str) -> String {
    let home = tempfile::tempdir().unwrap();
    let variables = [
        ("HF_HUB_OFFLINE", "0"),
        ("HF_ENDPOINT", hub),
        ("HF_HOME", home.path().to_str().unwrap()),
        ("NO_PROXY", "127.0.0.1"),
    ];
    failure_with(&serve_arguments("org/no-such", &[]), &variables)
}

#[test]
fn a_model_that_the_hub_does_not_give_is_one_sentence() {
    let address = hub("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    let said = format!(
        "error: cannot download org/no-such: {address} answers 404 Not Found: it has no such model or revision, or shows it \
         only to those who may see it; check the name, and pass --hf-token for a private or gated model"
    );
    assert_eq!(refused_by(&address), said);
    let address = hub("");
    let line = refused_by(&address);
    assert!(line.starts_with(&format!("error: cannot download org/no-such: {address} cannot be reached (")), "{line}");
    let next = "), and there is no directory org/no-such here; check the network, or pass a directory with the model";
    assert!(line.ends_with(next) && !line.contains("request"), "{line}");
    let line = failure(&serve_arguments("org/no-such", &[]));
    assert!(line.ends_with("HF_HUB_OFFLINE is set: unset it to download the model, or pass a directory"), "{line}");
}

fn copy(files: &[&str], directory: &Path) {
    for file in files {
        std::fs::copy(Path::new(TINY_MODEL).join(file), directory.join(file)).unwrap();
    }
}

#[test]
fn a_directory_that_is_no_whole_model_says_what_it_lacks() {
    let directory = tempfile::tempdir().unwrap();
    let shown = directory.path().to_str().unwrap();
    let refused = || failure(&["serve", shown, "--host", "127.0.0.1", "--port", "0"]);
    let whole = "pass a directory as Transformers' save_pretrained writes it";
    assert_eq!(refused(), format!("error: {shown}/config.json does not exist; {whole}"));
    std::fs::write(directory.path().join("a.gguf"), []).unwrap();
    let line = refused();
    assert!(line.ends_with("; the directory has GGUF files: pass the path of one of them"), "{line}");
    copy(&["config.json"], directory.path());
    let line = refused();
    assert!(
        line.contains(&format!(
            "{shown}/tokenizer.json does not exist; no other tokenizer format is read; write it with"
        )),
        "{line}"
    );
    copy(&["tokenizer.json", "tokenizer_config.json"], directory.path());
    let said = format!(
        "error: {shown} has no weights: neither model.safetensors nor model.safetensors.index.json is there; {whole}"
    );
    assert_eq!(refused(), said);
    std::fs::write(directory.path().join("pytorch_model.bin"), []).unwrap();
    let line = refused();
    assert!(line.contains("; its pytorch_model.bin is not read; write it as safetensors with Transformers'"), "{line}");
}

#[test]
fn a_model_that_no_memory_holds_says_what_it_needs_and_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    copy(&["config.json", "tokenizer.json", "tokenizer_config.json"], directory.path());
    let weights = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/native/llama/model.safetensors");
    std::fs::copy(weights, directory.path().join("model.safetensors")).unwrap();
    let config = directory.path().join("config.json");
    let mut wide: serde_json::Value = serde_json::from_slice(&std::fs::read(&config).unwrap()).unwrap();
    wide["num_hidden_layers"] = 4_000.into();
    wide["hidden_size"] = 65_536.into();
    wide["intermediate_size"] = 262_144.into();
    std::fs::write(&config, wide.to_string()).unwrap();
    let line = failure(&["serve", directory.path().to_str().unwrap(), "--host", "127.0.0.1", "--port", "0"]);
    assert!(
        line.starts_with("error: the model's weights take ")
            && line.contains(" of memory that this machine or container has; "),
        "{line}"
    );
    let next = "serve a quantised .gguf file of the model, or a smaller model; --dtype bfloat16 takes half the memory of float32";
    assert!(line.ends_with(next), "{line}");
}
