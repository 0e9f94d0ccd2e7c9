use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn tiny() -> Arc<Tokenizer> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/tiny-model/tokenizer.json");
    Arc::new(Tokenizer::from_file(path).unwrap())
}

fn tiny_json() -> serde_json::Value {
    serde_json::from_str(include_str!("../../../../tests/fixtures/tiny-model/tokenizer.json")).unwrap()
}

fn load(json: &serde_json::Value) -> Result<Tokenizer, TokenizerError> {
    Tokenizer::from_bytes(json.to_string().as_bytes())
}

/// A Llama-2-like tokenizer: 3 special tokens, 256 byte tokens, then pieces.
fn sentencepiece_like(decoder: &serde_json::Value) -> Arc<Tokenizer> {
    let mut tokens: Vec<String> = ["<unk>", "<s>", "</s>"].map(str::to_owned).to_vec();
    tokens.extend((0..=255).map(|byte| format!("<0x{byte:02X}>")));
    tokens.extend(["▁", "▁▁", "▁hello", "wor", "ld", "▁a", "é", "日", "�", "x▁y"].map(str::to_owned));
    let vocab: serde_json::Map<_, _> = tokens.into_iter().enumerate().map(|(id, token)| (token, json!(id))).collect();
    let special = |id: u32, content: &str| {
        json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
               "normalized": false, "special": true})
    };
    let definition = json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": [special(0, "<unk>"), special(1, "<s>"), special(2, "</s>")],
        "normalizer": null, "pre_tokenizer": null, "post_processor": null, "decoder": decoder,
        "model": {"type": "BPE", "dropout": null, "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true,
                  "vocab": vocab, "merges": []},
    });
    Arc::new(load(&definition).unwrap())
}

