//! The command line, by running the binary.

use std::{net::TcpListener, path::Path};

use serde_json::{Value, json};

use crate::program::{Server, TINY_MODEL, failure, failure_with, run, serve_arguments, tito};

/// A copy of the tiny model that can be spoiled.
pub(crate) fn model_copy() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(TINY_MODEL).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, directory.path().join(path.file_name().unwrap())).unwrap();
    }
    directory
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn help_and_version_are_on_standard_output() {
    let help = run(&["--help"]);
    assert_eq!((help.code, help.err.as_str()), (Some(0), ""));
    for command in ["serve", "doctor", "convert", "inspect", "openapi", "Usage: tito "] {
        assert!(help.out.contains(command), "{}", help.out);
    }
    assert!(help.out.contains("\nExamples:\n  tito serve HuggingFaceTB/SmolLM2-135M-Instruct "), "{}", help.out);
    let serve = run(&["serve", "--help"]);
    let examples = serve.out.split_once("\nExamples:\n").unwrap().1;
    assert!(
        examples.lines().count() >= 3 && examples.lines().all(|line| line.starts_with("  tito serve ")),
        "{examples}"
    );
    // What a newcomer needs comes first.
    let headings = [
        "Arguments",
        "Model",
        "Memory and speed",
        "HTTP",
        "Chat and tools",
        "Sampling and log-probs",
        "Requests and responses",
        "Adapters",
        "Trajectories",
        "Token continuity",
        "Logs",
    ];
    let at = headings.map(|heading| serve.out.find(&format!("\n{heading}:\n")).unwrap_or_else(|| panic!("{heading}")));
    assert!(at.is_sorted(), "{}", serve.out);
    for part in
        ["--served-model-name", "--max-model-len", "--logprobs-mode", "--return-tokens-as-token-ids", "--api-key"]
            .into_iter()
            .chain(["\nModel:\n", "\nChat and tools:\n", "\nToken continuity:\n", "\nHTTP:\n", "\nLogs:\n"])
    {
        assert!(serve.out.contains(part), "{part}");
    }
    assert!(!serve.out.contains("--tensor-parallel-size") && !serve.out.contains("--no-"), "{}", serve.out);
    let version = run(&["--version"]);
    assert_eq!((version.code, version.out), (Some(0), format!("tito {}\n", env!("CARGO_PKG_VERSION"))));
}

#[test]
fn every_flag_is_in_the_docs_under_the_heading_of_its_help() {
    let docs = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/flags.md")).unwrap();
    let help = run(&["serve", "--help"]).out;
    let (mut heading, mut missing, mut count) = ("", Vec::new(), 0);
    for line in help.lines() {
        if let Some(next) = line.strip_suffix(':').filter(|line| !line.starts_with(' ')) {
            heading = next;
        }
        // Flags are indented by six blanks, and what is said of them by ten.
        let Some(flag) = line.strip_prefix("      --") else { continue };
        let flag = flag.split([' ', ',']).next().unwrap();
        let heading = if heading == "Options" { "Logs" } else { heading };
        let section = docs.split("\n## ").find(|section| section.starts_with(&format!("{heading}\n")));
        count += 1;
        let names = [format!("`--{flag}`"), format!("`--{flag} ")];
        if !section.is_some_and(|section| names.iter().any(|name| section.contains(name))) {
            missing.push(format!("{heading}: --{flag}"));
        }
    }
    assert!(missing.is_empty() && count > 100, "{count}: {missing:?}");
    assert!(docs.contains("`--max-num-queued-reqs`"));
}

