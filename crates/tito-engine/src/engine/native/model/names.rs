//! What checkpoints call the tensors of a model.

use super::tensor::LAYERS;

/// The names of a family; those of a layer begin after the layer's number and a dot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Names {
    /// The embeddings.
    pub(crate) embedding: &'static str,
    /// What makes the inputs of layers: embeddings, and what is made of the embedding, and its norm; without `.weight`.
    pub(crate) inputs: [&'static str; 3],
    /// How the names of the tensors of all layers begin, up to their numbers.
    pub(crate) layers: &'static str,
    /// The norm after the last layer.
    pub(crate) norm: &'static str,
    /// The head.
    pub(crate) head: &'static str,
    /// The norm before attention.
    pub(crate) attention_norm: &'static str,
    /// The norm after attention.
    pub(crate) after_attention_norm: &'static str,
    /// The norm before the feed-forward part.
    pub(crate) mlp_norm: &'static str,
    /// The norm after the feed-forward part.
    pub(crate) after_mlp_norm: &'static str,
    /// Queries, keys and values, where each has its own matrix.
    pub(crate) qkv: [&'static str; 3],
    /// Queries, keys and values in one matrix; `None` where each has its own.
    pub(crate) joined_qkv: Option<&'static str>,
    /// The way back from attention.
    pub(crate) attention_output: &'static str,
    /// A part with a recurrent state.
    pub(crate) recurrent: RecurrentNames,
    /// The norms of queries and of keys.
    pub(crate) head_norms: [&'static str; 2],
    /// A feed-forward part that is the only one of its layer.
    pub(crate) dense: DenseNames,
    /// The matrix that scores experts, without `.weight`.
    pub(crate) router: &'static str,
    /// What is added to weights where experts are chosen.
    pub(crate) choice_bias: ChoiceBias,
    /// The experts.
    pub(crate) experts: ExpertNames,
    /// What other checkpoints of the family have in place of the tensors of its experts, each of all experts: transformers
    /// has most mixtures so in memory. It counts where each expert has tensors of its own.
    pub(crate) fused_experts: Option<StackedNames>,
    /// What compresses states for experts, and what brings their sum back, without `.weight`.
    pub(crate) latent_experts: [&'static str; 2],
    /// What every token goes through besides.
    pub(crate) shared: DenseNames,
    /// How names begin of what checkpoints hold besides and no answer depends on.
    pub(crate) unused: &'static [&'static str],
    /// How many layers checkpoints may hold after the last one, which predict further tokens and are not computed.
    pub(crate) further_layers: usize,
    /// How names begin, after a layer's number and a dot, of what no answer depends on.
    pub(crate) unused_in_layers: &'static [&'static str],
    /// How names begin of what checkpoints hold for pictures and sounds.
    pub(crate) other_parts: &'static [&'static str],
    /// How names may begin besides, and what that stands for: trainers give tensors under the names that they have in
    /// memory, which are not always those of checkpoints.
    pub(crate) aliases: &'static [(&'static str, &'static str)],
    /// Likewise for what stands within names.
    pub(crate) aliases_within: &'static [(&'static str, &'static str)],
}

/// The names of a feed-forward part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DenseNames {
    /// How all of them begin.
    pub(crate) prefix: &'static str,
    /// Gates and ups.
    pub(crate) gate_up: GateUpNames,
    /// The way back.
    pub(crate) down: &'static str,
}

/// The names of a part with a recurrent state; all but the prefix begin after it and a dot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecurrentNames {
    /// How all of them begin.
    pub(crate) prefix: &'static str,
    /// What makes rows of states.
    pub(crate) inputs: InputNames,
    /// The convolution, or the convolutions of as many equal parts of its channels.
    pub(crate) convolution: &'static [&'static str],
    /// The one convolution that other checkpoints have in place of several.
    pub(crate) joined_convolution: Option<&'static [&'static str]>,
    /// The norm of what is read.
    pub(crate) norm: &'static str,
    /// The way back.
    pub(crate) output: &'static str,
    /// Whether the decays have four dimensions, of which all but the third are 1.
    pub(crate) decay_is_deep: bool,
}

