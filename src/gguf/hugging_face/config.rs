//! config.json of a model whose arithmetic is known, complete: for a directory that is written, and for the engine.

use serde_json::{Map, Value, json};

use super::{
    super::{Architecture, GgufError, GgufFile},
    rope,
    shape::{LayerKind, Shape},
};

/// Settings, after the architecture's name and a dot, that are read, or that change no result.
const KNOWN: [&str; 29] = [
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.layer_norm_rms_epsilon",
    "attention.sliding_window",
    "attention.value_length",
    "block_count",
    "context_length",
    "embedding_length",
    "expert_count",
    "expert_feed_forward_length",
    "expert_used_count",
    "expert_weights_norm",
    "feed_forward_length",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.scale_linear",
    "rope.scaling.attn_factor",
    "rope.scaling.factor",
    "rope.scaling.original_context_length",
    "rope.scaling.type",
    "rope.scaling.yarn_attn_factor",
    "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
    // These change nothing: notes on where the file comes from, how embeddings would be pooled, sizes that are known.
    "leading_dense_block_count",
    "pooling_type",
    "rope.scaling.finetuned",
    "tensor_data_layout",
    "vocab_size",
];

/// Settings that change nothing with one of these values; config.json cannot say others.
const NEUTRAL: [(&str, &[f64]); 9] = [
    ("attention.causal", &[1.0]),
    ("expert_gating_func", &[0.0, 1.0]),
    ("expert_group_count", &[0.0, 1.0]),
    ("expert_group_used_count", &[0.0, 1.0]),
    ("expert_shared_count", &[0.0]),
    ("expert_weights_scale", &[0.0, 1.0]),
    ("rope.scaling.yarn_ext_factor", &[-1.0, 1.0]),
    ("rope.scaling.yarn_log_multiplier", &[0.0]),
    ("use_parallel_residual", &[0.0]),
];

impl GgufFile {
    /// Returns all of config.json. What it could not say exactly is an error that names it.
    pub fn model_config(&self) -> Result<Map<String, Value>, GgufError> {
        let shape = Shape::read(self)?;
        refuse_unknown_settings(self, shape.architecture)?;
        let mut config = self.config()?;
        let epsilon = format!("{}.attention.layer_norm_rms_epsilon", shape.architecture.name());
        let epsilon = self.metadata().float(&epsilon)?.ok_or(GgufError::Missing(epsilon))?;
        let rope = rope::read(self, &shape)?;
        extend(
            &mut config,
            json!({
                "hidden_act": "silu",
                "torch_dtype": "bfloat16",
                "hidden_size": shape.hidden,
                "intermediate_size": shape.intermediate,
                "num_hidden_layers": shape.layers.len(),
                "num_attention_heads": shape.heads,
                "num_key_value_heads": shape.kv_heads,
                "head_dim": shape.head_dim,
                "rms_norm_eps": epsilon,
                "rope_theta": rope.theta,
                "rope_scaling": rope.scaling,
                "tie_word_embeddings": shape.tied,
                "use_cache": true,
            }),
        );
        extend(&mut config, of_architecture(self, &shape)?);
        add_window(self, &shape, &mut config)?;
        Ok(config)
    }
}

fn extend(config: &mut Map<String, Value>, more: Value) {
    if let Value::Object(more) = more {
        config.extend(more);
    }
}

fn of_architecture(file: &GgufFile, shape: &Shape) -> Result<Value, GgufError> {
    Ok(match shape.architecture {
        Architecture::Llama => json!({"attention_bias": shape.biases.output, "mlp_bias": shape.biases.mlp}),
        Architecture::SmolLm3 => json!({
            "attention_bias": shape.biases.output,
            "mlp_bias": shape.biases.mlp,
            // No key says it: every fourth layer is without positions wherever such a file is computed.
            "no_rope_layer_interval": 4,
        }),
        Architecture::Qwen2 => json!({}),
        Architecture::Qwen3 => json!({"attention_bias": shape.biases.output}),
        Architecture::Qwen3Moe => {
            let normalized = format!("{}.expert_weights_norm", shape.architecture.name());
            let dense = |(layer, kind): (usize, &LayerKind)| (*kind == LayerKind::Dense).then_some(layer);
            let dense: Vec<usize> = shape.layers.iter().enumerate().filter_map(dense).collect();
            json!({
                "attention_bias": shape.biases.output,
                "num_experts": shape.experts.map(|experts| experts.count),
                "num_experts_per_tok": shape.experts.map(|experts| experts.per_token),
                "moe_intermediate_size": shape.experts.map(|experts| experts.intermediate),
                // Converters leave the key out, and llama.cpp normalises: no released model does not.
                "norm_topk_prob": file.metadata().flag(&normalized)?.unwrap_or(true),
                "decoder_sparse_step": 1,
                "mlp_only_layers": dense,
            })
        }
    })
}

/// A window of all layers; a Llama with one is a Mistral.
fn add_window(file: &GgufFile, shape: &Shape, config: &mut Map<String, Value>) -> Result<(), GgufError> {
    let key = format!("{}.attention.sliding_window", shape.architecture.name());
    let Some(window) = file.metadata().size(&key)?.filter(|window| *window > 0) else {
        extend(config, json!({"sliding_window": null}));
        return Ok(());
    };
    match shape.architecture {
        Architecture::Llama if !shape.biases.qkv && !shape.biases.mlp => extend(
            config,
            json!({"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": window}),
        ),
        Architecture::Llama | Architecture::SmolLm3 => {
            let name = shape.architecture.name();
            return Err(GgufError::Unsupported(format!("`{key}` is {window}, which this `{name}` cannot have")));
        }
        Architecture::Qwen2 | Architecture::Qwen3 | Architecture::Qwen3Moe => {
            extend(config, json!({"sliding_window": window, "use_sliding_window": true, "max_window_layers": 0}));
        }
    }
    Ok(())
}

fn refuse_unknown_settings(file: &GgufFile, architecture: Architecture) -> Result<(), GgufError> {
    let metadata = file.metadata();
    for (key, setting) in metadata.keys_below(&format!("{}.", architecture.name())) {
        let neutral = NEUTRAL.iter().find(|(name, _)| *name == setting);
        let Some((_, values)) = neutral else {
            if KNOWN.contains(&setting) {
                continue;
            }
            return Err(GgufError::Unsupported(format!("its setting `{key}` is not known")));
        };
        let value = metadata.number(key)?.unwrap_or(values[0]);
        if !values.iter().any(|neutral| (value - neutral).abs() < f64::EPSILON) {
            return Err(GgufError::Unsupported(format!("`{key}` is {value}, which config.json cannot say")));
        }
    }
    Ok(())
}