fn llama_2_like() -> Arc<Tokenizer> {
    sentencepiece_like(&json!({"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}))
}

fn metaspace() -> Arc<Tokenizer> {
    sentencepiece_like(&json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true}))
}

fn stream(mut decoder: IncrementalDecoder, ids: &[TokenId]) -> Vec<String> {
    let mut texts: Vec<String> = ids.iter().map(|&id| decoder.push(id).unwrap()).collect();
    texts.push(decoder.finish());
    texts
}

fn ids_of(tokenizer: &Tokenizer, tokens: &[&str]) -> Vec<TokenId> {
    tokens.iter().map(|token| tokenizer.id_of(token).unwrap()).collect()
}

#[test]
fn encoding_and_decoding_return_the_text() {
    let tokenizer = tiny();
    for text in ["", "hello world", "<|im_start|>user\nhé 😀<|im_end|>\n", "a\u{301}\r\n\t  12345"] {
        let ids = tokenizer.encode(text, false).unwrap();
        assert_eq!(tokenizer.decode(&ids, false).unwrap(), text);
    }
    assert_eq!(tokenizer.decode(&ids_of(&tokenizer, &["<|im_start|>", "hel", "lo"]), true).unwrap(), "hello");
}

#[test]
fn sampled_ids_may_differ_from_the_encoding_of_their_text() {
    let tokenizer = tiny();
    let sampled = ids_of(&tokenizer, &["hel", "lo"]);
    let text = tokenizer.decode(&sampled, false).unwrap();
    assert_eq!(tokenizer.encode(&text, false).unwrap(), ids_of(&tokenizer, &["hello"]));
}

#[test]
fn the_vocabulary_is_told_by_id_and_by_token() {
    let tokenizer = tiny();
    let id = tokenizer.id_of("Ġworld").unwrap();
    assert_eq!(tokenizer.token(id).as_deref(), Some("Ġworld"));
    assert_eq!(tokenizer.token_bytes(id).unwrap(), b" world");
    assert_eq!(tokenizer.vocab_size(), tokenizer.id_of("</think>").unwrap() as usize + 1);
    assert!(tokenizer.is_special(2) && !tokenizer.is_special(tokenizer.id_of("<think>").unwrap()));
    assert_eq!(tokenizer.added_tokens()[1], AddedToken::verbatim(1, "<|im_start|>", true));
}

#[test]
fn an_id_beyond_the_vocabulary_is_an_error_not_a_gap() {
    let tokenizer = tiny();
    let beyond = TokenId::try_from(tokenizer.vocab_size()).unwrap();
    assert!(matches!(tokenizer.decode(&[5, beyond], false), Err(TokenizerError::OutOfVocabulary(id)) if id == beyond));
    assert!(matches!(tokenizer.token_bytes(u32::MAX), Err(TokenizerError::OutOfVocabulary(u32::MAX))));
    assert!(tokenizer.incremental(false).push(beyond).is_err());
    assert_eq!(tokenizer.token(beyond), None);
}

#[test]
fn truncation_and_padding_of_the_file_are_ignored() {
    let mut json = tiny_json();
    json["truncation"] = json!({"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0});
    json["padding"] = json!({"strategy": {"Fixed": 64}, "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0,
                             "pad_type_id": 0, "pad_token": "<|endoftext|>"});
    let ids = load(&json).unwrap().encode("hello world 456", false).unwrap();
    assert_eq!(ids, tiny().encode("hello world 456", false).unwrap());
}

#[test]
fn a_wrong_id_of_an_added_token_is_an_error() {
    let mut json = tiny_json();
    json["added_tokens"][1]["id"] = json!(7);
    let error = load(&json).unwrap_err();
    assert!(matches!(error, TokenizerError::AddedTokenId { declared: 7, actual: 1, .. }), "{error}");
}

#[test]
fn a_tokenizer_that_is_not_deterministic_is_refused() {
    let mut json = tiny_json();
    json["model"]["dropout"] = json!(0.1);
    assert!(matches!(load(&json), Err(TokenizerError::Unsupported(_))));
}

#[test]
fn a_decoder_whose_text_cannot_be_told_by_token_is_refused() {
    let mut json = tiny_json();
    json["decoder"] = json!({"type": "CTC", "pad_token": "a", "word_delimiter_token": "b", "cleanup": true});
    assert!(matches!(load(&json), Err(TokenizerError::Unsupported(_))));
}

#[test]
fn more_added_tokens_must_have_the_ids_they_declare() {
    let vocab_size = TokenId::try_from(tiny().vocab_size()).unwrap();
    let add = |id, content| load(&tiny_json()).unwrap().with_added_tokens(&[AddedToken::verbatim(id, content, true)]);
    let tokenizer = add(vocab_size, "<|new|>").unwrap();
    assert_eq!(tokenizer.encode("<|new|>", false).unwrap(), [vocab_size]);
    assert!(add(vocab_size + 1, "<|new|>").is_err());
    let tokenizer = add(tiny().id_of("hello").unwrap(), "hello").unwrap();
    assert!(tokenizer.is_special(tokenizer.id_of("hello").unwrap()));
}

#[test]
fn a_special_token_stays_special_in_whole_and_streamed_text() {
    let plain = AddedToken::verbatim(2, "<|im_end|>", false);
    let tokenizer = Arc::new(load(&tiny_json()).unwrap().with_added_tokens(&[plain]).unwrap());
    let ids = ids_of(&tokenizer, &["hello", "<|im_end|>"]);
    assert_eq!(stream(tokenizer.incremental(true), &ids).concat(), tokenizer.decode(&ids, true).unwrap());
}

#[test]
fn an_incomplete_character_is_held_back_until_it_is_whole() {
    let tokenizer = tiny();
    let ids = ids_of(&tokenizer, &["hello", "ðŁ", "ĺ", "Ģ", "<|im_end|>"]);
    assert_eq!(stream(tokenizer.incremental(true), &ids), ["hello", "", "", "😀", "", ""]);
    assert_eq!(stream(tokenizer.incremental(false), &ids[..3]), ["hello", "", "", "\u{fffd}"]);
}

#[test]
fn the_space_of_the_first_token_is_stripped_only_at_the_start_of_a_text() {
    for tokenizer in [llama_2_like(), metaspace()] {
        let ids = ids_of(&tokenizer, &["▁hello", "▁a"]);
        assert_eq!(stream(tokenizer.incremental(true), &ids), ["hello", " a", ""]);
        let prompt = ids_of(&tokenizer, &["<s>", "ld", "</s>"]);
        assert_eq!(stream(tokenizer.incremental_after(&prompt, true).unwrap(), &ids), [" hello", " a", ""]);
        let bos = ids_of(&tokenizer, &["<s>"]);
        assert_eq!(stream(tokenizer.incremental_after(&bos, true).unwrap(), &ids), ["hello", " a", ""]);
    }
}

#[test]
fn tokens_without_text_count_when_more_of_the_start_is_stripped() {
    let tokenizer = sentencepiece_like(&json!({"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 2, "stop": 0}]}));
    let ids = ids_of(&tokenizer, &["▁", "▁hello", "▁a"]);
    assert_eq!(tokenizer.decode(&ids, false).unwrap(), "hello a");
    assert_eq!(stream(tokenizer.incremental(false), &ids), ["", "hello", " a", ""]);
}

#[test]
fn a_character_begun_in_the_prompt_is_reported_when_complete() {
    let tokenizer = tiny();
    let ids = ids_of(&tokenizer, &["hello", "ðŁ", "ĺ", "Ģ", "lo"]);
    let decoder = tokenizer.incremental_after(&ids[..3], false).unwrap();
    assert_eq!(stream(decoder, &ids[3..]), ["😀", "lo", ""]);

    let tokenizer = llama_2_like();
    let ids = ids_of(&tokenizer, &["<0xF0>", "<0x9F>", "<0x98>", "<0x80>", "ld"]);
    let decoder = tokenizer.incremental_after(&ids[..2], false).unwrap();
    assert_eq!(stream(decoder, &ids[2..]), ["", "😀", "ld", ""]);
    let decoder = tokenizer.incremental_after(&ids[..4], false).unwrap();
    assert_eq!(stream(decoder, &ids[4..]), ["ld", ""]);
}

#[test]
fn a_character_of_byte_tokens_is_told_by_its_last_byte() {
    let tokenizer = llama_2_like();
    let streamed = |tokens: &[&str]| stream(tokenizer.incremental(false), &ids_of(&tokenizer, tokens));
    assert_eq!(streamed(&["ld", "<0x0A>", "<0x0A>"]), ["ld", "\n", "\n", ""]);
    assert_eq!(streamed(&["ld", "<0xC3>", "<0xA9>", "<0x79>"]), ["ld", "", "é", "y", ""]);
    assert_eq!(streamed(&["<0x20>", "<0x79>"]), ["", "y", ""]);
    assert_eq!(streamed(&["ld", "<0xC3>"]), ["ld", "", "\u{fffd}"]);
    let broken = "\u{fffd}\u{fffd}";
    assert_eq!(streamed(&["ld", "<0xC3>", "<0x79>", "ld"]), ["ld", "", "", &format!("{broken}ld"), ""]);
    assert_eq!(streamed(&["<0x79>", "<0xC3>", "<0x79>", "ld"]), ["y", "", "", &format!("{broken}ld"), ""]);
}

#[test]
fn a_run_of_byte_tokens_goes_on_behind_a_prompt() {
    let tokenizer = llama_2_like();
    let ids = ids_of(&tokenizer, &["ld", "<0x79>", "<0xFF>", "<0x79>", "<0x79>", "<s>", "<0x79>"]);
    let after = |prompt: usize| {
        let decoder = tokenizer.incremental_after(&ids[..prompt], true).unwrap();
        stream(decoder, &ids[prompt..]).concat()
    };
    assert_eq!(tokenizer.decode_as_streamed(&ids, false).unwrap(), "ldy\u{fffd}\u{fffd}\u{fffd}<s>y");
    assert_eq!(tokenizer.decode(&ids, false).unwrap(), "ld\u{fffd}\u{fffd}\u{fffd}\u{fffd}<s>y");
    assert_eq!(after(1), "y\u{fffd}\u{fffd}\u{fffd}\u{fffd}");
    assert_eq!(after(2), "\u{fffd}\u{fffd}\u{fffd}\u{fffd}");
    // A prompt may be cut, so that its broken bytes say nothing of what follows.
    assert_eq!(after(3), "yyy");
    assert_eq!(after(6), "y");
    let decoder = tokenizer.incremental_after(&ids[..6], false).unwrap();
    assert_eq!(stream(decoder, &ids[6..]), ["y", ""]);
}

#[test]
fn a_decoder_that_looks_at_a_run_of_byte_tokens_is_refused() {
    let mut json: serde_json::Value = serde_json::from_str(&llama_2_like().to_json().unwrap()).unwrap();
    let (bytes, fuse) = (json!({"type": "ByteFallback"}), json!({"type": "Fuse"}));
    let replace = json!({"type": "Replace", "pattern": {"String": "ab"}, "content": "c"});
    let strip = json!({"type": "Strip", "content": " ", "start": 1, "stop": 0});
    let words = json!({"type": "WordPiece", "prefix": "##", "cleanup": false});
    for (steps, is_read) in [
        ([&replace, &strip, &bytes, &fuse], true),
        ([&replace, &bytes, &fuse, &strip], true),
        ([&bytes, &replace, &fuse, &strip], false),
        ([&replace, &bytes, &strip, &fuse], false),
        ([&replace, &words, &bytes, &fuse], false),
    ] {
        json["decoder"] = json!({"type": "Sequence", "decoders": steps});
        let loaded = load(&json);
        assert_eq!(loaded.is_ok(), is_read, "{steps:?}");
        assert!(is_read || matches!(loaded, Err(TokenizerError::Unsupported(_))), "{steps:?}");
    }
}

#[test]
fn token_bytes_are_those_in_the_middle_of_a_text() {
    let tokenizer = llama_2_like();
    let bytes = |token| tokenizer.token_bytes(tokenizer.id_of(token).unwrap()).unwrap();
    assert_eq!(bytes("▁hello"), b" hello");
    assert_eq!(bytes("<0xE4>"), [0xe4]);
    assert_eq!(bytes("日"), "日".as_bytes());
    assert_eq!(bytes("</s>"), b"</s>");
}

#[test]
fn a_long_run_of_broken_bytes_is_decoded_in_linear_time() {
    for tokenizer in [tiny(), llama_2_like()] {
        let id = tokenizer.id_of("Ā").or_else(|| tokenizer.id_of("<0x80>")).unwrap();
        let broken = tokenizer.id_of("¡").unwrap_or(id);
        let ids = vec![broken; 100_000];
        assert_eq!(stream(tokenizer.incremental(false), &ids).concat(), tokenizer.decode(&ids, false).unwrap());
    }
}

#[test]
fn the_definition_survives_being_written() {
    let tokenizer = tiny();
    let again = Tokenizer::from_bytes(tokenizer.to_json().unwrap().as_bytes()).unwrap();
    let text = "<|im_start|>hello wörld 123";
    assert_eq!(again.encode(text, true).unwrap(), tokenizer.encode(text, true).unwrap());
}

/// Ids that are often special tokens, bytes of broken characters, or pieces with spaces.
fn ids(tokenizer: &Tokenizer) -> impl Strategy<Value = Vec<TokenId>> + use<> {
    let all = TokenId::try_from(tokenizer.vocab_size()).unwrap();
    prop::collection::vec(prop_oneof![3 => 0..all, 1 => 0..3_u32, 2 => 190..259_u32, 2 => 255..269_u32], 0..40)
}

/// What ids of the Llama-2-like tokenizer say, special tokens included: characters that byte tokens spell, up to a byte that is part
/// of none in their run.
fn spelt(tokenizer: &Tokenizer, ids: &[TokenId]) -> String {
    let byte = |id: &TokenId| u8::try_from(id.checked_sub(3)?).ok();
    let text = ids.chunk_by(|a, b| byte(a).is_some() && byte(b).is_some()).map(|run| {
        let bytes: Vec<u8> = run.iter().filter_map(byte).collect();
        let Some(chunk) = bytes.utf8_chunks().next() else {
            return tokenizer.token(run[0]).unwrap().replace('▁', " ");
        };
        format!("{}{}", chunk.valid(), "\u{fffd}".repeat(bytes.len() - chunk.valid().len()))
    });
    let text: String = text.collect();
    text.strip_prefix(' ').unwrap_or(&text).to_owned()
}

/// Ids of pieces, and runs of byte tokens that spell characters, of which the last may be broken.
fn byte_runs() -> impl Strategy<Value = Vec<TokenId>> {
    let bytes = |text: String| text.bytes().map(|byte| u32::from(byte) + 3).collect::<Vec<TokenId>>();
    let piece = prop_oneof![
        3 => "[ a\né日😀]{1,3}".prop_map(bytes),
        3 => (259..269_u32).prop_map(|id| vec![id]),
        1 => (0..3_u32).prop_map(|id| vec![id]),
        1 => (3..259_u32).prop_map(|id| vec![id]),
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn streamed_text_is_the_decoded_text_of_byte_level_bpe(ids in ids(&tiny()), split in 0..40_usize, skip: bool) {
        let tokenizer = tiny();
        let whole = tokenizer.decode(&ids, skip).unwrap();
        prop_assert_eq!(stream(tokenizer.incremental(skip), &ids).concat(), &*whole);

        let (prompt, output) = ids.split_at(split.min(ids.len()));
        let certain = tokenizer.decode(prompt, skip).unwrap();
        let text = stream(tokenizer.incremental_after(prompt, skip).unwrap(), output).concat();
        let begun = tokenizer.incremental_after(prompt, skip).unwrap().finish();
        prop_assert_eq!(format!("{}{text}", certain.strip_suffix(&begun).unwrap()), whole);
    }

    #[test]
    fn streamed_text_is_what_tokens_with_byte_fallback_spell(
        ids in prop_oneof![ids(&llama_2_like()), byte_runs()],
        split in 0..40_usize,
        skip: bool,
    ) {
        let tokenizer = llama_2_like();
        let shown: Vec<TokenId> = ids.iter().copied().filter(|&id| !(skip && tokenizer.is_special(id))).collect();
        let whole = tokenizer.decode_as_streamed(&ids, skip).unwrap();
        prop_assert_eq!(&whole, &spelt(&tokenizer, &shown));
        prop_assert_eq!(stream(tokenizer.incremental(skip), &ids).concat(), &*whole);
        let decoded = tokenizer.decode(&ids, skip).unwrap();
        let broken = [&decoded, &whole].iter().all(|text| text.contains(char::REPLACEMENT_CHARACTER));
        prop_assert!(decoded == whole || broken);

        let (prompt, output) = ids.split_at(split.min(ids.len()));
        let certain = tokenizer.decode_as_streamed(prompt, skip).unwrap();
        let begun = tokenizer.incremental_after(prompt, skip).unwrap().finish();
        let certain = certain.strip_suffix(&begun).unwrap();
        // Broken bytes of the prompt do not go on behind it; and of a prompt without a text, something was stripped.
        if certain.ends_with('\u{fffd}') || certain.is_empty() != prompt.is_empty() {
            return Ok(());
        }
        let text = stream(tokenizer.incremental_after(prompt, skip).unwrap(), output).concat();
        prop_assert_eq!(format!("{certain}{text}"), whole);
    }

    #[test]
    fn a_character_of_byte_tokens_is_never_held_back(ids in byte_runs()) {
        let tokenizer = llama_2_like();
        let replacement = tokenizer.id_of("\u{fffd}").unwrap();
        let ids: Vec<TokenId> = ids.into_iter().filter(|&id| id != replacement).collect();
        let mut decoder = tokenizer.incremental(false);
        let mut given = String::new();
        for (place, &id) in ids.iter().enumerate() {
            given += &decoder.push(id).unwrap();
            let whole = spelt(&tokenizer, &ids[..=place]);
            let is_byte = (3..259).contains(&id);
            prop_assert_eq!(&given, if is_byte { whole.trim_end_matches('\u{fffd}') } else { &whole });
        }
    }

    #[test]
    fn streamed_text_is_the_decoded_text_of_metaspace(ids in ids(&metaspace()), skip: bool) {
        let tokenizer = metaspace();
        let whole = tokenizer.decode(&ids, skip).unwrap();
        prop_assert_eq!(stream(tokenizer.incremental(skip), &ids).concat(), &*whole);
    }

    #[test]
    fn text_after_a_prompt_continues_it(
        prompt in ids(&llama_2_like()),
        output in prop::collection::vec(259..269_u32, 0..20),
        skip: bool,
    ) {
        let tokenizer = llama_2_like();
        let before = tokenizer.decode_as_streamed(&prompt, skip).unwrap();
        let begun = tokenizer.incremental_after(&prompt, skip).unwrap().finish();
        let text = stream(tokenizer.incremental_after(&prompt, skip).unwrap(), &output).concat();
        let whole = tokenizer.decode_as_streamed(&[prompt, output].concat(), skip).unwrap();
        prop_assert_eq!(format!("{}{text}", before.strip_suffix(&begun).unwrap()), whole);
    }

    #[test]
    fn no_delta_ends_within_a_character(ids in ids(&tiny())) {
        let tokenizer = tiny();
        let mut decoder = tokenizer.incremental(false);
        for id in ids {
            prop_assert!(!decoder.push(id).unwrap().ends_with(char::REPLACEMENT_CHARACTER));
        }
    }

    #[test]
    fn any_text_survives_encoding(text in "\\PC{0,40}") {
        let tokenizer = tiny();
        let ids = tokenizer.encode(&text, false).unwrap();
        prop_assert_eq!(tokenizer.decode(&ids, false).unwrap(), text);
    }
}
