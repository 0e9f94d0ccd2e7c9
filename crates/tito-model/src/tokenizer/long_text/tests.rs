use std::sync::LazyLock;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{super::AddedToken, *};

const QWEN2: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const GPT_4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const DEEPSEEK_V3: [&str; 3] = [
    r"\p{N}{1,3}",
    "[一-龥\u{3040}-\u{309f}\u{30a0}-\u{30ff}]+",
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##,
];

pub(in crate::tokenizer) fn tiny() -> Value {
    serde_json::from_str(include_str!("../../../../../tests/fixtures/tiny-model/tokenizer.json")).unwrap()
}

pub(in crate::tokenizer) fn load(definition: &Value) -> Tokenizer {
    Tokenizer::from_bytes(definition.to_string().as_bytes()).unwrap()
}

pub(in crate::tokenizer) fn with(mut definition: Value, field: &str, value: Value) -> Value {
    definition[field] = value;
    definition
}

/// The tiny model's, cut into words by these expressions.
pub(in crate::tokenizer) fn split_by(expressions: &[&str]) -> Value {
    let split = |expression: &&str| json!({"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated", "invert": false});
    let bytes = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false});
    let steps: Vec<Value> = expressions.iter().map(split).chain([bytes]).collect();
    with(tiny(), "pre_tokenizer", json!({"type": "Sequence", "pretokenizers": steps}))
}

fn added(id: usize, content: &str, attributes: &[&str]) -> Value {
    let is = |attribute: &str| attributes.contains(&attribute);
    json!({"id": id, "content": content, "special": is("special"), "single_word": is("single_word"),
           "lstrip": is("lstrip"), "rstrip": is("rstrip"), "normalized": is("normalized")})
}

pub(in crate::tokenizer) fn with_added(mut definition: Value, tokens: &[(&str, &[&str])]) -> Value {
    let first = definition["added_tokens"].as_array().unwrap().iter().map(|token| token["id"].as_u64().unwrap()).max();
    let of_model = definition["model"]["vocab"].as_object().unwrap().len();
    let first = of_model.max(usize::try_from(first.unwrap()).unwrap() + 1);
    let mut next = first..;
    let vocab = definition["model"]["vocab"].clone();
    let mut id = |content: &str| match vocab[content].as_u64() {
        Some(id) => usize::try_from(id).unwrap(),
        None => next.next().unwrap(),
    };
    let list = definition["added_tokens"].as_array_mut().unwrap();
    list.extend(tokens.iter().map(|(content, attributes)| added(id(content), content, attributes)));
    definition
}

/// Pieces of `SentencePiece` with merges, among them one that reaches over a space.
fn sentencepiece(normalizer: &Value, pre_tokenizer: &Value) -> Value {
    let merges = [
        ("h", "e"),
        ("l", "l"),
        ("he", "ll"),
        ("hell", "o"),
        ("▁", "hello"),
        ("▁", "▁"),
        ("▁▁", "▁▁"),
        ("w", "o"),
        ("▁", "wo"),
        ("a", "▁"),
        ("a▁", "b"),
        ("\n", "\n"),
        ("a", "b"),
        ("。", "▁"),
        ("1", "2"),
    ];
    let mut tokens: Vec<String> = ["<unk>", "<s>", "</s>"].map(str::to_owned).to_vec();
    tokens.extend((0..=255).map(|byte| format!("<0x{byte:02X}>")));
    tokens.extend("▁ abcdehlorwxyz123.,!?'<>|_\n日。".chars().map(String::from));
    tokens.extend(merges.iter().map(|(left, right)| format!("{left}{right}")));
    tokens.dedup();
    let merges: Vec<String> = merges.iter().map(|(left, right)| format!("{left} {right}")).collect();
    let vocab: serde_json::Map<_, _> = tokens.into_iter().enumerate().map(|(id, token)| (token, json!(id))).collect();
    let merges: Vec<Value> = merges.iter().map(|merge| json!(merge.split(' ').collect::<Vec<_>>())).collect();
    json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": [added(0, "<unk>", &["special"]), added(1, "<s>", &["special"]), added(2, "</s>", &["special"])],
        "normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "post_processor": null,
        "decoder": {"type": "ByteFallback"},
        "model": {"type": "BPE", "dropout": null, "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true,
                  "vocab": vocab, "merges": merges},
    })
}

fn spaces_replaced() -> Value {
    json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"})
}

/// Like Llama 2's: a mark for a space in front of every text.
pub(in crate::tokenizer) fn llama_2() -> Value {
    sentencepiece(
        &json!({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, spaces_replaced()]}),
        &Value::Null,
    )
}

