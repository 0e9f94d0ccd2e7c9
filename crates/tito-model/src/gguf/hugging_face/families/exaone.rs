//! EXAONE 4.

use serde_json::json;

use super::super::{
    super::GgufError,
    lines::{Dim, Line, line},
    model::{Family, Model},
    rope::{self, ROPE_FACTORS},
    tables::{ATTENTION, HEAD_NORMS, MLP},
};

pub(super) const EXAONE4: Family =
    Family { name: "exaone4", model_type: "exaone4", class: "Exaone4ForCausalLM", read: exaone4 };

/// Norms after both parts of a layer only.
const AFTER: [Line; 2] = [
    line("post_attention_norm.weight", "post_attention_layernorm.weight", &[Dim::Hidden]),
    line("post_ffw_norm.weight", "post_feedforward_layernorm.weight", &[Dim::Hidden]),
];

/// How many layers the released model with a window has.
const LAYERS_WITH_WINDOW: usize = 64;

fn exaone4(model: &mut Model<'_>) -> Result<(), GgufError> {
    model.decoder()?;
    model.intermediate()?;
    for lines in [&ATTENTION[..], &HEAD_NORMS, &AFTER, &MLP] {
        model.layer(lines)?;
    }
    let pairs = model.sizes.get(Dim::Head) / 2;
    if let Some(scaling) = rope::with_factors(model.file, &model.settings, pairs)? {
        model.unused(ROPE_FACTORS);
        model.set(json!({"rope_scaling": scaling}));
    }
    let (window, types) = (model.window()?, model.layer_types()?);
    // llama.cpp takes a window for granted in a model of so many layers, and the released one has it.
    if window.is_none() && model.layers() == LAYERS_WITH_WINDOW {
        return Err(GgufError::Missing(model.settings.key("attention.sliding_window")));
    }
    if window.is_some() && types.is_none() {
        return Err(GgufError::Missing(model.settings.key("attention.sliding_window_pattern")));
    }
    // Without a window all layers are the same, and rotated.
    let types = types.filter(|_| window.is_some());
    model.set(json!({"sliding_window": window, "layer_types": types}));
    Ok(())
}
