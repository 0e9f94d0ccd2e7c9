//! What `config.json` says about a model's arithmetic.
//!
//! Every setting that changes the result is read or refused; none is skipped.

use serde_json::{Map, Value};

use super::{
    rope::{RopeConfig, rope},
    settings::{ConfigError, Settings},
};
use crate::engine::native::backend::CacheShape;

/// The window of a model whose config.json has no `sliding_window` at all, as transformers has it.
const DEFAULT_WINDOW: usize = 4096;

/// No model has longer rows or a larger vocabulary.
const MOST: usize = 1 << 24;
/// No model has more heads, or wider ones.
const MOST_HEADS: usize = 1 << 16;
/// No model is deeper.
const MOST_LAYERS: usize = 1 << 12;
/// No model has more experts, those of all layers counted.
const MOST_EXPERTS: usize = 1 << 17;

/// The models that are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    Llama,
    Mistral,
    Qwen2,
    Qwen3,
    Qwen3Moe,
    SmolLm3,
}

/// What a layer's feed-forward part is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MlpShape {
    /// One, of this width.
    Dense {
        /// Its inner width.
        intermediate: usize,
    },
    /// A choice of experts for each token.
    Sparse {
        /// How many there are.
        experts: usize,
        /// How many a token goes through.
        per_token: usize,
        /// The inner width of each.
        intermediate: usize,
        /// Whether the weights of the chosen ones are made to sum to 1.
        normalize: bool,
    },
}

impl MlpShape {
    /// How many experts there are.
    fn experts(&self) -> usize {
        match self {
            Self::Dense { .. } => 0,
            Self::Sparse { experts, .. } => *experts,
        }
    }
}

/// What differs between layers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LayerShape {
    /// Tokens that a query attends to; `None` for all.
    pub(crate) window: Option<usize>,
    /// Whether queries and keys are rotated.
    pub(crate) rotary: bool,
    /// The feed-forward part.
    pub(crate) mlp: MlpShape,
}

/// The arithmetic of a model.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "so many things a model has or has not")]
pub(crate) struct ModelShape {
    /// Numbers of a token's state.
    pub(crate) hidden: usize,
    /// Heads of queries.
    pub(crate) heads: usize,
    /// Heads of keys and values.
    pub(crate) kv_heads: usize,
    /// Numbers of a head.
    pub(crate) head_dim: usize,
    /// Rows of the embeddings.
    pub(crate) vocab_size: usize,
    /// The epsilon of all norms.
    pub(crate) epsilon: f32,
    /// Whether the embeddings are the head too.
    pub(crate) tied: bool,
    /// Biases on query, key and value.
    pub(crate) qkv_bias: bool,
    /// A bias on the output of attention.
    pub(crate) output_bias: bool,
    /// Biases in the feed-forward part.
    pub(crate) mlp_bias: bool,
    /// Norms of query and key heads.
    pub(crate) head_norms: bool,
    /// The rotary embedding of queries and keys.
    pub(crate) rope: RopeConfig,
    /// All layers.
    pub(crate) layers: Vec<LayerShape>,
}

