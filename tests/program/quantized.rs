//! Quantised checkpoints as they are published, served.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::program::{Server, TINY_MODEL, failure, tito};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/quantized").join(name)
}

/// The model of a golden directory with a tokenizer; `widened` leaves the quantisation to the reference.
pub(crate) fn model(name: &str, widened: bool) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for file in ["tokenizer.json", "tokenizer_config.json", "generation_config.json"] {
        fs::copy(Path::new(TINY_MODEL).join(file), directory.path().join(file)).unwrap();
    }
    let weights = if widened { "widened.safetensors" } else { "model.safetensors" };
    fs::copy(golden(name).join(weights), directory.path().join("model.safetensors")).unwrap();
    let config = fs::read_to_string(golden(name).join("config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&config).unwrap();
    if widened {
        config.as_object_mut().unwrap().remove("quantization_config");
    }
    fs::write(directory.path().join("config.json"), config.to_string()).unwrap();
    directory
}

pub(crate) const NATIVE: [&str; 10] =
    ["--engine", "native", "--threads", "1", "--kernels", "portable", "--kv-cache-memory", "4M", "--port", "0"];

pub(crate) fn serve(model: &Path, more: &[&str]) -> Server {
    serve_with(model, more, &[])
}

/// The same with variables in the environment.
pub(crate) fn serve_with(model: &Path, more: &[&str], variables: &[(&str, &str)]) -> Server {
    let serve = ["serve", model.to_str().unwrap(), "--host", "127.0.0.1"];
    Server::spawn(tito(&[&serve[..], &NATIVE, more].concat()).envs(variables.iter().copied()))
}

/// What is sampled after some ids, and its log-probs.
pub(crate) fn sampled(server: &Server) -> [Value; 2] {
    let request = json!({
        "prompt": [1, 5, 9, 33, 7], "max_tokens": 8, "temperature": 0, "logprobs": 1, "return_token_ids": true,
        "ignore_eos": true,
    });
    let answer = server.post("/v1/completions", &request);
    let choice = &answer["choices"][0];
    let found = [choice["token_ids"].clone(), choice["logprobs"]["token_logprobs"].clone()];
    assert!(found.iter().all(|list| list.as_array().is_some_and(|list| list.len() == 8)), "{answer}");
    found
}

#[test]
fn a_quantised_directory_answers_as_its_widened_one_and_takes_weights_of_either() {
    let (packed, wide) = (model("fp8_blocks", false), model("fp8_blocks", true));
    let expected = serve(wide.path(), &[]);
    let admin = ["--admin-on-main-port", "--insecure-admin", "--quantization", "fp8"];
    let server = serve(packed.path(), &admin);
    assert_eq!(sampled(&server), sampled(&expected));
    let other = model("compressed_int4_group", false);
    for path in [other.path(), packed.path(), wide.path()] {
        let updated = server.post("/update_weights", &json!({ "weight_dir": path }));
        assert_eq!(updated["status"], "ok", "{updated}");
        assert_eq!(sampled(&server) == sampled(&expected), path != other.path());
    }
    let strange = json!({"quantization_config": {"quant_method": "bitsandbytes"}});
    fs::write(other.path().join("config.json"), strange.to_string()).unwrap();
    let refused = server.post("/update_weights", &json!({ "weight_dir": other.path() })).to_string();
    assert!(refused.contains("`quant_method`") && !refused.contains("bitsandbytes"), "{refused}");
    assert_eq!(sampled(&server), sampled(&expected));
    let (_, log) = server.stop("-TERM");
    assert!(log.contains("the checkpoint is quantised (fp8)"), "{log}");
    assert!(log.contains("asks for quantised activations too; they stay in the type of the engine"), "{log}");
    expected.stop("-TERM");
}

#[test]
fn float16_is_computed_in_float32_and_said_so() {
    let model = model("fp8_blocks", true);
    let expected = serve(model.path(), &["--dtype", "float32"]);
    for name in ["half", "float16"] {
        let server = serve(model.path(), &["--dtype", name]);
        assert_eq!(sampled(&server), sampled(&expected), "{name}");
        assert!(
            server.said.contains("--dtype float16: the native engine has no arithmetic in float16"),
            "{}",
            server.said
        );
        server.stop("-TERM");
    }
    expected.stop("-TERM");
}

#[test]
fn kept_weights_answer_as_widened_ones_and_are_not_replaced() {
    for name in ["fp8_blocks", "gpt_oss"] {
        let (packed, wide) = (model(name, false), model(name, true));
        let expected = serve(wide.path(), &[]);
        let kept = serve(packed.path(), &["--quantized-weights", "kept", "--admin-on-main-port", "--insecure-admin"]);
        assert_eq!(sampled(&kept), sampled(&expected), "{name}");
        let refused = kept.post("/update_weights", &json!({ "weight_dir": wide.path() })).to_string();
        assert!(refused.contains("--quantized-weights widened"), "{refused}");
        // They could not be sent again.
        let refused = kept.post("/sleep?level=2", &json!({})).to_string();
        assert!(refused.contains("--quantized-weights widened"), "{refused}");
        assert_eq!(sampled(&kept), sampled(&expected), "{name}");
        kept.stop("-TERM");
        expected.stop("-TERM");
    }
    let gptq = model("gptq", false);
    let keep = ["serve", gptq.path().to_str().unwrap(), "--host", "127.0.0.1", "--quantized-weights", "kept"];
    let refusal = failure(&[&keep[..], &NATIVE].concat());
    assert!(refusal.contains("the model, which has no weights in FP8 or MXFP4"), "{refusal}");
}

#[test]
fn the_method_of_the_command_line_is_that_of_the_checkpoint() {
    let refusal = |model: &Path, method: &str| {
        let serve = ["serve", model.to_str().unwrap(), "--host", "127.0.0.1", "--quantization", method];
        failure(&[&serve[..], &NATIVE].concat())
    };
    let (gptq, wide) = (model("gptq", false), model("gptq", true));
    let cannot = |method| format!("error: --quantization {method} does not fit the model, which is");
    assert_eq!(refusal(gptq.path(), "awq"), format!("{} quantised with gptq; leave it out", cannot("awq")));
    let online = format!("{} not quantised; tito quantises nothing, so leave it out", cannot("fp8"));
    assert_eq!(refusal(wide.path(), "fp8"), online);
    for (model, method) in [(&gptq, "gptq_marlin"), (&gptq, "None"), (&wide, "none")] {
        serve(model.path(), &["-q", method]).stop("-TERM");
    }
}