#[test]
fn each_command_says_what_it_does_in_a_line_and_shows_examples() {
    let help = run(&["--help"]).out;
    let (_, commands) = help.split_once("\nCommands:\n").unwrap();
    for line in commands.lines().take_while(|line| !line.is_empty()) {
        assert!(line.starts_with("  ") && !line.starts_with("   ") && line.len() <= 100, "{line}");
    }
    for command in ["serve", "doctor", "convert", "replay", "inspect"] {
        let help = run(&[command, "--help"]).out;
        assert!(help.contains(&format!("\nExamples:\n  tito {command} ")), "{help}");
    }
    // The short help is a list: each flag has one sentence.
    let short = run(&["serve", "-h"]).out;
    assert!(short.lines().count() < run(&["serve", "--help"]).out.lines().count() / 2, "{short}");
}

#[test]
fn a_bad_command_line_exits_with_two() {
    for arguments in [
        &["serve", TINY_MODEL, "--no-such-flag"][..],
        &["serve", TINY_MODEL, "--port", "70000"],
        &["serve", TINY_MODEL, "--max-model-len", "many"],
        &["serve", TINY_MODEL, "--max-logprobs", "-2"],
        &["serve", TINY_MODEL, "--engine", "none"],
        &["serve", TINY_MODEL, "--enable-auto-tool-choice"],
        &["serve", TINY_MODEL, "--tool-call-parser", "none"],
        &["serve"],
        &["no-such-command"],
        &[],
    ] {
        let run = run(arguments);
        assert_eq!((run.code, run.out.as_str()), (Some(2), ""), "{arguments:?}");
        assert!(run.err.contains("error: ") || run.err.contains("Usage: "), "{arguments:?}: {}", run.err);
    }
}

