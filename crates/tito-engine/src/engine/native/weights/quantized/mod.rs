//! Directories of quantised weights, widened while they are read.
//!
//! Owns what `quantization_config` means, and each format: from packed bytes to the numbers that the format's own reference
//! makes of them. Whoever reads sees an ordinary checkpoint, its tensors under their plain names (`X.weight`), and gets
//! rows of it one part after the other; the packed bytes are never in memory as a whole. Refuses to compute with packed
//! numbers, and what a setting asks for that would have to be guessed.

mod awq;
mod compressed;
mod format;
mod fp8;
mod gptq;
mod groups;
mod ints;
mod modelopt;
mod module;
mod mxfp4;
mod numbers;
mod nvfp4;
mod scales;
mod section;
mod widened;

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

use serde_json::{Map, Value};

use self::{
    awq::Awq,
    compressed::CompressedTensors,
    format::{Format, Role},
    fp8::Fp8,
    gptq::Gptq,
    modelopt::ModelOpt,
    module::Module,
    mxfp4::Mxfp4,
    section::Section,
    widened::{Unpack, Widened},
};
use super::{GgufWeights, Rounded, Rows, SafetensorsFiles, Weights, WeightsError, check_settings};
use crate::{files, gguf::GgufFile, json, weights::fault};

/// No config.json is longer.
const MOST_CONFIG_BYTES: u64 = 64 << 20;
/// Where modelopt says how weights are quantised, if config.json does not.
const OF_MODELOPT: &str = "hf_quant_config.json";

/// How the weights of a checkpoint are quantised.
pub(crate) struct Quantization {
    method: String,
    /// What is asked of activations, or of keys and values.
    unheeded: Vec<&'static str>,
    format: Box<dyn Format>,
}

impl Quantization {
    /// Reads `quantization_config` of a config.json, if there is one; what it says that cannot be honoured is the error.
    pub(crate) fn read(config: &Map<String, Value>) -> Result<Option<Self>, String> {
        Self::read_quoting(config, true)
    }

    /// The same; errors say values only if they may be quoted.
    fn read_quoting(config: &Map<String, Value>, quotes: bool) -> Result<Option<Self>, String> {
        let given = ["quantization_config", "compression_config"].iter().find_map(|key| config.get(*key));
        let settings = match given {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::Object(settings)) => settings,
            Some(_) => return Err("is not an object".to_owned()),
        };
        let section = Section::new(settings, quotes);
        let method: String = section.require("quant_method")?;
        let mut unheeded = Vec::new();
        let format: Box<dyn Format> = match method.as_str() {
            "fp8" => {
                unheeded.push("activations");
                Box::new(Fp8::read(&section)?)
            }
            "mxfp4" => Box::new(Mxfp4::read(&section)?),
            "gptq" => Box::new(Gptq::read(&section)?),
            "awq" => Box::new(Awq::read(&section)?),
            "modelopt" => Box::new(ModelOpt::read(&section, &mut unheeded)?),
            "compressed-tensors" => Box::new(CompressedTensors::read(&section, &mut unheeded)?),
            _ => return Err(section.refusal("quant_method", "is not read; pass the model in bf16, f16 or f32")),
        };
        Ok(Some(Self { method, unheeded, format }))
    }
}

/// What becomes of quantised weights, for those who read the log.
const WIDENED: &str = "its weights are widened as they are loaded";
const KEPT: &str = "its weights in FP8 and MXFP4 stay as they are, and others are widened as they are loaded";

/// A directory as it is loaded: widened, where its config.json says that it is quantised.
pub(crate) fn open_directory(directory: &Path, config: &Map<String, Value>) -> Result<Box<dyn Weights>, WeightsError> {
    let directory = resolved(directory);
    widened(SafetensorsFiles::open(&directory)?, &directory, config, Some(WIDENED))
}

/// The same for a backend that keeps codes.
pub(crate) fn open_coded(directory: &Path, config: &Map<String, Value>) -> Result<Box<dyn Weights>, WeightsError> {
    let directory = resolved(directory);
    widened(SafetensorsFiles::open(&directory)?, &directory, config, Some(KEPT))
}

