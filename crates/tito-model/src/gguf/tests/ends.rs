//! Which tokens end a generation.

use candle_core::quantized::gguf_file::Value;
use serde_json::json;

use super::{fixture::Gguf, open, text};

const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const NORMAL: i32 = 1;

/// A file with these tokens of these kinds after two others, and with these tokens in roles.
fn file(tokens: &[(&str, i32)], roles: &[(&str, u32)]) -> Gguf {
    let mut gguf = Gguf::tiny();
    let all: Vec<(&str, i32)> = [("a", NORMAL), ("b", NORMAL)].into_iter().chain(tokens.iter().copied()).collect();
    gguf.set("tokenizer.ggml.tokens", Value::Array(all.iter().map(|(token, _)| text(token)).collect()));
    gguf.set("tokenizer.ggml.token_type", Value::Array(all.iter().map(|(_, kind)| Value::I32(*kind)).collect()));
    gguf.metadata.remove("tokenizer.ggml.eos_token_id");
    for (role, id) in roles {
        gguf.set(&format!("tokenizer.ggml.{role}_token_id"), Value::U32(*id));
    }
    gguf
}

fn ends(gguf: &Gguf) -> serde_json::Value {
    open(gguf).unwrap().generation_config().unwrap().get("eos_token_id").cloned().unwrap_or_default()
}

/// The tokens that end a generation where these are special and the first of them is the main end.
fn ends_of(tokens: &[&str]) -> Vec<String> {
    let special: Vec<(&str, i32)> = tokens.iter().map(|token| (*token, CONTROL)).collect();
    let ids = match ends(&file(&special, &[("eos", 2)])) {
        serde_json::Value::Array(ids) => ids,
        id => vec![id],
    };
    let index = |id: &serde_json::Value| usize::try_from(id.as_u64().unwrap()).unwrap() - 2;
    ids.iter().map(|id| tokens[index(id)].to_owned()).collect()
}

#[test]
fn ends_of_published_models_are_found_by_their_texts() {
    // The list of each generation_config.json, with other tokens that the vocabulary has.
    for (name, ends, others) in [
        ("gpt-oss", vec!["<|return|>", "<|endoftext|>", "<|call|>"], vec!["<|end|>", "<|start|>", "<|channel|>"]),
        ("Llama 3.1", vec!["<|eot_id|>", "<|end_of_text|>", "<|eom_id|>"], vec!["<|begin_of_text|>"]),
        ("Gemma 3", vec!["<eos>", "<end_of_turn>"], vec!["<bos>", "<start_of_turn>"]),
        ("Gemma 4", vec!["<eos>", "<|tool_response>", "<turn|>"], vec!["</s>", "<|turn>"]),
        (
            "Qwen 3",
            vec!["<|im_end|>", "<|endoftext|>"],
            vec!["<|im_start|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<|vision_end|>"],
        ),
        ("Phi-3", vec!["<|endoftext|>", "<|end|>"], vec!["<|user|>"]),
        ("DeepSeek", vec!["<｜end▁of▁sentence｜>"], vec!["<｜User｜>"]),
    ] {
        let tokens: Vec<&str> = ends.iter().chain(&others).copied().collect();
        assert_eq!(ends_of(&tokens), ends, "{name}");
    }
}

#[test]
fn the_end_of_a_message_is_no_end_beside_those_of_harmony() {
    assert_eq!(ends_of(&["<eos>", "<|end|>", "<|call|>"]), ["<eos>", "<|end|>", "<|call|>"]);
    assert_eq!(ends_of(&["<eos>", "<|end|>", "<|call|>", "<|return|>"]), ["<eos>", "<|call|>", "<|return|>"]);
    assert_eq!(ends_of(&["<eos>", "<|end|>", "<|calls|>", "<|flush|>"]), ["<eos>", "<|calls|>", "<|flush|>"]);
    // What a file names as its end is one.
    assert_eq!(ends_of(&["<|end|>", "<|call|>", "<|return|>"]), ["<|end|>", "<|call|>", "<|return|>"]);
    let named = [("<|return|>", CONTROL), ("<|call|>", CONTROL), ("<|end|>", CONTROL)];
    assert_eq!(ends(&file(&named, &[("eos", 2), ("eot", 4)])), json!([2, 3]));
}

/// In the vocabularies of Gemma, `</s>` is the tag that ends what is struck through.
#[test]
fn a_tag_is_no_end() {
    let with_tag = |kind| ends(&file(&[("<eos>", CONTROL), ("</s>", kind)], &[("eos", 2)]));
    assert_eq!(with_tag(CONTROL), json!([2, 3]));
    assert_eq!(with_tag(USER_DEFINED), 2);
    assert_eq!(with_tag(NORMAL), 2);
    // Converters that do not know better write other ends so.
    assert_eq!(ends(&file(&[("<eos>", CONTROL), ("<|im_end|>", USER_DEFINED)], &[("eos", 2)])), json!([2, 3]));
}

#[test]
fn ends_that_the_file_names_are_ends_whatever_their_texts() {
    let mut gguf = file(&[("<|user|>", CONTROL), ("<|observation|>", CONTROL)], &[]);
    assert_eq!(ends(&gguf), json!(null));
    gguf.set("tokenizer.ggml.eom_token_id", Value::U32(3));
    assert_eq!(ends(&gguf), 3);
    gguf.set("tokenizer.ggml.eot_token_id", Value::U32(2));
    assert_eq!(ends(&gguf), json!([2, 3]));
    gguf.set("tokenizer.ggml.eos_token_id", Value::U32(3));
    assert_eq!(ends(&gguf), json!([3, 2]));
    // A file without a vocabulary, to which a tokenizer is given.
    gguf.metadata.retain(|key, _| !key.ends_with("tokens") && !key.ends_with("token_type"));
    assert_eq!(ends(&gguf), json!([3, 2]));
}
