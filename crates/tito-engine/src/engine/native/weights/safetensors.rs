//! Directories of safetensors: one file, or shards with an index.
//!
//! Read by position from several threads at once rather than mapped: the same pages of the system's cache, and a file
//! that shrinks while it is read is an error here instead of a signal that ends the process.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    ops::Range,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use half::bf16;
use safetensors::{Dtype, tensor::Metadata};
use serde::Deserialize;

use super::{Rows, StoredRows, Weights, WeightsError, as_bf16, as_rows};
use crate::{
    engine::WeightDtype,
    files::{self, Watched},
    weights::{fault, without_header},
};

/// No header is longer.
const MOST_HEADER_BYTES: u64 = 100_000_000;
/// No index is longer.
const MOST_INDEX_BYTES: u64 = 64 << 20;

/// Bytes of a tensor that are read at a time where all of them are looked at.
const READ_BYTES: usize = 1 << 20;

/// The tensors of a directory.
#[derive(Debug)]
pub(crate) struct SafetensorsFiles {
    files: Vec<(PathBuf, File)>,
    /// The same files and those that describe them, from before anything was read of them.
    watched: Vec<Watched>,
    tensors: BTreeMap<String, Entry>,
}

#[derive(Debug)]
struct Entry {
    file: usize,
    /// Where its first byte is in the file.
    offset: u64,
    /// How many bytes it has.
    length: usize,
    dtype: Dtype,
    shape: Vec<usize>,
}

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

impl SafetensorsFiles {
    /// Opens `model.safetensors`, or the files that `model.safetensors.index.json` names.
    pub(crate) fn open(directory: &Path) -> Result<Self, WeightsError> {
        let index = directory.join("model.safetensors.index.json");
        if index.exists() {
            return Self::open_indexed(directory, &index);
        }
        let path = directory.join("model.safetensors");
        if !path.exists() {
            return Err(absent(directory));
        }
        let mut files = Self::none();
        files.add(path)?;
        Ok(files)
    }

    fn none() -> Self {
        Self { files: Vec::new(), watched: Vec::new(), tensors: BTreeMap::new() }
    }

    /// Watches a file too that describes these.
    pub(super) fn watch(&mut self, watched: Watched) {
        self.watched.push(watched);
    }

    /// Opens the files that an index names, each of which has to hold what the index says of it. It may hold more.
    fn open_indexed(directory: &Path, path: &Path) -> Result<Self, WeightsError> {
        let (text, watched) = files::read_text_watched(path, MOST_INDEX_BYTES).map_err(read_error(path))?;
        let index: Index = serde_json::from_str(&text).map_err(|error| format_error(path, fault(&error)))?;
        let names: BTreeSet<&String> = index.weight_map.values().collect();
        let mut files = Self::none();
        files.watch(watched);
        for name in names {
            if Path::new(name).components().count() != 1 {
                return Err(format_error(path, "it names a file that is not beside it".to_owned()));
            }
            files.add(directory.join(name))?;
        }
        for (tensor, name) in &index.weight_map {
            files.check_place(tensor, &directory.join(name)).map_err(|reason| format_error(path, reason))?;
        }
        Ok(files)
    }

    /// Refuses a tensor that is not in the file in which an index has it: the two are of different versions.
    fn check_place(&self, tensor: &str, said: &Path) -> Result<(), String> {
        let held = self.tensors.get(tensor).map(|entry| self.files[entry.file].0.as_path());
        let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match held {
            Some(held) if held == said => Ok(()),
            Some(held) => Err(format!("it has tensor {tensor} in {}, and {} holds it", name(said), name(held))),
            None => Err(format!("it has tensor {tensor} in {}, which does not hold it", name(said))),
        }
    }

