//! Encoded bytes of an image to the patches that a model's tower reads, and to the number of placeholders in its prompt.
//!
//! Owns decoding, the arithmetic of each family's processor, and what identifies an image. Refuses text, tokens, tensors of a
//! backend, and where the bytes come from.

#![cfg_attr(feature = "internals", warn(unreachable_pub))]

mod identity;
mod prepared;

pub use identity::ImageIdentity;
pub use prepared::{Grid, Normalisation, PatchShape, PreparedImage};