/// The names of what makes rows of states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InputNames {
    /// The tensors one after the other.
    Each(&'static [&'static str]),
    /// Queries, keys, values and gates; and strengths and steps: each head of keys with all that belongs to it.
    ByKeyHead(&'static [&'static str]),
}

/// The names of gates and ups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GateUpNames {
    /// Each has its matrix: that of the gates, and that of the ups.
    Apart([&'static str; 2]),
    /// One matrix, the gates first, or one without gates.
    Joined(&'static str),
}

/// The name of what is added where experts are chosen, and its shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChoiceBias {
    /// Its name.
    pub(crate) name: &'static str,
    /// Whether it is a table of one row.
    pub(crate) is_table: bool,
}

/// The names of experts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExpertNames {
    /// Each expert has tensors of its own, after its number.
    Each(DenseNames),
    /// The tensors of all experts are one, whose first dimension is the expert.
    Stacked(StackedNames),
}

/// The names of tensors of all experts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StackedNames {
    /// Gates and ups.
    pub(crate) gate_up: &'static str,
    /// Their biases.
    pub(crate) gate_up_bias: &'static str,
    /// The way back.
    pub(crate) down: &'static str,
    /// Its biases.
    pub(crate) down_bias: &'static str,
    /// Whether an expert's matrix is inputs by outputs, other than all others are.
    pub(crate) transposed: bool,
}

/// As most checkpoints have it.
const fn dense(prefix: &'static str) -> DenseNames {
    DenseNames { prefix, gate_up: GateUpNames::Apart(["gate_proj", "up_proj"]), down: "down_proj" }
}

/// The tensors of all experts as transformers holds them from its fifth release on, and some checkpoints too: the gates
/// before the ups, and outputs by inputs.
pub(crate) const FUSED_EXPERTS: StackedNames = StackedNames {
    gate_up: "mlp.experts.gate_up_proj",
    gate_up_bias: "mlp.experts.gate_up_proj_bias",
    down: "mlp.experts.down_proj",
    down_bias: "mlp.experts.down_proj_bias",
    transposed: false,
};

impl Names {
    /// Those of Llama, and of the mixtures that were named after it.
    pub(crate) const LLAMA: Self = {
        Self {
            embedding: "model.embed_tokens",
            inputs: [
                "model.embed_tokens_per_layer",
                "model.per_layer_model_projection",
                "model.per_layer_projection_norm",
            ],
            layers: LAYERS,
            norm: "model.norm",
            head: "lm_head",
            attention_norm: "input_layernorm",
            after_attention_norm: "post_attention_layernorm",
            mlp_norm: "post_attention_layernorm",
            after_mlp_norm: "post_feedforward_layernorm",
            qkv: ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
            joined_qkv: None,
            attention_output: "self_attn.o_proj",
            recurrent: RecurrentNames {
                prefix: "linear_attn",
                inputs: InputNames::Each(&["in_proj"]),
                convolution: &["conv1d"],
                joined_convolution: None,
                norm: "norm",
                output: "out_proj",
                decay_is_deep: false,
            },
            head_norms: ["self_attn.q_norm", "self_attn.k_norm"],
            dense: dense("mlp"),
            router: "mlp.gate",
            choice_bias: ChoiceBias { name: "mlp.gate.e_score_correction_bias", is_table: false },
            experts: ExpertNames::Each(dense("mlp.experts")),
            fused_experts: Some(FUSED_EXPERTS),
            latent_experts: ["mlp.fc1_latent_proj", "mlp.fc2_latent_proj"],
            shared: dense("mlp.shared_experts"),
            unused: &[],
            further_layers: 0,
            unused_in_layers: &[],
            other_parts: &[],
            aliases: &[],
            aliases_within: &[],
        }
    };
}

impl Default for Names {
    fn default() -> Self {
        Self::LLAMA
    }
}

impl DenseNames {
    /// The same under another prefix.
    pub(crate) fn under(self, prefix: &'static str) -> Self {
        Self { prefix, ..self }
    }

    /// The same with one matrix of gates and ups.
    pub(crate) fn joined(self, name: &'static str) -> Self {
        Self { gate_up: GateUpNames::Joined(name), ..self }
    }
}
