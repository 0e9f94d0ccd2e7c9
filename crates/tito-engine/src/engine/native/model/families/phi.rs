//! Phi-3 and Phi-4.

use super::{
    super::{
        names::Names,
        rope::in_one_spelling,
        settings::{ConfigError, Settings},
        shape::ModelShape,
    },
    decoder::{Defaults, KeyHeads, decoder_with, heads},
    longrope::longrope,
    windows::{same_windows, window},
};

/// Phi-3, Phi-3.5 and Phi-4: one matrix makes queries, keys and values, and one gates and ups.
pub(super) fn phi3(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    let common = Defaults::COMMON.theta(10_000.0).partial(1.0);
    let defaults = Defaults { key_heads: KeyHeads::AsQueries, epsilon: 1e-5, ..common };
    let heads = heads(settings, defaults)?;
    let parameters = in_one_spelling(settings)?.unwrap_or_default();
    let (rope, longest) = longrope(&parameters, settings, heads.kept.head_dim, defaults.rope)?;
    let mut shape = decoder_with(settings, defaults, heads, vec![rope])?;
    shape.longest = longest;
    same_windows(settings, window(settings)?, &mut shape)?;
    let names = Names::default();
    let dense = names.dense.joined("gate_up_proj");
    shape.names = Names { joined_qkv: Some("self_attn.qkv_proj"), dense, ..names };
    Ok(shape)
}