    /// Opens weights that somebody brings to a model that is loaded: a file, or a directory as [`Self::open`] takes it,
    /// or one with any files of safetensors.
    pub(crate) fn open_any(path: &Path) -> Result<Self, WeightsError> {
        let mut files = Self::none();
        if path.is_file() {
            files.add(path.to_owned())?;
            return Ok(files);
        }
        if ["model.safetensors.index.json", "model.safetensors"].iter().any(|name| path.join(name).exists()) {
            return Self::open(path);
        }
        let entries = std::fs::read_dir(path).map_err(read_error(path))?;
        let paths: Result<BTreeSet<PathBuf>, std::io::Error> = entries.map(|entry| Ok(entry?.path())).collect();
        let mut paths = paths.map_err(read_error(path))?;
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "safetensors"));
        if paths.is_empty() {
            return Err(WeightsError::Format {
                path: path.to_owned(),
                reason: "it has no file of safetensors".to_owned(),
            });
        }
        check_shards(path, &paths)?;
        for path in paths {
            files.add(path)?;
        }
        Ok(files)
    }

    /// A tensor as its file has it.
    pub(super) fn raw(&self, name: &str) -> Option<RawTensor<'_>> {
        let Entry { file, offset, length, dtype, shape } = self.tensors.get(name)?;
        let (path, file) = &self.files[*file];
        Some(RawTensor { path, file, offset: *offset, length: *length, dtype: *dtype, shape })
    }

    fn add(&mut self, path: PathBuf) -> Result<(), WeightsError> {
        let file = files::open(&path).map_err(read_error(&path))?;
        self.watch(Watched::begin(&path, &file).map_err(read_error(&path))?);
        let size = file.metadata().map_err(read_error(&path))?.len();
        let mut length = [0; 8];
        file.read_exact_at(&mut length, 0).map_err(read_error(&path))?;
        let length = u64::from_le_bytes(length);
        if length > MOST_HEADER_BYTES || length > size.saturating_sub(8) {
            return Err(format_error(&path, without_header(size)));
        }
        let data = 8 + length;
        let mut header = zeros(usize::try_from(length).unwrap_or(usize::MAX))?;
        file.read_exact_at(&mut header, 8).map_err(read_error(&path))?;
        let metadata: Metadata = serde_json::from_slice(&header).map_err(|error| format_error(&path, fault(&error)))?;
        // Each tensor has as many bytes as its shape says, and begins where another one ends: that was checked.
        let mut last = data;
        for (name, info) in metadata.tensors() {
            let (start, end) = info.data_offsets;
            let end = data.checked_add(end as u64).filter(|end| *end <= size);
            let Some(end) = end else {
                return Err(format_error(&path, format!("it ends before tensor {name} does")));
            };
            last = last.max(end);
            let entry = Entry {
                file: self.files.len(),
                offset: data + start as u64,
                length: info.data_offsets.1 - start,
                dtype: info.dtype,
                shape: info.shape.clone(),
            };
            if self.tensors.insert(name.clone(), entry).is_some() {
                return Err(format_error(&path, format!("tensor {name} is in another file too")));
            }
        }
        if last < size {
            return Err(format_error(&path, format!("{} bytes follow its last tensor", size - last)));
        }
        self.files.push((path, file));
        Ok(())
    }
}

/// A tensor as its file has it, of whatever type.
#[derive(Clone, Copy)]
pub(super) struct RawTensor<'a> {
    path: &'a Path,
    file: &'a File,
    offset: u64,
    /// How many bytes it has: as many as its shape and its type need.
    pub(super) length: usize,
    /// The type of its numbers.
    pub(super) dtype: Dtype,
    /// Its shape.
    pub(super) shape: &'a [usize],
}

