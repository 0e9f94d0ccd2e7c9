//! A GGUF file of a two-layer Llama with the vocabulary of the tiny model.

use std::{collections::BTreeMap, fs::File, path::Path};

use candle_core::{
    Device, Tensor,
    quantized::{GgmlDType, QTensor, gguf_file, gguf_file::Value},
};

/// The template that the file carries.
pub(crate) const CHAT_TEMPLATE: &str = "{{ messages[0].content }}";

/// A GGUF file to be.
pub(crate) struct Gguf {
    pub(crate) metadata: BTreeMap<String, Value>,
    pub(crate) tensors: BTreeMap<String, QTensor>,
}

impl Gguf {
    pub(crate) fn tiny() -> Self {
        let definition: serde_json::Value =
            serde_json::from_str(include_str!("../../tests/fixtures/tiny-model/tokenizer.json")).unwrap();
        let mut tokens: Vec<(u64, String, i32)> = definition["model"]["vocab"]
            .as_object()
            .unwrap()
            .iter()
            .map(|(token, id)| (id.as_u64().unwrap(), token.clone(), 1))
            .collect();
        for added in definition["added_tokens"].as_array().unwrap() {
            let id = added["id"].as_u64().unwrap();
            let kind = if added["special"].as_bool().unwrap() { 3 } else { 4 };
            tokens.retain(|(other, _, _)| *other != id);
            tokens.push((id, added["content"].as_str().unwrap().to_owned(), kind));
        }
        tokens.push((tokens.len() as u64, "[PAD]".to_owned(), 5));
        tokens.sort_unstable();
        let merges = definition["model"]["merges"].as_array().unwrap();
        let texts = |texts: Vec<&str>| Value::Array(texts.into_iter().map(|t| Value::String(t.to_owned())).collect());
        let mut gguf = Self { metadata: BTreeMap::new(), tensors: BTreeMap::new() };
        gguf.set("general.architecture", Value::String("llama".to_owned()));
        for (key, value) in [
            ("block_count", 2),
            ("context_length", 512),
            ("embedding_length", 32),
            ("feed_forward_length", 64),
            ("attention.head_count", 4),
            ("attention.head_count_kv", 2),
            ("rope.dimension_count", 8),
        ] {
            gguf.set(&format!("llama.{key}"), Value::U32(value));
        }
        gguf.set("llama.attention.layer_norm_rms_epsilon", Value::F32(1e-5));
        gguf.set("tokenizer.ggml.model", Value::String("gpt2".to_owned()));
        gguf.set("tokenizer.ggml.pre", Value::String("gpt-2".to_owned()));
        gguf.set("tokenizer.ggml.tokens", texts(tokens.iter().map(|(_, token, _)| token.as_str()).collect()));
        let kinds = tokens.iter().map(|(_, _, kind)| Value::I32(*kind)).collect();
        gguf.set("tokenizer.ggml.token_type", Value::Array(kinds));
        gguf.set("tokenizer.ggml.merges", texts(merges.iter().map(|merge| merge.as_str().unwrap()).collect()));
        gguf.set("tokenizer.ggml.bos_token_id", Value::U32(1));
        gguf.set("tokenizer.ggml.eos_token_id", Value::U32(2));
        gguf.set("tokenizer.ggml.add_bos_token", Value::Bool(false));
        gguf.set("tokenizer.chat_template", Value::String(CHAT_TEMPLATE.to_owned()));
        gguf.add_tensors(tokens.len());
        gguf
    }

    fn add_tensors(&mut self, vocab: usize) {
        self.add_tensor("token_embd.weight", &[vocab, 32], GgmlDType::Q8_0);
        self.add_tensor("output_norm.weight", &[32], GgmlDType::F32);
        for layer in 0..2 {
            for (name, shape) in [
                ("attn_q", [32, 32]),
                ("attn_k", [16, 32]),
                ("attn_v", [16, 32]),
                ("attn_output", [32, 32]),
                ("ffn_gate", [64, 32]),
                ("ffn_up", [64, 32]),
                ("ffn_down", [32, 64]),
            ] {
                self.add_tensor(&format!("blk.{layer}.{name}.weight"), &shape, GgmlDType::Q4_1);
            }
            self.add_tensor(&format!("blk.{layer}.attn_norm.weight"), &[32], GgmlDType::F32);
            self.add_tensor(&format!("blk.{layer}.ffn_norm.weight"), &[32], GgmlDType::F32);
        }
    }

    pub(crate) fn add_tensor(&mut self, name: &str, shape: &[usize], dtype: GgmlDType) {
        let seed = self.tensors.len();
        let count: usize = shape.iter().product();
        // Values of every size and sign, the same in each run.
        let values: Vec<f32> = (0..count)
            .map(|i| f32::sin(f32::from(u16::try_from((i * 7919 + seed * 104_729) % 65_521).unwrap())))
            .collect();
        let tensor = Tensor::from_vec(values, shape, &Device::Cpu).unwrap();
        self.tensors.insert(name.to_owned(), QTensor::quantize(&tensor, dtype).unwrap());
    }

    pub(crate) fn set(&mut self, key: &str, value: Value) {
        self.metadata.insert(key.to_owned(), value);
    }

    pub(crate) fn write(&self, path: &Path) {
        let metadata: Vec<(&str, &Value)> = self.metadata.iter().map(|(key, value)| (key.as_str(), value)).collect();
        let tensors: Vec<(&str, &QTensor)> = self.tensors.iter().map(|(name, value)| (name.as_str(), value)).collect();
        gguf_file::write(&mut File::create(path).unwrap(), &metadata, &tensors).unwrap();
    }
}
