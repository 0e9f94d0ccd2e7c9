//! Tokenizers that transformers 5 builds anew: of tokenizer.json, their class takes the vocabulary, the merges, the added
//! tokens and mostly the post-processor, and nothing else.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize, de::DeserializeOwned, de::IgnoredAny};
use serde_json::{Value, json};
use tokenizers::{DecoderWrapper, NormalizerWrapper, PreTokenizerWrapper};

use super::{AddedToken, TokenizerError, byte_level};

/// Which class of transformers it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BuiltKind {
    Llama,
    Gemma,
    Cohere,
    Gpt2,
    GptNeoX,
    Qwen2,
    Qwen35,
}

/// A class with what `tokenizer_config.json` says to it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct BuiltClass {
    pub(crate) kind: BuiltKind,
    pub(crate) add_prefix_space: bool,
    /// Whether there is a space after special tokens too.
    pub(crate) legacy: bool,
    pub(crate) unk_token: String,
    /// The added tokens that the configuration lists, where it lists any: there are no others then.
    pub(crate) listed: Option<HashSet<String>>,
}

/// What the class makes of a tokenizer.json.
#[derive(Debug)]
pub(crate) enum Built {
    /// What the file says.
    AsFile,
    /// Nothing: the class is for another kind of vocabulary.
    Unfit,
    /// Another tokenizer.json, which differs in these keys.
    Differs { content: Vec<u8>, keys: Vec<&'static str> },
}

const QWEN2: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN3_5: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// The keys of a tokenizer.json that are compared, but for its vocabulary.
#[derive(Deserialize)]
struct Keys {
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    #[serde(default)]
    post_processor: Value,
    #[serde(default)]
    decoder: Value,
    #[serde(default)]
    added_tokens: Vec<AddedToken>,
    model: Flags,
}

/// What a BPE model says beside its vocabulary.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
struct Flags {
    #[serde(rename = "type", default)]
    kind: Option<String>,
    #[serde(default)]
    unk_token: Option<String>,
    #[serde(default)]
    continuing_subword_prefix: Option<String>,
    #[serde(default)]
    end_of_word_suffix: Option<String>,
    #[serde(default)]
    fuse_unk: bool,
    #[serde(default)]
    byte_fallback: bool,
    #[serde(default)]
    ignore_merges: bool,
}

#[derive(Deserialize)]
struct Vocabulary {
    model: Tokens,
}

#[derive(Deserialize)]
#[expect(clippy::zero_sized_map_values, reason = "only the names are read")]
struct Tokens {
    vocab: HashMap<String, IgnoredAny>,
}

impl BuiltClass {
    /// Builds the tokenizer.json of the class, where the one that is given has its kind of vocabulary.
    pub(crate) fn build(&self, content: &[u8]) -> Result<Built, TokenizerError> {
        // What is no tokenizer is found by who reads it next.
        let Ok(file) = serde_json::from_slice::<Keys>(content) else { return Ok(Built::AsFile) };
        let byte_level = canonical::<DecoderWrapper>(&file.decoder)["type"] == "ByteLevel";
        if file.model.kind.as_deref() != Some("BPE") || byte_level == self.is_sentence_piece() {
            return Ok(Built::Unfit);
        }
        let keys = self.differences(&file, content);
        if keys.is_empty() {
            return Ok(Built::AsFile);
        }
        let wrong = |error: serde_json::Error| TokenizerError::Invalid(error.to_string());
        let mut whole: Value = serde_json::from_slice(content).map_err(wrong)?;
        for key in &keys {
            match *key {
                "normalizer" => whole[key] = self.normalizer(),
                "pre_tokenizer" => whole[key] = self.pre_tokenizer(),
                "decoder" => whole[key] = self.decoder(),
                "post_processor" => whole[key] = Value::Null,
                "model" => self.set_flags(&mut whole[key]),
                _ => self.keep_listed(&mut whole[key]),
            }
        }
        Ok(Built::Differs { content: serde_json::to_vec(&whole).map_err(wrong)?, keys })
    }

    fn differences(&self, file: &Keys, content: &[u8]) -> Vec<&'static str> {
        let is_listed = |token: &AddedToken| self.listed.as_ref().is_none_or(|listed| listed.contains(&token.content));
        let post_processor = file.post_processor["type"].as_str();
        [
            ("normalizer", differ::<NormalizerWrapper>(&file.normalizer, &self.normalizer())),
            ("pre_tokenizer", differ::<PreTokenizerWrapper>(&file.pre_tokenizer, &self.pre_tokenizer())),
            // The other kind of vocabulary has one decoder, whose flags have no effect.
            ("decoder", self.is_sentence_piece() && differ::<DecoderWrapper>(&file.decoder, &self.decoder())),
            // This class puts nothing around a text; the other kind of post-processor concerns offsets.
            (
                "post_processor",
                self.kind == BuiltKind::GptNeoX && post_processor.is_some_and(|kind| kind != "ByteLevel"),
            ),
            ("model", self.model_differs(&file.model, content)),
            ("added_tokens", !file.added_tokens.iter().all(is_listed)),
        ]
        .into_iter()
        .filter_map(|(key, differs)| differs.then_some(key))
        .collect()
    }

