//! Tables of tensors that several families have.

use super::lines::{Dim, Line, Table, each, line};

/// What has the same names in all families but for the head.
pub(super) const ENDS: [Line; 2] = [
    line("token_embd.weight", "model.embed_tokens.weight", &[Dim::Vocab, Dim::Hidden]),
    line("output_norm.weight", "model.norm.weight", &[Dim::Hidden]),
];
/// The head.
pub(super) const HEAD: Line = line("output.weight", "lm_head.weight", &[Dim::Vocab, Dim::Hidden]);

/// Norms before both parts of a layer.
pub(super) const NORMS: [Line; 2] = [
    line("attn_norm.weight", "input_layernorm.weight", &[Dim::Hidden]),
    line("ffn_norm.weight", "post_attention_layernorm.weight", &[Dim::Hidden]),
];

/// Queries, keys and values, each with its matrix, and the way back.
pub(super) const ATTENTION: [Line; 4] = [
    line("attn_q.weight", "self_attn.q_proj.weight", &[Dim::Queries, Dim::Hidden]),
    line("attn_k.weight", "self_attn.k_proj.weight", &[Dim::Keys, Dim::Hidden]),
    line("attn_v.weight", "self_attn.v_proj.weight", &[Dim::Keys, Dim::Hidden]),
    line("attn_output.weight", "self_attn.o_proj.weight", &[Dim::Hidden, Dim::Queries]),
];

/// Their biases.
pub(super) const ATTENTION_BIASES: [Line; 4] = [
    line("attn_q.bias", "self_attn.q_proj.bias", &[Dim::Queries]),
    line("attn_k.bias", "self_attn.k_proj.bias", &[Dim::Keys]),
    line("attn_v.bias", "self_attn.v_proj.bias", &[Dim::Keys]),
    line("attn_output.bias", "self_attn.o_proj.bias", &[Dim::Hidden]),
];

/// Norms of each head.
pub(super) const HEAD_NORMS: [Line; 2] = [
    line("attn_q_norm.weight", "self_attn.q_norm.weight", &[Dim::Head]),
    line("attn_k_norm.weight", "self_attn.k_norm.weight", &[Dim::Head]),
];

/// Norms of all heads as one.
pub(super) const WHOLE_NORMS: [Line; 2] = [
    line("attn_q_norm.weight", "self_attn.q_norm.weight", &[Dim::Queries]),
    line("attn_k_norm.weight", "self_attn.k_norm.weight", &[Dim::Keys]),
];

/// A feed-forward part.
pub(super) const MLP: [Line; 3] = [
    line("ffn_gate.weight", "mlp.gate_proj.weight", &[Dim::Intermediate, Dim::Hidden]),
    line("ffn_up.weight", "mlp.up_proj.weight", &[Dim::Intermediate, Dim::Hidden]),
    line("ffn_down.weight", "mlp.down_proj.weight", &[Dim::Hidden, Dim::Intermediate]),
];

/// Its biases.
pub(super) const MLP_BIASES: [Line; 3] = [
    line("ffn_gate.bias", "mlp.gate_proj.bias", &[Dim::Intermediate]),
    line("ffn_up.bias", "mlp.up_proj.bias", &[Dim::Intermediate]),
    line("ffn_down.bias", "mlp.down_proj.bias", &[Dim::Hidden]),
];

/// A feed-forward part without gates.
pub(super) const UNGATED_MLP: [Line; 2] = [
    line("ffn_up.weight", "mlp.up_proj.weight", &[Dim::Intermediate, Dim::Hidden]),
    line("ffn_down.weight", "mlp.down_proj.weight", &[Dim::Hidden, Dim::Intermediate]),
];

/// Its biases.
pub(super) const UNGATED_MLP_BIASES: [Line; 2] = [
    line("ffn_up.bias", "mlp.up_proj.bias", &[Dim::Intermediate]),
    line("ffn_down.bias", "mlp.down_proj.bias", &[Dim::Hidden]),
];

/// A feed-forward part under another name.
pub(super) const FEED_FORWARD: [Line; 3] = [
    line("ffn_gate.weight", "feed_forward.gate_proj.weight", &[Dim::Intermediate, Dim::Hidden]),
    line("ffn_up.weight", "feed_forward.up_proj.weight", &[Dim::Intermediate, Dim::Hidden]),
    line("ffn_down.weight", "feed_forward.down_proj.weight", &[Dim::Hidden, Dim::Intermediate]),
];

