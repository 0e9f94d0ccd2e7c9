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
mod unheeded;
mod widened;

use std::{
    collections::{BTreeMap, BTreeSet},
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
use crate::{
    files::{self, Watched},
    gguf::GgufFile,
    json,
    weights::fault,
};

/// No config.json is longer.
const MOST_CONFIG_BYTES: u64 = 64 << 20;
/// Where modelopt says how weights are quantised, if config.json does not.
const OF_MODELOPT: &str = "hf_quant_config.json";
/// Where older releases of `AutoGPTQ` and `AutoAWQ` say it, and what they mean if they do not name a method. Some leave such
/// a file beside weights that are not quantised.
const OF_WORDS: [(&str, &str); 2] = [("quantize_config.json", "gptq"), ("quant_config.json", "awq")];

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
        let settings = match description(config) {
            None => return Ok(None),
            Some(Value::Object(settings)) => settings,
            Some(_) => return Err("is not an object".to_owned()),
        };
        let section = Section::new(settings, quotes);
        let method: String = section.require("quant_method")?;
        let mut unheeded = Vec::new();
        let format: Box<dyn Format> = match method.as_str() {
            "fp8" => Box::new(Fp8::read(&section, &mut unheeded)?),
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

/// What a config.json says of how weights are quantised. Like vLLM, that of the text counts where there is none on top.
fn description(config: &Map<String, Value>) -> Option<&Value> {
    const KEY: &str = "quantization_config";
    let of_text = || config.get("text_config").and_then(|text| text.get(KEY));
    let given = |value: &&Value| !value.is_null();
    let named = config.get(KEY).filter(given).or_else(|| of_text().filter(given));
    named.or_else(|| config.get("compression_config").filter(given))
}

/// How the weights of a directory are quantised, by the name that its files have for it; `None` if they are not.
pub(crate) fn method(directory: &Path, config: &Map<String, Value>) -> Option<String> {
    let named = |settings: &Value| settings.get("quant_method").and_then(Value::as_str).map(str::to_owned);
    if let Some(settings) = description(config) {
        return Some(named(settings).unwrap_or_else(|| "an unnamed method".to_owned()));
    }
    if directory.join(OF_MODELOPT).exists() {
        return Some("modelopt".to_owned());
    }
    let (file, default) = OF_WORDS.into_iter().find(|(file, _)| directory.join(file).exists())?;
    // Weights that are not here yet may be in words.
    if SafetensorsFiles::open(directory).is_ok_and(|files| !has_words(&files)) {
        return None;
    }
    let (settings, _) = object_of(&directory.join(file)).ok()??;
    Some(named(&settings.into()).unwrap_or_else(|| default.to_owned()))
}

/// Whether some weights are in words, as those of GPTQ and AWQ are.
fn has_words(files: &SafetensorsFiles) -> bool {
    files.tensors().iter().any(|(name, _)| name.ends_with(".qweight"))
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
    let Some((object, watched)) = object_of(&directory.join(name))? else { return Ok(None) };
    files.watch(watched);
    Ok(Some(object))
}

/// A JSON object of a file, and the file as it was read.
type WatchedObject = (Map<String, Value>, Watched);

/// A file that is a JSON object, if there is one, from before it was read.
fn object_of(path: &Path) -> Result<Option<WatchedObject>, WeightsError> {
    if !path.exists() {
        return Ok(None);
    }
    let error = |source| WeightsError::Read { path: path.to_owned(), source };
    let (text, watched) = files::read_text_watched(path, MOST_CONFIG_BYTES).map_err(error)?;
    let wrong = |found| error(io::Error::new(io::ErrorKind::InvalidData, fault(&found)));
    json::read_python(&text).map(|object| Some((object, watched))).map_err(wrong)
}

/// How a directory is quantised: what config.json says, else a file of whoever quantised it.
fn described(
    files: &mut SafetensorsFiles,
    directory: &Path,
    config: &Map<String, Value>,
) -> Result<Option<Quantization>, WeightsError> {
    let read = |config: &Map<String, Value>| Quantization::read_quoting(config, false);
    let described = read(config).map_err(WeightsError::Quantization)?;
    if described.is_some() {
        return Ok(described);
    }
    let described_by = |name: &str, settings: Map<String, Value>| {
        let refused = |reason| WeightsError::Format { path: directory.join(name), reason };
        let described = read(&Map::from_iter([("quantization_config".to_owned(), settings.into())]));
        described.map_err(|reason| refused(format!("it {reason}")))
    };
    if let Some(mut settings) = object_in(files, directory, OF_MODELOPT)? {
        settings.insert("quant_method".to_owned(), "modelopt".into());
        return described_by(OF_MODELOPT, settings);
    }
    let of_words: &[_] = if has_words(files) { &OF_WORDS } else { &[] };
    for (name, method) in of_words {
        if let Some(mut settings) = object_in(files, directory, name)? {
            settings.entry("quant_method").or_insert_with(|| (*method).into());
            return described_by(name, settings);
        }
    }
    Ok(None)
}

/// Opens weights, and says in the log what becomes of them, unless nobody is to know.
fn widened(
    mut files: SafetensorsFiles,
    directory: &Path,
    config: &Map<String, Value>,
    becoming: Option<&str>,
) -> Result<Box<dyn Weights>, WeightsError> {
    let Some(quantization) = described(&mut files, directory, config)? else { return Ok(Box::new(files)) };
    let Quantization { method, mut unheeded, format } = quantization;
    let weights = QuantizedFiles::new(files, format, &mut unheeded)?;
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
    /// The names of those that say nothing to a model which has none of that name.
    fillers: BTreeSet<String>,
}

impl QuantizedFiles {
    /// Adds to `besides` what tensors ask for besides quantised weights.
    fn new(
        files: SafetensorsFiles,
        format: Box<dyn Format>,
        besides: &mut Vec<&'static str>,
    ) -> Result<Self, WeightsError> {
        let (mut tensors, mut fillers) = (BTreeMap::new(), BTreeSet::new());
        for (full, shape) in files.tensors() {
            let (module, leaf) = full.rsplit_once('.').unwrap_or(("", full));
            let (name, tensor) = match format.role(&Module::new(&files, module), leaf)? {
                Role::Stored => (full.to_owned(), (shape.to_vec(), false)),
                Role::Filler => {
                    fillers.insert(full.to_owned());
                    (full.to_owned(), (shape.to_vec(), false))
                }
                Role::Packed { name, shape } => (name, (shape, true)),
                Role::Companion => continue,
                Role::Unheeded(what) => {
                    unheeded::add(besides, what);
                    continue;
                }
            };
            if tensors.insert(name.clone(), tensor).is_some() {
                return Err(WeightsError::Repeated(name));
            }
        }
        Ok(Self { files, format, tensors, fillers })
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

    fn is_filler(&self, name: &str) -> bool {
        self.fillers.contains(name)
    }

    fn check_unchanged(&self) -> Result<(), WeightsError> {
        self.files.check_unchanged()
    }
}

#[cfg(test)]
mod tests;
