//! The tensors of a checkpoint, byte for byte: what a delta is applied to.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use serde::Deserialize;

use super::{FileError, HeaderTensor, Layout, SafetensorsFile, WeightTensor, file::is_beside, header::shown};
use crate::files;

const INDEX: &str = "model.safetensors.index.json";
const ONLY: &str = "model.safetensors";
/// No index is longer.
const MOST_INDEX_BYTES: u64 = 64 << 20;

/// A directory of safetensors: one file, or those that an index names.
#[derive(Debug)]
pub struct Checkpoint {
    files: Vec<SafetensorsFile>,
    /// The number of the file that holds a tensor.
    tensors: BTreeMap<String, usize>,
}

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

impl Checkpoint {
    /// Opens `model.safetensors`, or the files that `model.safetensors.index.json` names.
    pub fn open(directory: &Path) -> Result<Self, FileError> {
        let index = directory.join(INDEX);
        let names = if index.exists() { named(&index)? } else { BTreeSet::from([ONLY.to_owned()]) };
        let mut checkpoint = Self { files: Vec::new(), tensors: BTreeMap::new() };
        for name in names {
            checkpoint.add(directory.join(name))?;
        }
        Ok(checkpoint)
    }

    fn add(&mut self, path: PathBuf) -> Result<(), FileError> {
        let file = SafetensorsFile::open(path)?;
        for tensor in file.header().tensors() {
            if self.tensors.insert(tensor.name.clone(), self.files.len()).is_some() {
                let reason = format!("tensor {} is in another file too", shown(&tensor.name));
                return Err(FileError::format(file.path(), &reason));
            }
        }
        self.files.push(file);
        Ok(())
    }

    /// All tensors, by name; among them may be some with numbers that no engine reads.
    pub fn tensors(&self) -> impl Iterator<Item = &HeaderTensor> {
        self.tensors.keys().filter_map(|name| self.tensor(name).map(|(_, tensor)| tensor))
    }

    fn tensor(&self, name: &str) -> Option<(&SafetensorsFile, &HeaderTensor)> {
        let file = self.files.get(*self.tensors.get(name)?)?;
        Some((file, file.header().tensor(name)?))
    }

    /// Reads a tensor; `None` where there is none of this name.
    pub fn read(&self, name: &str) -> Result<Option<WeightTensor>, FileError> {
        let Some((file, tensor)) = self.tensor(name) else { return Ok(None) };
        let layout = tensor.layout().map_err(|reason| FileError::format(file.path(), &reason))?;
        let (Layout { dtype, shape }, bytes) = (layout, file.read(tensor)?.into());
        Ok(Some(WeightTensor { name: name.to_owned(), dtype, shape, bytes }))
    }
}

/// The files that an index names.
fn named(index: &Path) -> Result<BTreeSet<String>, FileError> {
    let text = files::read_text(index, MOST_INDEX_BYTES).map_err(FileError::read(index))?;
    let Index { weight_map } =
        serde_json::from_str(&text).map_err(|error| FileError::format(index, &error.to_string()))?;
    if let Some(name) = weight_map.values().find(|name| !is_beside(name)) {
        let reason = format!("it names {}, which is not a file beside it", shown(name));
        return Err(FileError::format(index, &reason));
    }
    Ok(weight_map.into_values().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn golden(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
    }

    #[test]
    fn one_file_and_shards_are_read() {
        for name in ["weights/base", "native/llama_sharded"] {
            let checkpoint = Checkpoint::open(&golden(name)).unwrap();
            let names: Vec<_> = checkpoint.tensors().map(|tensor| tensor.name.as_str()).collect();
            assert!(names.is_sorted() && names.contains(&"model.norm.weight"), "{names:?}");
            for tensor in checkpoint.tensors() {
                let read = checkpoint.read(&tensor.name).unwrap().unwrap();
                assert_eq!((read.bytes.len(), &read.shape), (tensor.range.len(), &tensor.shape));
            }
            assert_eq!(checkpoint.read("other").unwrap(), None);
        }
    }

    #[test]
    fn a_checkpoint_of_other_files_or_of_a_tensor_twice_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let refusal = |index: &str| {
            std::fs::write(directory.path().join(INDEX), index).unwrap();
            Checkpoint::open(directory.path()).unwrap_err().to_string()
        };
        let away = refusal(r#"{"weight_map":{"a":"../b"}}"#);
        assert!(away.ends_with("it names ../b, which is not a file beside it"), "{away}");
        for name in ["1", "2"] {
            std::fs::copy(golden("weights/base/model.safetensors"), directory.path().join(name)).unwrap();
        }
        let twice = refusal(r#"{"weight_map":{"a":"1","b":"2"}}"#);
        assert!(twice.ends_with("tensor model.layers.0.self_attn.q_proj.weight is in another file too"), "{twice}");
    }
}
