//! What a GGUF file's header says, as far as mistral.rs would skip it: refused rather than computed wrongly.

use std::{collections::HashMap, fs::File, io::BufReader, path::Path};

use candle_core::quantized::{
    GgmlDType,
    gguf_file::{Content, Value},
};

use super::error::LoadError;

/// The arithmetic's type, for people: the quantisation that most weights have.
///
/// Fails on a file that mistral.rs would load but compute otherwise than its metadata says.
pub(super) fn inspect(path: &Path) -> Result<String, LoadError> {
    if !path.exists() {
        return Err(LoadError::NotFound(path.to_owned()));
    }
    let file = File::open(path).map_err(|source| LoadError::Unreadable { path: path.to_owned(), source })?;
    let header = Content::read(&mut BufReader::new(file)).map_err(|error| unsupported(error.to_string()))?;
    check(&header.metadata, header.tensor_infos.keys().map(String::as_str))?;
    let sizes = header.tensor_infos.values().map(|tensor| (tensor.ggml_dtype, tensor.shape.elem_count()));
    Ok(prevailing(sizes))
}

fn unsupported(reason: impl Into<String>) -> LoadError {
    LoadError::Unsupported(reason.into())
}

#[expect(clippy::float_cmp, reason = "any other number is another rope")]
fn check<'a>(metadata: &HashMap<String, Value>, tensors: impl Iterator<Item = &'a str>) -> Result<(), LoadError> {
    let text = |key: &str| metadata.get(key).and_then(|value| value.to_string().ok()).map(String::as_str);
    let number = |key: &str| metadata.get(key).and_then(number);
    let architecture = text("general.architecture").ok_or_else(|| unsupported("the file names no architecture"))?;
    let of_model = |key: &str| format!("{architecture}.{key}");

    let scaling = text(&of_model("rope.scaling.type")).unwrap_or("none");
    let factor = number(&of_model("rope.scaling.factor")).or_else(|| number(&of_model("rope.scale_linear")));
    if scaling != "none" || factor.is_some_and(|factor| factor != 1.0) {
        return Err(unsupported(format!("rope scaling (type {scaling}) of a GGUF file is not supported")));
    }
    let rope_base = number(&of_model("rope.freq_base")).unwrap_or(10_000.0);
    // mistral.rs takes the base of these from nowhere.
    if architecture.starts_with("phi") && rope_base != 10_000.0 {
        return Err(unsupported(format!("a rope base of {rope_base} is not supported for {architecture}")));
    }
    if number("split.count").is_some_and(|count| count > 1.0) {
        return Err(unsupported("a GGUF file that is split into several is not supported"));
    }
    let has_no_biases = matches!(architecture, "llama" | "mistral3" | "qwen3" | "qwen3moe");
    for name in tensors {
        if name.starts_with("rope_f") {
            return Err(unsupported(format!("scaled rope frequencies (tensor {name}) are not supported")));
        }
        if has_no_biases && name.rsplit('.').next() == Some("bias") {
            return Err(unsupported(format!("biases (tensor {name}) are not supported for {architecture}")));
        }
    }
    Ok(())
}

fn number(value: &Value) -> Option<f64> {
    match *value {
        Value::F32(number) => Some(number.into()),
        Value::F64(number) => Some(number),
        Value::U16(number) => Some(number.into()),
        Value::U32(number) => Some(number.into()),
        Value::I32(number) => Some(number.into()),
        _ => None,
    }
}

fn prevailing(sizes: impl Iterator<Item = (GgmlDType, usize)>) -> String {
    let mut totals = HashMap::new();
    for (dtype, elements) in sizes {
        *totals.entry(format!("{dtype:?}")).or_insert(0) += elements;
    }
    totals
        .into_iter()
        .max_by_key(|(name, elements)| (*elements, name.clone()))
        .map_or_else(String::new, |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(settings: &[(&str, Value)], tensors: &[&str]) -> Result<(), LoadError> {
        let mut metadata = HashMap::from([("general.architecture".to_owned(), Value::String("llama".to_owned()))]);
        metadata.extend(settings.iter().map(|(key, value)| ((*key).to_owned(), value.clone())));
        check(&metadata, tensors.iter().copied())
    }

    #[test]
    fn a_plain_file_passes() {
        checked(&[("llama.rope.freq_base", Value::F32(100_000.0))], &["token_embd.weight"]).unwrap();
        checked(&[("llama.rope.scaling.type", Value::String("none".to_owned()))], &[]).unwrap();
    }

    #[test]
    fn what_would_be_skipped_is_refused() {
        let text = |text: &str| Value::String(text.to_owned());
        checked(&[("llama.rope.scaling.type", text("yarn"))], &[]).unwrap_err();
        checked(&[("llama.rope.scaling.factor", Value::F32(4.0))], &[]).unwrap_err();
        checked(&[("split.count", Value::U16(2))], &[]).unwrap_err();
        checked(&[], &["rope_freqs.weight"]).unwrap_err();
        checked(&[], &["blk.0.attn_q.bias"]).unwrap_err();
        let phi = [("general.architecture", text("phi3")), ("phi3.rope.freq_base", Value::F32(1e6))];
        checked(&phi, &[]).unwrap_err();
    }

    #[test]
    fn the_quantisation_of_most_weights_names_the_arithmetic() {
        let sizes = [(GgmlDType::F32, 10), (GgmlDType::Q4_1, 6), (GgmlDType::Q4_1, 6)];
        assert_eq!(prevailing(sizes.into_iter()), "Q4_1");
    }
}
