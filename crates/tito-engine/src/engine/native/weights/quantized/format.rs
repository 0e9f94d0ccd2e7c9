//! What a format of quantised weights says of the tensors of a checkpoint.

use super::{
    super::{Rows, WeightsError},
    module::Module,
};

/// A format of quantised weights, with the settings of a checkpoint.
pub(super) trait Format: Send + Sync {
    /// What a tensor is, by the last part of its name.
    fn role(&self, module: &Module<'_>, leaf: &str) -> Result<Role, WeightsError>;

    /// The rows of a packed tensor, by the last part of its plain name.
    fn open<'a>(&self, module: &Module<'a>, leaf: &str) -> Result<Box<dyn Rows + 'a>, WeightsError>;
}

/// What a tensor of a quantised checkpoint is.
pub(super) enum Role {
    /// A tensor as in any other checkpoint.
    Stored,
    /// A tensor of zeros, which the format's writers give every module: a model without one of that name is the same.
    Filler,
    /// The bytes of a packed one: its plain name, and the shape that it has once it is widened.
    Packed { name: String, shape: Vec<usize> },
    /// It belongs to a packed one.
    Companion,
    /// It says how to quantise something else than weights: what that is.
    Unheeded(&'static str),
}
