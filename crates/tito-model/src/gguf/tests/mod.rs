mod ends;
mod older_files;
mod sentence_piece;
mod settings;

use candle_core::quantized::gguf_file::Value;

use super::{fixture::Gguf, *};
use crate::tokenizer::{Tokenizer, TokenizerError};

const TEXTS: [&str; 6] = [
    "hello world, the weather is 123456",
    "<|im_start|>user\nhé 😀<|im_end|>\n<think>x</think>",
    "I'm  you're\t\r\n  a   b ",
    "",
    "[PAD]",
    "日本語 e\u{301}",
];

fn open(gguf: &Gguf) -> Result<GgufFile, GgufError> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    gguf.write(&path);
    GgufFile::open(path)
}

fn tokenizer_with(change: impl FnOnce(&mut Gguf)) -> Result<Tokenizer, GgufError> {
    let mut gguf = Gguf::tiny();
    change(&mut gguf);
    open(&gguf)?.tokenizer()
}

fn text(value: &str) -> Value {
    Value::String(value.to_owned())
}

#[test]
fn the_tokenizer_has_the_ids_of_the_tokenizer_json() {
    let original =
        Tokenizer::from_file(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/tiny-model/tokenizer.json"))
            .unwrap();
    let tokenizer = tokenizer_with(|_| ()).unwrap();
    assert_eq!(tokenizer.added_tokens(), original.added_tokens());
    assert_eq!(tokenizer.vocab_size(), original.vocab_size());
    for text in TEXTS {
        let ids = tokenizer.encode(text, true).unwrap();
        assert_eq!(ids, original.encode(text, true).unwrap(), "{text}");
        assert_eq!(tokenizer.decode(&ids, false).unwrap(), text);
    }
}

#[test]
fn bos_and_eos_are_added_when_the_file_says_so() {
    let tokenizer = tokenizer_with(|gguf| {
        gguf.set("tokenizer.ggml.add_bos_token", Value::Bool(true));
        gguf.set("tokenizer.ggml.add_eos_token", Value::Bool(true));
    })
    .unwrap();
    let hello = tokenizer.id_of("hello").unwrap();
    assert_eq!(tokenizer.encode("hello", true).unwrap(), [1, hello, 2]);
    assert_eq!(tokenizer.encode("hello", false).unwrap(), [hello]);
}

#[test]
fn each_pre_tokenizer_cuts_digits_in_its_own_way() {
    let ids = |pre: &str| {
        let tokenizer = tokenizer_with(|gguf| gguf.set("tokenizer.ggml.pre", text(pre))).unwrap();
        let ids = tokenizer.encode("123456", false).unwrap();
        ids.into_iter().map(|id| tokenizer.token(id).unwrap()).collect::<Vec<_>>().join("|")
    };
    assert_eq!(ids("gpt-2"), "123|456");
    assert_eq!(ids("llama-bpe"), "123|456");
    assert_eq!(ids("deepseek-v3"), "123|456");
    assert_eq!(ids("gpt-4o"), "123|456");
    assert_eq!(ids("llama4"), "123|456");
    assert_eq!(ids("tekken"), "1|2|3|4|5|6");
    assert_eq!(ids("qwen35"), "1|2|3|4|5|6");
    assert_eq!(ids("qwen2"), "1|2|3|4|5|6");
    assert_eq!(ids("smollm"), "1|2|3|4|5|6");
}

#[test]
fn qwen2_composes_characters_first() {
    let tokenizer = tokenizer_with(|gguf| gguf.set("tokenizer.ggml.pre", text("qwen2"))).unwrap();
    assert_eq!(tokenizer.encode("e\u{301}", false).unwrap(), tokenizer.encode("é", false).unwrap());
}

#[test]
fn an_unknown_pre_tokenizer_is_named_not_guessed() {
    let error = tokenizer_with(|gguf| gguf.set("tokenizer.ggml.pre", text("viking"))).unwrap_err();
    assert!(error.to_string().contains("`viking`"), "{error}");
    assert!(error.to_string().contains("smollm"), "{error}");
    let error = tokenizer_with(|gguf| drop(gguf.metadata.remove("tokenizer.ggml.pre"))).unwrap_err();
    assert!(matches!(error, GgufError::Missing(_)), "{error}");
    let error = tokenizer_with(|gguf| gguf.set("tokenizer.ggml.model", text("bert"))).unwrap_err();
    assert!(matches!(error, GgufError::TokenizerModel(_)), "{error}");
}

#[test]
fn a_token_with_two_ids_is_an_error() {
    let error = tokenizer_with(|gguf| {
        let Some(Value::Array(tokens)) = gguf.metadata.get_mut("tokenizer.ggml.tokens") else { unreachable!() };
        tokens[9] = tokens[8].clone();
    });
    assert!(matches!(error, Err(GgufError::Tokenizer(TokenizerError::Invalid(_)))), "{error:?}");
}

#[test]
fn an_unused_id_has_no_token() {
    let file = open(&Gguf::tiny()).unwrap();
    let tokenizer = file.tokenizer().unwrap();
    assert_eq!(file.vocab_size().unwrap(), tokenizer.vocab_size() + 1);
    assert!(!tokenizer.contains(u32::try_from(tokenizer.vocab_size()).unwrap()));
}

#[test]
fn several_chat_templates_are_listed_by_name() {
    let mut gguf = Gguf::tiny();
    gguf.set("tokenizer.chat_template.tool_use", text("T"));
    let config = open(&gguf).unwrap().tokenizer_config().unwrap();
    let expected = serde_json::json!([
        {"name": "default", "template": fixture::CHAT_TEMPLATE}, {"name": "tool_use", "template": "T"}]);
    assert_eq!(config["chat_template"], expected);
    assert_eq!(config["eos_token"], "<|im_end|>");
    gguf.set("tokenizer.chat_template.default", text("T"));
    let error = open(&gguf).unwrap().tokenizer_config().unwrap_err().to_string();
    assert!(error.contains("`tokenizer.chat_template.default` is not the only default template"), "{error}");
    gguf.metadata.remove("tokenizer.chat_template");
    assert_eq!(open(&gguf).unwrap().tokenizer_config().unwrap()["chat_template"][0]["name"], "default");
}

#[test]
fn other_and_truncated_files_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    assert!(matches!(GgufFile::open(&path), Err(GgufError::Open { .. })));
    std::fs::write(&path, b"PK\x03\x04....").unwrap();
    assert!(matches!(GgufFile::open(&path), Err(GgufError::NotGguf { .. })));
    std::fs::write(&path, b"GG").unwrap();
    assert!(matches!(GgufFile::open(&path), Err(GgufError::NotGguf { .. })));

    Gguf::tiny().write(&path);
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() - 100]).unwrap();
    assert!(matches!(GgufFile::open(&path), Err(GgufError::Truncated { missing_bytes: 1..=100, .. })));
    std::fs::write(&path, &whole[..2000]).unwrap();
    assert!(matches!(GgufFile::open(&path), Err(GgufError::Read { .. })));
}