/// Like Gemma's: a split that never finds anything.
pub(in crate::tokenizer) fn gemma() -> Value {
    let split = json!({"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": false});
    with_added(sentencepiece(&spaces_replaced(), &split), &[("\n\n", &[]), ("<b>", &[]), ("▁▁▁", &[])])
}

fn metaspace(scheme: &str, split: bool) -> Value {
    sentencepiece(
        &Value::Null,
        &json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split}),
    )
}

/// Tokenizers by their names.
pub(in crate::tokenizer) static TOKENIZERS: LazyLock<Vec<(&'static str, Tokenizer)>> = LazyLock::new(|| {
    let nfc = || with(split_by(&[QWEN2]), "normalizer", json!({"type": "NFC"}));
    let mut ignoring = split_by(&[LLAMA3]);
    ignoring["model"]["ignore_merges"] = json!(true);
    let gpt_2 = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    let digits = |individual: bool| {
        let digits = json!({"type": "Digits", "individual_digits": individual});
        with(tiny(), "pre_tokenizer", json!({"type": "Sequence", "pretokenizers": [digits, gpt_2]}))
    };
    let prefixed = json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true});
    let around = json!({"type": "TemplateProcessing", "pair": [],
        "single": [{"SpecialToken": {"id": "<|im_start|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                   {"SpecialToken": {"id": "<|im_end|>", "type_id": 0}}],
        "special_tokens": {"<|im_start|>": {"id": "<|im_start|>", "ids": [1], "tokens": ["<|im_start|>"]},
                           "<|im_end|>": {"id": "<|im_end|>", "ids": [2], "tokens": ["<|im_end|>"]}}});
    let strips: [(&str, &[&str]); 2] = [("<l>", &["lstrip", "special"]), ("<r>", &["rstrip", "special"])];
    let normalized: [(&str, &[&str]); 3] = [("é x", &["normalized"]), ("wor", &["normalized"]), ("<b> ", &[])];
    let definitions = [
        ("gpt-2", tiny()),
        ("smollm", digits(true)),
        ("digits in runs", digits(false)),
        ("qwen2", nfc()),
        ("llama-3", ignoring),
        ("gpt-4o", split_by(&[GPT_4O])),
        ("deepseek-v3", split_by(&DEEPSEEK_V3)),
        ("a prefix", with(tiny(), "pre_tokenizer", prefixed)),
        ("tokens around", with(tiny(), "post_processor", around)),
        ("stripping tokens", with_added(tiny(), &strips)),
        ("normalised tokens", with_added(nfc(), &normalized)),
        ("decomposed", with(split_by(&[QWEN2]), "normalizer", json!({"type": "NFD"}))),
        ("llama-2", llama_2()),
        ("gemma", gemma()),
        ("words with marks", metaspace("always", true)),
        ("marks at the first word", metaspace("first", false)),
        ("no marks in front", metaspace("never", true)),
    ];
    definitions.into_iter().map(|(name, definition)| (name, load(&definition))).collect()
});

/// What real texts are made of, and what is treated apart.
pub(in crate::tokenizer) fn texts() -> impl Strategy<Value = String> {
    let parts = [
        "hello",
        " hello",
        " world",
        "  ",
        " ",
        "\n",
        "\n\n",
        " \n",
        "\t",
        "\r\n",
        "a b",
        "ab",
        "12",
        "345",
        " 6",
        "'s",
        "'LL ",
        "it's",
        ".",
        "...",
        "?! ",
        "。",
        "日本",
        " 日",
        "é",
        "e\u{301}",
        "\u{301}",
        "Ω\u{212a}\u{1fef}",
        "\u{2003}",
        "\u{3000}",
        "ſ",
        "😀",
        "😀 ",
        "한국",
        "я и ",
        "ASSISTANT",
        "assistant",
        "the weather",
        "/path/x",
        "<|im_end|>",
        "<|im_start|>user\n",
        "<|im",
        "_end|>",
        "<s>",
        "</s>",
        "<b>",
        "<b> ",
        "<l>",
        " <l>",
        "<r>",
        "<r> ",
        "wor",
        "é x",
        "▁",
        "▁▁",
        " ▁",
        "a▁b",
        "\u{1e030}",
        "x y",
        "\0",
        "[]{}",
        "ﬆ",
        "你好，世界。",
        "الس ",
        "नम ",
    ];
    prop::collection::vec(prop::sample::select(parts.to_vec()), 0..60).prop_map(|parts| parts.concat())
}

/// Each case goes through all tokenizers, which takes its time where they are not optimised.
const CASES: u32 = if cfg!(unoptimised) { 16 } else { 96 };

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, ..ProptestConfig::default() })]

    #[test]
    fn a_text_in_pieces_has_the_ids_of_the_whole(text in texts(), size in 1..40_usize) {
        for (name, tokenizer) in TOKENIZERS.iter() {
            let whole = tokenizer.at_once(&text, false).unwrap();
            let around = tokenizer.around.as_ref().unwrap();
            let pieces = tokenizer.piecewise(&text, &Around::default(), Extent::Whole, size).unwrap();
            prop_assert_eq!(&pieces, &whole, "{}", name);
            let special = tokenizer.piecewise(&text, around, Extent::Whole, size).unwrap();
            prop_assert_eq!(&special, &tokenizer.at_once(&text, true).unwrap(), "{} with special tokens", name);
            let offsets = tokenizer.piecewise_with_offsets(&text, size).unwrap();
            prop_assert_eq!(offsets, tokenizer.piecewise_with_offsets(&text, usize::MAX >> 1).unwrap(), "{} offsets", name);
        }
    }

    #[test]
    fn a_part_of_the_ids_is_that_of_the_whole(text in texts(), size in 1..40_usize, count in 0..60_usize) {
        for (name, tokenizer) in TOKENIZERS.iter() {
            let around = tokenizer.around.as_ref().unwrap();
            let whole = tokenizer.at_once(&text, true).unwrap();
            let few = count.min(whole.len());
            let first = tokenizer.piecewise(&text, around, Extent::First(count), size).unwrap();
            prop_assert_eq!(&first[..few], &whole[..few], "{}", name);
            let last = tokenizer.piecewise(&text, around, Extent::Last(count), size).unwrap();
            prop_assert_eq!(&last[last.len() - few..], &whole[whole.len() - few..], "{}", name);
            let fits = tokenizer.piecewise(&text, around, Extent::AtMost(count), size).unwrap();
            prop_assert!(fits == whole || (fits.len() > count && whole.len() > count), "{}", name);
        }
    }

    #[test]
    fn no_token_stands_for_more_bytes_than_the_longest(text in texts(), count in 0..60_usize) {
        for (name, tokenizer) in TOKENIZERS.iter() {
            let whole = tokenizer.at_once(&text, false).unwrap();
            if let Some(longest) = tokenizer.longest {
                prop_assert!(text.len() <= whole.len() * longest, "{}: {} of {}", name, whole.len(), longest);
            }
            match tokenizer.encode_part(&text, false, Extent::AtMost(count)) {
                Ok(ids) => prop_assert_eq!(&ids, &whole, "{}", name),
                Err(TokenizerError::TooLong { .. }) => prop_assert!(whole.len() > count, "{}", name),
                Err(error) => prop_assert!(false, "{}: {}", name, error),
            }
        }
    }
}

