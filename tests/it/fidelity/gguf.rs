//! A vocabulary as llama.cpp's converter writes it, and the tokenizer.json that it was made from.

use std::{collections::BTreeMap, fs};

use candle_core::quantized::gguf_file::Value;
use serde_json::Value as Json;
use tito::{
    gguf::{GgufFile, fixture::Gguf},
    tokenizer::Tokenizer,
};

use super::{assert_none, in_parallel, parting, recording, values};
use crate::it::continuity::ids;

/// What the converter writes of Gemma 3: kinds and scores as in the file of `google/gemma-3-270m`, in which ids of pieces
/// follow their scores.
fn converted(definition: &Json) -> Gguf {
    let mut tokens: Vec<(u64, String, i32, f32)> = Vec::new();
    let normal = 494;
    for (token, id) in definition["model"]["vocab"].as_object().unwrap() {
        let id = id.as_u64().unwrap();
        let kind = if token.starts_with("<0x") && token.len() == 6 { 6 } else { 1 };
        let score = if kind == 6 { 0.0 } else { -number(id.saturating_sub(normal)) };
        tokens.push((id, token.clone(), kind, score));
    }
    tokens.sort_by_key(|(id, ..)| *id);
    for added in definition["added_tokens"].as_array().unwrap() {
        // The image's token was added to the vocabulary later.
        let Some((_, token, kind, score)) = tokens.get_mut(usize::try_from(added["id"].as_u64().unwrap()).unwrap())
        else {
            continue;
        };
        *kind = if added["special"].as_bool().unwrap() { 3 } else { 4 };
        (*token, *score) = (token.replace('\u{2581}', " "), -1000.0);
    }
    let mut gguf = Gguf::tiny();
    gguf.metadata.retain(|key, _| !key.starts_with("tokenizer.ggml"));
    let text = |text: &str| Value::String(text.to_owned());
    gguf.set("tokenizer.ggml.model", text("llama"));
    gguf.set("tokenizer.ggml.pre", text("default"));
    gguf.set("tokenizer.ggml.tokens", Value::Array(tokens.iter().map(|(_, token, ..)| text(token)).collect()));
    gguf.set("tokenizer.ggml.token_type", Value::Array(tokens.iter().map(|(.., kind, _)| Value::I32(*kind)).collect()));
    gguf.set("tokenizer.ggml.scores", Value::Array(tokens.iter().map(|(.., score)| Value::F32(*score)).collect()));
    for (role, id) in [("bos", 2), ("eos", 1), ("unknown", 3)] {
        gguf.set(&format!("tokenizer.ggml.{role}_token_id"), Value::U32(id));
    }
    gguf.set("tokenizer.ggml.add_bos_token", Value::Bool(true));
    gguf.set("tokenizer.ggml.add_space_prefix", Value::Bool(false));
    gguf
}

/// What the converter writes of byte-level BPE.
fn converted_byte_level(definition: &Json, pre: &str) -> Gguf {
    let mut tokens: BTreeMap<u64, (String, i32)> = BTreeMap::new();
    for (token, id) in definition["model"]["vocab"].as_object().unwrap() {
        tokens.insert(id.as_u64().unwrap(), (token.clone(), 1));
    }
    for added in definition["added_tokens"].as_array().unwrap() {
        let token = added["content"].as_str().unwrap().to_owned();
        tokens.insert(added["id"].as_u64().unwrap(), (token, if added["special"].as_bool().unwrap() { 3 } else { 4 }));
    }
    for id in 0..*tokens.last_key_value().unwrap().0 {
        tokens.entry(id).or_insert_with(|| (format!("[PAD{id}]"), 5));
    }
    let merge = |merge: &Json| match merge {
        Json::String(merge) => Value::String(merge.clone()),
        pair => Value::String(format!("{} {}", pair[0].as_str().unwrap(), pair[1].as_str().unwrap())),
    };
    let mut gguf = Gguf::tiny();
    gguf.metadata.retain(|key, _| !key.starts_with("tokenizer.ggml"));
    let text = |text: &str| Value::String(text.to_owned());
    gguf.set("tokenizer.ggml.model", text("gpt2"));
    gguf.set("tokenizer.ggml.pre", text(pre));
    gguf.set("tokenizer.ggml.tokens", Value::Array(tokens.values().map(|(token, _)| text(token)).collect()));
    gguf.set("tokenizer.ggml.token_type", Value::Array(tokens.values().map(|(_, kind)| Value::I32(*kind)).collect()));
    let merges = definition["model"]["merges"].as_array().unwrap().iter().map(merge).collect();
    gguf.set("tokenizer.ggml.merges", Value::Array(merges));
    gguf.set("tokenizer.ggml.add_bos_token", Value::Bool(false));
    gguf
}

