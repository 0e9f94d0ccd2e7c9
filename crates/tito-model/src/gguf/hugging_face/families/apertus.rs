//! Apertus, whose activation is learnt in each layer: its numbers are settings of the file.

use serde_json::{Value, json};

use super::super::{
    super::GgufError,
    lines::{Dim, Line, line},
    model::{Family, Model},
    rope::{self, ROPE_FACTORS},
    tables::{ATTENTION, ATTENTION_BIASES, HEAD_NORMS, UNGATED_MLP},
    tensors::NamedTensor,
};

pub(super) const APERTUS: Family =
    Family { name: "apertus", model_type: "apertus", class: "ApertusForCausalLM", read: apertus };

const NORMS: [Line; 2] = [
    line("attn_norm.weight", "attention_layernorm.weight", &[Dim::Hidden]),
    line("ffn_norm.weight", "feedforward_layernorm.weight", &[Dim::Hidden]),
];

/// Numbers of the activation: a setting with one for each layer, and the tensor of each layer with its shape.
const ACTIVATION: [(&str, &str, &[usize]); 4] = [
    ("xielu.alpha_n", "mlp.act_fn.alpha_n", &[1]),
    ("xielu.alpha_p", "mlp.act_fn.alpha_p", &[1]),
    ("xielu.beta", "mlp.act_fn.beta", &[]),
    ("xielu.eps", "mlp.act_fn.eps", &[]),
];

fn apertus(model: &mut Model<'_>) -> Result<(), GgufError> {
    model.decoder()?;
    model.intermediate()?;
    for lines in [&NORMS[..], &ATTENTION, &HEAD_NORMS, &UNGATED_MLP] {
        model.layer(lines)?;
    }
    let bias = model.attention_biases(&ATTENTION_BIASES)?;
    model.set(json!({"hidden_act": "xielu", "attention_bias": bias}));
    activation(model)?;
    rotation(model)
}

fn activation(model: &mut Model<'_>) -> Result<(), GgufError> {
    for (key, name, shape) in ACTIVATION {
        let numbers = model.file.metadata().required_floats(key)?;
        if numbers.len() != model.layers() || numbers.iter().any(|number| !number.is_finite()) {
            return Err(GgufError::Invalid { key: key.to_owned(), expected: "a finite number for each layer" });
        }
        for (layer, number) in numbers.into_iter().enumerate() {
            model.tensor(NamedTensor::of_numbers(format!("model.layers.{layer}.{name}"), shape, vec![number]));
        }
    }
    Ok(())
}

/// The rotary embedding as one dictionary: without one, transformers takes the scaling of published models for granted.
fn rotation(model: &mut Model<'_>) -> Result<(), GgufError> {
    let pairs = model.sizes.get(Dim::Head) / 2;
    let theta = rope::read(&model.settings)?.theta;
    let factors = rope::with_factors(model.file, &model.settings, pairs)?.filter(|scaling| *scaling != Value::Null);
    if model.has(ROPE_FACTORS) {
        model.unused(ROPE_FACTORS);
    }
    let scaling = model.take_scaling();
    let mut parameters = factors.or(scaling).unwrap_or_else(|| json!({"rope_type": "default"}));
    parameters["rope_theta"] = json!(theta);
    model.set(json!({"rope_parameters": parameters}));
    Ok(())
}

#[cfg(test)]
mod tests {
    use candle_core::quantized::gguf_file::Value as Setting;

    use crate::gguf::{GgufFile, fixture::Gguf};

    /// Why a file of two layers with these numbers of the activation is refused.
    fn refusal(numbers: Option<&[f32]>) -> String {
        let mut gguf = Gguf::tiny();
        let settings: Vec<(String, Setting)> =
            gguf.metadata.iter().map(|(key, value)| (key.replace("llama.", "apertus."), value.clone())).collect();
        gguf.metadata = settings.into_iter().collect();
        gguf.set("general.architecture", Setting::String("apertus".to_owned()));
        if let Some(numbers) = numbers {
            gguf.set("xielu.alpha_n", Setting::Array(numbers.iter().copied().map(Setting::F32).collect()));
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("model.gguf");
        gguf.write(&path);
        GgufFile::open(path).unwrap().model_config().unwrap_err().to_string()
    }

    #[test]
    fn the_activation_needs_finite_numbers_for_each_layer() {
        assert_eq!(refusal(None), "GGUF metadata has no `xielu.alpha_n`");
        let invalid = "GGUF metadata `xielu.alpha_n` is not a finite number for each layer";
        assert_eq!(refusal(Some(&[0.5])), invalid);
        assert_eq!(refusal(Some(&[0.5, f32::NAN])), invalid);
        assert_eq!(refusal(Some(&[0.5, 0.5])), "GGUF metadata has no `xielu.alpha_p`");
    }
}