impl ModelShape {
    /// Reads the content of config.json.
    pub(crate) fn read(config: &Map<String, Value>) -> Result<Self, ConfigError> {
        let family = family(config)?;
        refuse_what_changes_the_result(config)?;
        let settings = Settings(config);
        let hidden = settings.size("hidden_size", MOST)?;
        let heads = settings.size("num_attention_heads", MOST_HEADS)?;
        let kv_heads = match settings.get("num_key_value_heads")? {
            None if family == Family::Llama => heads,
            None => return Err(ConfigError::setting("num_key_value_heads", "is missing")),
            Some(heads) => heads,
        };
        let head_dim = settings.get("head_dim")?.unwrap_or(hidden / heads);
        if kv_heads == 0 || !heads.is_multiple_of(kv_heads) {
            return Err(ConfigError::setting("num_key_value_heads", format!("does not divide {heads} heads")));
        }
        if head_dim == 0 || !head_dim.is_multiple_of(2) {
            return Err(ConfigError::setting("head_dim", "is not an even number"));
        }
        if head_dim > MOST_HEADS {
            return Err(ConfigError::too_large("head_dim", head_dim));
        }
        let attention_bias = settings.get("attention_bias")?.unwrap_or(false);
        Ok(Self {
            hidden,
            heads,
            kv_heads,
            head_dim,
            vocab_size: settings.size("vocab_size", MOST)?,
            epsilon: settings.get("rms_norm_eps")?.unwrap_or(1e-6),
            tied: settings.get("tie_word_embeddings")?.unwrap_or(family == Family::SmolLm3),
            qkv_bias: match family {
                Family::Qwen2 => true,
                Family::Mistral => false,
                _ => attention_bias,
            },
            output_bias: attention_bias
                && matches!(family, Family::Llama | Family::Qwen3 | Family::Qwen3Moe | Family::SmolLm3),
            mlp_bias: matches!(family, Family::Llama | Family::SmolLm3) && settings.get("mlp_bias")?.unwrap_or(false),
            head_norms: matches!(family, Family::Qwen3 | Family::Qwen3Moe),
            rope: rope(config, head_dim, family == Family::Llama)?,
            layers: layers(family, &settings)?,
        })
    }

    /// The shape of the cache of every layer.
    pub(crate) fn cache_shape(&self) -> CacheShape {
        CacheShape { heads: self.kv_heads, head_dim: self.head_dim }
    }

    /// Rows of the joined projection to queries, keys and values.
    pub(crate) fn qkv_width(&self) -> usize {
        (self.heads + 2 * self.kv_heads) * self.head_dim
    }

    /// Numbers of the widest rows between two layers.
    pub(crate) fn widest_row(&self) -> usize {
        let inner = |layer: &LayerShape| match layer.mlp {
            MlpShape::Dense { intermediate } | MlpShape::Sparse { intermediate, .. } => 2 * intermediate,
        };
        self.layers.iter().map(inner).max().unwrap_or(0).max(self.qkv_width())
    }
}

fn family(config: &Map<String, Value>) -> Result<Family, ConfigError> {
    let names = config.get("architectures").and_then(Value::as_array).map(Vec::as_slice);
    let Some([Value::String(name)]) = names else {
        return Err(ConfigError::setting("architectures", "does not name exactly one architecture"));
    };
    match name.as_str() {
        "LlamaForCausalLM" => Ok(Family::Llama),
        "MistralForCausalLM" => Ok(Family::Mistral),
        "Qwen2ForCausalLM" => Ok(Family::Qwen2),
        "Qwen3ForCausalLM" => Ok(Family::Qwen3),
        "Qwen3MoeForCausalLM" => Ok(Family::Qwen3Moe),
        "SmolLM3ForCausalLM" => Ok(Family::SmolLm3),
        other => Err(ConfigError::Architecture(other.to_owned())),
    }
}

/// Settings that some checkpoints of these families have and that this engine does not compute.
fn refuse_what_changes_the_result(config: &Map<String, Value>) -> Result<(), ConfigError> {
    let given = |key: &str| config.get(key).filter(|value| !value.is_null());
    if given("quantization_config").is_some() {
        return Err(ConfigError::setting(
            "quantization_config",
            "is not supported; pass the model in bf16, f16 or f32",
        ));
    }
    if let Some(activation) = given("hidden_act")
        && !matches!(activation.as_str(), Some("silu" | "swish"))
    {
        return Err(ConfigError::setting("hidden_act", format!("{activation} is not supported, silu is")));
    }
    for key in ["partial_rotary_factor", "logit_scale"] {
        if given(key).is_some_and(|factor| factor.as_f64() != Some(1.0)) {
            return Err(ConfigError::setting(key, "is not supported"));
        }
    }
    if given("is_causal").is_some_and(|causal| causal.as_bool() != Some(true)) {
        return Err(ConfigError::setting("is_causal", "is not supported"));
    }
    Ok(())
}

