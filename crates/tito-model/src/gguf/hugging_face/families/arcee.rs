//! Arcee's AFM.

use serde_json::json;

use super::super::{
    super::GgufError,
    model::{Family, Model},
    tables::{ATTENTION, ATTENTION_BIASES, NORMS, UNGATED_MLP, UNGATED_MLP_BIASES, rotary},
};

pub(super) const ARCEE: Family = Family { name: "arcee", model_type: "arcee", class: "ArceeForCausalLM", read: arcee };

fn arcee(model: &mut Model<'_>) -> Result<(), GgufError> {
    model.decoder()?;
    model.intermediate()?;
    model.layer(&NORMS)?;
    model.layer(&rotary(ATTENTION))?;
    model.layer(&UNGATED_MLP)?;
    let bias = model.attention_biases(&rotary(ATTENTION_BIASES))?;
    let mlp_bias = model.has("blk.0.ffn_up.bias");
    if mlp_bias {
        model.layer(&UNGATED_MLP_BIASES)?;
    }
    model.set(json!({"hidden_act": "relu2", "attention_bias": bias, "mlp_bias": mlp_bias}));
    Ok(())
}
