//! Phi-3 and Phi-4.

use serde_json::json;

use super::super::{
    super::GgufError,
    lines::{Dim, Line, line},
    model::{Family, Model},
    tables::{JOINED_MLP, NORMS},
};

pub(super) const PHI3: Family = Family { name: "phi3", model_type: "phi3", class: "Phi3ForCausalLM", read: phi3 };

const ATTENTION: [Line; 2] = [
    line("attn_qkv.weight", "self_attn.qkv_proj.weight", &[Dim::QueriesKeysValues, Dim::Hidden]),
    line("attn_output.weight", "self_attn.o_proj.weight", &[Dim::Hidden, Dim::Queries]),
];

/// Factors for long contexts are tensors of their own, which are refused as all tensors that a family does not have.
fn phi3(model: &mut Model<'_>) -> Result<(), GgufError> {
    model.partial_decoder()?;
    let share = model.rotated_share()?;
    model.intermediate()?;
    model.layer(&NORMS)?;
    model.layer(&ATTENTION)?;
    model.layer(&JOINED_MLP)?;
    let window = model.window()?;
    model.set(json!({"partial_rotary_factor": share, "sliding_window": window}));
    Ok(())
}
