//! Files that hold compressed patches: safetensors whose tensors are vectors of bytes.

use std::{
    fs::File,
    io::{self, Read},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use safetensors::Dtype;

use super::error::DeltaError;
use crate::{
    files,
    weights::{Header, HeaderTensor, SafetensorsFile, file::is_beside, header::quoted_excerpt},
};

/// A file of patches.
pub(super) struct PayloadFile(SafetensorsFile);

/// Where a patch is.
#[derive(Debug, Clone)]
pub(super) struct Payload {
    pub(super) path: PathBuf,
    start: u64,
    length: u64,
}

impl PayloadFile {
    /// Opens a file of this name beside the others of a delta.
    pub(super) fn open(directory: &Path, name: &str) -> Result<Self, DeltaError> {
        if !is_beside(name) {
            return Err(DeltaError::format(directory, "it names a file that is not beside it"));
        }
        Ok(Self(SafetensorsFile::open(directory.join(name))?))
    }

    pub(super) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(super) fn header(&self) -> &Header {
        self.0.header()
    }

    /// Where the patch of this tensor is.
    pub(super) fn payload(&self, tensor: &HeaderTensor) -> Result<Payload, DeltaError> {
        if tensor.dtype != Dtype::U8 || tensor.shape.len() != 1 {
            let reason = format!("tensor {} is not a vector of bytes, as patches are", quoted_excerpt(&tensor.name));
            return Err(DeltaError::format(self.path(), &reason));
        }
        let (start, length) = (self.0.start(tensor), tensor.range.len() as u64);
        Ok(Payload { path: self.path().to_owned(), start, length })
    }
}

impl Payload {
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// The patch as it is stored.
    pub(super) fn open(&self) -> io::Result<Section> {
        Ok(Section { file: files::open(&self.path)?, at: self.start, rest: self.length })
    }
}

/// A part of a file, read from its beginning to its end.
pub(super) struct Section {
    file: File,
    at: u64,
    rest: u64,
}

impl Section {
    /// Bytes that were not read yet.
    pub(super) fn rest(&self) -> u64 {
        self.rest
    }
}

impl Read for Section {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = buffer.len().min(usize::try_from(self.rest).unwrap_or(usize::MAX));
        let read = self.file.read_at(&mut buffer[..most], self.at)?;
        self.at += read as u64;
        self.rest -= read as u64;
        Ok(read)
    }
}
