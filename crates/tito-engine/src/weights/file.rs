//! One file of safetensors.

use std::{
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use super::{
    Header, MOST_HEADER_BYTES,
    header::{HeaderTensor, quoted_excerpt},
};
use crate::files;

/// Why a file of weights cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is not what its name says.
    #[error("{} is not a usable safetensors file: {reason}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// There is no memory for what it holds.
    #[error("there is no memory for what {} holds", .0.display())]
    NoRoom(PathBuf),
}

impl FileError {
    /// What is wrong with a file, on one line.
    pub(super) fn format(path: &Path, reason: &str) -> Self {
        Self::Format { path: path.to_owned(), reason: quoted_excerpt(reason) }
    }

    pub(super) fn read(path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| Self::Read { path: path.to_owned(), source }
    }
}

/// A file that is open, as long as its header says.
#[derive(Debug)]
pub struct SafetensorsFile {
    path: PathBuf,
    header: Header,
    /// Where the first tensor begins in the file.
    data: u64,
}

impl SafetensorsFile {
    /// Opens a file and reads its header.
    pub fn open(path: PathBuf) -> Result<Self, FileError> {
        let file = files::open(&path).map_err(FileError::read(&path))?;
        let size = file.metadata().map_err(FileError::read(&path))?.len();
        let mut length = [0; 8];
        file.read_exact_at(&mut length, 0).map_err(FileError::read(&path))?;
        let length = u64::from_le_bytes(length);
        if length > MOST_HEADER_BYTES || length > size.saturating_sub(8) {
            return Err(FileError::format(&path, &without_header(size)));
        }
        let mut text = room(&path, length)?;
        file.read_exact_at(&mut text, 8).map_err(FileError::read(&path))?;
        let header = Header::parse(&text).map_err(|reason| FileError::format(&path, &reason))?;
        let data = 8 + length;
        let (promised, there) = (header.data_bytes() as u64, size - data);
        if promised != there {
            let reason = format!("its header is of {promised} bytes of tensors, and {there} bytes follow it");
            return Err(FileError::format(&path, &reason));
        }
        Ok(Self { path, header, data })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Where the first byte of a tensor of its header is in the file.
    pub(super) fn start(&self, tensor: &HeaderTensor) -> u64 {
        self.data + tensor.range.start as u64
    }
}

/// Whether a name that another file says is that of a file beside it.
pub(super) fn is_beside(name: &str) -> bool {
    Path::new(name).file_name().is_some_and(|file| file == name)
}

/// What is said of a file whose first bytes are not the length of a header that follows. The number that they make is not
/// told, as the file may be any other.
pub fn without_header(size: u64) -> String {
    format!("it has {size} bytes and no whole header: it is cut off, or no safetensors")
}

fn room(path: &Path, bytes: u64) -> Result<Vec<u8>, FileError> {
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    files::zeros(bytes).map_err(|_| FileError::NoRoom(path.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_not_as_long_as_its_header_says_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.safetensors");
        let refusal = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            let refused = SafetensorsFile::open(path.clone()).unwrap_err().to_string();
            refused.replace(&path.display().to_string(), "FILE")
        };
        let header = br#"{"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}}"#;
        let file = |length: u64, data: &[u8]| [&length.to_le_bytes(), &header[..], data].concat();
        let length = header.len() as u64;
        let begin = "FILE is not a usable safetensors file: ";
        assert!(refusal(&[1, 2, 3]).starts_with("cannot read FILE: "));
        let says = format!("{begin}it has 64 bytes and no whole header: it is cut off, or no safetensors");
        for length in [57, u64::MAX, u64::from_le_bytes(*b"root:x:0")] {
            assert_eq!(refusal(&file(length, &[1, 2, 3])), says);
        }
        let says = format!("{begin}its header is of 3 bytes of tensors, and 4 bytes follow it");
        assert_eq!(refusal(&file(length, &[1, 2, 3, 4])), says);
        std::fs::write(&path, file(length, &[1, 2, 3])).unwrap();
        let file = SafetensorsFile::open(path).unwrap();
        assert_eq!(file.start(&file.header().tensors()[0]), 8 + length);
        assert_eq!(file.path().file_name().unwrap(), "a.safetensors");
    }

    #[test]
    fn a_name_with_a_folder_is_of_no_file_beside_another() {
        assert!(is_beside("a.safetensors"));
        for name in ["../a", "/a", "a/", "a/b", "", ".", "..", "./a"] {
            assert!(!is_beside(name), "{name}");
        }
    }
}
