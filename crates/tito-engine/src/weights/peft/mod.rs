//! Adapters as PEFT saves them: LoRA, two thin matrices beside each weight matrix that was trained.
//!
//! A directory has `adapter_config.json` and `adapter_model.safetensors`. The same can come in memory: safetensors whose
//! metadata have the text of the configuration under `adapter_config`.
//!
//! Owns which of PEFT's settings an adapter may have. Refuses to know which modules a model has.
//!
//! Follows `peft/tuners/lora/config.py`, `peft/tuners/lora/layer.py` and `peft/utils/save_and_load.py` of PEFT 0.21.

mod base;
mod config;
mod error;
mod merge;
mod modules;
mod pattern;
mod targets;
mod tensors;

pub use base::is_same;
pub use error::PeftError;
pub use merge::merge;
pub use modules::{PeftKind, PeftModule, PeftOrigin};

use std::io;

use bytes::Bytes;

use super::{SafetensorsStream, WeightTensor, fault, header::quoted_excerpt, stream::StreamError};
use crate::files::{Directory, Watched};
use config::Config;
use error::CONFIG;
/// The name of the file of tensors.
const TENSORS: &str = "adapter_model.safetensors";
/// The name of the file of tensors that torch wrote.
const PICKLED: &str = "adapter_model.bin";
/// The metadata of safetensors that hold the settings, where an adapter comes in memory.
const CONFIG_NOTE: &str = "adapter_config";
/// No file of settings is longer.
const MOST_CONFIG_BYTES: u64 = 16 << 20;
/// No file of tensors is longer.
const MOST_TENSOR_BYTES: u64 = 64 << 30;

/// An adapter.
#[derive(Debug, Clone, PartialEq)]
pub struct PeftAdapter {
    /// What it adds to, in the order of the tensors.
    pub modules: Vec<PeftModule>,
}

impl PeftAdapter {
    /// Reads an adapter's directory.
    ///
    /// # Errors
    ///
    /// If it is not there, or is not what is read here.
    pub fn open(directory: &Directory) -> Result<Self, PeftError> {
        // What cannot be served is said before much is read.
        let (text, settings) = settings(directory)?;
        let config = Config::parse(&text)?;
        let (bytes, tensors) = match directory.read_watched(TENSORS, MOST_TENSOR_BYTES) {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::NotFound && directory.has(PICKLED) => {
                let reason = format!("{PICKLED} is not read, since unpickling it could run code; save it as {TENSORS}");
                return Err(PeftError::Tensors(reason));
            }
            Err(source) => return Err(unreadable(directory, TENSORS, source)),
        };
        // Both are of one version.
        tensors.check()?;
        settings.check()?;
        Self::of(&config, unpacked(bytes.into())?.0)
    }

    /// Reads only what an adapter's directory says of its origin.
    ///
    /// # Errors
    ///
    /// If it is not there, or does not say what it is.
    pub fn origin(directory: &Directory) -> Result<PeftOrigin, PeftError> {
        config::origin(&directory.read(CONFIG, MOST_CONFIG_BYTES).map_err(without_settings(directory))?)
    }

    /// Reads an adapter that is in memory as safetensors whose metadata have its settings.
    ///
    /// # Errors
    ///
    /// If it is not what is read here.
    pub fn parse(bytes: Bytes) -> Result<Self, PeftError> {
        let (tensors, text) = unpacked(bytes)?;
        let text = text.ok_or_else(|| {
            PeftError::Tensors(format!("their metadata lack `{CONFIG_NOTE}`, the text of the adapter's {CONFIG}"))
        })?;
        Self::of(&Config::parse(text.as_bytes())?, tensors)
    }

    fn of(config: &Config, tensors: Vec<WeightTensor>) -> Result<Self, PeftError> {
        tensors::modules(config, tensors).map(|modules| Self { modules }).map_err(PeftError::Tensors)
    }

    /// The greatest rank of its modules.
    pub fn rank(&self) -> usize {
        self.modules.iter().map(PeftModule::rank).max().unwrap_or(0)
    }

    /// The bytes of its tensors.
    pub fn bytes(&self) -> u64 {
        self.modules.iter().map(|module| (module.a.bytes.len() + module.b.bytes.len()) as u64).sum()
    }
}

/// Reads the text of the settings, and watches their file.
fn settings(directory: &Directory) -> Result<(Vec<u8>, Watched), PeftError> {
    directory.read_watched(CONFIG, MOST_CONFIG_BYTES).map_err(without_settings(directory))
}

fn without_settings(directory: &Directory) -> impl Fn(io::Error) -> PeftError {
    move |error| match error.kind() {
        io::ErrorKind::NotFound => PeftError::NotFound(directory.path().to_owned()),
        _ => unreadable(directory, CONFIG, error),
    }
}

fn unreadable(directory: &Directory, name: &str, source: io::Error) -> PeftError {
    PeftError::Read { path: directory.path().join(name), source }
}

/// The tensors of safetensors, and the settings that their metadata have.
fn unpacked(bytes: Bytes) -> Result<(Vec<WeightTensor>, Option<String>), PeftError> {
    let mut stream = SafetensorsStream::new();
    let refused = |error: StreamError| PeftError::Tensors(error.to_string());
    let tensors = stream.push(bytes).map_err(refused)?;
    let text = stream.header().and_then(|header| header.notes().get(CONFIG_NOTE)).cloned();
    stream.finish().map_err(refused)?;
    Ok((tensors, text))
}

#[cfg(test)]
mod tests;
