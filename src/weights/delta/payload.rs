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
    weights::{Header, HeaderTensor, MOST_HEADER_BYTES, header::shown},
};

/// A file of patches whose header was read.
pub(super) struct PayloadFile {
    path: PathBuf,
    header: Header,
    /// Where the first patch begins in the file.
    data: u64,
}

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
        let is_beside = Path::new(name).file_name().is_some_and(|file| file == name);
        if !is_beside {
            let reason = format!("it names {}, which is not a file beside it", shown(name));
            return Err(DeltaError::format(directory, &reason));
        }
        let path = directory.join(name);
        let file = files::open(&path).map_err(DeltaError::read(&path))?;
        let size = file.metadata().map_err(DeltaError::read(&path))?.len();
        let mut length = [0; 8];
        file.read_exact_at(&mut length, 0).map_err(DeltaError::read(&path))?;
        let length = u64::from_le_bytes(length);
        if length > MOST_HEADER_BYTES || length > size - 8 {
            let reason = format!("it has {size} bytes, and says that {length} of them are its header");
            return Err(DeltaError::format(&path, &reason));
        }
        let room = files::zeros(usize::try_from(length).unwrap_or(usize::MAX));
        let mut text = room.map_err(|_| DeltaError::NoRoom(path.clone()))?;
        file.read_exact_at(&mut text, 8).map_err(DeltaError::read(&path))?;
        let header = Header::parse(&text).map_err(|reason| DeltaError::format(&path, &reason))?;
        let data = 8 + length;
        let promised = header.data_bytes() as u64;
        if promised != size - data {
            let reason = format!("its header is of {promised} bytes that follow, and {} do", size - data);
            return Err(DeltaError::format(&path, &reason));
        }
        Ok(Self { path, header, data })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn header(&self) -> &Header {
        &self.header
    }

    /// Where the patch of this tensor is.
    pub(super) fn payload(&self, tensor: &HeaderTensor) -> Result<Payload, DeltaError> {
        if tensor.dtype != Dtype::U8 || tensor.shape.len() != 1 {
            let reason = format!("tensor {} is not a vector of bytes, as patches are", shown(&tensor.name));
            return Err(DeltaError::format(&self.path, &reason));
        }
        let (start, length) = (self.data + tensor.range.start as u64, tensor.range.len() as u64);
        Ok(Payload { path: self.path.clone(), start, length })
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
