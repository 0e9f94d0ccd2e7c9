//! Settings that a family refuses.

use candle_core::quantized::gguf_file::Value;

use super::{fixture::Gguf, open};

/// A file of this architecture with the settings of the tiny one and with these.
fn file(architecture: &str, settings: &[(&str, Value)]) -> Gguf {
    let mut gguf = Gguf::tiny();
    let renamed = |key: &str| key.strip_prefix("llama.").map_or(key.to_owned(), |key| format!("{architecture}.{key}"));
    gguf.metadata = gguf.metadata.iter().map(|(key, value)| (renamed(key), value.clone())).collect();
    gguf.set("general.architecture", Value::String(architecture.to_owned()));
    for (key, value) in settings {
        gguf.set(&format!("{architecture}.{key}"), value.clone());
    }
    gguf
}

fn refusal(gguf: &Gguf) -> String {
    open(gguf).unwrap().model_config().unwrap_err().to_string()
}

const SCALES: [&str; 4] = ["attention.scale", "embedding_scale", "residual_scale", "logit_scale"];

/// llama.cpp takes 0 for no factor.
#[test]
fn factors_of_0_are_refused() {
    let one = SCALES.map(|name| (name, Value::F32(1.0)));
    open(&file("granite", &one)).unwrap().model_config().unwrap();
    for name in SCALES {
        for factor in [0.0, -1.0] {
            let mut gguf = file("granite", &one);
            gguf.set(&format!("granite.{name}"), Value::F32(factor));
            let expected = format!("GGUF metadata `granite.{name}` is not over 0");
            assert_eq!(refusal(&gguf), expected);
        }
    }
    for architecture in ["command-r", "cohere2"] {
        let settings = [("logit_scale", Value::F32(0.0)), ("attention.layer_norm_epsilon", Value::F32(1e-5))];
        let expected = format!("GGUF metadata `{architecture}.logit_scale` is not over 0");
        assert_eq!(refusal(&file(architecture, &settings)), expected);
    }
}

#[test]
fn an_epsilon_below_0_is_refused() {
    let epsilon = |value| [("attention.layer_norm_rms_epsilon", Value::F32(value))];
    let expected = "GGUF metadata `llama.attention.layer_norm_rms_epsilon` is not 0 or more";
    assert_eq!(refusal(&file("llama", &epsilon(-1.0))), expected);
    open(&file("llama", &epsilon(0.0))).unwrap().model_config().unwrap();
    let settings = [("attention.layer_norm_epsilon", Value::F32(-1e-5)), ("logit_scale", Value::F32(1.0))];
    let expected = "GGUF metadata `command-r.attention.layer_norm_epsilon` is not 0 or more";
    assert_eq!(refusal(&file("command-r", &settings)), expected);
}

/// llama.cpp takes the window of the released model of 64 layers for granted.
#[test]
fn an_exaone_of_64_layers_says_its_window() {
    let layers = |count| file("exaone4", &[("block_count", Value::U32(count))]);
    let mut deep = layers(64);
    // A layer has at least one tensor.
    for layer in 0..64 {
        deep.add_tensor(&format!("blk.{layer}.post_ffw_norm.weight"), &[32], candle_core::quantized::GgmlDType::F32);
    }
    assert_eq!(refusal(&deep), "GGUF metadata has no `exaone4.attention.sliding_window`");
    // The tiny file has tensors of another family.
    assert!(refusal(&layers(2)).contains("`blk.0.attn_norm.weight`"), "{}", refusal(&layers(2)));
}
