//! The files that mistral.rs reads, each named one by one, so that it never searches a directory or a hub.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use mistralrs_core::{
    AdapterPaths, GGUFLoaderBuilder, GGUFSpecificConfig, Loader, LocalModelPaths, NormalLoaderBuilder,
    NormalSpecificConfig,
};
use serde_json::Value;
use tempfile::TempDir;

use super::{alphabet::Alphabet, error::LoadError, gguf, spec::WeightsSource};
use crate::engine::compared;

/// A loader and the files that it is to load.
pub(super) struct Weights {
    pub(super) loader: Box<dyn Loader>,
    pub(super) paths: LocalModelPaths<PathBuf>,
    /// The quantisation of a GGUF file.
    pub(super) quantisation: Option<String>,
    /// Holds the files that we wrote; they are read while loading.
    _scratch: Scratch,
}

impl Weights {
    /// Finds and checks everything that `source` must have.
    pub(super) fn find(source: &WeightsSource, alphabet: Alphabet) -> Result<Self, LoadError> {
        let scratch = Scratch::new()?;
        let mut paths = LocalModelPaths {
            tokenizer_filename: scratch.write("tokenizer.json", &alphabet.tokenizer())?,
            config_filename: PathBuf::new(),
            template_filename: Some(scratch.write("tokenizer_config.json", &alphabet.template())?),
            filenames: Vec::new(),
            adapter_paths: AdapterPaths::None,
            gen_conf: None,
            preprocessor_config: None,
            processor_config: None,
            chat_template_json_filename: None,
        };
        let (loader, quantisation) = match source {
            WeightsSource::Gguf(file) => {
                let quantisation = gguf::inspect(file)?;
                paths.filenames = vec![file.clone()];
                (gguf_loader(file), Some(quantisation))
            }
            WeightsSource::Directory(directory) => {
                let path = directory.join("config.json");
                let Value::Object(config) = read_json(&path)? else {
                    return Err(LoadError::Unsupported(format!("{} is not an object", path.display())));
                };
                let config = compared::adapted(&config).map_err(LoadError::Unsupported)?;
                paths.config_filename = scratch.write("config.json", &Value::Object(config))?;
                paths.filenames = safetensors(directory)?;
                (directory_loader(directory)?, None)
            }
        };
        Ok(Self { loader, paths, quantisation, _scratch: scratch })
    }
}

fn gguf_loader(file: &Path) -> Box<dyn Loader> {
    let name = file.display().to_string();
    GGUFLoaderBuilder::new(None, None, name.clone(), vec![name], GGUFSpecificConfig::default(), false, None).build()
}

fn directory_loader(directory: &Path) -> Result<Box<dyn Loader>, LoadError> {
    let name = directory.display().to_string();
    NormalLoaderBuilder::new(NormalSpecificConfig::default(), None, None, Some(name), false, None)
        .build(None)
        .map_err(|error| LoadError::Engine(format!("{error:#}")))
}

/// The safetensors files of a model: those of its index, or its only one.
fn safetensors(directory: &Path) -> Result<Vec<PathBuf>, LoadError> {
    let index = directory.join("model.safetensors.index.json");
    let single = directory.join("model.safetensors");
    if !index.exists() {
        let files = single.exists().then(|| vec![single]);
        return files.ok_or_else(|| LoadError::NotFound(directory.join("model.safetensors")));
    }
    let map = read_json(&index)?;
    let names = map.get("weight_map").and_then(Value::as_object).into_iter().flat_map(serde_json::Map::values);
    let files: BTreeSet<PathBuf> = names.filter_map(Value::as_str).map(|name| directory.join(name)).collect();
    match files.iter().find(|file| !file.exists()) {
        Some(missing) => Err(LoadError::NotFound(missing.clone())),
        None if files.is_empty() => Err(LoadError::Unsupported(format!("{} lists no weights", index.display()))),
        None => Ok(files.into_iter().collect()),
    }
}

fn read_json(path: &Path) -> Result<Value, LoadError> {
    if !path.exists() {
        return Err(LoadError::NotFound(path.to_owned()));
    }
    let unreadable = |source| LoadError::Unreadable { path: path.to_owned(), source };
    let bytes = fs::read(path).map_err(unreadable)?;
    serde_json::from_slice(&bytes).map_err(|error| unreadable(error.into()))
}

/// A directory of its own that disappears with its owner.
struct Scratch(TempDir);

impl Scratch {
    fn new() -> Result<Self, LoadError> {
        let directory = tempfile::Builder::new().prefix("tito-").tempdir();
        directory.map(Self).map_err(|source| LoadError::Unreadable { path: std::env::temp_dir(), source })
    }

    fn write(&self, name: &str, content: &Value) -> Result<PathBuf, LoadError> {
        let path = self.0.path().join(name);
        fs::write(&path, content.to_string()).map_err(|source| LoadError::Unreadable { path: path.clone(), source })?;
        Ok(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(directory: &Path) -> Result<Vec<String>, String> {
        let files = safetensors(directory).map_err(|error| error.to_string())?;
        Ok(files.iter().map(|file| file.file_name().unwrap().to_string_lossy().into_owned()).collect())
    }

    #[test]
    fn the_index_names_the_weights_and_else_there_is_one_file() {
        let directory = tempfile::tempdir().unwrap();
        names(directory.path()).unwrap_err();
        fs::write(directory.path().join("model.safetensors"), "").unwrap();
        assert_eq!(names(directory.path()).unwrap(), ["model.safetensors"]);

        let index = r#"{"weight_map": {"a": "2.safetensors", "b": "1.safetensors", "c": "2.safetensors"}}"#;
        fs::write(directory.path().join("model.safetensors.index.json"), index).unwrap();
        assert!(names(directory.path()).unwrap_err().contains("1.safetensors"));
        for name in ["1.safetensors", "2.safetensors"] {
            fs::write(directory.path().join(name), "").unwrap();
        }
        assert_eq!(names(directory.path()).unwrap(), ["1.safetensors", "2.safetensors"]);
    }

    #[test]
    fn scratch_files_disappear() {
        let scratch = Scratch::new().unwrap();
        let path = scratch.write("a.json", &Value::Null).unwrap();
        assert!(path.exists());
        drop(scratch);
        assert!(!path.exists());
    }
}