impl RawTensor<'_> {
    /// Reads some of its bytes.
    pub(super) fn read(&self, bytes: Range<usize>) -> Result<Vec<u8>, WeightsError> {
        let mut buffer = zeros(bytes.len())?;
        let offset = self.offset + bytes.start as u64;
        self.file.read_exact_at(&mut buffer, offset).map_err(read_error(self.path))?;
        Ok(buffer)
    }

    /// Whether all of its bytes are zero.
    pub(super) fn is_zero(&self) -> Result<bool, WeightsError> {
        for start in (0..self.length).step_by(READ_BYTES) {
            if self.read(start..self.length.min(start + READ_BYTES))?.iter().any(|byte| *byte != 0) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Memory for what is read.
fn zeros(bytes: usize) -> Result<Vec<u8>, WeightsError> {
    files::zeros(bytes).map_err(|_| WeightsError::NoRoom)
}

/// There are no weights, or none in this format.
fn absent(directory: &Path) -> WeightsError {
    let has = |name: &str| directory.join(name).exists();
    let next = if ["pytorch_model.bin", "pytorch_model.bin.index.json"].into_iter().any(has) {
        "its pytorch_model.bin is not read; write it as safetensors with Transformers' \
         AutoModelForCausalLM.from_pretrained(…).save_pretrained(…)"
    } else {
        "pass a directory as Transformers' save_pretrained writes it"
    };
    WeightsError::Absent { path: directory.to_owned(), next }
}

/// Refuses files that are called `…-00001-of-00003` where some of the three are not there.
fn check_shards(directory: &Path, paths: &BTreeSet<PathBuf>) -> Result<(), WeightsError> {
    let mut counts: BTreeMap<(&str, usize), usize> = BTreeMap::new();
    for shard in paths.iter().filter_map(|path| shard_of(path)) {
        *counts.entry(shard).or_default() += 1;
    }
    match counts.into_iter().find(|((_, all), there)| there < all) {
        None => Ok(()),
        Some(((stem, all), there)) => {
            let reason = format!("its files {stem}-… are {there} of {all}: write the others too");
            Err(format_error(directory, reason))
        }
    }
}

/// Of a file that is called as one of several: what all are called, and how many they are.
fn shard_of(path: &Path) -> Option<(&str, usize)> {
    let (rest, all) = path.file_stem()?.to_str()?.rsplit_once("-of-")?;
    let (stem, number) = rest.rsplit_once('-')?;
    number.parse::<usize>().ok()?;
    Some((stem, all.parse().ok()?))
}

fn read_error(path: &Path) -> impl Fn(std::io::Error) -> WeightsError {
    move |source| WeightsError::Read { path: path.to_owned(), source }
}

fn format_error(path: &Path, reason: String) -> WeightsError {
    WeightsError::Format { path: path.to_owned(), reason }
}

impl Weights for SafetensorsFiles {
    fn tensors(&self) -> Vec<(&str, &[usize])> {
        self.tensors.iter().map(|(name, entry)| (name.as_str(), &entry.shape[..])).collect()
    }

    fn rows(&self, name: &str) -> Result<Box<dyn Rows + '_>, WeightsError> {
        let entry = self.tensors.get(name).ok_or_else(|| WeightsError::Missing(vec![name.to_owned()]))?;
        let dtype = match entry.dtype {
            Dtype::BF16 => WeightDtype::Bf16,
            Dtype::F16 => WeightDtype::F16,
            Dtype::F32 => WeightDtype::F32,
            other => return Err(WeightsError::Dtype { name: name.to_owned(), dtype: format!("{other:?}") }),
        };
        let (path, file) = &self.files[entry.file];
        let (rows, columns) = as_rows(&entry.shape);
        Ok(Box::new(FileRows { path, file, offset: entry.offset, rows, columns, dtype }))
    }

    fn check_unchanged(&self) -> Result<(), WeightsError> {
        self.watched.iter().try_for_each(|watched| Ok(watched.check()?))
    }
}

struct FileRows<'a> {
    path: &'a Path,
    file: &'a File,
    offset: u64,
    rows: usize,
    columns: usize,
    dtype: WeightDtype,
}

impl StoredRows for FileRows<'_> {
    fn dtype(&self) -> WeightDtype {
        self.dtype
    }

    fn bytes<'a>(&'a self, rows: Range<usize>, buffer: &'a mut Vec<u8>) -> Result<&'a [u8], WeightsError> {
        let row = self.columns * self.dtype.size();
        let wanted = rows.len() * row;
        if buffer.len() < wanted {
            *buffer = zeros(wanted)?;
        }
        let bytes = &mut buffer[..wanted];
        let offset = self.offset + (rows.start * row) as u64;
        self.file.read_exact_at(bytes, offset).map_err(read_error(self.path))?;
        Ok(bytes)
    }
}

