//! Text to ids by the crate `fastokens`, many times as fast as by the library `tokenizers`.
//!
//! Owns which tokenizers are encoded so: those whose parts are all in the lists below, and whose ids of the trial texts are the
//! library's. Tests compare both on random texts for each of these parts, and on every character that there is. Everything
//! else, and every text that `fastokens` cannot encode, goes to the library, so that ids are the library's in any case.

mod recent;
mod recent_words;
#[cfg(test)]
mod tests;

use aho_corasick::{AhoCorasick, MatchKind};
use serde_json::Value;
use tokenizers::{Model, NormalizedString, Normalizer, OffsetType, PreTokenizedString, PreTokenizer};

use self::{recent::RecentTexts, recent_words::RecentWords};
use super::{
    AddedToken, byte_level,
    cuts::Cuts,
    words::{GPT_4O, LLAMA3, QWEN2, QWEN3_5, TEKKEN},
};
use crate::{TokenId, files};

/// From here on, `fastokens` encodes on threads of its own, beside those that compute.
const MOST_BYTES: usize = 1 << 16;

/// GPT-2's words, which its own pre-tokenizer has built in.
const BYTE_LEVEL: &str = "ByteLevel";
/// The three of DeepSeek V3, one after the other.
const DEEPSEEK_V3: [&str; 3] = [
    r"\p{N}{1,3}",
    "[一-龥\u{3040}-\u{309f}\u{30a0}-\u{30ff}]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
];
/// Each digit by itself, as in `SmolLM`.
const DIGITS: &str = "Digits";

/// How texts are cut into words, step by step, by those byte-level tokenizers that are known.
const BYTE_LEVEL_WORDS: [&[&str]; 8] =
    [&[BYTE_LEVEL], &[DIGITS, BYTE_LEVEL], &[LLAMA3], &[QWEN2], &[QWEN3_5], &[GPT_4O], &[TEKKEN], &DEEPSEEK_V3];

/// Texts whose ids are compared when a tokenizer is loaded.
const TRIALS: [&str; 6] = [
    "Hello, world! It's 12345 o'clock; they'LL say \"no\".\n\n  indented\tcode();\r\n x_y = [1, 2.5e-3] // café e\u{301}",
    "Übergröße ΑΒΓ αβγ Привет мир שלום עולם السلام عليكم नमस्ते สวัสดี 你好，世界。日本語テキスト 한국어 ﬁ ǅ ⅷ ½ ²",
    "\u{1f600}\u{1f468}\u{200d}\u{1f469}\u{200d}\u{1f467} \u{1f1e9}\u{1f1ea} \u{fe0f} \u{a0}\u{2003}\u{3000}\u{85}\u{2028} \0\u{7f}\u{feff}\u{e000}\u{10fffd}",
    "<div class=\"a\">{\"k\": [true, null]}</div> https://example.com/a?b=c&d=%20 C:\\x --flag=1 a/b//c ...!!!??? \u{2014}\u{2019}s",
    "   \n \n\n\t \t  \r\n\r\n    ",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa0000000000000000000000000 AAAABBBBccccDDDD IJsselmeer ſtraße İstanbul",
];

/// A tokenizer that `fastokens` encodes for.
pub(super) struct FastEncoder {
    inner: Box<fastokens::Tokenizer>,
    /// Whether the vocabulary is of bytes, so that no text becomes an added token where these are not looked for.
    is_byte_level: bool,
    /// Added tokens that are looked for in the text as it is: what lies between them is encoded by itself.
    early: AhoCorasick,
    /// Their ids.
    early_ids: Vec<TokenId>,
    recent: RecentTexts,
    /// `None` where words are found faster than they would be looked up.
    words: Option<RecentWords>,
}

impl std::fmt::Debug for FastEncoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FastEncoder").finish_non_exhaustive()
    }
}

impl FastEncoder {
    /// `None` where a part of the tokenizer is not known, or where ids differ. `cuts` is where its texts can be cut.
    pub(super) fn new(inner: &tokenizers::Tokenizer, added: &[AddedToken], cuts: Option<&Cuts>) -> Option<Self> {
        let definition: Value = serde_json::from_str(&inner.to_string(false).ok()?).ok()?;
        let is_byte_level = match known_kind(&definition)? {
            Kind::ByteLevel => true,
            Kind::SentencePiece => false,
        };
        if !are_plain(added) {
            return None;
        }
        // fastokens finds these words by a regular expression, and all others ten times as fast (benches/README.md).
        let is_slow = byte_level_words(&definition["pre_tokenizer"]).is_some_and(|words| words.contains(&BYTE_LEVEL));
        // It trusts what it reads; whatever it does at a file that the library took, the library is there.
        let built = files::without_panics(|| {
            let early = || added.iter().filter(|token| !token.normalized && !token.content.is_empty());
            let encoder = Self {
                inner: Box::new(fastokens::Tokenizer::from_json(definition).ok()?),
                is_byte_level,
                early: AhoCorasick::builder()
                    .match_kind(MatchKind::LeftmostLongest)
                    .build(early().map(|token| &token.content))
                    .ok()?,
                early_ids: early().map(|token| token.id).collect(),
                recent: RecentTexts::default(),
                words: cuts.filter(|_| is_slow).map(|cuts| RecentWords::new(cuts.between_ascii())),
            };
            Some((encoder.agrees(inner, added), encoder))
        });
        let (agrees, encoder) = built.ok().flatten()?;
        if !agrees {
            tracing::warn!("the fast encoder's ids differ from the library's for this tokenizer: it is not used");
        }
        agrees.then_some(encoder)
    }

