//! Models that mistral.rs has not been shown to compute right are refused before anything of their weights is read.

use std::{fs, path::Path};

use serde_json::{Value, json};

use crate::program::{TINY_MODEL, failure};

/// The last line of serving a model with this config.json, without weights.
fn refusal(config: &Value, flags: &[&str]) -> String {
    let directory = tempfile::tempdir().unwrap();
    for file in ["tokenizer.json", "tokenizer_config.json"] {
        fs::copy(Path::new(TINY_MODEL).join(file), directory.path().join(file)).unwrap();
    }
    fs::write(directory.path().join("config.json"), config.to_string()).unwrap();
    let serve = ["serve", directory.path().to_str().unwrap(), "--host", "127.0.0.1", "--port", "0", "--device", "cpu"];
    failure(&[&serve[..], flags].concat())
}

#[test]
fn what_mistralrs_has_not_been_shown_to_compute_is_refused_before_weights_are_looked_for() {
    let llama = json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": 8,
        "intermediate_size": 8, "max_position_embeddings": 64, "num_attention_heads": 2, "num_hidden_layers": 1,
        "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "rope_theta": 1e4, "tie_word_embeddings": false,
        "vocab_size": 326,
    });
    let with = |settings: Value| {
        let mut config = llama.clone();
        for (key, value) in settings.as_object().unwrap() {
            config[key] = value.clone();
        }
        config
    };
    let biased = refusal(&with(json!({"attention_bias": true})), &["--engine", "mistralrs"]);
    assert_eq!(
        biased,
        "error: mistral.rs has not been shown to compute LlamaForCausalLM with `attention_bias` true as transformers \
         does; --engine native serves it"
    );
    let quantised = json!({"quantization_config": {"quant_method": "awq"}});
    let quantised = refusal(&with(quantised), &["--engine", "mistralrs"]);
    assert!(quantised.contains("with `quantization_config` {\"quant_method\":\"awq\"}"), "{quantised}");
    // Neither engine reads these here: mistral.rs loads those of GPTQ on a GPU only, and none of compressed-tensors.
    for method in ["gptq", "compressed-tensors"] {
        let quantised = json!({"quantization_config": {"quant_method": method, "bits": 3, "group_size": 128}});
        let refused = refusal(&with(quantised), &[]);
        assert!(refused.ends_with(" as transformers does; docs/models.md lists what is served"), "{refused}");
    }
    let unknown = refusal(&with(json!({"architectures": ["FalconMambaForCausalLM"]})), &[]);
    assert_eq!(
        unknown,
        "error: the native engine does not know the architecture FalconMambaForCausalLM, and mistral.rs does not know the \
         architecture FalconMambaForCausalLM; docs/models.md lists what is served"
    );
    let failing = refusal(&with(json!({"architectures": ["Qwen3NextForCausalLM"]})), &[]);
    assert!(failing.ends_with("--engine mistralrs --unproven-models serves this all the same"), "{failing}");
    let scripted = refusal(&llama, &["--engine", "scripted", "--unproven-models"]);
    assert_eq!(scripted, "error: --unproven-models works only with --engine mistralrs or auto");
}
