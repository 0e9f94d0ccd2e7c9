use std::{collections::BTreeSet, fs, path::PathBuf};

use serde_json::{Map, Value, json};

use super::{
    Uncompared, check,
    config::{adapted, architecture},
    families::{FAMILIES, KNOWN, NEUTRAL},
    setting::{Allowed, Model},
};

/// A model that `tests/clients/test_mistralrs.py` serves.
struct Recorded {
    name: String,
    config: Map<String, Value>,
    max_model_len: usize,
    /// Whether mistral.rs computes what transformers does.
    agrees: bool,
}

impl Recorded {
    fn adapted(&self) -> Map<String, Value> {
        adapted(&self.config).unwrap()
    }
}

fn read(path: PathBuf) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

fn recorded() -> Vec<Recorded> {
    let golden = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/mistralrs"));
    let measured = read(golden.join("measured.json"));
    let measured = measured.as_object().unwrap();
    let model = |(name, verdict): (&String, &Value)| {
        let case = read(golden.join(format!("{name}.json")));
        let config = case["config"].as_object().unwrap().clone();
        let longest = [&case["max_model_len"], &config["max_position_embeddings"]].into_iter().find_map(Value::as_u64);
        let max_model_len = usize::try_from(longest.unwrap()).unwrap();
        Recorded { name: name.clone(), config, max_model_len, agrees: verdict == "agrees" }
    };
    let files = fs::read_dir(&golden).unwrap().count();
    assert_eq!(files, measured.len() + 1, "each model is measured");
    measured.iter().map(model).collect()
}

#[test]
fn what_agreed_is_served_and_what_did_not_is_refused() {
    let wrong: Vec<_> = recorded()
        .into_iter()
        .map(|model| (model.name, model.agrees, check(&model.config, model.max_model_len)))
        .filter(|(_, agrees, judged)| *agrees != judged.is_ok())
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn nothing_is_on_the_list_that_no_comparison_has_shown() {
    let models: Vec<Recorded> = recorded().into_iter().filter(|model| model.agrees).collect();
    let mut unseen = Vec::new();
    for family in &FAMILIES {
        let configs: Vec<_> = models
            .iter()
            .map(|model| (model.adapted(), model.max_model_len))
            .filter(|(config, _)| architecture(config) == Ok(family.architecture))
            .collect();
        for (key, alternatives) in family.settings {
            for allowed in *alternatives {
                let values: BTreeSet<String> = configs
                    .iter()
                    .filter(|(config, max_model_len)| {
                        allowed.admits(config.get(*key), Model { config, max_model_len: *max_model_len })
                    })
                    .map(|(config, _)| format!("{:?}", config.get(*key)))
                    .collect();
                // A number that is not read would pass with one value.
                let enough = if matches!(allowed, Allowed::Count | Allowed::Number) { 2 } else { 1 };
                if values.len() < enough {
                    unseen.push(format!("{} {key} {allowed:?}: {}", family.architecture, values.len()));
                }
            }
        }
    }
    assert!(unseen.is_empty(), "{unseen:#?}");
}

#[test]
fn every_architecture_that_mistralrs_knows_is_recorded() {
    let models = recorded();
    let missing: Vec<_> = KNOWN
        .iter()
        .filter(|name| !models.iter().any(|model| architecture(&model.config).as_ref() == Ok(*name)))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn each_setting_that_is_added_changed_or_left_out_beyond_the_list_is_refused_by_its_name() {
    for model in recorded().into_iter().filter(|model| model.agrees) {
        let refusal =
            |config: &Map<String, Value>| check(config, model.max_model_len).map_err(|error| error.to_string());
        let mut more = model.config.clone();
        more.insert("quantization_config".to_owned(), json!({"quant_method": "gptq"}));
        let text = refusal(&more).unwrap_err();
        assert!(text.contains("with `quantization_config` {\"quant_method\":\"gptq\"}"), "{}: {text}", model.name);
        for key in model.config.keys().filter(|key| !NEUTRAL.contains(&key.as_str()) && *key != "architectures") {
            let mut other = model.config.clone();
            other.insert(key.clone(), json!("something else"));
            let judged = refusal(&other);
            if judged.is_ok() {
                // Qwen's configurations name a window that is not in use.
                assert!(["sliding_window", "max_window_layers"].contains(&key.as_str()), "{}: {key}", model.name);
                assert_eq!(model.adapted(), adapted(&other).unwrap());
                continue;
            }
            let text = judged.unwrap_err();
            let of_others = [
                "num_hidden_layers",
                "hidden_size",
                "num_attention_heads",
                "head_dim",
                "sliding_window",
                "use_sliding_window",
            ];
            let named = text.contains(key.as_str()) || of_others.contains(&key.as_str()) || key.starts_with("rope_");
            assert!(named, "{}: {key}: {text}", model.name);
        }
    }
}

#[test]
fn other_architectures_are_refused_by_their_names() {
    let config = |name: &str| json!({"architectures": [name], "hidden_size": 8}).as_object().unwrap().clone();
    let unknown = check(&config("Olmo2ForCausalLM"), 16).unwrap_err();
    assert_eq!(unknown, Uncompared::Unknown("Olmo2ForCausalLM".to_owned()));
    assert_eq!(unknown.to_string(), "mistral.rs does not know the architecture Olmo2ForCausalLM");
    assert!(!unknown.is_worth_a_try());
    let failing = check(&config("DeepseekV3ForCausalLM"), 16).unwrap_err();
    let text = "mistral.rs has not been shown to compute DeepseekV3ForCausalLM as transformers does";
    assert_eq!((failing.to_string().as_str(), failing.is_worth_a_try()), (text, true));
    for names in [json!([]), json!(["A", "B"]), json!("A"), Value::Null] {
        let config = json!({"architectures": names});
        assert!(matches!(check(config.as_object().unwrap(), 16), Err(Uncompared::Config(_))));
    }
}

#[test]
fn what_is_right_for_short_sequences_only_is_served_for_short_sequences_only() {
    let models = recorded();
    for (name, setting, key) in [
        ("gemma2_within_window", "`sliding_window` 96", "sliding_window"),
        ("phi3_longrope_within_original", "`rope_scaling` {\"long_factor\":[1.0", "original_max_position_embeddings"),
    ] {
        let model = models.iter().find(|model| model.name == name).unwrap();
        let bound = usize::try_from(model.config[key].as_u64().unwrap()).unwrap();
        check(&model.config, bound).unwrap();
        let text = check(&model.config, bound + 1).unwrap_err().to_string();
        assert!(text.contains(setting), "{text}");
        let end = format!(" as transformers does, except for up to {bound} tokens (--max-model-len {bound})");
        assert!(text.ends_with(&end), "{text}");
        let mut other = model.config.clone();
        other.insert("num_hidden_layers".to_owned(), json!("many"));
        assert!(!check(&other, bound + 1).unwrap_err().to_string().contains("except for up to"));
    }
}

#[test]
fn long_values_are_shown_in_part() {
    let shown = super::value_excerpt(&json!(vec!["é"; 100]));
    assert_eq!(shown.chars().count(), super::SHOWN + 1);
    assert!(shown.ends_with('…'));
}
