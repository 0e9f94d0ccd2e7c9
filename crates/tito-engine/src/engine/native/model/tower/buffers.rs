//! What an image is computed with, layer by layer.

use crate::engine::native::backend::Backend;

/// Buffers of an image.
pub(super) struct Buffers<B: Backend> {
    /// The states of all patches.
    pub(super) hidden: B::States,
    pub(super) wide: B::States,
    pub(super) out: B::States,
    pub(super) input: B::Operand,
    pub(super) gated: B::Operand,
}

impl<B: Backend> Buffers<B> {
    pub(super) fn new(backend: &B) -> Self {
        Self {
            hidden: B::States::default(),
            wide: B::States::default(),
            out: B::States::default(),
            input: backend.operand(),
            gated: backend.operand(),
        }
    }
}