#[test]
fn a_tensor_larger_than_any_number_says_is_not_in_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    Gguf::tiny().write(&path);
    let mut bytes = std::fs::read(&path).unwrap();
    let name = b"token_embd.weight";
    let place = bytes.windows(name.len()).position(|window| window == name).unwrap();
    // The name, the number of dimensions, the dimensions.
    let dimensions = place + name.len() + 4;
    bytes[dimensions..][..8].copy_from_slice(&(1_u64 << 33).to_le_bytes());
    bytes[dimensions + 8..][..8].copy_from_slice(&(1_u64 << 33).to_le_bytes());
    std::fs::write(&path, bytes).unwrap();
    assert!(matches!(GgufFile::open(&path), Err(GgufError::Truncated { .. })));
}

#[test]
fn sizes_that_no_file_has_are_refused_before_anything_is_made_of_them() {
    let refusal = |changes: &[(&str, u64)]| {
        let mut gguf = Gguf::tiny();
        gguf.metadata.remove("llama.rope.dimension_count");
        for (key, value) in changes {
            gguf.set(&format!("llama.{key}"), Value::U64(*value));
        }
        open(&gguf).unwrap().named_tensors().unwrap_err().to_string()
    };
    let most = i64::MAX.cast_unsigned();
    assert!(refusal(&[("block_count", most)]).contains("layers"));
    assert!(refusal(&[("attention.key_length", 1 << 62)]).contains("heads"));
    assert!(refusal(&[("attention.key_length", 8), ("attention.head_count_kv", most)]).contains("heads"));
    assert!(refusal(&[("attention.key_length", 8), ("embedding_length", 0)]).contains("0 numbers"));
    assert!(refusal(&[("attention.head_count", 0)]).contains("0 heads"));
    let with_keys = [("attention.key_length", 8), ("attention.head_count", 0), ("attention.head_count_kv", 1)];
    assert!(refusal(&with_keys).contains("0 heads"));
}

/// A wrong `block_count` must not drop layers: llama.cpp refuses such a file, too.
#[test]
fn layers_that_are_not_counted_are_refused_unless_they_predict_further_tokens() {
    let refusal = |blocks: u32, further: Option<u32>, tensors: &[&str]| {
        let mut gguf = Gguf::tiny();
        gguf.set("llama.block_count", Value::U32(blocks));
        if let Some(further) = further {
            gguf.set("llama.nextn_predict_layers", Value::U32(further));
        }
        for name in tensors {
            gguf.add_tensor(name, &[32], candle_core::quantized::GgmlDType::F32);
        }
        let error = open(&gguf).unwrap().named_tensors().err();
        error.map(|error| error.to_string())
    };
    assert_eq!(refusal(2, None, &[]), None);
    assert!(refusal(1, None, &[]).unwrap().contains("blk.1."));
    assert!(refusal(2, Some(1), &[]).unwrap().contains("blk.1."));
    assert_eq!(refusal(3, Some(1), &["blk.2.attn_norm.weight", "blk.2.nextn.enorm.weight"]), None);
    assert!(refusal(3, Some(1), &["blk.2.attn_norm.weight"]).unwrap().contains("blk.2."));
    assert!(refusal(3, Some(1), &["blk.3.nextn.enorm.weight"]).unwrap().contains("blk.3."));
    assert!(refusal(2, None, &["blk.2.nextn.enorm.weight"]).unwrap().contains("blk.2."));
}

#[test]
fn one_part_of_several_is_refused() {
    let mut gguf = Gguf::tiny();
    gguf.set("split.count", Value::U16(3));
    assert!(matches!(open(&gguf), Err(GgufError::Split { parts: 3, .. })));
}

#[test]
fn the_seed_of_the_fuzz_target_is_the_tiny_file() {
    let seed = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/gguf/whole");
    let renewed = std::env::temp_dir().join("tito-seed.gguf");
    Gguf::tiny().write(&renewed);
    let same = std::fs::read(seed).is_ok_and(|seed| seed == std::fs::read(&renewed).unwrap());
    assert!(same, "copy {} to {seed}", renewed.display());
}
