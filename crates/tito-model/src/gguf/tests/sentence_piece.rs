//! Vocabularies of `SentencePiece`.

use candle_core::quantized::gguf_file::Value;

use super::{fixture::Gguf, open, text};
use crate::{
    gguf::GgufError,
    tokenizer::{Tokenizer, TokenizerError},
};

/// The space of a vocabulary.
const SPACE: &str = "\u{2581}";
/// The first token after the special ones and those of single bytes.
const FIRST: u32 = 3 + 256;

/// A file with these pieces after the special tokens and those of all bytes: each with its kind and its score.
fn file(pieces: &[(&str, i32, f32)]) -> Gguf {
    let special = [("<unk>", 2), ("<s>", 3), ("</s>", 3)].map(|(token, kind)| (token.to_owned(), kind, -1000.0));
    let bytes = (0..=255).map(|byte| (format!("<0x{byte:02X}>"), 6, 0.0));
    let pieces = pieces.iter().map(|(token, kind, score)| ((*token).to_owned(), *kind, *score));
    let tokens: Vec<(String, i32, f32)> = special.into_iter().chain(bytes).chain(pieces).collect();
    let mut gguf = Gguf::tiny();
    gguf.metadata.retain(|key, _| !key.starts_with("tokenizer.ggml"));
    let list = |value: &dyn Fn(&(String, i32, f32)) -> Value| Value::Array(tokens.iter().map(value).collect());
    gguf.set("tokenizer.ggml.model", text("llama"));
    gguf.set("tokenizer.ggml.tokens", list(&|(token, _, _)| text(token)));
    gguf.set("tokenizer.ggml.token_type", list(&|(_, kind, _)| Value::I32(*kind)));
    gguf.set("tokenizer.ggml.scores", list(&|(_, _, score)| Value::F32(*score)));
    gguf.set("tokenizer.ggml.unknown_token_id", Value::U32(0));
    gguf.set("tokenizer.ggml.bos_token_id", Value::U32(1));
    gguf.set("tokenizer.ggml.eos_token_id", Value::U32(2));
    gguf.set("tokenizer.ggml.add_space_prefix", Value::Bool(false));
    gguf
}

fn pieces() -> Gguf {
    file(&[
        ("  ", 4, -1000.0),
        (SPACE, 1, -9.0),
        ("a", 1, -10.0),
        ("b", 1, -11.0),
        ("c", 1, -12.0),
        ("ab", 1, -2.0),
        ("bc", 1, -1.0),
        ("abc", 1, -3.0),
        ("<|turn|>", 4, -1000.0),
    ])
}

fn spelled(tokenizer: &Tokenizer, text: &str) -> String {
    let ids = tokenizer.encode(text, false).unwrap();
    ids.into_iter().map(|id| tokenizer.token(id).unwrap()).collect::<Vec<_>>().join("|")
}

#[test]
fn the_merge_into_the_token_of_the_highest_score_comes_first() {
    let tokenizer = open(&pieces()).unwrap().tokenizer().unwrap();
    assert_eq!(spelled(&tokenizer, "abc"), "abc");
    assert_eq!(spelled(&tokenizer, "ab bcb"), "ab|▁|bc|b");
    // `bc` is better than `ab`, and there is no `abc` without one of them.
    let gguf = file(&[("a", 1, 0.0), ("b", 1, 0.0), ("c", 1, 0.0), ("ab", 1, -2.0), ("bc", 1, -1.0)]);
    assert_eq!(spelled(&open(&gguf).unwrap().tokenizer().unwrap(), "abc"), "a|bc");
}

#[test]
fn spaces_bytes_and_special_tokens_are_those_of_the_vocabulary() {
    let tokenizer = open(&pieces()).unwrap().tokenizer().unwrap();
    assert_eq!(tokenizer.encode("a", true).unwrap(), [1, FIRST + 2]);
    assert_eq!(tokenizer.encode("a  b", false).unwrap(), [FIRST + 2, FIRST, FIRST + 3]);
    assert_eq!(spelled(&tokenizer, "é<|turn|> a"), "<0xC3>|<0xA9>|<|turn|>|▁|a");
    for text in ["a  b ab", "é\u{1f642}\n", " a<|turn|>bc"] {
        assert_eq!(tokenizer.decode(&tokenizer.encode(text, false).unwrap(), false).unwrap(), text);
    }
    assert!(tokenizer.is_special(2) && !tokenizer.is_special(FIRST + 8));
}

#[test]
fn what_a_file_does_not_say_is_refused() {
    let refused = |change: &dyn Fn(&mut Gguf)| {
        let mut gguf = pieces();
        change(&mut gguf);
        open(&gguf).unwrap().tokenizer().unwrap_err()
    };
    let space = "tokenizer.ggml.add_space_prefix";
    let unsaid = refused(&|gguf| drop(gguf.metadata.remove(space)));
    let said = refused(&|gguf| gguf.set(space, Value::Bool(true)));
    for error in [unsaid, said] {
        assert!(error.to_string().contains("puts a space before a text"), "{error}");
    }
    for (key, value) in [
        ("tokenizer.ggml.remove_extra_whitespaces", Value::Bool(true)),
        ("tokenizer.ggml.precompiled_charsmap", Value::Array(vec![Value::U8(1)])),
    ] {
        let error = refused(&|gguf| gguf.set(key, value.clone()));
        assert!(matches!(error, GgufError::TokenizerRules(_)), "{error}");
    }
    let spaced = file(&[("a", 1, 0.0), ("[multi modal]", 4, -1000.0)]);
    let error = open(&spaced).unwrap().tokenizer().unwrap_err();
    assert!(matches!(error, GgufError::TokenizerRules(reason) if reason.contains("a space within")), "{error}");
    let error = refused(&|gguf| gguf.set("tokenizer.ggml.scores", Value::Array(vec![Value::F32(0.0)])));
    assert!(matches!(error, GgufError::Invalid { .. }), "{error}");
    let error = refused(&|gguf| {
        let Some(Value::Array(scores)) = gguf.metadata.get_mut("tokenizer.ggml.scores") else { unreachable!() };
        scores[260] = Value::F32(f32::NAN);
    });
    assert!(matches!(error, GgufError::Invalid { .. }), "{error}");
}

#[test]
fn a_byte_without_a_token_and_a_token_that_is_too_long_are_errors() {
    let mut gguf = pieces();
    let Some(Value::Array(tokens)) = gguf.metadata.get_mut("tokenizer.ggml.tokens") else { unreachable!() };
    tokens[3 + 0x41] = text("other");
    let error = open(&gguf).unwrap().tokenizer().unwrap_err().to_string();
    assert!(error.contains("the byte 0x41 has no token"), "{error}");
    let error = open(&file(&[(&"a".repeat(600), 1, 0.0)])).unwrap().tokenizer().unwrap_err();
    assert!(matches!(error, GgufError::Tokenizer(TokenizerError::Invalid(_))), "{error}");
}
