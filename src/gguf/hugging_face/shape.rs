//! What decides the shapes of a model's tensors: sizes from the metadata, and which optional tensors there are.

use super::super::{Architecture, GgufError, GgufFile};

/// No released model has a tenth of them.
const MOST_EXPERTS: usize = 1 << 14;

/// Sizes and options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) architecture: Architecture,
    pub(super) hidden: usize,
    pub(super) intermediate: usize,
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
    pub(super) head_dim: usize,
    pub(super) vocab: usize,
    /// Whether the embeddings are the head too.
    pub(super) tied: bool,
    pub(super) biases: Biases,
    /// The experts of a mixture.
    pub(super) experts: Option<Experts>,
    /// For each layer whether its feed-forward part is a mixture.
    pub(super) layers: Vec<LayerKind>,
}

/// Which parts of every layer have biases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Biases {
    /// Queries, keys and values.
    pub(super) qkv: bool,
    /// The output of attention.
    pub(super) output: bool,
    /// The feed-forward part.
    pub(super) mlp: bool,
}

/// The feed-forward part of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LayerKind {
    Dense,
    Sparse,
}

/// Sizes of a mixture of experts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Experts {
    pub(super) count: usize,
    pub(super) per_token: usize,
    pub(super) intermediate: usize,
}

impl Shape {
    pub(super) fn read(file: &GgufFile) -> Result<Self, GgufError> {
        let architecture = Architecture::of(file)?;
        let metadata = file.metadata();
        let key = |key: &str| format!("{}.{key}", architecture.name());
        let size = |name: &str| metadata.required_size(&key(name));
        let has = |name: &str| file.content.tensor_infos.contains_key(name);
        let (hidden, heads) = (size("embedding_length")?, size("attention.head_count")?);
        let head_dim = match metadata.size(&key("attention.key_length"))? {
            Some(head_dim) => head_dim,
            None if heads > 0 && hidden.is_multiple_of(heads) => hidden / heads,
            None => return Err(GgufError::Unsupported(format!("{heads} heads do not divide {hidden}"))),
        };
        let experts = match architecture {
            Architecture::Qwen3Moe => Some(Experts {
                count: size("expert_count")?,
                per_token: size("expert_used_count")?,
                intermediate: size("expert_feed_forward_length")?,
            }),
            _ => None,
        };
        let layers = size("block_count")?;
        // What a header claims must not be believed before there is room for it: each has tensors of its own.
        if layers > file.content.tensor_infos.len() || experts.is_some_and(|experts| experts.count > MOST_EXPERTS) {
            return Err(GgufError::Unsupported(format!("{layers} layers, more than its tensors, or too many experts")));
        }
        let kind = |layer: usize| match experts {
            Some(_) if has(&format!("blk.{layer}.ffn_gate_inp.weight")) => LayerKind::Sparse,
            _ => LayerKind::Dense,
        };
        // A model has a bias in all layers or in none; the table of tensors is checked with the first layer's answer.
        let attention_bias = has("blk.0.attn_q.bias") && architecture != Architecture::Qwen2;
        let may_have_mlp_bias = matches!(architecture, Architecture::Llama | Architecture::SmolLm3);
        let (layers, tensors) = (size("block_count")?, file.content.tensor_infos.len());
        if layers > tensors {
            return Err(GgufError::Unsupported(format!("{layers} layers cannot be of {tensors} tensors")));
        }
        let shape = Self {
            architecture,
            hidden,
            intermediate: size("feed_forward_length")?,
            heads,
            kv_heads: metadata.size(&key("attention.head_count_kv"))?.unwrap_or(heads),
            head_dim,
            vocab: file.vocab_size()?,
            tied: !has("output.weight"),
            biases: Biases {
                qkv: attention_bias || architecture == Architecture::Qwen2,
                output: attention_bias,
                mlp: may_have_mlp_bias && has("blk.0.ffn_gate.bias"),
            },
            experts,
            layers: (0..layers).map(kind).collect(),
        };
        shape.check(file)?;
        Ok(shape)
    }

    fn check(&self, file: &GgufFile) -> Result<(), GgufError> {
        let unsupported = |reason: String| Err(GgufError::Unsupported(reason));
        if self.head_dim == 0 || !self.head_dim.is_multiple_of(2) || self.kv_heads == 0 {
            return unsupported(format!("{} key-value heads of {} elements", self.kv_heads, self.head_dim));
        }
        if self.hidden == 0 {
            return unsupported("a token's state has 0 numbers".to_owned());
        }
        if [self.heads, self.kv_heads].iter().any(|heads| heads.checked_mul(self.head_dim).is_none()) {
            return unsupported(format!("{} and {} heads of {}", self.heads, self.kv_heads, self.head_dim));
        }
        self.check_experts(file)?;
        for key in ["rope.dimension_count", "attention.value_length"] {
            let key = format!("{}.{key}", self.architecture.name());
            if file.metadata().size(&key)?.is_some_and(|value| value != self.head_dim) {
                return unsupported(format!("`{key}` is not the size of a head, {}", self.head_dim));
            }
        }
        let count = format!("{}.expert_count", self.architecture.name());
        if self.experts.is_none() && file.metadata().size(&count)?.is_some_and(|experts| experts > 0) {
            return unsupported(format!("it is a mixture of experts, `{count}`"));
        }
        Ok(())
    }
    /// The table of tensors has a line for each expert, so that there must not be more than the file says elsewhere.
    fn check_experts(&self, file: &GgufFile) -> Result<(), GgufError> {
        let Some(Experts { count, .. }) = self.experts else { return Ok(()) };
        let sparse = self.layers.iter().enumerate().filter(|(_, kind)| **kind == LayerKind::Sparse);
        for (layer, _) in sparse {
            let name = format!("blk.{layer}.ffn_gate_inp.weight");
            let found = file.content.tensor_infos.get(&name).map_or(&[][..], |info| info.shape.dims());
            let expected = [count, self.hidden];
            if found != expected {
                return Err(GgufError::Tensor { name, reason: format!("its shape is {found:?}, not {expected:?}") });
            }
        }
        Ok(())
    }
}
