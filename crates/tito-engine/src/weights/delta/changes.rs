//! What a delta changes, and how it is applied.

use std::{collections::BTreeMap, path::PathBuf};

use super::{digest::Algorithm, error::DeltaError, patch::Encoding, payload::Payload};
use crate::weights::{Layout, WeightTensor, header::quoted_excerpt};

/// What changed from one version to another.
#[derive(Debug)]
pub struct Delta {
    pub(super) directory: PathBuf,
    pub(super) version: u64,
    pub(super) base_version: u64,
    pub(super) encoding: Encoding,
    pub(super) patches: BTreeMap<String, Patch>,
}

/// What changes of one tensor.
#[derive(Debug)]
pub(super) struct Patch {
    /// Where the format says it.
    pub(super) layout: Option<Layout>,
    pub(super) payload: Payload,
    pub(super) algorithm: Algorithm,
    /// Of all bytes of the tensor afterwards.
    pub(super) checksum: String,
}

/// A tensor that a delta changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeltaTensor<'a> {
    /// The name that the Hugging Face checkpoint has for it.
    pub name: &'a str,
    /// How its bytes are to be read, where the format says it: SkyRL's does.
    pub layout: Option<&'a Layout>,
}

impl Delta {
    pub(super) fn checked(self) -> Result<Self, DeltaError> {
        if self.base_version >= self.version {
            let reason = format!("version {} cannot build on version {}", self.version, self.base_version);
            return Err(DeltaError::format(&self.directory, &reason));
        }
        Ok(self)
    }

    /// The version that it leads to.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The version that it has to be applied to.
    pub fn base_version(&self) -> u64 {
        self.base_version
    }

    /// The tensors that it changes, by name. All others stay as they are.
    pub fn tensors(&self) -> impl ExactSizeIterator<Item = DeltaTensor<'_>> {
        self.patches.iter().map(|(name, patch)| DeltaTensor { name, layout: patch.layout.as_ref() })
    }

    /// Whether it changes this tensor.
    #[cfg(test)]
    pub fn changes(&self, name: &str) -> bool {
        self.patches.contains_key(name)
    }

    /// Makes of a tensor's bytes in the version before those of this one, checked by the trainer's checksum. The bytes are
    /// those of the checkpoint, little-endian and row-major. A tensor that is not changed is given back as it is.
    ///
    /// Nothing is unpacked beyond the tensor's length, and little memory is needed besides: a few hundred KiB and what zstd
    /// needs for a frame, and in the overwriting encoding four bytes for each byte that changes.
    pub fn apply(&self, name: &str, mut bytes: Vec<u8>) -> Result<Vec<u8>, DeltaError> {
        let Some(patch) = self.patches.get(name) else { return Ok(bytes) };
        let file = &patch.payload.path;
        if let Some(expected) = patch.layout.as_ref().and_then(Layout::bytes)
            && expected != bytes.len()
        {
            let reason =
                format!("tensor {} has {expected} bytes there, and {} here", quoted_excerpt(name), bytes.len());
            return Err(DeltaError::format(file, &reason));
        }
        let packed = patch.payload.open().map_err(DeltaError::read(file))?;
        let mut hasher = patch.algorithm.hasher();
        let applied = self.encoding.apply(packed, &mut bytes, &mut hasher);
        applied.map_err(|reason| {
            DeltaError::format(file, &format!("the patch of tensor {} {reason}", quoted_excerpt(name)))
        })?;
        let found = hasher.finish();
        if found != patch.checksum {
            return Err(DeltaError::Checksum {
                name: quoted_excerpt(name),
                directory: self.directory.clone(),
                base_version: self.base_version,
                algorithm: patch.algorithm.name(),
                found,
                expected: quoted_excerpt(&patch.checksum),
            });
        }
        Ok(bytes)
    }

    /// Whether a tensor is what this delta makes of it.
    pub fn made(&self, tensor: &WeightTensor) -> bool {
        let Some(patch) = self.patches.get(&tensor.name) else { return false };
        let is_laid_out = |there: &Layout| there.dtype == tensor.dtype && there.shape == tensor.shape;
        let mut hasher = patch.algorithm.hasher();
        hasher.update(&tensor.bytes);
        patch.layout.as_ref().is_none_or(is_laid_out) && hasher.finish() == patch.checksum
    }

    /// As [`apply`](Self::apply), for a tensor whose layout is known: it is compared with that of the delta.
    pub fn apply_to(&self, tensor: WeightTensor) -> Result<WeightTensor, DeltaError> {
        let WeightTensor { name, dtype, shape, bytes } = tensor;
        let there = self.patches.get(&name).and_then(|patch| patch.layout.as_ref());
        if let Some(there) = there.filter(|there| there.dtype != dtype || there.shape != shape) {
            let (of, dimensions) = (there.dtype.name(), &there.shape);
            let reason = format!(
                "tensor {} is of {of} and has the shape {dimensions:?} there; here it is of {} and has the shape {shape:?}",
                quoted_excerpt(&name),
                dtype.name()
            );
            return Err(DeltaError::format(&self.directory, &reason));
        }
        let bytes = self.apply(&name, bytes.into())?.into();
        Ok(WeightTensor { name, dtype, shape, bytes })
    }
}