fn layers(family: Family, settings: &Settings<'_>) -> Result<Vec<LayerShape>, ConfigError> {
    let count = settings.size("num_hidden_layers", MOST_LAYERS)?;
    let windows = windows(family, settings, count)?;
    let rotary = rotary(family, settings, count)?;
    let layers = windows.into_iter().zip(rotary).enumerate();
    let layers = layers
        .map(|(layer, (window, rotary))| Ok(LayerShape { window, rotary, mlp: mlp(family, settings, layer)? }))
        .collect::<Result<Vec<_>, _>>()?;
    let experts = layers.iter().map(|layer| layer.mlp.experts());
    let (all, most) = (experts.clone().sum::<usize>(), experts.max().unwrap_or(0));
    if all > MOST_EXPERTS { Err(ConfigError::too_large("num_experts", most)) } else { Ok(layers) }
}

fn windows(family: Family, settings: &Settings<'_>, layers: usize) -> Result<Vec<Option<usize>>, ConfigError> {
    let kinds = kinds(settings, layers)?;
    let window = match settings.get("sliding_window")? {
        // Leaving it out is not the same as `null`: in transformers these families have a window unless told otherwise.
        None if family != Family::SmolLm3 && !settings.0.contains_key("sliding_window") => Some(DEFAULT_WINDOW),
        given => given,
    };
    let used = match family {
        Family::Llama => false,
        Family::Mistral => true,
        _ => settings.get("use_sliding_window")?.unwrap_or(false),
    };
    // transformers gives all layers of these families the same window, and vLLM gives each what is listed.
    let heeded = matches!(family, Family::Qwen2 | Family::Qwen3 | Family::SmolLm3);
    let Some(window) = window.filter(|_| used) else {
        return match kinds {
            Some(kinds) if !heeded && kinds.contains(&true) => {
                Err(ConfigError::setting("layer_types", "names sliding_attention, which is not supported here"))
            }
            _ => Ok(vec![None; layers]),
        };
    };
    if window == 0 {
        return Err(ConfigError::setting("sliding_window", "is 0"));
    }
    if let Some(kinds) = kinds {
        if !heeded && kinds.contains(&false) {
            return Err(ConfigError::setting("layer_types", "names full_attention, which is not supported here"));
        }
        return Ok(kinds.into_iter().map(|slides| slides.then_some(window)).collect());
    }
    let first = match family {
        Family::Qwen2 | Family::Qwen3 => settings.require("max_window_layers")?,
        Family::SmolLm3 => return Err(ConfigError::setting("layer_types", "is missing")),
        _ => 0,
    };
    Ok((0..layers).map(|layer| (layer >= first).then_some(window)).collect())
}

/// Says of each layer whether it has a window, where that is listed.
fn kinds(settings: &Settings<'_>, layers: usize) -> Result<Option<Vec<bool>>, ConfigError> {
    let Some(kinds) = settings.get::<Vec<String>>("layer_types")? else { return Ok(None) };
    if kinds.len() != layers {
        return Err(ConfigError::setting("layer_types", format!("does not name {layers} layers")));
    }
    let slides = |kind: &String| match kind.as_str() {
        "full_attention" => Ok(false),
        "sliding_attention" => Ok(true),
        other => Err(ConfigError::setting("layer_types", format!("names {other}"))),
    };
    kinds.iter().map(slides).collect::<Result<_, _>>().map(Some)
}