/// Its biases.
pub(super) const FEED_FORWARD_BIASES: [Line; 3] = [
    line("ffn_gate.bias", "feed_forward.gate_proj.bias", &[Dim::Intermediate]),
    line("ffn_up.bias", "feed_forward.up_proj.bias", &[Dim::Intermediate]),
    line("ffn_down.bias", "feed_forward.down_proj.bias", &[Dim::Hidden]),
];

/// A feed-forward part whose gates and ups are one matrix.
pub(super) const JOINED_MLP: [Line; 2] = [
    line("ffn_up.weight", "mlp.gate_up_proj.weight", &[Dim::GateUp, Dim::Hidden]),
    line("ffn_down.weight", "mlp.down_proj.weight", &[Dim::Hidden, Dim::Intermediate]),
];

/// What scores experts, and the experts.
pub(super) const EXPERTS: [Line; 4] = [
    line("ffn_gate_inp.weight", "mlp.gate.weight", &[Dim::Experts, Dim::Hidden]),
    each("ffn_gate_exps.weight", Dim::Experts, "mlp.experts.{}.gate_proj.weight", &[Dim::Expert, Dim::Hidden]),
    each("ffn_up_exps.weight", Dim::Experts, "mlp.experts.{}.up_proj.weight", &[Dim::Expert, Dim::Hidden]),
    each("ffn_down_exps.weight", Dim::Experts, "mlp.experts.{}.down_proj.weight", &[Dim::Hidden, Dim::Expert]),
];

/// The same under the names of Mixtral.
pub(super) const EXPERTS_OF_MIXTRAL: [Line; 4] = [
    line("ffn_gate_inp.weight", "block_sparse_moe.gate.weight", &[Dim::Experts, Dim::Hidden]),
    each("ffn_gate_exps.weight", Dim::Experts, "block_sparse_moe.experts.{}.w1.weight", &[Dim::Expert, Dim::Hidden]),
    each("ffn_up_exps.weight", Dim::Experts, "block_sparse_moe.experts.{}.w3.weight", &[Dim::Expert, Dim::Hidden]),
    each("ffn_down_exps.weight", Dim::Experts, "block_sparse_moe.experts.{}.w2.weight", &[Dim::Hidden, Dim::Expert]),
];

/// Gates and ups of all experts, which the file has as two tensors and the directory as one.
pub(super) const GATE_AND_UP: Table = Table {
    count: Dim::Experts,
    parts: &[
        ("ffn_gate_exps.weight", &[Dim::Experts, Dim::Expert, Dim::Hidden], (Dim::Hidden, false)),
        ("ffn_up_exps.weight", &[Dim::Experts, Dim::Expert, Dim::Hidden], (Dim::Hidden, false)),
    ],
    alternate: false,
    turned: false,
};

/// What every token goes through besides.
pub(super) const SHARED_EXPERTS: [Line; 3] = [
    line("ffn_gate_shexp.weight", "mlp.shared_experts.gate_proj.weight", &[Dim::Shared, Dim::Hidden]),
    line("ffn_up_shexp.weight", "mlp.shared_experts.up_proj.weight", &[Dim::Shared, Dim::Hidden]),
    line("ffn_down_shexp.weight", "mlp.shared_experts.down_proj.weight", &[Dim::Hidden, Dim::Shared]),
];

/// What is added where experts are chosen.
pub(super) const CHOICE_BIAS: Line = line("exp_probs_b.bias", "mlp.gate.e_score_correction_bias", &[Dim::Experts]);

/// The same table with queries and keys whose rotary halves the file interleaves.
pub(super) const fn rotary<const N: usize>(lines: [Line; N]) -> [Line; N] {
    let mut lines = lines;
    lines[0] = lines[0].rotary(Dim::Heads);
    lines[1] = lines[1].rotary(Dim::KeyHeads);
    lines
}

/// The same tables, of whose numbers the file has one more.
pub(super) const fn less_one<const N: usize>(lines: [Line; N]) -> [Line; N] {
    let mut lines = lines;
    let mut at = 0;
    while at < N {
        lines[at] = lines[at].less_one();
        at += 1;
    }
    lines
}