    /// The ids of a text, without special tokens around it. `None` leaves the text to the library.
    pub(super) fn encode(&self, text: &str) -> Option<Vec<TokenId>> {
        if text.len() >= MOST_BYTES {
            return None;
        }
        let (mut ids, mut at) = (Vec::new(), 0);
        for token in self.early.find_iter(text) {
            self.append(&text[at..token.start()], &mut ids)?;
            ids.push(self.early_ids[token.pattern().as_usize()]);
            at = token.end();
        }
        self.append(&text[at..], &mut ids)?;
        Some(ids)
    }

    /// Appends the ids of a text that has no early tokens, which may have been encoded before.
    fn append(&self, text: &str, ids: &mut Vec<TokenId>) -> Option<()> {
        if text.is_empty() || self.recent.append(text, ids) {
            return Some(());
        }
        let before = ids.len();
        let encode = |part: &str| self.inner.encode_with_special_tokens(part, false).ok();
        match &self.words {
            Some(words) => words.append(text, ids, encode)?,
            None => ids.extend(encode(text)?),
        }
        self.recent.keep(text, &ids[before..]);
        Some(())
    }

    /// The ids of a text in which added tokens are only text. `None` leaves the text to the library.
    pub(super) fn encode_without_added_tokens(&self, text: &str) -> Option<Vec<TokenId>> {
        if !self.is_byte_level || text.len() >= MOST_BYTES {
            return None;
        }
        self.inner.encode_ordinary(text).ok()
    }

    /// Whether the ids of the trial texts, and of all added tokens beside text, are the library's, where there are any.
    fn agrees(&self, inner: &tokenizers::Tokenizer, added: &[AddedToken]) -> bool {
        let beside_text = |token: &AddedToken| format!("{0}{0} a{0}b {0}\n", token.content);
        // In parts, so that none is left to the library for its length.
        let beside = added.chunks(64).map(|tokens| tokens.iter().map(beside_text).collect::<Vec<_>>().concat());
        TRIALS.into_iter().map(str::to_owned).chain(beside).all(|text| {
            let expected = || inner.encode_fast(text.as_str(), false).map(|encoding| encoding.get_ids().to_vec()).ok();
            let ordinary = || encode_by_model(inner, &text).ok();
            let is_same =
                |ids: Option<Vec<TokenId>>, expected: &dyn Fn() -> _| ids.is_none_or(|ids| Some(ids) == expected());
            is_same(self.encode(&text), &expected) && is_same(self.encode_without_added_tokens(&text), &ordinary)
        })
    }
}

/// What the library makes of a text in which added tokens are only text.
pub(super) fn encode_by_model(inner: &tokenizers::Tokenizer, text: &str) -> tokenizers::Result<Vec<TokenId>> {
    let mut normalized = NormalizedString::from(text);
    if let Some(normalizer) = inner.get_normalizer() {
        normalizer.normalize(&mut normalized)?;
    }
    let mut pieces = PreTokenizedString::from(normalized);
    if let Some(pre_tokenizer) = inner.get_pre_tokenizer() {
        pre_tokenizer.pre_tokenize(&mut pieces)?;
    }
    pieces.tokenize(|piece| inner.get_model().tokenize(piece.get()))?;
    Ok(pieces.into_encoding(None, 0, OffsetType::None)?.get_ids().to_vec())
}

/// Whether added tokens depend on their own text alone: none looks at what is beside it, and none that is looked for in the
/// normalised text can lie across one that was found before that.
fn are_plain(added: &[AddedToken]) -> bool {
    let (late, early): (Vec<_>, Vec<_>) = added.iter().partition(|token| token.normalized);
    let overlap = |late: &AddedToken| early.iter().any(|early| overlap(&late.content, &early.content));
    !added.iter().any(|token| token.single_word || token.lstrip || token.rstrip) && !late.into_iter().any(overlap)
}

