//! config.json of a Llama.

use serde_json::{Map, Value, json};

use super::{ConvertError, GgufError, GgufFile};

/// The sizes that decide the shapes of a Llama's tensors.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    pub(super) hidden: usize,
    pub(super) intermediate: usize,
    pub(super) layers: usize,
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
    pub(super) head_dim: usize,
    pub(super) vocab: usize,
}

impl Sizes {
    pub(super) fn read(file: &GgufFile) -> Result<Self, ConvertError> {
        let size = |key: &str| file.metadata().required_size(&format!("llama.{key}"));
        let hidden = size("embedding_length")?;
        let heads = size("attention.head_count")?;
        let kv_heads = file.metadata().size("llama.attention.head_count_kv")?.unwrap_or(heads);
        let head_dim = match file.metadata().size("llama.attention.key_length")? {
            Some(head_dim) => head_dim,
            None if heads > 0 && hidden.is_multiple_of(heads) => hidden / heads,
            None => return Err(ConvertError::Unsupported(format!("{heads} heads do not divide {hidden}"))),
        };
        let sizes = Self {
            hidden,
            intermediate: size("feed_forward_length")?,
            layers: size("block_count")?,
            heads,
            kv_heads,
            head_dim,
            vocab: file.vocab_size()?,
        };
        sizes.check(file)?;
        Ok(sizes)
    }

    /// Refuses what a Llama's config.json cannot say.
    fn check(&self, file: &GgufFile) -> Result<(), ConvertError> {
        let metadata = file.metadata();
        let unsupported = |reason: String| Err(ConvertError::Unsupported(reason));
        if self.head_dim == 0 || !self.head_dim.is_multiple_of(2) || self.kv_heads == 0 {
            return unsupported(format!("{} key-value heads of {} elements", self.kv_heads, self.head_dim));
        }
        for key in ["rope.dimension_count", "attention.value_length"] {
            let value = metadata.size(&format!("llama.{key}"))?;
            if value.is_some_and(|value| value != self.head_dim) {
                return unsupported(format!("`llama.{key}` is not the size of a head, {}", self.head_dim));
            }
        }
        if metadata.integer("llama.expert_count")?.is_some_and(|experts| experts > 0) {
            return unsupported("it is a mixture of experts".to_owned());
        }
        if metadata.text("llama.rope.scaling.type")?.is_some_and(|kind| kind != "none") {
            return unsupported("it scales its rotary embedding".to_owned());
        }
        Ok(())
    }
}

/// Returns config.json.
pub(super) fn llama(file: &GgufFile) -> Result<Map<String, Value>, ConvertError> {
    let architecture = file.architecture()?;
    if architecture != "llama" {
        return Err(ConvertError::Unsupported(format!("its architecture is `{architecture}`, not `llama`")));
    }
    let sizes = Sizes::read(file)?;
    let epsilon_key = "llama.attention.layer_norm_rms_epsilon";
    let epsilon = file.metadata().float(epsilon_key)?.ok_or_else(|| GgufError::Missing(epsilon_key.to_owned()))?;
    let theta = file.metadata().float("llama.rope.freq_base")?.unwrap_or(10_000.0);
    let mut config = file.config()?;
    let more = json!({
        "hidden_act": "silu",
        "torch_dtype": "bfloat16",
        "hidden_size": sizes.hidden,
        "intermediate_size": sizes.intermediate,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.kv_heads,
        "head_dim": sizes.head_dim,
        "rms_norm_eps": shortest(epsilon),
        "rope_theta": shortest(theta),
        "rope_scaling": null,
        "attention_bias": false,
        "mlp_bias": false,
        "tie_word_embeddings": !file.content.tensor_infos.contains_key("output.weight"),
        "use_cache": true,
    });
    if let Value::Object(more) = more {
        config.extend(more);
    }
    Ok(config)
}

/// The decimal number that was written as this `f32`: 1e-5 rather than 9.999999747378752e-6.
fn shortest(value: f32) -> f64 {
    value.to_string().parse().unwrap_or_else(|_| f64::from(value))
}
