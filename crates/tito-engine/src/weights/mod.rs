//! Weights as trainers hand them over: safetensors that come in pieces, deltas on disk, adapters, and checksums.
//!
//! Owns the shape of one tensor, and the formats that carry many. Refuses to know a model (which names there are, and what
//! becomes of the numbers, is the engine's business) and HTTP.
//!
//! Others wrote what is read here. It is used exactly, or refused with one sentence.

pub mod checksum;
pub mod delta;
mod file;
mod header;
pub mod peft;
mod stream;
mod tensor;
mod transposed;

pub(crate) use self::transposed::transposed;
pub use self::{
    file::{FileError, SafetensorsFile, without_header},
    header::{Header, HeaderTensor, MOST_HEADER_BYTES, fault},
    stream::SafetensorsStream,
    tensor::{Layout, TensorChanges, WeightDtype, WeightTensor},
};