/// Whether two texts can have a part in common in another one.
fn overlap(one: &str, other: &str) -> bool {
    let ends_as_begins =
        |one: &str, other: &str| one.char_indices().skip(1).any(|(at, _)| other.starts_with(&one[at..]));
    one.contains(other) || other.contains(one) || ends_as_begins(one, other) || ends_as_begins(other, one)
}

/// The tokenizers whose parts the tests compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Words of bytes.
    ByteLevel,
    /// Characters, and bytes where the vocabulary lacks them.
    SentencePiece,
}

/// Which kind a tokenizer.json is of; `None` if one of its parts is not known.
fn known_kind(definition: &Value) -> Option<Kind> {
    let (words, normalizer) = (&definition["pre_tokenizer"], steps(&definition["normalizer"], "normalizers"));
    let model = &definition["model"];
    let is_off = |field: &str| matches!(&model[field], Value::Null) || model[field] == "" || model[field] == 0.0;
    let off = ["dropout", "continuing_subword_prefix", "end_of_word_suffix"];
    if model["type"] != "BPE" || !off.into_iter().all(is_off) {
        return None;
    }
    if is_byte_level(words, &normalizer) {
        // Without a token for what is unknown, the library leaves it out of the ids, and fastokens does or ends with an error.
        let is_complete = || has_every_byte(&model["vocab"], byte_level::bytes);
        (model["unk_token"].is_null() || is_complete()).then_some(Kind::ByteLevel)
    } else if is_sentence_piece(words, &normalizer, model) {
        has_every_byte(&model["vocab"], byte_fallback).then_some(Kind::SentencePiece)
    } else {
        None
    }
}

/// Whether texts are cut into words in a known way, composed before or not, and their bytes put into the byte alphabet.
fn is_byte_level(pre_tokenizer: &Value, normalizer: &[&Value]) -> bool {
    let words = byte_level_words(pre_tokenizer);
    words.is_some_and(|words| BYTE_LEVEL_WORDS.contains(&&*words))
        && normalizer.iter().all(|step| step["type"] == "NFC")
}

/// The steps of a part, of which there may be one, several, or none.
fn steps<'a>(part: &'a Value, list: &str) -> Vec<&'a Value> {
    match (part, part[list].as_array()) {
        (Value::Null, _) => Vec::new(),
        (_, Some(steps)) => steps.iter().collect(),
        (step, None) => vec![step],
    }
}

/// How a pre-tokenizer cuts a text into words whose bytes are then put into the byte alphabet; `None` if it does anything else.
fn byte_level_words(pre_tokenizer: &Value) -> Option<Vec<&str>> {
    let steps = steps(pre_tokenizer, "pretokenizers");
    let (last, before) = steps.split_last()?;
    if last["type"] != "ByteLevel" || last["add_prefix_space"] != false {
        return None;
    }
    let mut words = Vec::new();
    for step in before {
        words.push(match step["type"].as_str()? {
            "Digits" if step["individual_digits"] == true => DIGITS,
            "Split" if step["behavior"] == "Isolated" && step["invert"] == false => {
                step["pattern"]["Regex"].as_str()?
            }
            _ => return None,
        });
    }
    if last["use_regex"] == true {
        words.push(BYTE_LEVEL);
    }
    Some(words)
}

/// Whether a tokenizer has the parts of Gemma's: spaces become `▁`, and what is not in the vocabulary becomes bytes.
fn is_sentence_piece(pre_tokenizer: &Value, normalizer: &[&Value], model: &Value) -> bool {
    let replaces_spaces =
        |step: &Value| step["type"] == "Replace" && step["pattern"]["String"] == " " && step["content"] == "\u{2581}";
    // No space is left to split at.
    let splits_at_spaces = |step: &Value| {
        step["type"] == "Split"
            && step["pattern"]["String"] == " "
            && step["behavior"] == "MergedWithPrevious"
            && step["invert"] == false
    };
    matches!(normalizer, [step] if replaces_spaces(step))
        && (pre_tokenizer.is_null() || splits_at_spaces(pre_tokenizer))
        && model["byte_fallback"] == true
}

/// The byte that a token like `<0x0A>` stands for.
fn byte_fallback(token: &str) -> Option<Vec<u8>> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    let byte = u8::from_str_radix(digits, 16).ok()?;
    (token == format!("<0x{byte:02X}>")).then(|| vec![byte])
}

/// Whether each byte by itself is a token, so that no text has a part without one.
fn has_every_byte(vocab: &Value, bytes: impl Fn(&str) -> Option<Vec<u8>>) -> bool {
    let Some(vocab) = vocab.as_object() else { return false };
    let mut has = [false; 256];
    for token in vocab.keys() {
        if let Some(&[byte]) = bytes(token).as_deref() {
            has[usize::from(byte)] = true;
        }
    }
    has.into_iter().all(|has| has)
}
