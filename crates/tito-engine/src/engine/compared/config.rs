//! A model's `config.json` in the one spelling that mistral.rs reads.
//!
//! Owns the two spellings of rotary embeddings, windows that are named but not in use, and activations that are named twice. Refuses to judge: what
//! mistral.rs would skip is not on the list of what was compared.

use serde_json::{Map, Value, json};

/// Settings of rotary embeddings that transformers 5 keeps in `rope_parameters` and everyone else at the top.
const ROPE_SETTINGS: [&str; 2] = ["rope_theta", "partial_rotary_factor"];
/// Some architectures have it in `rope_scaling`, others at the top.
pub(super) const ORIGINAL_LENGTH: &str = "original_max_position_embeddings";

/// `config` as mistral.rs must see it. The error says what is wrong with the file.
pub fn adapted(config: &Map<String, Value>) -> Result<Map<String, Value>, String> {
    let mut config = config.clone();
    flatten_rope_parameters(&mut config)?;
    settle_rope_scaling(&mut config)?;
    settle_sliding_window(&mut config);
    settle_activation(&mut config);
    Ok(config)
}

/// The one name in `architectures`.
pub(super) fn architecture(config: &Map<String, Value>) -> Result<&str, String> {
    let names = config.get("architectures").and_then(Value::as_array).map(Vec::as_slice);
    match names {
        Some([Value::String(name)]) => Ok(name),
        _ => Err("config.json does not name exactly one architecture".to_owned()),
    }
}

/// Moves transformers 5's `rope_parameters` to where they were before: `rope_theta` and `rope_scaling`.
fn flatten_rope_parameters(config: &mut Map<String, Value>) -> Result<(), String> {
    let mut parameters = match config.remove("rope_parameters") {
        None | Some(Value::Null) => return Ok(()),
        Some(Value::Object(parameters)) => parameters,
        Some(_) => return Err("config.json: rope_parameters is not an object".to_owned()),
    };
    if parameters.values().any(Value::is_object) {
        return Err("mistral.rs does not know rope_parameters that differ between layers".to_owned());
    }
    for setting in ROPE_SETTINGS {
        if let Some(value) = parameters.remove(setting) {
            settle(config, setting, value)?;
        }
    }
    if let Some(value) = parameters.get(ORIGINAL_LENGTH) {
        settle(config, ORIGINAL_LENGTH, value.clone())?;
    }
    match config.get("rope_scaling") {
        None | Some(Value::Null) => _ = config.insert("rope_scaling".to_owned(), Value::Object(parameters)),
        Some(_) => return Err("config.json has both rope_parameters and rope_scaling".to_owned()),
    }
    Ok(())
}

/// Writes a setting that may be there already, with the same value.
fn settle(config: &mut Map<String, Value>, key: &str, value: Value) -> Result<(), String> {
    match config.get(key) {
        None | Some(Value::Null) => _ = config.insert(key.to_owned(), value),
        Some(other) if other.as_f64() == value.as_f64() => {}
        Some(other) => return Err(format!("config.json says twice what {key} is: {other} and {value}")),
    }
    Ok(())
}

/// Leaves out scaling that is none, and writes the kind of any other under both of its names.
fn settle_rope_scaling(config: &mut Map<String, Value>) -> Result<(), String> {
    let mut scaling = match config.remove("rope_scaling") {
        None | Some(Value::Null) => return Ok(()),
        Some(Value::Object(scaling)) => scaling,
        Some(_) => return Err("config.json: rope_scaling is not an object".to_owned()),
    };
    let kind = match scaling.get("rope_type").or_else(|| scaling.get("type")).cloned() {
        None | Some(Value::Null) if !scaling.contains_key("factor") => return Ok(()),
        Some(Value::String(kind)) => kind,
        _ => return Err("config.json: rope_scaling does not say of which type it is".to_owned()),
    };
    if kind == "default" {
        return Ok(());
    }
    // Some architectures read the old key, some the new one.
    scaling.insert("type".to_owned(), json!(kind));
    scaling.insert("rope_type".to_owned(), json!(kind));
    config.insert("rope_scaling".to_owned(), Value::Object(scaling));
    Ok(())
}

/// Takes a window away that the Qwen configurations name but do not use: mistral.rs would slide it all the same.
fn settle_sliding_window(config: &mut Map<String, Value>) {
    let architecture = architecture(config).unwrap_or_default();
    if !matches!(architecture, "Qwen2ForCausalLM" | "Qwen3ForCausalLM" | "Qwen3MoeForCausalLM") {
        return;
    }
    if !matches!(config.get("use_sliding_window"), None | Some(Value::Null | Value::Bool(false))) {
        return;
    }
    config.insert("use_sliding_window".to_owned(), Value::Bool(false));
    config.insert("sliding_window".to_owned(), Value::Null);
    let layers = config.get("num_hidden_layers").cloned().unwrap_or(Value::Null);
    config.insert("max_window_layers".to_owned(), layers);
}