/// Whether some tensor of a directory is in codes that a backend can keep.
pub(crate) fn holds_codes(directory: &Path, config: &Map<String, Value>) -> Result<bool, WeightsError> {
    let weights = widened(SafetensorsFiles::open(directory)?, directory, config, None)?;
    let is_coded = |name: &str| Ok::<_, WeightsError>(weights.rows(name)?.coded().is_some());
    for (name, _) in weights.tensors() {
        if is_coded(name)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a model with this config.json may have such tensors, as far as that shows without its weights. What the config
/// says that cannot be honoured is the error.
pub(crate) fn may_hold_codes(config: &Map<String, Value>) -> Result<bool, WeightsError> {
    let quantization = Quantization::read(config).map_err(WeightsError::Quantization)?;
    // These two have integers only.
    Ok(quantization.is_some_and(|described| !matches!(described.method.as_str(), "gptq" | "awq")))
}

/// Weights that somebody brings to a model that is loaded, see [`SafetensorsFiles::open_any`]: widened, where a config.json
/// beside them says that they are quantised. A GGUF file is read as at the start of a server that widens it.
pub(crate) fn open_any(path: &Path) -> Result<Box<dyn Weights>, WeightsError> {
    open_any_of(path, None)
}

/// The same for a model that was loaded from a GGUF file with this config.json: a file of a model with another one is refused.
pub(crate) fn open_any_of(
    path: &Path,
    config_of_gguf: Option<&Map<String, Value>>,
) -> Result<Box<dyn Weights>, WeightsError> {
    if path.is_file() && path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf")) {
        let file = GgufFile::open(path)?;
        if let Some(config) = config_of_gguf {
            check_settings(&file, config)?;
        }
        return Ok(Box::new(Rounded(GgufWeights::open(&file)?)));
    }
    let (path, directory) = match (path.is_file(), path.parent(), path.file_name()) {
        (true, Some(parent), Some(name)) => (resolved(parent).join(name), resolved(parent)),
        _ => (resolved(path), resolved(path)),
    };
    let mut files = SafetensorsFiles::open_any(&path)?;
    let config = object_in(&mut files, &directory, "config.json")?;
    widened(files, &directory, &config.unwrap_or_default(), Some(WIDENED))
}

/// A directory without links, so that all files are of the same one though somebody turns a link meanwhile. What is not there
/// stays as it was named, for the error.
fn resolved(directory: &Path) -> PathBuf {
    let named = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    named.canonicalize().unwrap_or_else(|_| directory.to_owned())
}

/// A file of a directory that is a JSON object, if there is one.
fn object_in(
    files: &mut SafetensorsFiles,
    directory: &Path,
    name: &str,
) -> Result<Option<Map<String, Value>>, WeightsError> {
    let path = directory.join(name);
    if !path.exists() {
        return Ok(None);
    }
    let error = |source| WeightsError::Read { path: path.clone(), source };
    let (text, watched) = files::read_text_watched(&path, MOST_CONFIG_BYTES).map_err(error)?;
    files.watch(watched);
    let wrong = |found| error(io::Error::new(io::ErrorKind::InvalidData, fault(&found)));
    json::read_python(&text).map(Some).map_err(wrong)
}

/// How a directory is quantised: what config.json says, else the file of modelopt.
fn described(
    files: &mut SafetensorsFiles,
    directory: &Path,
    config: &Map<String, Value>,
) -> Result<Option<Quantization>, WeightsError> {
    let read = |config| Quantization::read_quoting(config, false);
    let described = read(config).map_err(WeightsError::Quantization)?;
    if described.is_some() {
        return Ok(described);
    }
    let Some(mut settings) = object_in(files, directory, OF_MODELOPT)? else { return Ok(None) };
    settings.insert("quant_method".to_owned(), "modelopt".into());
    let config = Map::from_iter([("quantization_config".to_owned(), settings.into())]);
    let refused = |reason| WeightsError::Format { path: directory.join(OF_MODELOPT), reason };
    read(&config).map_err(|reason| refused(format!("it {reason}")))
}

/// Opens weights, and says in the log what becomes of them, unless nobody is to know.
fn widened(
    mut files: SafetensorsFiles,
    directory: &Path,
    config: &Map<String, Value>,
    becoming: Option<&str>,
) -> Result<Box<dyn Weights>, WeightsError> {
    let Some(quantization) = described(&mut files, directory, config)? else { return Ok(Box::new(files)) };
    let Quantization { method, unheeded, format } = quantization;
    let weights = QuantizedFiles::new(files, format)?;
    let Some(becoming) = becoming else { return Ok(Box::new(weights)) };
    tracing::info!("the checkpoint is quantised ({method}): {becoming}");
    if !unheeded.is_empty() {
        tracing::warn!(
            "the checkpoint asks for quantised {} too; they stay in the type of the engine",
            unheeded.join(", and for quantised ")
        );
    }
    Ok(Box::new(weights))
}

/// A directory of quantised weights under their plain names.
struct QuantizedFiles {
    files: SafetensorsFiles,
    format: Box<dyn Format>,
    /// The shapes by name, and whether a tensor is packed.
    tensors: BTreeMap<String, (Vec<usize>, bool)>,
}

impl QuantizedFiles {
    fn new(files: SafetensorsFiles, format: Box<dyn Format>) -> Result<Self, WeightsError> {
        let mut tensors = BTreeMap::new();
        for (full, shape) in files.tensors() {
            let (module, leaf) = full.rsplit_once('.').unwrap_or(("", full));
            let (name, tensor) = match format.role(&Module::new(&files, module), leaf)? {
                Role::Stored => (full.to_owned(), (shape.to_vec(), false)),
                Role::Packed { name, shape } => (name, (shape, true)),
                Role::Companion => continue,
            };
            if tensors.insert(name.clone(), tensor).is_some() {
                return Err(WeightsError::Repeated(name));
            }
        }
        Ok(Self { files, format, tensors })
    }
}

impl Weights for QuantizedFiles {
    fn tensors(&self) -> Vec<(&str, &[usize])> {
        self.tensors.iter().map(|(name, (shape, _))| (name.as_str(), &shape[..])).collect()
    }

    fn rows(&self, name: &str) -> Result<Box<dyn Rows + '_>, WeightsError> {
        let missing = || WeightsError::Missing(vec![name.to_owned()]);
        let (name, (_, is_packed)) = self.tensors.get_key_value(name).ok_or_else(missing)?;
        if !is_packed {
            return self.files.rows(name);
        }
        let (module, leaf) = name.rsplit_once('.').unwrap_or(("", name));
        self.format.open(&Module::new(&self.files, module), leaf)
    }

    fn check_unchanged(&self) -> Result<(), WeightsError> {
        self.files.check_unchanged()
    }
}

#[cfg(test)]
mod tests;
