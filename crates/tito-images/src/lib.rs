//! Encoded bytes of an image to the patches that a model's tower reads, and to the number of placeholders in its prompt.
//!
//! [`decode()`] makes pixels of PNG, JPEG, WebP and GIF files, as vLLM does with Pillow. [`ImageProcessor`] resizes them for a
//! checkpoint, as transformers does with torchvision on x86 processors with AVX2. Both are exact to the bit, or an error:
//! `tests/reference/record_images.py` records what they are compared with. [`PreparedImage`] is what engines get, and
//! [`ImageTensor`]s are what trainers get of it and send instead of a file.
//!
//! Owns decoding, the arithmetic of each family's processor, and what identifies an image. Refuses text, tokens, tensors of a
//! backend, and where the bytes come from.

#![cfg_attr(feature = "internals", warn(unreachable_pub))]

mod decode;
mod decoded;
mod error;
#[cfg(test)]
mod golden;
mod identity;
mod prepared;
mod processor;
mod resize;
mod tensors;

pub use decode::decode;
pub use decoded::{DecodedImage, ImageLimits};
pub use error::{ImageError, UnsupportedProcessor};
pub use identity::ImageIdentity;
pub use prepared::{Grid, Layout, Normalisation, PatchShape, PreparedImage};
pub use processor::ImageProcessor;
pub use tensors::{ImageTensor, Joining, PIXEL_VALUES, TensorError, TensorType};
