//! Why weights could not be read or used.

use std::path::PathBuf;

use crate::{files::Changed, gguf::GgufError};

/// Why weights could not be read or used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WeightsError {
    /// A file cannot be opened or read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Somebody wrote to a file while it was read.
    #[error("{0}; read weights again once nobody writes to them")]
    Changed(#[from] Changed),
    /// A directory has no weights in the format that is read.
    #[error("{} has no weights: neither model.safetensors nor model.safetensors.index.json is there; {next}", path.display())]
    Absent {
        /// The directory.
        path: PathBuf,
        /// What to do about it.
        next: &'static str,
    },
    /// A file is not what its name says.
    #[error("{} is not a usable {}: {reason}", path.display(), kind(path))]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A GGUF file cannot be used.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// The model has tensors that the files do not hold.
    #[error("the weights lack {}", names(.0))]
    Missing(Vec<String>),
    /// The files hold tensors that the model does not have.
    #[error("the model does not have {}{}", names(.0), undescribed(.0))]
    Unknown(Vec<String>),
    /// There is no tensor at all.
    #[error("the weights hold no tensor")]
    Nothing,
    /// A GGUF file is of a model with other settings than the one that is served.
    #[error(
        "the file's model has other settings than the one that is served: {}, as its config.json would say it; start the \
         server with this file",
        names(.0)
    )]
    OtherSettings(Vec<String>),
    /// A head is not the embeddings, where the model has one matrix for both.
    #[error(
        "tensor {head} has other numbers than {embeddings}, and the model has one matrix for both, because its config.json \
         says `tie_word_embeddings`"
    )]
    Untied {
        /// The head.
        head: String,
        /// The embeddings.
        embeddings: String,
    },
    /// A tensor has another shape than the model gives it.
    #[error("tensor {name} has the shape {found:?}, not {expected:?}")]
    Shape {
        /// The tensor.
        name: String,
        /// Its shape.
        found: Vec<usize>,
        /// The model's.
        expected: Vec<usize>,
    },
    /// A tensor's numbers are of a type that is not read.
    #[error("tensor {name} is of type {dtype}; BF16, F16 and F32 are read")]
    Dtype {
        /// The tensor.
        name: String,
        /// Its type.
        dtype: String,
    },
    /// A packed tensor whose numbers cannot be told.
    #[error("tensor {name} cannot be widened: {reason}")]
    Packed {
        /// The tensor.
        name: String,
        /// Why not.
        reason: String,
    },
    /// Weights are quantised in a way that is not read.
    #[error("config.json: `quantization_config` {0}")]
    Quantization(String),
    /// A tensor has more or fewer bytes than its shape and type need.
    #[error("tensor {name} has {found} bytes, not {expected}")]
    Length {
        /// The tensor.
        name: String,
        /// Its bytes.
        found: usize,
        /// What its shape and type need.
        expected: usize,
    },
    /// Numbers are to be changed, and are not of the type in which the tensor is held.
    #[error("tensor {name} is held in {held}, and its numbers are to become {found}")]
    Held {
        /// The tensor.
        name: String,
        /// The type of the changes.
        found: &'static str,
        /// The type in which it is held.
        held: &'static str,
    },
    /// Numbers are to be changed that a tensor does not have, or in another order than its own.
    #[error("the places of the numbers of tensor {0} that change are not ascending places in it")]
    Places(String),
    /// A tensor is given more than once.
    #[error("tensor {0} is given more than once")]
    Repeated(String),
    /// The weights do not fit into the device's memory.
    #[error("the device has no room for the model's weights")]
    NoRoom,
}

impl WeightsError {
    /// Whether the same weights may well be read later: the system has no room for something now, or does not reach a disk, or
    /// somebody was still writing.
    pub(crate) fn is_passing(&self) -> bool {
        use std::io::ErrorKind::{IsADirectory, NotADirectory, NotFound, PermissionDenied};
        match self {
            Self::Changed(_) => true,
            // What has no number is a fault of the file.
            Self::Read { source, .. } => {
                let lasts = [NotFound, PermissionDenied, NotADirectory, IsADirectory];
                source.raw_os_error().is_some() && !lasts.contains(&source.kind())
            }
            _ => false,
        }
    }
}

/// What a file is to be, by its name.
fn kind(path: &std::path::Path) -> &'static str {
    let is_json = path.extension().is_some_and(|extension| extension == "json");
    let is_index = path.ends_with("model.safetensors.index.json");
    if is_json && !is_index { "description of weights" } else { "safetensors file" }
}

/// The last parts of names that parts of quantised weights have, and no weights of a model.
const OF_QUANTIZED: [&str; 11] = [
    ".qweight",
    ".qzeros",
    ".g_idx",
    ".weight_packed",
    ".weight_scale",
    ".weight_scale_inv",
    ".weight_scale_2",
    ".weight_global_scale",
    ".weight_zero_point",
    "_proj_blocks",
    "_proj_scales",
];

/// What is said of names that only the settings of quantised weights could explain.
fn undescribed(names: &[String]) -> String {
    let is_part = |name: &&String| OF_QUANTIZED.iter().any(|end| name.ends_with(end));
    names.iter().find(is_part).map_or_else(String::new, |name| {
        format!("; `{name}` looks like a part of quantised weights, which no `quantization_config` here describes")
    })
}

/// The first few names, and how many there are.
fn names(all: &[String]) -> String {
    const SHOWN: usize = 5;
    let shown = all.iter().take(SHOWN).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    match all.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn what_the_system_lacks_for_now_passes_and_what_is_not_there_lasts() {
        let read = |source| WeightsError::Read { path: "a".into(), source };
        // No descriptor is left, a disk fails, a file of a server is stale.
        for passing in [24, 5, 116] {
            assert!(read(io::Error::from_raw_os_error(passing)).is_passing(), "{passing}");
        }
        // There is none, it is forbidden, it is no directory.
        for lasting in [2, 13, 20] {
            assert!(!read(io::Error::from_raw_os_error(lasting)).is_passing(), "{lasting}");
        }
        for kind in [io::ErrorKind::UnexpectedEof, io::ErrorKind::InvalidData] {
            assert!(!read(kind.into()).is_passing(), "{kind}");
        }
        assert!(!WeightsError::NoRoom.is_passing());
    }
}