/// The pieces that a text of words is cut into.
fn pieces(tokenizer: &Tokenizer, text: &str, size: usize) -> usize {
    let (mut at, mut count) = (0, 0);
    while at < text.len() {
        at = tokenizer.piece(text, at, size).unwrap().next;
        count += 1;
    }
    count
}

#[test]
fn texts_of_words_are_cut_by_every_tokenizer() {
    let words = "hello world, hello. ".repeat(40);
    for (name, tokenizer) in TOKENIZERS.iter() {
        assert!(pieces(tokenizer, &words, 40) >= 10, "{name}");
    }
}

#[test]
fn special_tokens_cut_a_text_without_spaces() {
    let turns = "<|im_end|>".repeat(100);
    for (name, tokenizer) in TOKENIZERS.iter().take(12) {
        assert!(pieces(tokenizer, &turns, 40) >= 20, "{name}");
    }
}

#[test]
fn texts_without_spaces_are_cut_where_their_words_end() {
    let chinese = "你好，世界。".repeat(20);
    let base64 = "aGVsbG8gd29ybGQ1".repeat(20);
    for (name, definition) in [("qwen2", split_by(&[QWEN2])), ("gpt-4o", split_by(&[GPT_4O]))] {
        let tokenizer = load(&definition);
        assert!(pieces(&tokenizer, &chinese, 60) >= 4 && pieces(&tokenizer, &base64, 60) >= 4, "{name}");
    }
}

#[test]
fn one_long_word_is_encoded_at_once_up_to_a_bound() {
    let tokenizer = load(&tiny());
    let word = "x".repeat(3 * PIECE);
    assert_eq!(tokenizer.encode(&word, false).unwrap(), tokenizer.at_once(&word, false).unwrap());
    let word = "x".repeat(MOST_UNCUT + 1);
    let error = tokenizer.encode(&word, false).unwrap_err();
    assert!(matches!(error, TokenizerError::Uncuttable { most: MOST_UNCUT }), "{error}");
    let error = tokenizer.encode_with_offsets(&word, false).unwrap_err();
    assert!(matches!(error, TokenizerError::Uncuttable { .. }), "{error}");
}

