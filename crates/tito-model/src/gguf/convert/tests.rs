use std::path::PathBuf;

use ::safetensors::{Dtype, SafeTensors};
use candle_core::{
    Device, Tensor,
    quantized::{GgmlDType, gguf_file::Value},
};
use half::bf16;

use super::*;
use crate::{gguf::fixture::Gguf, tokenizer::Tokenizer};

/// Converts and returns the directory, in a temporary place.
fn convert(gguf: &Gguf) -> (tempfile::TempDir, Result<PathBuf, ConvertError>) {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("model.gguf");
    gguf.write(&source);
    let out = dir.path().join("out");
    let result = to_hugging_face(&GgufFile::open(&source).unwrap(), &out, &mut |_, _| ()).map(|()| out);
    (dir, result)
}

fn expected(gguf: &Gguf, name: &str, heads: Option<usize>) -> Vec<u8> {
    let tensor = gguf.tensors[name].dequantize(&Device::Cpu).unwrap();
    let tensor = match (heads, tensor.dims()) {
        (Some(heads), &[rows, columns]) => tensor
            .reshape((heads, rows / heads / 2, 2, columns))
            .and_then(|tensor| tensor.transpose(1, 2)?.contiguous()?.reshape((rows, columns)))
            .unwrap(),
        _ => tensor,
    };
    let values = tensor.flatten_all().and_then(|tensor: Tensor| tensor.to_vec1::<f32>()).unwrap();
    values.into_iter().flat_map(|value| bf16::from_f32(value).to_le_bytes()).collect()
}

#[test]
fn weights_are_widened_and_rotary_rows_reordered() {
    let gguf = Gguf::tiny();
    let (_dir, out) = convert(&gguf);
    let bytes = std::fs::read(out.unwrap().join("model.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(tensors.len(), gguf.tensors.len());
    for (source, name, heads) in [
        ("token_embd", "model.embed_tokens", None),
        ("output_norm", "model.norm", None),
        ("blk.0.attn_q", "model.layers.0.self_attn.q_proj", Some(4)),
        ("blk.1.attn_k", "model.layers.1.self_attn.k_proj", Some(2)),
        ("blk.1.attn_v", "model.layers.1.self_attn.v_proj", None),
        ("blk.1.ffn_down", "model.layers.1.mlp.down_proj", None),
    ] {
        let tensor = tensors.tensor(&format!("{name}.weight")).unwrap();
        let source = format!("{source}.weight");
        assert_eq!(tensor.dtype(), Dtype::BF16);
        assert_eq!(tensor.shape(), gguf.tensors[&source].shape().dims());
        assert_eq!(tensor.data(), expected(&gguf, &source, heads), "{name}");
    }
}

#[test]
fn the_directory_describes_the_model() {
    let (_dir, out) = convert(&Gguf::tiny());
    let out = out.unwrap();
    let json =
        |name: &str| -> serde_json::Value { serde_json::from_slice(&std::fs::read(out.join(name)).unwrap()).unwrap() };
    let config = json("config.json");
    assert_eq!(config["rms_norm_eps"], 1e-5);
    assert_eq!(config["rope_theta"], 10_000.0);
    assert_eq!(config["head_dim"], 8);
    assert_eq!(config["tie_word_embeddings"], true);
    assert_eq!(json("generation_config.json")["eos_token_id"], serde_json::json!([2, 0]));
    assert_eq!(json("tokenizer_config.json")["eos_token"], "<|im_end|>");
    let tokenizer = Tokenizer::from_file(out.join("tokenizer.json")).unwrap();
    assert_eq!(tokenizer.encode("hello<|im_end|>", true).unwrap(), [tokenizer.id_of("hello").unwrap(), 2]);
}

#[test]
fn an_untied_head_is_converted_too() {
    let mut gguf = Gguf::tiny();
    let vocab = gguf.tensors["token_embd.weight"].shape().dims()[0];
    gguf.add_tensor("output.weight", &[vocab, 32], GgmlDType::Q8_0);
    let (_dir, out) = convert(&gguf);
    let bytes = std::fs::read(out.unwrap().join("model.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(tensors.tensor("lm_head.weight").unwrap().data(), expected(&gguf, "output.weight", None));
}

#[test]
fn what_the_directory_could_not_describe_is_refused() {
    let refused = |change: &dyn Fn(&mut Gguf)| {
        let mut gguf = Gguf::tiny();
        change(&mut gguf);
        let (dir, out) = convert(&gguf);
        let entries = std::fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(entries, 1, "only the source is left");
        out.unwrap_err().to_string()
    };
    let reason = refused(&|gguf| gguf.add_tensor("rope_freqs.weight", &[4], GgmlDType::F32));
    assert!(reason.contains("rope_freqs.weight"), "{reason}");
    let reason = refused(&|gguf| gguf.add_tensor("blk.0.attn_k.bias", &[16], GgmlDType::F32));
    assert!(reason.contains("blk.0.attn_k.bias"), "{reason}");
    let reason = refused(&|gguf| drop(gguf.tensors.remove("blk.1.ffn_up.weight")));
    assert!(reason.contains("blk.1.ffn_up.weight"), "{reason}");
    // One with experts is a Mixtral.
    let reason = refused(&|gguf| gguf.set("llama.expert_count", Value::U32(8)));
    assert!(reason.contains("llama.expert_used_count"), "{reason}");
    let reason = refused(&|gguf| {
        gguf.set("llama.expert_count", Value::U32(8));
        gguf.set("llama.expert_used_count", Value::U32(2));
    });
    assert!(reason.contains("blk.0.ffn_down.weight"), "{reason}");
    let reason = refused(&|gguf| gguf.set("llama.attention.scale", Value::F32(0.5)));
    assert!(reason.contains("llama.attention.scale"), "{reason}");
    let reason = refused(&|gguf| gguf.set("llama.rope.scaling.type", Value::String("longrope".to_owned())));
    assert!(reason.contains("longrope"), "{reason}");
    let reason = refused(&|gguf| gguf.set("llama.block_count", Value::U32(u32::MAX)));
    assert!(reason.contains("4294967295 layers"), "{reason}");
    let reason = refused(&|gguf| gguf.set("llama.logit_scale", Value::F32(0.5)));
    assert!(reason.contains("llama.logit_scale"), "{reason}");
    let reason = refused(&|gguf| gguf.set("llama.attention.causal", Value::Bool(false)));
    assert!(reason.contains("llama.attention.causal"), "{reason}");
    let reason = refused(&|gguf| gguf.set("general.architecture", Value::String("phi3".to_owned())));
    assert!(reason.contains("phi3"), "{reason}");
}

#[test]
fn an_existing_directory_is_not_touched() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("model.gguf");
    Gguf::tiny().write(&source);
    let out = dir.path().join("out");
    std::fs::create_dir(&out).unwrap();
    std::fs::write(out.join("notes"), "mine").unwrap();
    let error = to_hugging_face(&GgufFile::open(&source).unwrap(), &out, &mut |_, _| ()).unwrap_err();
    assert!(matches!(error, ConvertError::Exists { .. }));
    assert_eq!(std::fs::read_dir(&out).unwrap().count(), 1);
}

#[test]
fn progress_ends_with_all_tensors() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("model.gguf");
    Gguf::tiny().write(&source);
    let mut last = (0, 0);
    to_hugging_face(&GgufFile::open(&source).unwrap(), &dir.path().join("out"), &mut |done, all| last = (done, all))
        .unwrap();
    assert_eq!(last, (20, 20));
}
