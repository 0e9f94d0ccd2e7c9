//! The fast encoder beside the library: every character, random texts, random added tokens.

use std::sync::LazyLock;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::tokenizer::{
    Tokenizer,
    long_text::tests::{TOKENIZERS, gemma, llama_2, load, split_by, texts, tiny, with, with_added},
};

/// One tokenizer for each list of words, and those of `SentencePiece`.
static KNOWN: LazyLock<Vec<(String, Tokenizer)>> = LazyLock::new(|| {
    let byte_level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    let digits = json!({"type": "Digits", "individual_digits": true});
    let definition = |words: &&[&str]| match *words {
        &[BYTE_LEVEL] => tiny(),
        &[DIGITS, BYTE_LEVEL] => {
            with(tiny(), "pre_tokenizer", json!({"type": "Sequence", "pretokenizers": [digits, byte_level]}))
        }
        expressions => split_by(expressions),
    };
    let known = BYTE_LEVEL_WORDS.iter().map(definition);
    let composed = with(split_by(&[QWEN2]), "normalizer", json!({"type": "NFC"}));
    let mut whole_words = split_by(&[LLAMA3]);
    whole_words["model"]["ignore_merges"] = json!(true);
    let known = known.chain([composed, whole_words, incomplete(), gemma()]);
    known.enumerate().map(|(index, definition)| (format!("tokenizer {index}"), load(&definition))).collect()
});

/// Without tokens for some bytes, as `SmolLM2`'s.
fn incomplete() -> Value {
    let mut definition = tiny();
    let vocab = definition["model"]["vocab"].as_object_mut().unwrap();
    for (index, byte) in ["!", "Ą", "ò"].into_iter().enumerate() {
        let id = vocab.remove(byte).unwrap();
        vocab.insert(format!("hello{index}hello"), id);
    }
    definition
}

fn library(tokenizer: &Tokenizer, text: &str) -> Vec<TokenId> {
    tokenizer.encode_by_library(text, false).unwrap()
}

#[test]
fn every_known_tokenizer_is_encoded_fast() {
    for (name, tokenizer) in KNOWN.iter() {
        let fast = tokenizer.fast().unwrap_or_else(|| panic!("{name}"));
        // No byte of this one is without a token in any of them.
        let text = "hello world, <|im_end|> 12 日本\n";
        assert_eq!(fast.encode(text), Some(library(tokenizer, text)), "{name}");
    }
}

