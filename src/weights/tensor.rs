//! One tensor: its name, its layout and its bytes.

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

    /// What safetensors files call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bf16 => "BF16",
            Self::F16 => "F16",
            Self::F32 => "F32",
        }
    }

    /// The type that safetensors files call so; `None` for the types that no engine reads.
    pub(super) fn of_safetensors(dtype: safetensors::Dtype) -> Option<Self> {
        match dtype {
            safetensors::Dtype::BF16 => Some(Self::Bf16),
            safetensors::Dtype::F16 => Some(Self::F16),
            safetensors::Dtype::F32 => Some(Self::F32),
            _ => None,
        }
    }
}

/// How the bytes of a tensor are to be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// The type of its numbers.
    pub dtype: WeightDtype,
    /// Its lengths, the outermost first.
    pub shape: Vec<usize>,
}

impl Layout {
    /// Bytes of all its numbers; `None` where that is more than this machine can address.
    pub fn bytes(&self) -> Option<usize> {
        let numbers = self.shape.iter().try_fold(1_usize, |product, length| product.checked_mul(*length));
        numbers?.checked_mul(self.dtype.size())
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
