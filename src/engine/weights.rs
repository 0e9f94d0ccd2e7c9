//! Weights from outside: what a trainer sends while the engine serves.
//!
//! Owns the shape of one tensor. Refuses to know a model: which names there are is the engine's business.

use std::fmt;

use bytes::Bytes;

/// The type of a tensor's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeightDtype {
    /// Brain floating point, 16 bits.
    Bf16,
    /// IEEE half precision, 16 bits.
    F16,
    /// IEEE single precision, 32 bits.
    F32,
}

impl WeightDtype {
    /// Bytes of one number.
    pub fn size(self) -> usize {
        match self {
            Self::Bf16 | Self::F16 => 2,
            Self::F32 => 4,
        }
    }
}

/// One tensor of a model.
#[derive(Clone, PartialEq, Eq)]
pub struct WeightTensor {
    /// The name that the Hugging Face checkpoint has for it.
    pub name: String,
    /// The type of its numbers.
    pub dtype: WeightDtype,
    /// Its lengths, the outermost first.
    pub shape: Vec<usize>,
    /// Its numbers, little-endian and row-major; as many as the shape says.
    pub bytes: Bytes,
}

/// The numbers themselves would fill a log.
impl fmt::Debug for WeightTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WeightTensor")
            .field("name", &self.name)
            .field("dtype", &self.dtype)
            .field("shape", &self.shape)
            .field("bytes", &self.bytes.len())
            .finish()
    }
}
