//! What `tito doctor` says of a model and this machine.

use std::net::TcpListener;

use crate::program::{Run, TINY_MODEL, run, run_command, tito};

/// A model with weights and a tokenizer.
pub(crate) fn whole_model() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let llama = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/native/llama");
    for (from, file) in [
        (llama, "config.json"),
        (llama, "model.safetensors"),
        (TINY_MODEL, "tokenizer.json"),
        (TINY_MODEL, "tokenizer_config.json"),
    ] {
        std::fs::copy(format!("{from}/{file}"), directory.path().join(file)).unwrap();
    }
    directory
}

pub(crate) fn doctor(model: &str, more: &[&str]) -> Run {
    run(&[&["doctor", model, "--device", "cpu", "--host", "127.0.0.1", "--port", "0"], more].concat())
}

/// The line about one thing.
pub(crate) fn line<'r>(run: &'r Run, what: &str) -> &'r str {
    let lines = || format!("{what}: {} {}", run.out, run.err);
    run.out
        .lines()
        .find_map(|line| line.strip_prefix(what)?.strip_prefix(": "))
        .unwrap_or_else(|| panic!("{}", lines()))
}

#[test]
fn a_model_that_would_be_served_is_told_in_plain_lines() {
    let model = whole_model();
    let path = model.path().to_str().unwrap();
    let run = doctor(path, &["--kv-cache-memory", "1M", "--kernels", "portable"]);
    assert_eq!((run.code, run.err.as_str()), (Some(0), ""), "{}", run.out);
    for (what, said) in [
        ("device", "cpu"),
        ("engine", "native"),
        ("chat template", "the model's"),
        ("--tool-call-parser", "auto is hermes, by the chat template"),
        ("weights", "1 MB"),
        ("start", "serve would start with these flags"),
    ] {
        assert_eq!(line(&run, what), said, "{}", run.out);
    }
    assert_eq!(line(&run, "model"), format!("{path} (a directory), of the family LlamaForCausalLM"));
    assert!(line(&run, "--reasoning-parser").starts_with("auto is none: none of the marks"), "{}", run.out);
    assert!(line(&run, "kernels").starts_with("cpu (portable, "), "{}", run.out);
    assert!(line(&run, "dtype").starts_with("f32, "), "{}", run.out);
    assert!(line(&run, "keys and values").starts_with("2 MB, room for "), "{}", run.out);
    assert!(line(&run, "memory").contains(" MB free of "), "{}", run.out);
}

/// The error with which a command ends.
pub(crate) fn error(run: &Run) -> &str {
    // `serve` ends with 2 where the flags alone are the reason.
    assert!(matches!(run.code, Some(1 | 2)), "{:?} {}", run.code, run.out);
    run.err.lines().last().unwrap()
}

#[test]
fn what_would_not_start_ends_with_the_error_of_serve() {
    let flags = |command, model, more: &[&'static str]| {
        run(&[&[command, model, "--device", "cpu", "--host", "127.0.0.1", "--port", "0"], more].concat())
    };
    let whole = whole_model();
    let path = whole.path().to_str().unwrap();
    for (model, more) in [
        (TINY_MODEL, &[][..]),
        ("./no/such/model", &[]),
        (TINY_MODEL, &["--max-model-len", "8192"]),
        (TINY_MODEL, &["--dtype", "float16"]),
        (TINY_MODEL, &["--reasoning-parser", "auto"]),
        (path, &["--kv-cache-memory", "1"]),
        (path, &["--kernels", "none"]),
        (path, &["--kv-cache-memory", "100T"]),
        (path, &["--quantization", "gptq"]),
        (path, &["--enable-return-routed-experts"]),
        (TINY_MODEL, &["--engine", "scripted", "--enable-lora"]),
        (TINY_MODEL, &["--engine", "scripted", "--script", "/no/such/script"]),
        (TINY_MODEL, &["--engine", "scripted", "--override-generation-config", "{\"temperature\":\"x\"}"]),
        (TINY_MODEL, &["--engine", "scripted", "--admin-port", "0", "--admin-host", "0.0.0.0"]),
        (path, &["--mm-processor-kwargs", "{\"max_pixels\":9}"]),
        (path, &["--kv-events-config", "{\"enable_kv_cache_events\":true,\"endpoint\":\"nonsense\"}"]),
    ] {
        let (examined, served) = (flags("doctor", model, more), flags("serve", model, more));
        assert_eq!(error(&examined), error(&served), "{model} {more:?}");
        assert!(!examined.out.contains("would start"), "{}", examined.out);
    }
}

