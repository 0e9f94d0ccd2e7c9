//! What hybrids have in common: which of their layers attend, and how those with a recurrent state are.

use super::super::{
    super::GgufError,
    lines::{Dim, Line, line},
    model::Model,
};

/// Reads the sizes that all decoders have, and for each layer whether it attends: whether it has heads of keys.
pub(super) fn attending(model: &mut Model<'_>) -> Result<Vec<bool>, GgufError> {
    const KEY_HEADS: &str = "attention.head_count_kv";
    let heads = model.settings.required_integers(KEY_HEADS)?;
    let most = heads.iter().copied().max().unwrap_or(0);
    let invalid =
        || GgufError::Invalid { key: model.settings.key(KEY_HEADS), expected: "0 or one number for each layer" };
    let key_heads = usize::try_from(most).map_err(|_| invalid())?;
    if heads.iter().any(|heads| *heads != 0 && *heads != most) {
        return Err(invalid());
    }
    let head = model.settings.size("attention.key_length")?;
    model.settings.ignore(&["attention.value_length"]);
    model.sizes_with(head, Some(key_heads))?;
    if heads.len() != model.layers() {
        let key = model.settings.key(KEY_HEADS);
        return Err(GgufError::Invalid { key, expected: "0 or one number for each layer" });
    }
    Ok(heads.into_iter().map(|heads| heads > 0).collect())
}

/// For each layer whether it has a recurrent state: whether it has the tensor of how fast it decays.
pub(super) fn recurring(model: &Model<'_>) -> Vec<bool> {
    (0..model.layers()).map(|layer| model.has(&format!("blk.{layer}.ssm_a"))).collect()
}

/// Whether the first of some layers has a tensor: a model has it in all of them or in none.
pub(super) fn first_has(model: &Model<'_>, mut layers: impl Iterator<Item = usize>, name: &str) -> bool {
    layers.next().is_some_and(|layer| model.has(&format!("blk.{layer}.{name}")))
}

/// How layers with a recurrent state are.
pub(super) struct Recurrence {
    /// Heads of values.
    pub(super) heads: usize,
    /// Values of a head.
    pub(super) value: usize,
    /// Numbers of a key.
    pub(super) key: usize,
    /// Heads of keys, which is how many groups of heads of values there are.
    pub(super) groups: usize,
    /// Values of all heads.
    pub(super) inner: usize,
    /// Numbers of all keys.
    pub(super) keys: usize,
    /// Tokens of the convolution.
    pub(super) taps: usize,
}

/// Reads them, and sets the lengths of their tensors.
pub(super) fn recurrence(model: &mut Model<'_>) -> Result<Recurrence, GgufError> {
    let size = |name: &str| match model.settings.required_size(name)? {
        0 => Err(GgufError::Invalid { key: model.settings.key(name), expected: "a number over 0" }),
        size => Ok(size),
    };
    let (inner, heads) = (size("ssm.inner_size")?, size("ssm.time_step_rank")?);
    let (key, groups, taps) = (size("ssm.state_size")?, size("ssm.group_count")?, size("ssm.conv_kernel")?);
    if !inner.is_multiple_of(heads) || !heads.is_multiple_of(groups) {
        let reason = format!("{inner} values of a layer are not those of {heads} heads in {groups} groups");
        return Err(GgufError::Unsupported(reason));
    }
    let keys = key.saturating_mul(groups);
    let channels = keys.saturating_mul(2).saturating_add(inner);
    model.sizes.set([
        (Dim::RecurrentInputs, channels.saturating_add(inner).saturating_add(heads)),
        (Dim::Channels, channels),
        (Dim::QueriesKeys, keys.saturating_mul(2)),
        (Dim::RecurrentHeads, heads),
        (Dim::RecurrentValue, inner / heads),
        (Dim::Inner, inner),
        (Dim::Groups, groups),
        (Dim::Group, inner / groups),
        (Dim::StepsStrengths, heads.saturating_mul(2)),
        (Dim::Taps, taps),
    ]);
    Ok(Recurrence { heads, value: inner / heads, key, groups, inner, keys, taps })
}

const MAMBA: [Line; 6] = [
    line("ssm_in.weight", "in_proj.weight", &[Dim::RecurrentInputs, Dim::Hidden]),
    line("ssm_conv1d.weight", "conv1d.weight", &[Dim::Channels, Dim::One, Dim::Taps])
        .reshaped(&[Dim::Channels, Dim::Taps]),
    line("ssm_dt.bias", "dt_bias", &[Dim::RecurrentHeads]),
    line("ssm_a", "A_log", &[Dim::RecurrentHeads]).reshaped(&[Dim::RecurrentHeads, Dim::One]).logarithm(),
    line("ssm_d", "D", &[Dim::RecurrentHeads]).reshaped(&[Dim::RecurrentHeads, Dim::One]),
    line("ssm_out.weight", "out_proj.weight", &[Dim::Hidden, Dim::Inner]),
];

/// What is normalised in a layer of Mamba 2, which not all families do.
pub(super) const MAMBA_NORM: Line =
    line("ssm_norm.weight", "norm.weight", &[Dim::Inner]).reshaped(&[Dim::Groups, Dim::Group]);

const CONVOLUTION_BIAS: [Line; 1] = [line("ssm_conv1d.bias", "conv1d.bias", &[Dim::Channels])];

const MAMBA_BIASES: [Line; 2] = [
    line("ssm_in.bias", "in_proj.bias", &[Dim::RecurrentInputs]),
    line("ssm_out.bias", "out_proj.bias", &[Dim::Hidden]),
];

/// Layers of Mamba 2.
pub(super) struct Mamba {
    /// How they are.
    pub(super) sizes: Recurrence,
    /// Whether the convolution has a bias.
    pub(super) convolution_bias: bool,
    /// Whether the ways in and back have one.
    pub(super) bias: bool,
}

/// Adds the tensors of Mamba 2 without its norm to some layers, with what comes before their names in the directory.
pub(super) fn mamba(model: &mut Model<'_>, recurs: &[bool], prefix: &str) -> Result<Mamba, GgufError> {
    let sizes = recurrence(model)?;
    let has = |layer: usize| recurs[layer];
    let first_has = |model: &Model<'_>, name| first_has(model, (0..recurs.len()).filter(|layer| has(*layer)), name);
    let (convolution_bias, bias) = (first_has(model, "ssm_conv1d.bias"), first_has(model, "ssm_in.bias"));
    model.layers_under(has, prefix, &MAMBA)?;
    if convolution_bias {
        model.layers_under(has, prefix, &CONVOLUTION_BIAS)?;
    }
    if bias {
        model.layers_under(has, prefix, &MAMBA_BIASES)?;
    }
    Ok(Mamba { sizes, convolution_bias, bias })
}