#[test]
fn tokenizers_with_other_parts_are_left_to_the_library() {
    let byte_level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    let mut unknown = incomplete();
    unknown["model"]["unk_token"] = json!("hello0hello");
    let mut suffixed = tiny();
    suffixed["model"]["end_of_word_suffix"] = json!("</w>");
    let mut without_bytes = gemma();
    without_bytes["model"]["byte_fallback"] = json!(false);
    let prefixed = json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true});
    let others = [
        llama_2(),
        unknown,
        suffixed,
        without_bytes,
        split_by(&[r"\w+|\s+|[^\w\s]+"]),
        split_by(&[QWEN2, LLAMA3]),
        with(tiny(), "pre_tokenizer", prefixed),
        with(tiny(), "normalizer", json!({"type": "NFD"})),
        with(tiny(), "normalizer", json!({"type": "Lowercase"})),
        with(
            tiny(),
            "pre_tokenizer",
            json!({"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, byte_level]}),
        ),
    ];
    for other in others {
        assert!(load(&other).fast().is_none(), "{} {}", other["pre_tokenizer"], other["normalizer"]);
    }
}

#[test]
fn added_tokens_that_look_beside_themselves_are_left_to_the_library() {
    let with = |tokens: &[(&str, &[&str])]| load(&with_added(tiny(), tokens)).fast().is_some();
    for attribute in ["single_word", "lstrip", "rstrip"] {
        assert!(!with(&[("<x>", &[attribute])]), "{attribute}");
    }
    assert!(with(&[("<x>", &["normalized"]), ("<y>", &[])]));
    for overlap in ["<x", "<x><y>", "><y>", "y<"] {
        assert!(!with(&[("<x>", &["normalized"]), (overlap, &[])]), "{overlap}");
    }
}

#[test]
fn a_text_that_threads_would_share_is_left_to_the_library() {
    let tokenizer = load(&tiny());
    let fast = tokenizer.fast().unwrap();
    assert!(fast.encode(&"a ".repeat(MOST_BYTES / 2)).is_none());
    assert!(fast.encode_without_added_tokens(&"a ".repeat(MOST_BYTES / 2)).is_none());
}

#[test]
fn texts_without_added_tokens_are_encoded_fast_where_bytes_are_the_alphabet() {
    // fastokens finds `<s>` in Gemma's vocabulary and makes it that token, which a user's text must not become.
    assert_eq!(load(&gemma()).fast().unwrap().encode_without_added_tokens("a <s>"), None);
    assert!(load(&tiny()).fast().unwrap().encode_without_added_tokens("a <|im_end|>").is_some());
}

/// A character beside all kinds of others.
fn beside_others(c: char) -> String {
    format!("b{c}c 1{c}2 {c}{c}!\n{c}'s日{c}")
}

#[test]
fn every_character_has_the_ids_of_the_library() {
    // Which class a character has is one table for all tokenizers: each of them takes every eighth, of which another begins
    // with the next one. So each character is compared once or twice.
    let step = if cfg!(unoptimised) { 487 } else { 8 };
    let assigned = |first: usize| (0..0x3_2000_u32).chain(0xe_0000..0xe_0200).skip(first).step_by(step);
    let empty = || (0x3_2000..=0x10_ffff).step_by(40_009);
    for (index, (name, tokenizer)) in KNOWN.iter().enumerate() {
        for text in assigned(index % step).chain(empty()).filter_map(char::from_u32).map(beside_others) {
            assert_eq!(tokenizer.encode(&text, false).unwrap(), library(tokenizer, &text), "{name}: {text:?}");
        }
    }
}

/// Texts of a few characters each, any of them many times.
fn noise() -> impl Strategy<Value = String> {
    let parts = prop::sample::select(
        [
            "a",
            "B",
            "é",
            "日",
            "ي",
            "1",
            "٣",
            "½",
            "'",
            "'s",
            "'LL",
            "\u{2019}re",
            "\"",
            "!",
            ".",
            "-",
            "/",
            "<",
            "|>",
            " ",
            "\t",
            "\n",
            "\r",
            "\u{a0}",
            "\u{3000}",
            "\u{85}",
            "\u{301}",
            "\u{200d}",
            "\u{1f642}",
            "\0",
            "\u{1c5}",
            "\u{2160}",
            "\u{17f}",
            "\u{1100}\u{1161}",
            "\u{e000}",
            "▁",
            "Ġ",
            "hello",
            "world",
        ]
        .to_vec(),
    );
    let piece = prop_oneof![
        (parts, 1..6_usize).prop_map(|(part, times)| part.repeat(times)),
        any::<char>().prop_map(String::from)
    ];
    prop::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

/// Added tokens that overlap each other and the text: whether each is special, and whether it is looked for in the normalised
/// text.
fn added_tokens() -> impl Strategy<Value = Vec<(String, [bool; 2])>> {
    let content = prop::collection::vec(prop::sample::select(vec!["<", "a", "|", ">", "h", " ", "é", "\n", "▁"]), 1..4);
    prop::collection::vec((content.prop_map(|parts| parts.concat()), any::<[bool; 2]>()), 1..5)
}

/// As many as `scripts/test` has time for.
const CASES: u32 = if cfg!(unoptimised) { 32 } else { 1_000 };

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, ..ProptestConfig::default() })]

    #[test]
    fn ids_are_those_of_the_library(text in prop_oneof![texts(), noise()]) {
        for (name, tokenizer) in KNOWN.iter() {
            prop_assert_eq!(tokenizer.encode(&text, false).unwrap(), library(tokenizer, &text), "{}", name);
            prop_assert_eq!(tokenizer.encode(&text, false).unwrap(), library(tokenizer, &text), "{} once more", name);
            let ordinary = encode_by_model(&tokenizer.inner, &text).unwrap();
            prop_assert_eq!(tokenizer.encode_without_added_tokens(&text).unwrap(), ordinary, "{} without added tokens", name);
        }
        for (name, tokenizer) in TOKENIZERS.iter() {
            for around in [false, true] {
                prop_assert_eq!(
                    tokenizer.encode(&text, around).unwrap(),
                    tokenizer.encode_by_library(&text, around).unwrap(),
                    "{}", name
                );
            }
        }
    }

    #[test]
    fn added_tokens_are_found_where_the_library_finds_them(tokens in added_tokens(), text in noise()) {
        const ATTRIBUTES: [&str; 2] = ["special", "normalized"];
        let attributes = |has: &[bool; 2]| ATTRIBUTES.into_iter().zip(has).filter(|(_, has)| **has).map(|(name, _)| name).collect::<Vec<_>>();
        let attributes: Vec<_> = tokens.iter().map(|(_, has)| attributes(has)).collect();
        let mut listed: Vec<(&str, &[&str])> = Vec::new();
        for ((content, _), attributes) in tokens.iter().zip(&attributes) {
            if listed.iter().all(|(other, _)| other != content) {
                listed.push((content, attributes));
            }
        }
        let beside_text = |(content, _): &(&str, &[&str])| format!("{content}{content} a{content}b {content} ");
        let contents = listed.iter().map(beside_text).collect::<Vec<_>>().concat();
        for definition in [tiny(), split_by(&[QWEN2]), gemma()] {
            // Nothing can be added twice.
            let there: Vec<_> = definition["added_tokens"].as_array().unwrap().iter().map(|token| token["content"].clone()).collect();
            let is_new = |(content, _): &&(&str, &[&str])| there.iter().all(|other| other != content);
            let listed: Vec<_> = listed.iter().filter(is_new).copied().collect();
            let tokenizer = load(&with_added(definition, &listed));
            for text in [&text, &contents, &format!("{text}{contents}{text}")] {
                prop_assert_eq!(&tokenizer.encode(text, false).unwrap(), &library(&tokenizer, text), "{:?}", listed);
            }
        }
    }
}
