//! A model's `config.json`, rewritten for mistral.rs, or refused.
//!
//! mistral.rs skips settings that it does not know, and computes something else than the model was trained to be.
//! Each such setting is turned into one that it knows, or into an error; weights and tokenizer are not looked at.

use serde_json::{Map, Value, json};

use super::LoadError;

/// Settings of rotary embeddings that transformers 5 keeps in `rope_parameters` and everyone else at the top.
const ROPE_SETTINGS: [&str; 3] = ["rope_theta", "partial_rotary_factor", "original_max_position_embeddings"];

/// `config` as mistral.rs must see it.
pub(super) fn adapted(config: Value) -> Result<Value, LoadError> {
    let Value::Object(mut config) = config else { return Err(unsupported("config.json is not an object")) };
    let architecture = architecture(&config)?;
    flatten_rope_parameters(&mut config)?;
    check_rope_scaling(&mut config, &architecture)?;
    check_biases(&config, &architecture)?;
    settle_sliding_window(&mut config, &architecture)?;
    Ok(Value::Object(config))
}

fn unsupported(reason: impl Into<String>) -> LoadError {
    LoadError::Unsupported(reason.into())
}

fn architecture(config: &Map<String, Value>) -> Result<String, LoadError> {
    let names = config.get("architectures").and_then(Value::as_array).map(Vec::as_slice);
    match names {
        Some([Value::String(name)]) => Ok(name.clone()),
        _ => Err(unsupported("config.json does not name exactly one architecture")),
    }
}

/// Moves transformers 5's `rope_parameters` to where they were before: `rope_theta` and `rope_scaling`.
fn flatten_rope_parameters(config: &mut Map<String, Value>) -> Result<(), LoadError> {
    let parameters = match config.remove("rope_parameters") {
        None | Some(Value::Null) => return Ok(()),
        Some(Value::Object(parameters)) => parameters,
        Some(_) => return Err(unsupported("rope_parameters is not an object")),
    };
    if parameters.values().any(Value::is_object) {
        return Err(unsupported("rope_parameters that differ between layers are not supported"));
    }
    for setting in ROPE_SETTINGS {
        if let Some(value) = parameters.get(setting)
            && config.get(setting).is_none_or(Value::is_null)
        {
            config.insert(setting.to_owned(), value.clone());
        }
    }
    if config.get("rope_scaling").is_none_or(Value::is_null) {
        config.insert("rope_scaling".to_owned(), Value::Object(parameters));
    }
    Ok(())
}

/// Lets only those kinds of scaling through that mistral.rs computes for the architecture.
fn check_rope_scaling(config: &mut Map<String, Value>, architecture: &str) -> Result<(), LoadError> {
    let mut scaling = match config.remove("rope_scaling") {
        None | Some(Value::Null) => return Ok(()),
        Some(Value::Object(scaling)) => scaling,
        Some(_) => return Err(unsupported("rope_scaling is not an object")),
    };
    let kind = scaling.get("rope_type").or_else(|| scaling.get("type")).cloned();
    let kind = match kind {
        None | Some(Value::Null) if !scaling.contains_key("factor") => return Ok(()),
        Some(Value::String(kind)) => kind,
        _ => return Err(unsupported("rope_scaling does not say of which type it is")),
    };
    let computed: &[&str] = match architecture {
        "LlamaForCausalLM" | "SmolLM3ForCausalLM" => &["llama3", "linear"],
        "Phi3ForCausalLM" | "PhiMoEForCausalLM" => &["longrope", "su"],
        "DeepseekV2ForCausalLM" | "DeepseekV3ForCausalLM" | "GptOssForCausalLM" => &["yarn"],
        _ => &[],
    };
    if kind == "default" {
        return Ok(());
    }
    if !computed.contains(&kind.as_str()) {
        return Err(unsupported(format!("rope scaling of type {kind} is not supported for {architecture}")));
    }
    // Some architectures read the old key, some the new one.
    scaling.insert("type".to_owned(), json!(kind));
    scaling.insert("rope_type".to_owned(), json!(kind));
    config.insert("rope_scaling".to_owned(), Value::Object(scaling));
    Ok(())
}

/// Refuses biases where mistral.rs would leave them out.
fn check_biases(config: &Map<String, Value>, architecture: &str) -> Result<(), LoadError> {
    let has = |setting| config.get(setting) == Some(&Value::Bool(true));
    let reads_attention_bias = matches!(
        architecture,
        "DeepseekV2ForCausalLM"
            | "DeepseekV3ForCausalLM"
            | "GemmaForCausalLM"
            | "Gemma2ForCausalLM"
            | "Glm4ForCausalLM"
            | "Glm4MoeForCausalLM"
            | "GptOssForCausalLM"
            | "PhiMoEForCausalLM"
    );
    if has("attention_bias") && !reads_attention_bias {
        return Err(unsupported(format!("attention_bias is not supported for {architecture}")));
    }
    if has("mlp_bias") {
        return Err(unsupported(format!("mlp_bias is not supported for {architecture}")));
    }
    Ok(())
}

