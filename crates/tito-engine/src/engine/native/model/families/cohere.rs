//! Cohere's Command R and Command A.

use serde_json::json;

use super::{
    super::{
        settings::{ConfigError, Settings},
        shape::{HeadNormKind, HeadNorms, ModelShape, NormPlaces},
    },
    decoder::{Defaults, KeyHeads, NEIGHBOURS, attention_biases, decoder, only},
    windows::{DEFAULT_WINDOW, same_windows, sliding, window_or, windows_of},
};

/// Command R and R+.
pub(super) fn cohere(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    let mut shape = parallel(settings, 500_000.0)?;
    let norms = settings.get("use_qk_norm")?.unwrap_or(false);
    for attention in shape.attentions() {
        attention.head_norms = norms.then_some(HeadNorms { kind: HeadNormKind::Each, after_rotation: false });
    }
    same_windows(settings, None, &mut shape)?;
    Ok(shape)
}

/// Command R7B and Command A: layers with a window are rotated, and those without know no positions.
pub(super) fn cohere2(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    let mut shape = parallel(settings, 10_000.0)?;
    let period = settings.get("sliding_window_pattern")?.unwrap_or(4);
    if period == 0 {
        return Err(ConfigError::setting("sliding_window_pattern", "is 0"));
    }
    refuse_what_is_not_read(settings, &shape, period)?;
    let kinds = sliding(settings, shape.layers.len(), period)?;
    windows_of(&kinds, window_or(settings, DEFAULT_WINDOW)?, &mut shape)?;
    for (attention, slides) in shape.attentions().zip(kinds) {
        attention.rotation = NEIGHBOURS.filter(|_| slides);
    }
    Ok(shape)
}

/// Settings of published models that transformers does not read, since all models have the same.
fn refuse_what_is_not_read(settings: &Settings<'_>, shape: &ModelShape, period: usize) -> Result<(), ConfigError> {
    let attention = shape.layers.first().and_then(|layer| layer.attention.as_ref());
    let heads = attention.map_or(1, |attention| attention.shape.heads);
    for (key, value) in [
        ("head_dim", json!(shape.hidden / heads)),
        ("layer_switch", json!(period)),
        ("order_of_interleaved_layers", json!("local_attn_first")),
        ("position_embedding_type", json!("rope_gptj")),
        ("rotary_pct", json!(1.0)),
        ("use_embedding_sharing", json!(true)),
        ("use_gated_activation", json!(true)),
        ("use_parallel_block", json!(true)),
        ("use_qk_norm", json!(false)),
    ] {
        only(settings, key, &value)?;
    }
    Ok(())
}

/// A decoder whose attention and feed-forward parts read the same, with norms that take the mean away.
fn parallel(settings: &Settings<'_>, theta: f64) -> Result<ModelShape, ConfigError> {
    let defaults = Defaults { key_heads: KeyHeads::AsQueries, tied: true, ..Defaults::COMMON.theta(theta) };
    let mut shape = decoder(settings, defaults)?;
    attention_biases(settings, false, &mut shape)?;
    shape.norm.epsilon = settings.get("layer_norm_eps")?.unwrap_or(1e-5);
    shape.norm.centred = true;
    let scale: Option<f32> = settings.or_left_out("logit_scale", Some(0.0625))?;
    shape.logits.factor = scale.ok_or_else(|| ConfigError::setting("logit_scale", "is null"))?;
    for layer in &mut shape.layers {
        layer.norms = NormPlaces::Shared;
    }
    for attention in shape.attentions() {
        attention.rotation = NEIGHBOURS;
    }
    Ok(shape)
}