#[test]
fn encoding_ends_when_there_are_enough_ids() {
    let tokenizer = load(&tiny());
    let words = "hello world ".repeat(PIECE);
    let ids = tokenizer.encode_part(&words, false, Extent::First(10)).unwrap();
    assert!(ids.len() >= 10 && ids.len() < PIECE, "{}", ids.len());
    // 13 bytes, as those of `</tool_response>` are 16.
    assert_eq!(tokenizer.longest, Some("</tool_response>".len()));
    let error = tokenizer.encode_part(&words, false, Extent::AtMost(100)).unwrap_err();
    let TokenizerError::TooLong { bytes, characters, most_bytes, most_tokens } = error else { panic!("{error}") };
    assert_eq!((bytes, characters, most_bytes, most_tokens), (words.len(), words.len(), 1600, 100));
}

#[test]
fn tokens_that_may_stand_for_any_number_of_bytes_have_no_bound() {
    let mut unknown = sentencepiece(&Value::Null, &Value::Null);
    unknown["model"]["byte_fallback"] = json!(false);
    let mut each = unknown.clone();
    each["model"]["fuse_unk"] = json!(false);
    assert_eq!(load(&each).longest, Some("▁▁▁▁".len()));
    let mut dropped = each.clone();
    dropped["model"]["unk_token"] = Value::Null;
    let mut incomplete = tiny();
    let vocab = incomplete["model"]["vocab"].as_object_mut().unwrap();
    vocab.remove("!");
    vocab.insert("hellohello".to_owned(), json!(vocab.len()));
    let split = json!({"type": "Split", "pattern": {"String": " "}, "behavior": "Removed", "invert": false});
    let unbounded = [
        ("fused unknown characters", unknown),
        ("characters that are left out", dropped),
        ("a byte without a token", incomplete),
        ("a token that swallows spaces", with_added(tiny(), &[("<r>", &["rstrip"])])),
        (
            "stripped texts",
            with(tiny(), "normalizer", json!({"type": "Strip", "strip_left": true, "strip_right": true})),
        ),
        ("removed accents", with(tiny(), "normalizer", json!({"type": "StripAccents"}))),
        (
            "an expression replaced",
            with(tiny(), "normalizer", json!({"type": "Replace", "pattern": {"Regex": " +"}, "content": " "})),
        ),
        (
            "something removed",
            with(tiny(), "normalizer", json!({"type": "Replace", "pattern": {"String": "x"}, "content": ""})),
        ),
        ("spaces left out", with(tiny(), "pre_tokenizer", split)),
        ("white space left out", with(tiny(), "pre_tokenizer", json!({"type": "WhitespaceSplit"}))),
    ];
    for (name, definition) in unbounded {
        assert_eq!(load(&definition).longest, None, "{name}");
    }
}

#[test]
fn what_a_normal_form_shortens_is_counted() {
    let tokenizer = load(&with(split_by(&[QWEN2]), "normalizer", json!({"type": "NFC"})));
    assert_eq!(tokenizer.longest, Some(4 * "</tool_response>".len()));
}

#[test]
fn a_tokenizer_with_parts_that_are_not_understood_is_never_cut_between_words() {
    let unknown = [
        with(tiny(), "normalizer", json!({"type": "Strip", "strip_left": true, "strip_right": true})),
        with(tiny(), "normalizer", json!({"type": "Replace", "pattern": {"Regex": " +"}, "content": " "})),
        split_by(&[r"\b\w+\b|\s+"]),
        split_by(&[r"(?<= )\w+|\s+|\S"]),
        with_added(tiny(), &[("<w>", &["single_word"])]),
    ];
    let words = "hello world, ".repeat(20);
    for definition in unknown {
        assert_eq!(pieces(&load(&definition), &words, 40), 1, "{}", definition["pre_tokenizer"]);
    }
}

#[test]
fn a_text_is_never_cut_where_declarations_of_a_token_differ() {
    let twice = |normalized: bool| {
        let token = AddedToken { normalized, ..AddedToken::verbatim(2, "<|im_end|>", true) };
        load(&tiny()).with_added_tokens(&[token]).unwrap()
    };
    assert!(twice(false).cuts.is_some() && twice(true).cuts.is_none());
}

#[test]
fn a_space_beside_an_added_token_is_not_left_to_the_normaliser() {
    let tokenizer = load(&llama_2());
    for text in ["<s> hello hello", "hello <s>hello hello", "<s> <s> <s> hello", "hello </s> hello"] {
        let pieces = tokenizer.piecewise(text, &Around::default(), Extent::Whole, 1).unwrap();
        assert_eq!(pieces, tokenizer.at_once(text, false).unwrap(), "{text}");
    }
}
