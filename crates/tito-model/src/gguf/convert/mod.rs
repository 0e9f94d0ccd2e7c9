//! Widens a GGUF file to a Hugging Face directory in bf16.
//!
//! Quantised weights are dequantised and rounded to the nearest even bf16, a few rows at a time. A model that the
//! directory could not describe exactly is refused.

mod error;
mod safetensors;

pub use self::error::ConvertError;
use std::{io, path::Path};

use super::{GgufFile, GgufTensor, GgufTensors};
use crate::files::NewDirectory;

/// Converts `file` to the new directory `out`: config, generation config, tokenizer and model.safetensors.
///
/// `progress` is called with the number of tensors done and of all tensors. The directory appears at once, complete.
pub fn to_hugging_face(
    file: &GgufFile,
    out: &Path,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<(), ConvertError> {
    let config = file.model_config()?;
    let tensors = GgufTensors::open(file)?;
    let tokenizer = file.tokenizer()?.to_json()?;
    let staging = Staging::new(out)?;
    staging.write_json("config.json", &config)?;
    staging.write_json("generation_config.json", &file.generation_config()?)?;
    staging.write_json("tokenizer_config.json", &file.tokenizer_config()?)?;
    staging.write("tokenizer.json", &tokenizer)?;
    safetensors::write(&tensors, &staging.0.path().join("model.safetensors"), progress)?;
    tensors.check_unchanged()?;
    staging.publish(out)
}

/// A directory next to the destination that goes away unless it is published.
struct Staging(NewDirectory);

impl Staging {
    fn new(out: &Path) -> Result<Self, ConvertError> {
        NewDirectory::beside(out).map(Self).map_err(|source| match source.kind() {
            io::ErrorKind::AlreadyExists => ConvertError::Exists { path: out.to_owned() },
            _ => ConvertError::Write { path: out.to_owned(), source },
        })
    }

    fn write_json(&self, name: &str, value: &serde_json::Map<String, serde_json::Value>) -> Result<(), ConvertError> {
        // The alternate form of a JSON value is indented; unlike `to_string_pretty`, it cannot fail.
        self.write(name, &format!("{:#}\n", serde_json::Value::Object(value.clone())))
    }

    fn write(&self, name: &str, content: &str) -> Result<(), ConvertError> {
        let path = self.0.path().join(name);
        std::fs::write(&path, content).map_err(|source| ConvertError::Write { path, source })
    }

    fn publish(self, out: &Path) -> Result<(), ConvertError> {
        self.0.publish(out).map_err(|source| ConvertError::Write { path: out.to_owned(), source })
    }
}

#[cfg(test)]
mod tests;
