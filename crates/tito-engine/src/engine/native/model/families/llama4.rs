//! Llama 4, the text models.

use serde_json::{Value, json};

use super::{
    super::{
        names::{ExpertNames, Names, StackedNames},
        rope::{FarFactor, RopeConfig},
        settings::{ConfigError, Settings},
        shape::{HeadNormKind, HeadNorms, MlpShape, ModelShape, RouterShape, Scores, SharedShape, SparseShape},
    },
    decoder::{Defaults, KeyHeads, NEIGHBOURS, activation, attention_biases, decoder},
    mamba::listed,
    mixtures::{LOCAL_EXPERTS, SOFTMAX, counted, routed},
};
use crate::engine::native::backend::Reach;

/// The width of dense feed-forward parts where config.json leaves it out.
const DENSE_WIDTH: usize = 16_384;
/// Tokens of a chunk where config.json leaves it out.
const CHUNK: usize = 8192;

/// Llama 4: most layers are rotated and attend within chunks; the others know no positions but for how far queries are.
pub(super) fn llama4(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    let mut config = settings.0.clone();
    let width = config.get("intermediate_size_mlp").cloned().unwrap_or_else(|| json!(DENSE_WIDTH));
    config.insert("intermediate_size".to_owned(), width);
    let common = Defaults { epsilon: 1e-5, head_dim: Some(128), ..Defaults::COMMON.theta(500_000.0) };
    let defaults = Defaults { key_heads: KeyHeads::AsQueries, ..common };
    let mut shape = decoder(&Settings(&config), defaults)?;
    attention_biases(settings, false, &mut shape)?;
    let rotated = rotated(settings, shape.layers.len())?;
    rotate(settings, &rotated, &mut shape)?;
    reach(settings, &rotated, &mut shape)?;
    let sparse = sparse(settings)?;
    for layer in mixed(settings, shape.layers.len())? {
        shape.layers[layer].mlp = Some(MlpShape::Sparse(sparse.clone()));
    }
    shape.names = names();
    counted("num_local_experts", shape)
}

fn names() -> Names {
    let names = Names::default();
    // No expert of this family has a bias.
    let experts = StackedNames {
        gate_up: "feed_forward.experts.gate_up_proj",
        gate_up_bias: "",
        down: "feed_forward.experts.down_proj",
        down_bias: "",
        transposed: true,
    };
    Names {
        dense: names.dense.under("feed_forward"),
        router: "feed_forward.router",
        experts: ExpertNames::Stacked(experts),
        shared: names.shared.under("feed_forward.shared_expert"),
        ..names
    }
}

/// For each layer whether it is rotated.
fn rotated(settings: &Settings<'_>, count: usize) -> Result<Vec<bool>, ConfigError> {
    let listed: Vec<u8> = settings.get("no_rope_layers")?.unwrap_or_default();
    if !listed.is_empty() && listed.len() != count {
        return Err(ConfigError::setting("no_rope_layers", format!("does not name {count} layers")));
    }
    let interval: usize = settings.get("no_rope_layer_interval")?.unwrap_or(4);
    match interval {
        _ if !listed.is_empty() => Ok(listed.into_iter().map(|rotated| rotated != 0).collect()),
        0 => Err(ConfigError::setting("no_rope_layer_interval", "is 0")),
        interval => Ok((1..=count).map(|layer| !layer.is_multiple_of(interval)).collect()),
    }
}

/// Rotates layers, and has the queries of the others grow with their position.
fn rotate(settings: &Settings<'_>, rotated: &[bool], shape: &mut ModelShape) -> Result<(), ConfigError> {
    let norms = settings.on_by_default("use_qk_norm")?;
    let norms = norms.then_some(HeadNorms { kind: HeadNormKind::Plain, after_rotation: true });
    let growth = growth(settings)?.map(|far| {
        let width = shape.attentions().next().map_or(0, |attention| attention.kept.head_dim);
        shape.ropes.push(RopeConfig::still(width / 2, far));
        shape.ropes.len() - 1
    });
    for (attention, rotated) in shape.attentions().zip(rotated) {
        attention.rotation = NEIGHBOURS.filter(|_| *rotated);
        attention.head_norms = norms.filter(|_| *rotated);
        attention.growth = growth.filter(|_| !rotated);
    }
    Ok(())
}

/// By how much queries grow, if they do.
fn growth(settings: &Settings<'_>) -> Result<Option<FarFactor>, ConfigError> {
    const KEY: &str = "attn_temperature_tuning";
    let grows = match settings.0.get(KEY) {
        None => true,
        Some(Value::Bool(grows)) => *grows,
        // Checkpoints that are older than the release of their family say 4.
        Some(Value::Number(number)) => number.as_f64() != Some(0.0),
        Some(other) => return Err(ConfigError::setting(KEY, format!("is {other}"))),
    };
    let (beta, original) = (settings.get("attn_scale")?.unwrap_or(0.1), settings.get("floor_scale")?.unwrap_or(8192.0));
    if !(original > 0.0 && f32::is_finite(original)) {
        return Err(ConfigError::setting("floor_scale", "is not over 0"));
    }
    Ok(grows.then_some(FarFactor { beta, original, first: 1 }))
}

/// Has layers attend within chunks: those that are listed, or else those that are rotated.
fn reach(settings: &Settings<'_>, rotated: &[bool], shape: &mut ModelShape) -> Result<(), ConfigError> {
    let listed = listed(settings, shape.layers.len(), &["chunked_attention"], &["full_attention"])?;
    let chunked = listed.unwrap_or_else(|| rotated.to_vec());
    let chunk: Option<usize> = settings.or_left_out("attention_chunk_size", Some(CHUNK))?;
    let Some(chunk) = chunk.filter(|chunk| *chunk > 0) else {
        return Err(ConfigError::setting("attention_chunk_size", "is not over 0"));
    };
    for (attention, _) in shape.attentions().zip(chunked).filter(|(_, chunked)| *chunked) {
        attention.shape.reach = Reach::Chunk(chunk);
    }
    Ok(())
}

/// The layers that have a mixture.
fn mixed(settings: &Settings<'_>, count: usize) -> Result<Vec<usize>, ConfigError> {
    if let Some(listed) = settings.get::<Vec<usize>>("moe_layers")? {
        return match listed.iter().find(|layer| **layer >= count) {
            Some(layer) => Err(ConfigError::setting("moe_layers", format!("names {layer} of {count} layers"))),
            None => Ok(listed),
        };
    }
    match settings.get("interleave_moe_layer_step")?.unwrap_or(1) {
        0 => Err(ConfigError::setting("interleave_moe_layer_step", "is 0")),
        step => Ok((step - 1..count).step_by(step).collect()),
    }
}

/// The mixture of one layer: what an expert reads is weighed, by the sigmoid of its own score.
fn sparse(settings: &Settings<'_>) -> Result<SparseShape, ConfigError> {
    let router = RouterShape { scores: Scores::Sigmoid, normalize: None, on_inputs: true, ..SOFTMAX };
    let mut sparse = routed(settings, LOCAL_EXPERTS, router, activation(settings, "hidden_act")?)?;
    sparse.shared = Some(SharedShape { dense: sparse.expert, gated: false });
    Ok(sparse)
}