impl Rows for FileRows<'_> {
    fn rows(&self) -> usize {
        self.rows
    }

    fn columns(&self) -> usize {
        self.columns
    }

    fn read(&self, rows: Range<usize>, out: &mut Vec<f32>) -> Result<(), WeightsError> {
        self.dtype.widen(self.bytes(rows, &mut Vec::new())?, out);
        Ok(())
    }

    fn read_bf16(&self, rows: Range<usize>, out: &mut Vec<bf16>) -> Result<(), WeightsError> {
        as_bf16(self.dtype, self.bytes(rows, &mut Vec::new())?, out);
        Ok(())
    }

    fn stored(&self) -> Option<&dyn StoredRows> {
        Some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &Path, header: &str, data: &[u8]) {
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(data);
        std::fs::write(path, bytes).unwrap();
    }

    const ONE: &str = r#"{"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]}}"#;

    fn refusal(directory: &Path) -> String {
        SafetensorsFiles::open(directory).unwrap_err().to_string()
    }

    #[test]
    fn rows_are_read_by_position() {
        let directory = tempfile::tempdir().unwrap();
        let data: Vec<u8> = [1.5_f32, -2.0].iter().flat_map(|number| number.to_le_bytes()).collect();
        write(&directory.path().join("model.safetensors"), ONE, &data);
        let files = SafetensorsFiles::open(directory.path()).unwrap();
        let rows = files.rows("a").unwrap();
        let mut out = Vec::new();
        rows.read(1..2, &mut out).unwrap();
        rows.read(0..2, &mut out).unwrap();
        assert_eq!(out, [-2.0, 1.5, -2.0]);
        assert!(matches!(files.rows("b"), Err(WeightsError::Missing(_))));
    }

    #[test]
    fn damaged_files_are_refused_with_their_path() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("model.safetensors");
        assert!(refusal(directory.path()).ends_with("; pass a directory as Transformers' save_pretrained writes it"));
        std::fs::write(directory.path().join("pytorch_model.bin"), []).unwrap();
        assert!(refusal(directory.path()).contains("; its pytorch_model.bin is not read; "));
        write(&path, ONE, &[0; 7]);
        assert!(refusal(directory.path()).ends_with("it ends before tensor a does"));
        write(&path, "{", &[0; 8]);
        assert!(refusal(directory.path()).contains("is not a usable safetensors file"));
        for length in [[255; 8], 99_u64.to_le_bytes(), *b"root:x:0"] {
            std::fs::write(&path, [&length[..], b"{}"].concat()).unwrap();
            let says = "it has 10 bytes and no whole header: it is cut off, or no safetensors";
            assert!(refusal(directory.path()).ends_with(says));
        }
        write(&path, r#"{"hunter2": "hunter2"}"#, &[]);
        assert!(refusal(directory.path()).contains("its JSON has values that do not belong there, at line 1 column"));
        write(&path, ONE, &[0; 9]);
        assert!(refusal(directory.path()).ends_with("1 bytes follow its last tensor"));
        let far = r#"{"a":{"dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,18446744073709551615]}}"#;
        write(&path, far, &[0; 9]);
        assert!(refusal(directory.path()).contains("is not a usable safetensors file"));
        std::fs::write(directory.path().join("model.safetensors.index.json"), r#"{"weight_map":{"a":"../b"}}"#)
            .unwrap();
        assert!(refusal(directory.path()).ends_with("it names a file that is not beside it"));
    }

    #[test]
    fn a_tensor_that_two_shards_hold_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["1.safetensors", "2.safetensors"] {
            write(&directory.path().join(name), ONE, &[0; 8]);
        }
        let index = r#"{"weight_map":{"a":"1.safetensors","b":"2.safetensors"}}"#;
        std::fs::write(directory.path().join("model.safetensors.index.json"), index).unwrap();
        assert!(refusal(directory.path()).ends_with("tensor a is in another file too"));
    }

    const TWO: &str = r#"{"b":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]}}"#;

    #[test]
    fn an_index_that_is_of_other_files_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        write(&directory.join("1.safetensors"), ONE, &[0; 8]);
        write(&directory.join("2.safetensors"), TWO, &[0; 8]);
        let indexed = |map: &str| {
            let index = format!(r#"{{"weight_map":{map}}}"#);
            std::fs::write(directory.join("model.safetensors.index.json"), index).unwrap();
            SafetensorsFiles::open_any(directory).map(|files| files.tensors.len())
        };
        assert_eq!(indexed(r#"{"a":"1.safetensors","b":"2.safetensors"}"#).unwrap(), 2);
        // Published checkpoints have tensors that their index does not name.
        assert_eq!(indexed(r#"{"a":"1.safetensors"}"#).unwrap(), 1);
        for (map, reason) in [
            (
                r#"{"a":"1.safetensors","b":"2.safetensors","c":"2.safetensors"}"#,
                "it has tensor c in 2.safetensors, which does not hold it",
            ),
            (
                r#"{"a":"2.safetensors","b":"1.safetensors"}"#,
                "it has tensor a in 2.safetensors, and 1.safetensors holds it",
            ),
        ] {
            assert!(indexed(map).unwrap_err().to_string().ends_with(reason), "{map}");
            assert!(refusal(directory).ends_with(reason), "{map}");
        }
    }

    #[test]
    fn shards_without_an_index_are_all_there() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        write(&directory.join("model-00001-of-00002.safetensors"), ONE, &[0; 8]);
        let refusal = SafetensorsFiles::open_any(directory).unwrap_err().to_string();
        assert!(refusal.ends_with("its files model-… are 1 of 2: write the others too"), "{refusal}");
        // A file alone is what its sender means.
        SafetensorsFiles::open_any(&directory.join("model-00001-of-00002.safetensors")).unwrap();
        write(&directory.join("model-00002-of-00002.safetensors"), TWO, &[0; 8]);
        assert_eq!(SafetensorsFiles::open_any(directory).unwrap().tensors.len(), 2);
        write(&directory.join("other-1-of-x.safetensors"), "{}", &[]);
        SafetensorsFiles::open_any(directory).unwrap();
    }

    #[test]
    fn numbers_of_other_types_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let header = r#"{"a":{"dtype":"I8","shape":[8],"data_offsets":[0,8]}}"#;
        write(&directory.path().join("model.safetensors"), header, &[0; 8]);
        let files = SafetensorsFiles::open(directory.path()).unwrap();
        let error = files.rows("a").err().map(|error| error.to_string());
        assert_eq!(error.as_deref(), Some("tensor a is of type I8; BF16, F16 and F32 are read"));
    }
}