fn rotary(family: Family, settings: &Settings<'_>, layers: usize) -> Result<Vec<bool>, ConfigError> {
    if family != Family::SmolLm3 {
        return Ok(vec![true; layers]);
    }
    if let Some(listed) = settings.get::<Vec<u8>>("no_rope_layers")? {
        if listed.len() != layers {
            return Err(ConfigError::setting("no_rope_layers", format!("does not name {layers} layers")));
        }
        return Ok(listed.into_iter().map(|rotary| rotary != 0).collect());
    }
    let interval: usize = settings.get("no_rope_layer_interval")?.unwrap_or(4);
    if interval == 0 {
        return Err(ConfigError::setting("no_rope_layer_interval", "is 0"));
    }
    Ok((1..=layers).map(|layer| !layer.is_multiple_of(interval)).collect())
}

fn mlp(family: Family, settings: &Settings<'_>, layer: usize) -> Result<MlpShape, ConfigError> {
    let dense = || Ok(MlpShape::Dense { intermediate: settings.size("intermediate_size", MOST)? });
    if family != Family::Qwen3Moe {
        return dense();
    }
    let only_dense: Vec<usize> = settings.get("mlp_only_layers")?.unwrap_or_default();
    let step: usize = settings.get("decoder_sparse_step")?.unwrap_or(1);
    if step == 0 {
        return Err(ConfigError::setting("decoder_sparse_step", "is 0"));
    }
    if only_dense.contains(&layer) || !(layer + 1).is_multiple_of(step) {
        return dense();
    }
    let (experts, per_token) =
        (settings.size("num_experts", MOST_EXPERTS)?, settings.size("num_experts_per_tok", MOST_EXPERTS)?);
    if per_token > experts {
        return Err(ConfigError::setting("num_experts_per_tok", format!("is more than {experts} experts")));
    }
    let normalize = settings.get("norm_topk_prob")?.unwrap_or(false);
    let intermediate = settings.size("moe_intermediate_size", MOST)?;
    Ok(MlpShape::Sparse { experts, per_token, intermediate, normalize })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(architecture: &str, settings: &Value) -> Result<ModelShape, ConfigError> {
        let mut config = json!({
            "architectures": [architecture], "hidden_size": 8, "num_hidden_layers": 4, "num_attention_heads": 4,
            "num_key_value_heads": 2, "vocab_size": 9, "intermediate_size": 16, "rope_theta": 10000.0,
        });
        config.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
        ModelShape::read(config.as_object().unwrap())
    }

    fn windows_of(architecture: &str, settings: &Value) -> Vec<Option<usize>> {
        read(architecture, settings).unwrap().layers.iter().map(|layer| layer.window).collect()
    }

    #[test]
    fn windows_are_used_where_transformers_uses_them() {
        assert_eq!(windows_of("LlamaForCausalLM", &json!({"sliding_window": 3})), [None; 4]);
        assert_eq!(windows_of("MistralForCausalLM", &json!({"sliding_window": 3})), [Some(3); 4]);
        assert_eq!(windows_of("MistralForCausalLM", &json!({"sliding_window": null})), [None; 4]);
        let unused = json!({"sliding_window": 3, "use_sliding_window": false, "max_window_layers": 0});
        assert_eq!(windows_of("Qwen2ForCausalLM", &unused), [None; 4]);
        let used = json!({"sliding_window": 3, "use_sliding_window": true, "max_window_layers": 3});
        assert_eq!(windows_of("Qwen2ForCausalLM", &used), [None, None, None, Some(3)]);
        let all = json!({"sliding_window": 3, "use_sliding_window": true, "max_window_layers": 0});
        assert_eq!(windows_of("Qwen3ForCausalLM", &all), [Some(3); 4]);
    }

    #[test]
    fn a_window_that_is_left_out_is_that_of_transformers() {
        assert_eq!(windows_of("MistralForCausalLM", &json!({})), [Some(4096); 4]);
        let used = json!({"use_sliding_window": true, "max_window_layers": 2});
        assert_eq!(windows_of("Qwen2ForCausalLM", &used), [None, None, Some(4096), Some(4096)]);
        assert_eq!(windows_of("Qwen2ForCausalLM", &json!({})), [None; 4]);
        assert_eq!(windows_of("SmolLM3ForCausalLM", &json!({"use_sliding_window": true})), [None; 4]);
    }

    #[test]
    fn kinds_of_layers_that_not_everyone_heeds_are_refused() {
        let mixed = json!(["full_attention", "sliding_attention", "full_attention", "full_attention"]);
        for (architecture, more) in [
            ("LlamaForCausalLM", json!({"sliding_window": 3, "layer_types": mixed})),
            ("MistralForCausalLM", json!({"sliding_window": 3, "layer_types": mixed})),
            ("Qwen3ForCausalLM", json!({"layer_types": ["linear_attention", "", "", ""]})),
            ("Qwen3ForCausalLM", json!({"layer_types": ["full_attention"]})),
        ] {
            let error = read(architecture, &more).unwrap_err().to_string();
            assert!(error.contains("`layer_types`"), "{error}");
        }
        let full = json!({"layer_types": ["full_attention", "full_attention", "full_attention", "full_attention"]});
        assert_eq!(windows_of("LlamaForCausalLM", &full), [None; 4]);
        let unused = json!({"layer_types": mixed, "sliding_window": 3, "use_sliding_window": false});
        assert_eq!(windows_of("Qwen3ForCausalLM", &unused), [None; 4]);
    }

    #[test]
    fn smollm3_leaves_every_fourth_layer_unrotated_unless_listed() {
        let rotary = |settings| -> Vec<bool> {
            read("SmolLM3ForCausalLM", &settings).unwrap().layers.iter().map(|layer| layer.rotary).collect()
        };
        assert_eq!(rotary(json!({})), [true, true, true, false]);
        assert_eq!(rotary(json!({"no_rope_layers": [0, 1, 1, 1]})), [false, true, true, true]);
    }

    #[test]
    fn what_would_change_the_result_is_refused_by_name() {
        for (key, value) in [
            ("quantization_config", json!({"bits": 4})),
            ("hidden_act", json!("gelu")),
            ("partial_rotary_factor", json!(0.5)),
            ("logit_scale", json!(0.5)),
            ("is_causal", json!(false)),
            ("head_dim", json!(3)),
            ("num_key_value_heads", json!(3)),
            ("hidden_size", json!("wide")),
            ("vocab_size", json!(0)),
        ] {
            let error = read("LlamaForCausalLM", &json!({key: value})).unwrap_err();
            assert!(matches!(&error, ConfigError::Setting { key: named, .. } if named == key), "{error}");
        }
        assert_eq!(
            read("GemmaForCausalLM", &json!({})).unwrap_err(),
            ConfigError::Architecture("GemmaForCausalLM".to_owned())
        );
    }
    #[test]
    fn sizes_that_no_model_has_are_refused_before_anything_is_made_of_them() {
        for (key, value) in [
            ("num_hidden_layers", 1_u64 << 60),
            ("num_hidden_layers", 10_000),
            ("num_attention_heads", 1 << 62),
            ("head_dim", 1 << 62),
            ("hidden_size", 1 << 62),
            ("vocab_size", 1 << 62),
            ("intermediate_size", u64::MAX),
        ] {
            let error = read("LlamaForCausalLM", &json!({key: value})).unwrap_err().to_string();
            assert_eq!(error, format!("config.json: `{key}` is {value}, more than any model has"));
        }
        for (experts, layers) in [(1_u64 << 60, 4_u64), (1 << 16, 1 << 12)] {
            let sparse = json!({
                "num_experts": experts, "num_experts_per_tok": 2, "moe_intermediate_size": 8, "num_hidden_layers": layers,
            });
            let error = read("Qwen3MoeForCausalLM", &sparse).unwrap_err().to_string();
            assert!(error.starts_with(&format!("config.json: `num_experts` is {experts}, more than")), "{error}");
        }
    }
}