    fn model_differs(&self, file: &Flags, content: &[u8]) -> bool {
        let own = self.flags();
        let affixes = |flags: &Flags| {
            [&flags.continuing_subword_prefix, &flags.end_of_word_suffix].map(|text| text.clone().unwrap_or_default())
        };
        if file.byte_fallback != own.byte_fallback
            || file.ignore_merges != own.ignore_merges
            || affixes(file) != affixes(&own)
        {
            return true;
        }
        // What is unknown counts only where something can be.
        (&file.unk_token, file.fuse_unk) != (&own.unk_token, own.fuse_unk) && !self.knows_all_bytes(content)
    }

    fn knows_all_bytes(&self, content: &[u8]) -> bool {
        let Ok(Vocabulary { model: Tokens { vocab } }) = serde_json::from_slice(content) else { return false };
        if self.is_sentence_piece() {
            return (0..=u8::MAX).all(|byte| vocab.contains_key(&format!("<0x{byte:02X}>")));
        }
        let one_byte = |token: &&String| byte_level::bytes(token).is_some_and(|bytes| bytes.len() == 1);
        vocab.keys().filter(one_byte).count() == 256
    }

    fn is_sentence_piece(&self) -> bool {
        matches!(self.kind, BuiltKind::Llama | BuiltKind::Gemma)
    }

    fn normalizer(&self) -> Value {
        match self.kind {
            BuiltKind::Llama | BuiltKind::Gpt2 => Value::Null,
            BuiltKind::Gemma => json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"}),
            BuiltKind::Cohere | BuiltKind::GptNeoX | BuiltKind::Qwen2 | BuiltKind::Qwen35 => json!({"type": "NFC"}),
        }
    }

    fn pre_tokenizer(&self) -> Value {
        let bytes = |use_regex: bool| {
            json!({"type": "ByteLevel", "add_prefix_space": self.add_prefix_space, "trim_offsets": true,
                   "use_regex": use_regex})
        };
        let split = |pattern: Value, behavior: &str| json!({"type": "Split", "pattern": pattern, "behavior": behavior, "invert": false});
        let sequence = |first: Value, second: Value| json!({"type": "Sequence", "pretokenizers": [first, second]});
        match self.kind {
            BuiltKind::Llama => {
                let scheme = match (self.add_prefix_space, self.legacy) {
                    (false, _) => "never",
                    (true, true) => "always",
                    (true, false) => "first",
                };
                json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": false})
            }
            BuiltKind::Gemma => split(json!({"String": " "}), "MergedWithPrevious"),
            BuiltKind::Cohere => sequence(json!({"type": "Digits", "individual_digits": true}), bytes(true)),
            BuiltKind::Gpt2 | BuiltKind::GptNeoX => bytes(true),
            BuiltKind::Qwen2 => sequence(split(json!({"Regex": QWEN2}), "Isolated"), bytes(false)),
            BuiltKind::Qwen35 => sequence(split(json!({"Regex": QWEN3_5}), "Isolated"), bytes(false)),
        }
    }

    fn decoder(&self) -> Value {
        let mut decoders = vec![
            json!({"type": "Replace", "pattern": {"String": "▁"}, "content": " "}),
            json!({"type": "ByteFallback"}),
            json!({"type": "Fuse"}),
        ];
        if self.kind == BuiltKind::Llama && self.add_prefix_space {
            decoders.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
        }
        json!({"type": "Sequence", "decoders": decoders})
    }

    fn flags(&self) -> Flags {
        let of_pieces = self.is_sentence_piece();
        Flags {
            kind: Some("BPE".to_owned()),
            unk_token: (self.kind == BuiltKind::Gemma).then(|| self.unk_token.clone()),
            continuing_subword_prefix: None,
            end_of_word_suffix: None,
            fuse_unk: of_pieces,
            byte_fallback: of_pieces,
            ignore_merges: false,
        }
    }

    fn set_flags(&self, model: &mut Value) {
        if let (Some(model), Ok(Value::Object(flags))) = (model.as_object_mut(), serde_json::to_value(self.flags())) {
            model.extend(flags);
        }
    }

    fn keep_listed(&self, tokens: &mut Value) {
        if let (Some(tokens), Some(listed)) = (tokens.as_array_mut(), &self.listed) {
            tokens.retain(|token| token["content"].as_str().is_some_and(|content| listed.contains(content)));
        }
    }
}

/// Whether two parts do not do the same to a text.
fn differ<T: DeserializeOwned + Serialize>(file: &Value, own: &Value) -> bool {
    canonical::<T>(file) != canonical::<T>(own)
}

/// A part as the library writes it, without what has no effect on ids and text.
fn canonical<T: DeserializeOwned + Serialize>(part: &Value) -> Value {
    let read: Option<T> = Option::deserialize(part).unwrap_or_default();
    plain(serde_json::to_value(read).unwrap_or_default())
}

fn plain(part: Value) -> Value {
    let Value::Object(mut part) = part else { return part };
    if part.get("type").is_some_and(|kind| kind == "ByteLevel") {
        part.remove("trim_offsets");
    }
    for key in ["normalizers", "pretokenizers", "decoders"] {
        let Some(Value::Array(parts)) = part.get_mut(key) else { continue };
        let mut parts: Vec<Value> = parts.drain(..).map(plain).filter(|part| !part.is_null()).collect();
        if parts.len() < 2 {
            return parts.pop().unwrap_or_default();
        }
        part.insert(key.to_owned(), Value::Array(parts));
    }
    Value::Object(part)
}
