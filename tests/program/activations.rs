//! `--activation-dtype float32`: the answers of `--dtype float32`, with weights in bfloat16, or a refusal.

use std::path::Path;

use crate::{
    doctor::{doctor, error, line, whole_model},
    program::{TINY_MODEL, failure},
    quantized::{NATIVE, model, sampled, serve},
};

const FLAG: [&str; 2] = ["--activation-dtype", "float32"];

#[test]
fn answers_are_those_of_float32_and_the_server_says_what_computes() {
    let model = model("gpt_oss", true);
    let expected = serve(model.path(), &["--dtype", "float32"]);
    let plain = serve(model.path(), &[]);
    let admin = ["--enable-lora", "--admin-on-main-port", "--insecure-admin"];
    let server = serve(model.path(), &[&FLAG[..], &admin].concat());
    assert_eq!(sampled(&server), sampled(&expected));
    assert_ne!(sampled(&server), sampled(&plain));
    assert!(server.banner.contains("| bf16, f32 activations |"), "{}", server.banner);
    let info = server.get("/server_info?config_format=json");
    for (key, dtype) in [("dtype", "torch.bfloat16"), ("lora_dtype", "torch.float32")] {
        assert!(info.contains(&format!("\"{key}\":\"{dtype}\"")), "{info}");
    }
    for server in [server, plain, expected] {
        server.stop("-TERM");
    }
}

#[test]
fn what_would_round_activations_is_refused_with_a_way_out() {
    let refusal = |path: &Path, more: &[&str]| {
        let serve = ["serve", path.to_str().unwrap(), "--host", "127.0.0.1"];
        failure(&[&serve[..], &NATIVE, &FLAG, more].concat())
    };
    let packed = model("fp8_blocks", false);
    let refused = refusal(packed.path(), &["--quantized-weights", "kept"]);
    assert!(refused.contains("--dtype float32 multiplies the same codes"), "{refused}");
    let tiny = Path::new(TINY_MODEL);
    for engine in ["mistralrs", "scripted"] {
        let refused = refusal(tiny, &["--engine", engine]);
        assert!(refused.contains("--activation-dtype float32 works only with the native engine"), "{refused}");
    }
    // What is the same without the flag is served with it: the same codes, and activations in f32.
    let kept = ["--quantized-weights", "kept", "--dtype", "float32"];
    let [with, without] = [&[&kept[..], &FLAG].concat()[..], &kept].map(|flags| serve(packed.path(), flags));
    assert_eq!(sampled(&with), sampled(&without));
    for server in [with, without] {
        server.stop("-TERM");
    }
}

#[test]
fn doctor_says_what_the_arithmetic_is_and_how_much_memory_keys_and_values_take() {
    let model = whole_model();
    let path = model.path().to_str().unwrap();
    let bf16 = ["--dtype", "bfloat16", "--kv-cache-memory", "1M"];
    let [plain, asked] = [&bf16[..], &[&bf16[..], &FLAG].concat()].map(|flags| doctor(path, flags));
    assert_eq!(line(&asked, "dtype"), line(&plain, "dtype"));
    assert_eq!(line(&asked, "weights"), line(&plain, "weights"));
    assert_eq!(line(&asked, "activations"), "f32, as --activation-dtype says; keys and values too");
    assert_ne!(line(&asked, "keys and values"), line(&plain, "keys and values"), "they are in f32");
    let packed = crate::quantized::model("fp8_blocks", false);
    let refused = doctor(packed.path().to_str().unwrap(), &[&FLAG[..], &["--quantized-weights", "kept"]].concat());
    assert!(error(&refused).contains("these stay in their codes"), "{}", refused.err);
}