#[test]
fn flags_of_vllm_are_understood_or_refused_with_a_reason() {
    let run = run(&["serve", "./no/such/model", "--enforce-eager", "--swap-space", "4", "-tp", "1", "--port", "0"]);
    assert_eq!(run.code, Some(1), "{}", run.err);
    let warnings: Vec<&str> = run.err.lines().filter(|line| line.contains("ignored flags")).collect();
    let [warning] = warnings.as_slice() else { panic!("{}", run.err) };
    assert!(warning.contains("--enforce-eager") && warning.contains("--swap-space"), "{warning}");

    let usage = |arguments: &[&str], words: &str| {
        let run = self::run(&[&["serve", TINY_MODEL], arguments].concat());
        assert_eq!((run.code, run.out.as_str()), (Some(2), ""), "{arguments:?}: {}", run.err);
        assert!(run.err.contains(words), "{arguments:?}: {}", run.err);
    };
    let share = ["--gpu-memory-utilization", "0.5"];
    let run = self::run(&[&["serve", "./no/such/model", "--device", "cpu", "--port", "0"], &share[..]].concat());
    let warned = "ignored flags, without effect on the CPU: --gpu-memory-utilization";
    assert!(run.code == Some(1) && run.err.contains(warned), "{}", run.err);
    usage(&["-tp", "2"], "--tensor-parallel-size 2 is not supported: one process computes the whole model");
    usage(&["-dp", "4"], "--data-parallel-size 4 is not supported: one process computes the whole model on one device");
    usage(&["-dp", "4"], "for gpu in $(seq 0 $((4 - 1))); do CUDA_VISIBLE_DEVICES=$gpu tito serve MODEL");
    usage(&["-dpn", "1"], "start each server without flags for ranks");
    usage(&["-r", "1"], "--node-rank 1 is not supported: one process computes the whole model");
    usage(&["--fully-sharded-loras"], "tito applies adapters only to linear layers, as they are");
    let experts = self::run(&["serve", TINY_MODEL, "--engine", "scripted", "--enable-return-routed-experts"]);
    assert_eq!(experts.code, Some(1), "{}", experts.err);
    assert!(
        experts.err.contains("--enable-return-routed-experts works only with the native engine"),
        "{}",
        experts.err
    );
    let gate = self::run(&["serve", TINY_MODEL, "--engine", "scripted", "--step-gate", "none"]);
    assert_eq!(gate.code, Some(1), "{}", gate.err);
    assert!(gate.err.contains("--step-gate works only with the native engine"), "{}", gate.err);
    usage(&["-sc", r#"{"method":"eagle3","num_speculative_tokens":3}"#], "the method eagle3 is not supported");
    usage(&["--speculative-config.method", "ngram"], "num_speculative_tokens is missing");
    let ngram = r#"{"method":"ngram","num_speculative_tokens":3}"#;
    let drafts = self::run(&["serve", TINY_MODEL, "--engine", "scripted", "--speculative-config", ngram]);
    assert_eq!(drafts.code, Some(1), "{}", drafts.err);
    assert!(drafts.err.contains("--speculative-config works only with the native engine"), "{}", drafts.err);
    let unmeasured = self::run(&["serve", TINY_MODEL, "--enable-per-request-metrics", "--disable-log-stats"]);
    assert_eq!(unmeasured.code, Some(2), "{}", unmeasured.err);
    let words = "--enable-per-request-metrics and --disable-log-stats do not go together";
    assert!(unmeasured.err.contains(words), "{}", unmeasured.err);
    usage(&["--enforce-eagr"], "a similar argument exists: '--enforce-eager'");
    usage(&["--served-model-nam=a", "--max", "3"], "ambiguous option: --max could match --max-");
}

#[test]
fn a_file_can_hold_the_flags_and_the_model() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("config.yaml");
    let flags = format!("model: {TINY_MODEL}\nengine: scripted\nhost: localhost\nport: 0\nserved_model_name: [a, b]\n");
    std::fs::write(&file, flags).unwrap();
    let server = Server::spawn(&mut tito(&["serve", "--config", path(&file), "--max_model_len=1k"]));
    let models = server.get("/v1/models");
    assert!(models.contains(r#""id":"a""#) && models.contains(r#""max_model_len":1000"#), "{models}");
}

#[test]
fn requests_are_logged_without_their_prompts() {
    let request = json!({ "prompt": "hello hello", "max_tokens": 1, "request_id": "mine" });
    let logged = |flags: &[&str]| {
        let server = Server::start(flags);
        server.post("/v1/completions", &request);
        server.stop("-TERM").1
    };
    let lines = logged(&["--enable-log-requests"]);
    let line = lines.lines().find(|line| line.contains("finished")).unwrap_or_else(|| panic!("{lines}"));
    for part in ["mine", "prompt_tokens=3", "generation_tokens=1", "length"] {
        assert!(line.contains(part), "{part}: {line}");
    }
    assert!(lines.contains(r#"- "POST /v1/completions HTTP/1.1" 200 OK"#), "{lines}");
    assert!(!lines.contains("hello") && !lines.contains("prompt_token_ids"), "{lines}");
    let lines = logged(&["--enable-log-requests", "--max-log-len", "1", "--log-level", "DEBUG"]);
    let ids = lines.lines().find(|line| line.contains("prompt_token_ids=[")).unwrap_or_else(|| panic!("{lines}"));
    assert!(!ids.contains(','), "{ids}");
    let lines = logged(&["--uvicorn-log-level", "warning"]);
    assert!(!lines.contains("finished") && !lines.contains("POST"), "{lines}");
    assert!(!logged(&["--disable-access-log-for-endpoints", "/health,/v1/completions"]).contains("POST"));
}

#[test]
fn a_tokenizer_may_come_from_another_model_that_fits() {
    let directory = model_copy();
    std::fs::remove_file(directory.path().join("tokenizer.json")).unwrap();
    let server = Server::spawn(&mut tito(&serve_arguments(path(directory.path()), &["--tokenizer", TINY_MODEL])));
    assert!(server.get("/health").starts_with("HTTP/1.1 200"));
    let config = directory.path().join("config.json");
    let narrow = std::fs::read_to_string(&config).unwrap().replace("326", "9");
    std::fs::write(&config, narrow).unwrap();
    let line = failure(&serve_arguments(path(directory.path()), &["--tokenizer", TINY_MODEL]));
    assert!(line.contains("326 ids, but the model has only 9"), "{line}");
}

#[test]
fn a_tokenizer_may_lie_alone_and_have_more_added_tokens_than_the_model() {
    let (model, alone) = (model_copy(), tempfile::tempdir().unwrap());
    let tokenizer = std::fs::read_to_string(model.path().join("tokenizer.json")).unwrap();
    let mut tokenizer: serde_json::Value = serde_json::from_str(&tokenizer).unwrap();
    let mut added = tokenizer["added_tokens"][0].clone();
    (added["id"], added["content"]) = (326.into(), "<image>".into());
    tokenizer["added_tokens"].as_array_mut().unwrap().push(added);
    std::fs::write(alone.path().join("tokenizer.json"), tokenizer.to_string()).unwrap();
    let flags = ["--tokenizer", path(alone.path()), "--chat-template", "{{ messages[0].content }}"];
    let server = Server::spawn(&mut tito(&serve_arguments(path(model.path()), &flags)));
    assert!(server.get("/health").starts_with("HTTP/1.1 200"));
}

#[test]
fn a_model_that_is_not_there_is_one_clear_line() {
    let line = failure(&serve_arguments("./no/such/model", &[]));
    assert!(line.contains("./no/such/model"), "{line}");
    let line = failure(&serve_arguments("./no-such.gguf", &[]));
    assert!(line.contains("no-such.gguf"), "{line}");
    let line = failure(&serve_arguments("Cargo.toml", &[]));
    assert!(line.contains("Cargo.toml"), "{line}");
}

#[test]
fn a_model_without_its_files_names_the_missing_one() {
    for name in ["tokenizer.json", "config.json"] {
        let directory = model_copy();
        std::fs::remove_file(directory.path().join(name)).unwrap();
        let line = failure(&serve_arguments(path(directory.path()), &[]));
        assert!(line.contains(name), "{line}");
    }
    let directory = model_copy();
    std::fs::write(directory.path().join("tokenizer.json"), "{").unwrap();
    let line = failure(&serve_arguments(path(directory.path()), &[]));
    assert!(line.contains(path(directory.path())) && line.contains("tokenizer"), "{line}");
}

#[test]
fn a_template_that_cannot_be_used_stops_the_start() {
    let line = failure(&serve_arguments(TINY_MODEL, &["--chat-template", "no-such.jinja"]));
    assert!(line.contains("no-such.jinja"), "{line}");
    let line = failure(&serve_arguments(TINY_MODEL, &["--chat-template", "{% for m in messages %}"]));
    assert!(line.contains("--chat-template"), "{line}");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("broken.jinja");
    std::fs::write(&file, "{{ messages").unwrap();
    let line = failure(&serve_arguments(TINY_MODEL, &["--chat-template", path(&file)]));
    assert!(line.contains("broken.jinja"), "{line}");
}

#[test]
fn settings_that_contradict_the_model_stop_the_start() {
    let line = failure(&serve_arguments(TINY_MODEL, &["--max-model-len", "8192"]));
    assert!(line.contains("8192") && line.contains("4096"), "{line}");
    let line = failure(&serve_arguments(TINY_MODEL, &["--generation-config", "no-such-directory"]));
    assert!(line.contains("no-such-directory"), "{line}");
    let line = failure(&["--log", "a=b=c", "openapi"]);
    assert!(line.contains("a=b=c") || line.contains("filter") || line.contains("level"), "{line}");
}

#[test]
fn a_generation_config_that_is_named_limits_every_answer_and_ends_it() {
    let directory = tempfile::tempdir().unwrap();
    let config = json!({ "max_new_tokens": 3, "eos_token_id": [2, 9] });
    std::fs::write(directory.path().join("generation_config.json"), config.to_string()).unwrap();
    let server = Server::start(&["--generation-config", directory.path().to_str().unwrap()]);
    let body = json!({ "prompt": "hello", "max_tokens": 10, "ignore_eos": true });
    assert_eq!(server.post("/v1/completions", &body)["usage"]["completion_tokens"], 3);
    let body = json!({ "prompt": "hello", "allowed_token_ids": [9] });
    assert_eq!(server.post("/v1/completions", &body)["choices"][0]["stop_reason"], 9);
}

#[test]
fn parsers_without_their_tokens_stop_the_start() {
    for (flag, name, token) in
        [("--tool-call-parser", "llama3_json", "<|python_tag|>"), ("--tool-call-parser", "mistral", "[TOOL_CALLS]")]
    {
        let line = failure(&serve_arguments(TINY_MODEL, &[flag, name]));
        let said = format!("{flag} {name} cannot be used with the tokenizer of {TINY_MODEL}: it has no token {token}");
        assert!(line.contains(&said), "{line}");
    }
}

#[test]
fn the_chat_template_chooses_formats_where_flags_leave_it_the_choice() {
    let server = Server::start(&["--enable-auto-tool-choice", "--tool-call-parser", "auto"]);
    let answer = server.get("/v1/models");
    let models: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
    let card = &models["data"][0];
    assert_eq!((&card["tool_call_parser"], &card["reasoning_parser"]), (&json!("hermes"), &Value::Null));
    let line = failure(&serve_arguments(TINY_MODEL, &["--reasoning-parser", "auto"]));
    for said in ["--reasoning-parser auto cannot choose: ", "looked for: <|channel>, ", "name one of ", "deepseek_r1"] {
        assert!(line.contains(said), "{line}");
    }
}

#[test]
fn a_port_in_use_stops_the_start_before_the_model_is_read() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let arguments = ["serve", "./no/such/model", "--engine", "scripted", "--host", "127.0.0.1", "--port", &port];
    let line = failure(&arguments);
    assert!(line.contains(&format!("127.0.0.1:{port}")) && line.contains("--port"), "{line}");
}

#[test]
fn a_model_without_weights_says_which_file_is_missing() {
    let line = failure(&["serve", TINY_MODEL, "--engine", "native", "--host", "127.0.0.1", "--port", "0"]);
    assert!(line.contains("model.safetensors"), "{line}");
}

#[test]
fn a_gpu_that_is_not_there_is_refused_before_anything_is_read() {
    let line = failure(&["serve", "./no/such/model", "--device", "cuda:99", "--host", "127.0.0.1", "--port", "0"]);
    let reason =
        if cfg!(feature = "cuda") { "there is no CUDA device (" } else { "this build computes on the CPU only" };
    assert!(line.contains("--device cuda:99 cannot be used: ") && line.contains(reason), "{line}");
    let bad = run(&["serve", TINY_MODEL, "--device", "gpu"]);
    assert_eq!(bad.code, Some(2));
    assert!(bad.err.contains("expected auto, cpu, cuda or cuda:N"), "{}", bad.err);
}

#[cfg(not(feature = "mistralrs"))]
#[test]
fn a_build_without_the_engine_for_a_model_says_how_to_get_it() {
    let directory = tempfile::tempdir().unwrap();
    for file in ["tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(std::path::Path::new(TINY_MODEL).join(file), directory.path().join(file)).unwrap();
    }
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/mistralrs/starcoder2.json");
    let golden: serde_json::Value = serde_json::from_slice(&std::fs::read(golden).unwrap()).unwrap();
    std::fs::write(directory.path().join("config.json"), golden["config"].to_string()).unwrap();
    let run = run(&["serve", directory.path().to_str().unwrap(), "--host", "127.0.0.1", "--port", "0"]);
    assert_eq!(run.code, Some(1));
    assert!(run.err.contains("does not know the architecture Starcoder2ForCausalLM"), "{}", run.err);
    assert!(run.err.contains("install a build with the feature `mistralrs`"), "{}", run.err);
}

#[test]
fn the_document_is_printed_as_it_is_committed() {
    let committed = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/openapi/openapi.json")).unwrap();
    let run = run(&["openapi"]);
    assert_eq!((run.code, run.err.as_str()), (Some(0), ""));
    assert!(run.out == committed, "run the tests of openapi.rs with UPDATE_EXPECT=1");
}

#[test]
fn a_file_that_is_no_gguf_is_not_converted() {
    let directory = tempfile::tempdir().unwrap();
    let (garbage, target) = (directory.path().join("garbage.gguf"), directory.path().join("out"));
    std::fs::write(&garbage, [7; 4096]).unwrap();
    let line = failure(&["convert", path(&garbage), path(&target)]);
    assert!(line.contains("garbage.gguf"), "{line}");
    let line = failure(&["convert", path(&directory.path().join("none.gguf")), path(&target)]);
    assert!(line.contains("none.gguf"), "{line}");
}

#[test]
fn a_server_announces_itself_serves_and_ends_with_zero_on_sigterm_and_sigint() {
    for signal in ["-TERM", "-INT"] {
        let server = Server::start(&["--served-model-name", "a", "b", "--max-model-len", "1k"]);
        let version = format!("tito {}", env!("CARGO_PKG_VERSION"));
        for part in
            [version.as_str(), TINY_MODEL, "engine scripted on cpu", "context 1000", "chat template: the model's"]
        {
            assert!(server.banner.contains(part), "{part}: {}", server.banner);
        }
        assert_ne!(server.address.port(), 0);
        assert!(server.get("/health").starts_with("HTTP/1.1 200"));
        let models = server.get("/v1/models");
        assert!(models.contains(r#""id":"a""#) && models.contains(r#""max_model_len":1000"#), "{models}");
        let (status, rest) = server.stop(signal);
        assert_eq!(status.code(), Some(0), "{signal}: {rest}");
    }
}

#[test]
fn details_of_the_prompt_are_told_with_the_flag_only() {
    // An engine that reports on a prompt reports on its cache too, which the scripted one does not have.
    let request = json!({ "prompt": "hello", "max_tokens": 1, "prompt_logprobs": 0 });
    let details = |flags: &[&str]| {
        Server::start(flags).post("/v1/completions", &request)["usage"]["prompt_tokens_details"].clone()
    };
    assert_eq!(details(&["--enable-prompt-tokens-details"]), json!({ "cached_tokens": 0 }));
    assert_eq!(details(&[]), Value::Null);
}

#[test]
fn keys_come_from_the_flag_or_from_vllms_variable_and_are_not_shown() {
    let flags = Server::start(&["--api-key", "secret-1", "secret-2"]);
    let variable = Server::spawn(tito(&serve_arguments(TINY_MODEL, &[])).env("VLLM_API_KEY", "secret-1"));
    for server in [flags, variable] {
        assert!(server.get("/v1/models").starts_with("HTTP/1.1 401"));
        assert!(server.get("/health").starts_with("HTTP/1.1 200"));
        assert!(!server.banner.contains("secret"), "{}", server.banner);
    }
    let variables =
        ["VLLM_API_KEY", "HF_TOKEN", "TITO_ADMIN_API_KEY", "TITO_CONTINUITY_STORE", "TITO_CONTINUITY_STORE_SECRET"];
    let help =
        tito(&["serve", "--help"]).envs(variables.map(|variable| (variable, "value-of-a-secret"))).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    assert!(variables.iter().all(|variable| help.contains(variable)) && !help.contains("value-of-a-secret"), "{help}");
}

#[test]
fn a_key_that_is_empty_or_cannot_be_sent_is_refused_at_the_start() {
    let refusal = |more: &[&str], variables: &[(&str, &str)]| {
        let refused = failure_with(&serve_arguments(TINY_MODEL, more), variables);
        assert!(!refused.contains("secret"), "{refused}");
        refused
    };
    let (api, admin) = ("VLLM_API_KEY", "TITO_ADMIN_API_KEY");
    let (flag, admin_flag) = ("--api-key", "--admin-api-key");
    for empty in ["", " ", "\n"] {
        for more in [&[][..], &["--admin-on-main-port"], &["--insecure-admin"]] {
            let of_api = "error: key 1 of --api-key (or VLLM_API_KEY) is empty: ";
            assert!(refusal(more, &[(api, empty)]).starts_with(of_api), "{empty:?} {more:?}");
            assert!(refusal(&[more, &[flag, empty]].concat(), &[]).starts_with(of_api), "{empty:?} {more:?}");
            let of_admin = "error: key 1 of --admin-api-key (or TITO_ADMIN_API_KEY) is empty: ";
            assert!(refusal(more, &[(admin, empty)]).starts_with(of_admin), "{empty:?} {more:?}");
            assert!(refusal(&[more, &[admin_flag, empty]].concat(), &[]).starts_with(of_admin), "{empty:?} {more:?}");
        }
    }
    assert!(refusal(&[flag, "secret", ""], &[]).starts_with("error: key 2 of --api-key"));
    assert!(refusal(&[], &[(api, "secret\n")]).contains("cannot be sent in a header"));
    let both = ["--admin-on-main-port", "--insecure-admin", admin_flag, "secret"];
    assert!(refusal(&both, &[]).contains("leave one of them out"));
}

fn script(lines: &str) -> (tempfile::TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("script.jsonl");
    std::fs::write(&file, lines).unwrap();
    let file = path(&file).to_owned();
    (directory, file)
}

#[test]
fn a_scripted_server_plays_the_lines_of_a_file_and_reads_calls_out_of_them() {
    let call = json!("<tool_call>{\"name\": \"f\", \"arguments\": {\"a\":1}}</tool_call>");
    let (_directory, file) = script(&format!("{call}\n[75, 2]\n\"hello world\"\n"));
    let server = Server::start(&["--script", &file, "--enable-auto-tool-choice", "--tool-call-parser", "hermes"]);
    let tools = json!([{ "type": "function", "function": { "name": "f" } }]);
    let request = json!({ "messages": [{ "role": "user", "content": "hello" }], "tools": tools,
                          "return_token_ids": true });
    let mut choices = [(); 4].map(|()| server.post("/v1/chat/completions", &request)["choices"][0].take());
    let function = choices[0]["message"]["tool_calls"][0]["function"].take();
    assert_eq!(function, json!({ "name": "f", "arguments": "{\"a\": 1}" }));
    assert_eq!(choices[0]["finish_reason"], "tool_calls");
    assert_eq!(choices[1]["token_ids"], json!([75, 2]));
    for choice in &choices[2..] {
        assert_eq!((&choice["message"]["content"], &choice["finish_reason"]), (&json!("hello world"), &json!("stop")));
    }
}

#[test]
fn a_script_that_cannot_be_played_stops_the_start_with_its_line() {
    for (lines, words) in [
        ("\"hello\"\nhello\n", "line 2"),
        ("\"hello\"\n\n\"you\"\n", "line 2"),
        ("[1, 2]\n[1, 326]\n", "326"),
        ("[-1]", "-1"),
        ("[1.0]", "1.0"),
        ("{}", "line 1"),
        ("", "no lines"),
    ] {
        let (_directory, file) = script(lines);
        let line = failure(&serve_arguments(TINY_MODEL, &["--script", &file]));
        assert!(line.contains("script.jsonl") && line.contains(words), "{lines:?}: {line}");
    }
    let line = failure(&serve_arguments(TINY_MODEL, &["--script", "no-such-script"]));
    assert!(line.contains("no-such-script"), "{line}");
    let (_directory, file) = script("\"hello\"");
    let line = failure(&["serve", TINY_MODEL, "--host", "127.0.0.1", "--port", "0", "--script", &file]);
    assert!(line.contains("--engine scripted"), "{line}");
}