/// Takes the second name of an activation away, which says the same: mistral.rs wants one of the two.
fn settle_activation(config: &mut Map<String, Value>) {
    if architecture(config) == Ok("GemmaForCausalLM") && config.get("hidden_act") == config.get("hidden_activation") {
        config.remove("hidden_act");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(architecture: &str, settings: &Value) -> Map<String, Value> {
        let mut config = json!({"architectures": [architecture], "hidden_size": 8, "num_hidden_layers": 3});
        for (name, value) in settings.as_object().unwrap() {
            config[name] = value.clone();
        }
        config.as_object().unwrap().clone()
    }

    fn spelt(architecture: &str, settings: &Value) -> Map<String, Value> {
        adapted(&with(architecture, settings)).unwrap()
    }

    fn refusal(settings: &Value) -> String {
        adapted(&with("LlamaForCausalLM", settings)).unwrap_err()
    }

    #[test]
    fn a_plain_configuration_stays_as_it_is() {
        let settings = json!({"rope_theta": 10000.0, "attention_bias": false});
        assert_eq!(spelt("LlamaForCausalLM", &settings), with("LlamaForCausalLM", &settings));
    }

    #[test]
    fn rope_parameters_of_transformers_5_become_top_level_settings() {
        let parameters = json!({"rope_type": "default", "rope_theta": 1e6, "partial_rotary_factor": 0.5});
        let config = spelt("Glm4ForCausalLM", &json!({"rope_parameters": parameters}));
        assert_eq!(config, with("Glm4ForCausalLM", &json!({"rope_theta": 1e6, "partial_rotary_factor": 0.5})));
    }

    #[test]
    fn scaling_is_kept_under_both_names_of_its_kind() {
        let parameters = json!({"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0});
        let config = spelt("LlamaForCausalLM", &json!({"rope_parameters": parameters}));
        assert_eq!(config["rope_theta"], json!(5e5));
        assert_eq!(config["rope_scaling"], json!({"factor": 8.0, "rope_type": "llama3", "type": "llama3"}));
        let config = spelt("LlamaForCausalLM", &json!({"rope_scaling": {"type": "linear", "factor": 2}}));
        assert_eq!(config["rope_scaling"]["rope_type"], json!("linear"));
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        let twice = json!({"rope_theta": 1.0, "rope_parameters": {"rope_type": "default", "rope_theta": 2.0}});
        assert_eq!(refusal(&twice), "config.json says twice what rope_theta is: 1.0 and 2.0");
        let both =
            json!({"rope_scaling": {"type": "linear", "factor": 2}, "rope_parameters": {"rope_type": "default"}});
        assert_eq!(refusal(&both), "config.json has both rope_parameters and rope_scaling");
        refusal(&json!({"rope_scaling": {"factor": 4.0}}));
        refusal(&json!({"rope_scaling": 4}));
        refusal(&json!({"rope_parameters": {"full_attention": {"rope_theta": 1.0}}}));
    }

    #[test]
    fn an_activation_that_is_named_twice_is_named_once() {
        let twice = json!({"hidden_act": "gelu", "hidden_activation": "gelu"});
        let once = with("GemmaForCausalLM", &json!({"hidden_activation": "gelu"}));
        assert_eq!(spelt("GemmaForCausalLM", &twice), once);
        let differing = json!({"hidden_act": "gelu", "hidden_activation": "relu"});
        assert_eq!(spelt("GemmaForCausalLM", &differing), with("GemmaForCausalLM", &differing));
    }

    #[test]
    fn an_unused_window_is_taken_away_and_a_used_one_kept() {
        let config = spelt("Qwen2ForCausalLM", &json!({"sliding_window": 4, "use_sliding_window": false}));
        assert_eq!((&config["sliding_window"], &config["max_window_layers"]), (&Value::Null, &json!(3)));
        let used = json!({"sliding_window": 4, "use_sliding_window": true, "max_window_layers": 1});
        assert_eq!(spelt("Qwen2ForCausalLM", &used), with("Qwen2ForCausalLM", &used));
        assert_eq!(spelt("MistralForCausalLM", &json!({"sliding_window": 4}))["sliding_window"], json!(4));
    }
}
