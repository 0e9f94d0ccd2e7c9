//! MiniMax-M2.

use serde_json::{Value, json};

use super::{
    super::{
        names::{ChoiceBias, ExpertNames, Names},
        rope::{RopeDefaults, rope},
        settings::{ConfigError, Settings},
        shape::{ModelShape, RouterShape, Scores},
    },
    decoder::{Defaults, NORMS_OF_ALL, activation, decoder_with, further_layers, heads, only},
    mistral::{EXPERTS_OF_MIXTRAL, MIXTRAL_IN_MEMORY},
    mixtures::{LOCAL_EXPERTS, SOFTMAX, counted, routed, sparse_from},
    windows::same_windows,
};

/// MiniMax-M2 and 2.1.
pub(super) fn minimax_m2(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    only(settings, "use_qk_norm", &json!(true))?;
    only(settings, "qk_norm_type", &json!("per_layer"))?;
    only(settings, "scoring_func", &json!("sigmoid"))?;
    only(settings, "use_routing_bias", &json!(true))?;
    only(settings, "shared_intermediate_size", &json!(0))?;
    let kinds: Vec<Value> = settings.get("attn_type_list")?.unwrap_or_default();
    if kinds.iter().any(|kind| *kind != json!(1)) {
        return Err(ConfigError::setting("attn_type_list", "names other attention than 1"));
    }
    let defaults = Defaults { head_dim: Some(128), ..Defaults::COMMON.theta(5e6) };
    let heads = heads(settings, defaults)?;
    let partial = rotated_share(settings, heads.kept.head_dim)?;
    let rope = rope(settings, heads.kept.head_dim, RopeDefaults { partial: Some(partial), ..defaults.rope })?;
    let mut shape = decoder_with(settings, defaults, heads, vec![rope])?;
    let router = RouterShape { scores: Scores::Sigmoid, choice_bias: true, ..SOFTMAX };
    let mixture = routed(settings, LOCAL_EXPERTS, router, activation(settings, "hidden_act")?)?;
    for attention in shape.attentions() {
        attention.head_norms = NORMS_OF_ALL;
    }
    sparse_from(0, &mixture, &mut shape);
    shape.names = Names {
        router: "block_sparse_moe.gate",
        choice_bias: ChoiceBias { name: "block_sparse_moe.e_score_correction_bias", is_table: false },
        experts: ExpertNames::Each(EXPERTS_OF_MIXTRAL),
        unused: &["model.mtp", "mtp."],
        further_layers: further_layers(settings, "num_mtp_modules")?,
        aliases_within: MIXTRAL_IN_MEMORY,
        ..Names::default()
    };
    same_windows(settings, None, &mut shape)?;
    counted("num_local_experts", shape)
}

/// The share of a head that is rotated, where `rotary_dim` says it.
#[expect(clippy::cast_precision_loss, reason = "heads are small")]
fn rotated_share(settings: &Settings<'_>, head_dim: usize) -> Result<f64, ConfigError> {
    let width: Option<usize> = settings.get("rotary_dim")?;
    Ok(width.map_or(1.0, |width| width as f64 / head_dim as f64))
}
