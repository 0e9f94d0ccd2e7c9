//! What checkpoints call the tensors of a model.

/// The names of a family; those of a layer begin after `model.layers.<number>.`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Names {
    /// The norm before attention.
    pub(crate) attention_norm: &'static str,
    /// The norm after attention.
    pub(crate) after_attention_norm: &'static str,
    /// The norm before the feed-forward part.
    pub(crate) mlp_norm: &'static str,
    /// The norm after the feed-forward part.
    pub(crate) after_mlp_norm: &'static str,
    /// Queries, keys and values in one matrix; `None` where each has its own.
    pub(crate) joined_qkv: Option<&'static str>,
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
    /// What every token goes through besides.
    pub(crate) shared: DenseNames,
    /// What checkpoints hold besides and no answer depends on: layers after the last one, which predict several tokens
    /// at once, and whatever begins like this.
    pub(crate) unused: &'static [&'static str],
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

/// The names of gates and ups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GateUpNames {
    /// Each has its matrix: that of the gates, and that of the ups.
    Apart([&'static str; 2]),
    /// One matrix, the gates first.
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

impl Default for Names {
    /// Those of Llama, and of the mixtures that were named after it.
    fn default() -> Self {
        Self {
            attention_norm: "input_layernorm",
            after_attention_norm: "post_attention_layernorm",
            mlp_norm: "post_attention_layernorm",
            after_mlp_norm: "post_feedforward_layernorm",
            joined_qkv: None,
            head_norms: ["self_attn.q_norm", "self_attn.k_norm"],
            dense: dense("mlp"),
            router: "mlp.gate",
            choice_bias: ChoiceBias { name: "mlp.gate.e_score_correction_bias", is_table: false },
            experts: ExpertNames::Each(dense("mlp.experts")),
            shared: dense("mlp.shared_experts"),
            unused: &[],
        }
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
