//! Texts that are put into ids piece by piece, against the library, which takes them whole.

use std::fs;

use tito::tokenizer::{Extent, Tokenizer};

use super::{in_parallel, recording, stems};
use crate::it::continuity::multiturn::smollm2_tokenizer;

/// What texts are made of: prose, code, other scripts, white space, and what tokenizers treat apart.
const PARTS: [&str; 14] = [
    include_str!("../../../README.md"),
    include_str!("../../../docs/token-continuity.md"),
    include_str!("../../../crates/tito-model/src/tokenizer/mod.rs"),
    "Rindfleischetikettierungsüberwachungsaufgabenübertragungsgesetz, 1234567 und 89,5 %\r\n\r\n",
    "人工智能正在改变世界。今天的天气很好，我们去公园散步吧！「你好」と言った。ありがとうございます。",
    "Искусственный интеллект меняет мир — и это хорошо. الذكاء الاصطناعي يغير العالم. कृत्रिम बुद्धि।",
    "인공지능이 세상을 바꾸고 있습니다. 안녕하세요! e\u{301}a\u{308}o\u{302} ﬁ ſ \u{212b}\u{2126}\u{fb01} 👩‍👩‍👧‍👦🏳️‍🌈 ",
    "aGVsbG8gd29ybGQgaGVsbG8gd29ybGQgaGVsbG8gd29ybGQgaGVsbG8gd29ybGQ=",
    "    \t\t  \n\n\n   \r\n \u{3000}\u{2003}\u{a0} \u{200b}x\u{200d}y ",
    "<|im_start|>user\nhi<|im_end|>\n<|eot_id|><start_of_turn><|im_end|><|im_end|></think><b><div>\n\n",
    "it's WE'LL They'Ve I'm 'tis ''' \"quoted\" [brackets]{braces} a/b//c \\n __init__ --flag=1_000 ...",
    "{\"key\": [1, 2.50, null, true], \"other\": {\"nested\": \"value\\u00e9\"}}",
    "▁▁ ▁a ▁",
    " ",
];

/// A text of about so many bytes; the parts come in another order for every seed, some of them cut.
fn text(mut seed: u64, bytes: usize) -> String {
    let mut text = String::new();
    while text.len() < bytes {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let draw = usize::try_from(seed >> 33).unwrap();
        let part = PARTS[draw % PARTS.len()];
        let end = part.floor_char_boundary(if draw % 3 == 0 { part.len() } else { draw % 400 });
        text.push_str(&part[..end]);
    }
    text
}

fn compare(name: &str, tokenizer: &Tokenizer, library: &tokenizers::Tokenizer) {
    for seed in 0..6 {
        let text = text(seed, 200_000);
        let whole = library.encode_char_offsets(text.as_str(), false).unwrap();
        let ids = tokenizer.encode(&text, false).unwrap();
        let parting = ids.iter().zip(whole.get_ids()).position(|(id, other)| id != other);
        assert_eq!((parting, ids.len()), (None, whole.get_ids().len()), "{name}, text {seed}");
        let (_, offsets) = tokenizer.encode_with_offsets(&text, false).unwrap();
        assert!(offsets == whole.get_offsets(), "{name}, offsets of text {seed}");
        let special = library.encode_fast(text.as_str(), true).unwrap();
        assert!(tokenizer.encode(&text, true).unwrap() == special.get_ids(), "{name}, special tokens of text {seed}");
        let last = tokenizer.encode_part(&text, false, Extent::Last(100)).unwrap();
        assert!(last.ends_with(&ids[ids.len() - 100..]), "{name}, the end of text {seed}");
        let tight = tokenizer.encode_part(&text, false, Extent::AtMost(ids.len())).unwrap();
        assert!(tight == ids, "{name}, the bound for text {seed}");
    }
}

#[test]
fn long_texts_have_the_ids_that_the_library_gives_to_the_whole() {
    let tokenizer = smollm2_tokenizer();
    let library = tokenizers::Tokenizer::from_bytes(tokenizer.to_json().unwrap()).unwrap();
    compare("smollm2", &tokenizer, &library);
}

#[test]
fn long_texts_have_the_ids_that_every_fetched_tokenizer_gives_to_the_whole() {
    let Some(directory) = recording() else { return };
    let directory = directory.join("tokenizers");
    let families = stems(&directory);
    assert!(!families.is_empty());
    in_parallel(families, |family| {
        let bytes = fs::read(directory.join(format!("{family}/tokenizer.json"))).unwrap();
        let mut library = tokenizers::Tokenizer::from_bytes(&bytes).unwrap();
        library.with_padding(None).with_truncation(None).unwrap();
        compare(&family, &Tokenizer::from_bytes(&bytes).unwrap(), &library);
    });
}