/// Their names, shapes and types stand in front of the weights.
#[test]
fn weights_that_are_not_the_models_are_found_without_reading_them() {
    for (setting, value) in [("num_hidden_layers", 3), ("num_hidden_layers", 1), ("intermediate_size", 64)] {
        let model = whole_model();
        let config = model.path().join("config.json");
        let mut settings: serde_json::Value = serde_json::from_slice(&std::fs::read(&config).unwrap()).unwrap();
        settings[setting] = value.into();
        std::fs::write(config, settings.to_string()).unwrap();
        let path = model.path().to_str().unwrap();
        let [examined, served] = ["doctor", "serve"]
            .map(|command| run(&[command, path, "--device", "cpu", "--host", "127.0.0.1", "--port", "0"]));
        assert_eq!(error(&examined), error(&served), "{setting} {value}");
        assert!(!examined.out.contains("would start"), "{}", examined.out);
    }
    let (whole, other) = (whole_model(), whole_model());
    let config = std::fs::read_to_string(other.path().join("config.json")).unwrap();
    let fewer = config.replace("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1");
    assert_ne!(fewer, config);
    std::fs::write(other.path().join("config.json"), fewer).unwrap();
    let drafting = serde_json::json!({ "method": "draft_model", "model": other.path(), "num_speculative_tokens": 2 });
    let (path, drafting) = (whole.path().to_str().unwrap(), drafting.to_string());
    let [examined, served] = ["doctor", "serve"].map(|command| {
        run(&[
            command,
            path,
            "--device",
            "cpu",
            "--host",
            "127.0.0.1",
            "--port",
            "0",
            "--speculative-config",
            &drafting,
        ])
    });
    assert_eq!(error(&examined), error(&served));
}

#[test]
fn a_port_that_is_taken_hides_nothing_of_the_model() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let model = whole_model();
    let run = run(&["doctor", model.path().to_str().unwrap(), "--host", "127.0.0.1", "--port", &port]);
    assert!(error(&run).contains("another program listens there"), "{}", run.err);
    assert_eq!(line(&run, "engine"), "native");
}

#[test]
fn without_a_gpu_auto_says_why_it_is_the_cpu_and_cuda_is_refused() {
    let model = whole_model();
    let path = model.path().to_str().unwrap();
    let on = |command, device| {
        let arguments = [command, path, "--device", device, "--host", "127.0.0.1", "--port", "0"];
        // A machine that has a GPU shows none.
        run_command(tito(&arguments).env("CUDA_VISIBLE_DEVICES", ""))
    };
    let is_built = cfg!(feature = "cuda");
    let auto = on("doctor", "auto");
    assert_eq!(auto.code, Some(0), "{} {}", auto.out, auto.err);
    let why = if is_built {
        "cpu, because there is no CUDA device: "
    } else {
        "cpu, because this build computes on the CPU only"
    };
    assert!(line(&auto, "device").starts_with(why), "{}", auto.out);
    for (device, shown) in [("cuda", "cuda:0"), ("cuda:99", "cuda:99")] {
        let (examined, served) = (on("doctor", device), on("serve", device));
        let (start, end) = if is_built {
            ("there is no CUDA device (", "); pass --device cpu, or leave --device out")
        } else {
            (
                "this build computes on the CPU only; ",
                "; install a build with the feature `cuda`, or leave --device out",
            )
        };
        let line = error(&examined);
        assert!(line.starts_with(&format!("error: --device {shown} cannot be used: {start}")), "{line}");
        assert!(line.ends_with(end) && !line.contains('\n'), "{line}");
        assert_eq!(line, error(&served));
        assert!(!examined.out.contains("would start"), "{}", examined.out);
    }
}
