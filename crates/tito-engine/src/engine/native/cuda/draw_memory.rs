//! Where the device is told of draws, and where it writes their tokens.

use super::buffer::{Allocations, Buffer};
use crate::TokenId;

/// Memory of the device that is kept from step to step. What is allocated of it is counted apart, as no recorded launch names
/// it.
#[derive(Debug, Default)]
#[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "only kernels are told of draws"))]
pub(super) struct DrawMemory {
    pub(super) allocations: Allocations,
    /// What the device is told of the draws.
    pub(super) told: Buffer,
    /// Sums over the blocks of rows.
    pub(super) sums: Buffer,
    /// Rows as samplers edit them.
    pub(super) edited: Buffer,
    /// Tokens.
    pub(super) drawn: Buffer,
    /// The ids of the tokens that were drawn last for a step that nobody waits for, where the processor drew them.
    pub(super) ids: Vec<TokenId>,
}
