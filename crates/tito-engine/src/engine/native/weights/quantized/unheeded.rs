//! What checkpoints ask for besides quantised weights, and the engine does not do.

use super::{Role, module::Module};

/// What is fed to a module, or comes out of it.
pub(super) const ACTIVATIONS: &str = "activations";
/// What a cache holds.
pub(super) const KEYS_AND_VALUES: &str = "keys and values";

/// The last parts of the names of tensors about activations.
const OF_ACTIVATIONS: [&str; 8] = [
    "activation_scale",
    "input_scale",
    "input_zero_point",
    "input_global_scale",
    "prob_scale",
    "q_scale",
    "q_zero_point",
    "q_global_scale",
];
/// Those of what comes out of a module, which are keys or values where it makes such.
const OF_OUTPUTS: [&str; 3] = ["output_scale", "output_zero_point", "output_global_scale"];
/// Those of keys and values.
const OF_KEYS_AND_VALUES: [&str; 7] =
    ["kv_scale", "k_scale", "k_zero_point", "k_global_scale", "v_scale", "v_zero_point", "v_global_scale"];

/// Adds to what is not done, once.
pub(super) fn add(all: &mut Vec<&'static str>, what: &'static str) {
    if !all.contains(&what) {
        all.push(what);
    }
}

/// The role of a tensor that is about something else than weights, by the last part of its name.
pub(super) fn role(module: &Module<'_>, leaf: &str) -> Option<Role> {
    let makes_keys_or_values = || [".k_proj", ".v_proj", ".qkv_proj"].iter().any(|end| module.name().ends_with(end));
    if OF_KEYS_AND_VALUES.contains(&leaf) || (OF_OUTPUTS.contains(&leaf) && makes_keys_or_values()) {
        return Some(Role::Unheeded(KEYS_AND_VALUES));
    }
    let is_of_activations = OF_ACTIVATIONS.contains(&leaf) || OF_OUTPUTS.contains(&leaf);
    is_of_activations.then_some(Role::Unheeded(ACTIVATIONS))
}