/// Switches a window off that the Qwen configurations name but do not use: mistral.rs would slide it all the same.
fn settle_sliding_window(config: &mut Map<String, Value>, architecture: &str) -> Result<(), LoadError> {
    if !matches!(architecture, "Qwen2ForCausalLM" | "Qwen3ForCausalLM" | "Qwen3MoeForCausalLM") {
        return Ok(());
    }
    if config.get("use_sliding_window") == Some(&Value::Bool(true)) {
        return Err(unsupported(format!("use_sliding_window is not supported for {architecture}")));
    }
    config.insert("use_sliding_window".to_owned(), Value::Bool(false));
    config.insert("sliding_window".to_owned(), Value::Null);
    let layers = config.get("num_hidden_layers").cloned().unwrap_or(Value::Null);
    config.entry("max_window_layers").or_insert(layers);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(architecture: &str, settings: &Value) -> Value {
        let mut config = json!({"architectures": [architecture], "hidden_size": 8, "num_hidden_layers": 3});
        for (name, value) in settings.as_object().unwrap() {
            config[name] = value.clone();
        }
        config
    }

    fn refusal(architecture: &str, settings: &Value) -> String {
        adapted(with(architecture, settings)).unwrap_err().to_string()
    }

    #[test]
    fn a_plain_configuration_stays_as_it_is() {
        let config = with("LlamaForCausalLM", &json!({"rope_theta": 10000.0, "attention_bias": false}));
        assert_eq!(adapted(config.clone()).unwrap(), config);
    }

    #[test]
    fn rope_parameters_of_transformers_5_become_top_level_settings() {
        let parameters = json!({"rope_type": "default", "rope_theta": 1e6, "partial_rotary_factor": 0.5});
        let config = adapted(with("Glm4ForCausalLM", &json!({"rope_parameters": parameters}))).unwrap();
        let expected = with("Glm4ForCausalLM", &json!({"rope_theta": 1e6, "partial_rotary_factor": 0.5}));
        assert_eq!(config, expected);
    }

    #[test]
    fn scaling_that_the_architecture_computes_is_kept_under_both_its_names() {
        let parameters = json!({"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0});
        let config = adapted(with("LlamaForCausalLM", &json!({"rope_parameters": parameters}))).unwrap();
        assert_eq!(config["rope_theta"], json!(5e5));
        assert_eq!(
            (&config["rope_scaling"]["type"], &config["rope_scaling"]["factor"]),
            (&json!("llama3"), &json!(8.0))
        );
        let config =
            adapted(with("LlamaForCausalLM", &json!({"rope_scaling": {"type": "linear", "factor": 2}}))).unwrap();
        assert_eq!(config["rope_scaling"]["rope_type"], json!("linear"));
    }

    #[test]
    fn scaling_that_would_be_skipped_is_refused() {
        let yarn = json!({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}});
        assert_eq!(
            refusal("Qwen3ForCausalLM", &yarn),
            "this model is not supported: rope scaling of type yarn is not supported for Qwen3ForCausalLM"
        );
        refusal("SomeFutureForCausalLM", &json!({"rope_scaling": {"rope_type": "llama3"}}));
        refusal("LlamaForCausalLM", &json!({"rope_scaling": {"factor": 4.0}}));
        refusal("LlamaForCausalLM", &json!({"rope_parameters": {"full_attention": {"rope_theta": 1.0}}}));
    }

    #[test]
    fn biases_that_would_be_left_out_are_refused() {
        refusal("LlamaForCausalLM", &json!({"attention_bias": true}));
        refusal("LlamaForCausalLM", &json!({"mlp_bias": true}));
        assert!(adapted(with("Glm4ForCausalLM", &json!({"attention_bias": true}))).is_ok());
    }

    #[test]
    fn an_unused_window_is_switched_off_and_a_used_one_refused() {
        let unused = json!({"sliding_window": 4, "use_sliding_window": false});
        let config = adapted(with("Qwen2ForCausalLM", &unused)).unwrap();
        assert_eq!((&config["sliding_window"], &config["max_window_layers"]), (&Value::Null, &json!(3)));
        refusal("Qwen2ForCausalLM", &json!({"sliding_window": 4, "use_sliding_window": true}));
    }

    #[test]
    fn one_architecture_is_required() {
        assert!(adapted(json!({"architectures": ["A", "B"]})).is_err());
        assert!(adapted(json!([])).is_err());
    }
}
