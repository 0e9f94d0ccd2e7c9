//! An image as tensors, as the processors of transformers give it and vLLM sends it: `pixel_values`, and what counts them.
//!
//! A tensor is taken back only if each of its numbers is what some pixel becomes: an image that was made of tensors is exactly the
//! image that its sender had.

use std::fmt;

/// The name of the tensor that has the pixels, for every family.
pub const PIXEL_VALUES: &str = "pixel_values";

/// What the numbers of a tensor are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TensorType {
    /// Pixels as a file has them, 0 to 255.
    Uint8,
    /// Counts and sizes.
    Int64,
    /// Pixels as a tower reads them.
    Float32,
}

/// How vLLM puts the tensors of several images together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Joining {
    /// Behind each other along the first dimension (`flat`).
    Behind,
    /// As items of a list (`batched`).
    Beside,
}

/// A named tensor of an image.
#[derive(Clone, PartialEq, Eq)]
pub struct ImageTensor {
    /// The name that transformers gives it.
    pub name: String,
    /// What its numbers are.
    pub kind: TensorType,
    /// Its size in each dimension, the last of which is the closest in memory; none for a single number.
    pub shape: Vec<usize>,
    /// The numbers, each with its lowest byte first.
    pub bytes: Vec<u8>,
}

/// Why tensors are not those of an image that the model can see. The texts are for whoever sent them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TensorError {
    /// A tensor is not there.
    #[error("there is no `{0}`")]
    Missing(&'static str),
    /// The processor of this model gives no such tensor.
    #[error("`{0}` is none of the tensors of this model's images")]
    Unknown(String),
    /// The numbers are of a type that says less than the pixels do, or another one than expected.
    #[error("`{name}` must be {wanted}")]
    Type {
        /// The tensor.
        name: &'static str,
        /// What it should be.
        wanted: &'static str,
    },
    /// The sizes of a tensor do not fit the model, or another tensor.
    #[error("`{name}` has the shape {shape:?}, and {wanted} is expected")]
    Shape {
        /// The tensor.
        name: &'static str,
        /// Its sizes.
        shape: Vec<usize>,
        /// What should be there.
        wanted: String,
    },
    /// A count or a size is not what the pixels say, or what the model can see.
    #[error("`{name}` is {found:?}, and {wanted} is expected")]
    Numbers {
        /// The tensor.
        name: &'static str,
        /// What it has.
        found: Vec<i64>,
        /// What should be there.
        wanted: String,
    },
    /// A number that no pixel becomes.
    #[error("number {index} of `pixel_values`, {value}, is not what any pixel becomes with this model's processor")]
    NoPixel {
        /// Its place among all numbers.
        index: usize,
        /// The number, as text: it may be no number at all.
        value: String,
    },
    /// A video.
    #[error("`pixel_values` has two different frames, as a video has")]
    Frames,
}

impl ImageTensor {
    /// A tensor of counts.
    pub(crate) fn of_counts(name: &str, shape: Vec<usize>, counts: &[usize]) -> Self {
        let bytes = counts.iter().flat_map(|&count| (count as u64).to_le_bytes()).collect();
        Self { name: name.to_owned(), kind: TensorType::Int64, shape, bytes }
    }

    /// A tensor of pixels as a tower reads them.
    pub(crate) fn of_pixels(shape: Vec<usize>, values: &[f32]) -> Self {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Self { name: PIXEL_VALUES.to_owned(), kind: TensorType::Float32, shape, bytes }
    }

    /// How vLLM joins it with those of other images, where one image has several of them in a row or one alone.
    pub fn joining(&self) -> Joining {
        // Pixels of one image without a number of patches or squares before them stand alone.
        let is_one = self.name == PIXEL_VALUES && self.shape.len() == 3;
        if self.name == PIXEL_VALUES && !is_one { Joining::Behind } else { Joining::Beside }
    }

    /// Whether the numbers fill the shape.
    pub fn is_whole(&self) -> bool {
        let numbers = self.shape.iter().try_fold(1usize, |numbers, size| numbers.checked_mul(*size));
        numbers.and_then(|numbers| numbers.checked_mul(self.kind.size())) == Some(self.bytes.len())
    }

    /// The numbers of a tensor of counts.
    pub(crate) fn counts(&self, name: &'static str) -> Result<Vec<i64>, TensorError> {
        if self.kind != TensorType::Int64 {
            return Err(TensorError::Type { name, wanted: "of int64" });
        }
        if !self.is_whole() {
            let wanted = format!("one that its {} bytes fill", self.bytes.len());
            return Err(TensorError::Shape { name, shape: self.shape.clone(), wanted });
        }
        let numbers = self.bytes.as_chunks().0;
        Ok(numbers.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect())
    }
}

impl TensorType {
    /// Bytes of a number.
    pub fn size(self) -> usize {
        match self {
            Self::Uint8 => 1,
            Self::Int64 => 8,
            Self::Float32 => 4,
        }
    }

    /// The name that `PyTorch` gives it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Uint8 => "uint8",
            Self::Int64 => "int64",
            Self::Float32 => "float32",
        }
    }

    /// The type of this name in `PyTorch`. Others are not taken: numbers of bfloat16 do not tell all pixels apart.
    pub fn of_name(name: &str) -> Option<Self> {
        [Self::Uint8, Self::Int64, Self::Float32].into_iter().find(|kind| kind.name() == name)
    }
}

/// Without the numbers.
impl fmt::Debug for ImageTensor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, kind, shape, .. } = self;
        write!(formatter, "{name}: {kind:?} {shape:?}")
    }
}