fn number(id: u64) -> f32 {
    u32::try_from(id).ok().and_then(|id| i32::try_from(id).ok()).map_or(0.0, |id| {
        #[expect(clippy::cast_precision_loss, reason = "vocabularies have fewer than 2^24 tokens")]
        let score = id as f32;
        score
    })
}

#[test]
fn gemmas_vocabulary_in_gguf_gives_the_merges_and_ids_of_its_tokenizer_json() {
    let Some(directory) = recording() else { return };
    let definition = fs::read(directory.join("tokenizers/gemma3/tokenizer.json")).unwrap();
    let definition: Json = serde_json::from_slice(&definition).unwrap();
    let path = tempfile::tempdir().unwrap();
    let path = path.path().join("model.gguf");
    converted(&definition).write(&path);
    let tokenizer: Tokenizer = GgufFile::open(&path).unwrap().tokenizer().unwrap();
    let built: Json = serde_json::from_str(&tokenizer.to_json().unwrap()).unwrap();
    for part in ["vocab", "merges", "byte_fallback", "fuse_unk", "unk_token"] {
        assert!(built["model"][part] == definition["model"][part], "{part}");
    }
    let mut differences = Vec::new();
    let cases = values(&directory.join("ids/gemma3.jsonl"));
    for case in &cases {
        let Some(text) = case["text"].as_str() else { continue };
        let with_special = case.get("ids_with_special").unwrap_or(&case["ids"]);
        let (expected, got) = (ids(with_special), tokenizer.encode(text, true).unwrap());
        if expected != got {
            differences.push(parting(&format!("{expected:?}"), &format!("{got:?}")));
        }
    }
    assert_none(&differences);
    assert!(cases.len() > 500, "{} compared", cases.len());
}

#[test]
fn vocabularies_in_gguf_give_the_ids_of_their_tokenizer_json() {
    let Some(directory) = recording() else { return };
    let named =
        [("qwen3", "qwen2"), ("llama3_1", "llama-bpe"), ("gptoss", "gpt-4o"), ("deepseek_v3", "deepseek-v3")].to_vec();
    in_parallel(named, |(family, pre)| {
        let definition = fs::read(directory.join(format!("tokenizers/{family}/tokenizer.json"))).unwrap();
        let definition: Json = serde_json::from_slice(&definition).unwrap();
        let path = tempfile::tempdir().unwrap();
        let path = path.path().join("model.gguf");
        converted_byte_level(&definition, pre).write(&path);
        let tokenizer: Tokenizer = GgufFile::open(&path).unwrap().tokenizer().unwrap();
        let cases = values(&directory.join(format!("ids/{family}.jsonl")));
        let texts = cases.iter().filter_map(|case| Some((case["text"].as_str()?, ids(&case["ids"]))));
        let differences: Vec<String> = texts
            .filter_map(|(text, expected)| {
                let got = tokenizer.encode(text, false).unwrap();
                (expected != got).then(|| parting(&format!("{expected:?}"), &format!("{got:?}")))
            })
            .collect();
        assert_none(&differences);
        assert!(cases.len() > 500, "{} compared", cases.len());
    });
}
