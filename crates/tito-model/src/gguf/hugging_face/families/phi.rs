//! Phi-3 and Phi-4.

use serde_json::json;

use super::super::{
    super::GgufError,
    lines::{Dim, Line, line},
    model::{Family, Model},
    rope::{self, LONGROPE},
    tables::{JOINED_MLP, NORMS},
};

pub(super) const PHI3: Family = Family { name: "phi3", model_type: "phi3", class: "Phi3ForCausalLM", read: phi3 };

const ATTENTION: [Line; 2] = [
    line("attn_qkv.weight", "self_attn.qkv_proj.weight", &[Dim::QueriesKeysValues, Dim::Hidden]),
    line("attn_output.weight", "self_attn.o_proj.weight", &[Dim::Hidden, Dim::Queries]),
];

fn phi3(model: &mut Model<'_>) -> Result<(), GgufError> {
    model.partial_decoder()?;
    let share = model.rotated_share()?;
    model.intermediate()?;
    model.layer(&NORMS)?;
    model.layer(&ATTENTION)?;
    model.layer(&JOINED_MLP)?;
    if LONGROPE.into_iter().any(|name| model.has(name)) {
        longrope(model)?;
    }
    // Files from before mid-2024 do not say the windows that some models have; later ones say 0 for none.
    model.settings.required_size("attention.sliding_window")?;
    let window = model.window()?;
    model.set(json!({"partial_rotary_factor": share, "sliding_window": window}));
    Ok(())
}

/// Factors of frequencies for short and for long sequences, which are tensors of their own.
fn longrope(model: &mut Model<'_>) -> Result<(), GgufError> {
    let rotated = model.rotated()?.unwrap_or(model.sizes.get(Dim::Head));
    let (scaling, original) = rope::longrope(model.file, &model.settings, rotated / 2)?;
    for name in LONGROPE {
        model.unused(name);
    }
    model.set(json!({"rope_scaling": scaling, "original_max_position_embeddings": original}));
    Ok(())
}
