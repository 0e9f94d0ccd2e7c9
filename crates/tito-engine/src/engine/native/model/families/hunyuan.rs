//! Tencent's Hunyuan, the dense models and the mixtures of their first version.

use serde_json::{Map, Value, json};

use super::{
    super::{
        names::Names,
        rope::{RopeConfig, frequencies, rope},
        settings::{ConfigError, Settings},
        shape::{HeadNormKind, HeadNorms, ModelShape, SharedShape},
    },
    decoder::{Defaults, KeyHeads, activation, attention_biases, decoder_with, heads, only},
    mixtures::{MixtureKeys, SOFTMAX, counted, routed, sparse_from},
    windows::same_windows,
};

/// The base of frequencies where config.json leaves it out.
const THETA: f64 = 10_000.0;

/// Hunyuan 0.5B to 7B: heads are normalised after they are rotated.
pub(super) fn dense(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    let common = Defaults::COMMON.theta(THETA);
    let defaults = Defaults { key_heads: KeyHeads::AsQueries, epsilon: 1e-5, ..common };
    let heads = heads(settings, defaults)?;
    let mut shape = decoder_with(settings, defaults, heads, vec![rope_of(settings, heads.kept.head_dim, defaults)?])?;
    attention_biases(settings, false, &mut shape)?;
    only(settings, "use_qk_norm", &json!(true))?;
    only(settings, "use_cla", &json!(false))?;
    for attention in shape.attentions() {
        attention.head_norms = Some(HeadNorms { kind: HeadNormKind::Alike, after_rotation: true });
    }
    let head_norms = ["self_attn.query_layernorm", "self_attn.key_layernorm"];
    shape.names = Names { head_norms, ..Names::default() };
    same_windows(settings, None, &mut shape)?;
    Ok(shape)
}

/// Hunyuan-A13B: experts, and one more that all tokens go through.
pub(super) fn mixture(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    let settings = settings.with_other_names(&[("num_experts_per_tok", "moe_topk")])?;
    let settings = &Settings(&settings);
    let mut shape = dense(settings)?;
    only(settings, "moe_layer_num_skipped", &json!(0))?;
    only(settings, "use_mixed_mlp_moe", &json!(true))?;
    let keys = MixtureKeys {
        experts: "num_experts",
        experts_too: Some("num_local_experts"),
        per_token: "moe_topk",
        intermediate: "intermediate_size",
    };
    let mut sparse = routed(settings, keys, SOFTMAX, activation(settings, "hidden_act")?)?;
    sparse.shared = Some(SharedShape { dense: sparse.expert, gated: false });
    sparse_from(0, &sparse, &mut shape);
    shape.names.router = "mlp.gate.wg";
    shape.names.shared = shape.names.shared.under("mlp.shared_mlp");
    counted("num_experts", shape)
}

/// The rotary embedding: `dynamic` with an `alpha` is another base of frequencies, once and for all.
fn rope_of(settings: &Settings<'_>, head_dim: usize, defaults: Defaults) -> Result<RopeConfig, ConfigError> {
    let (joined, scaling) = (settings.get("rope_parameters")?, settings.get("rope_scaling")?);
    let both = joined.is_some() && scaling.is_some();
    let given: Map<String, Value> = scaling.or(joined).unwrap_or_default();
    let parameters = Settings(&given);
    let kind = parameters.get::<String>("rope_type")?.or(parameters.get("type")?);
    let alpha: Option<f64> = parameters.get("alpha")?.filter(|alpha| *alpha != 0.0);
    let Some(alpha) = alpha.filter(|_| kind.as_deref() == Some("dynamic")) else {
        return rope(settings, head_dim, defaults.rope);
    };
    if both {
        return Err(ConfigError::setting("rope_scaling", "beside `rope_parameters` is not supported here"));
    }
    let theta: Option<f64> =
        parameters.get("rope_theta")?.map_or_else(|| settings.get("rope_theta"), |theta| Ok(Some(theta)))?;
    #[expect(clippy::cast_precision_loss, reason = "heads are small")]
    let width = head_dim as f64;
    let theta = theta.unwrap_or(THETA) * alpha.powf(width / (width - 2.0));
    if !(theta > 1.0 && theta.is_finite()) {
        return Err(ConfigError::setting("alpha", "makes no base of frequencies over 1"));
    }
    Ok(RopeConfig::unscaled(&frequencies(theta, head_dim)))
}
