//! How many bytes of a text one token can stand for, where that is bounded.
//!
//! It is where every character of a text ends up in some token, and where no token stands for more than its own spelling:
//!
//! - Added tokens swallow no white space around them.
//! - The normaliser is known, and drops nothing: it brings a text to a normal form of Unicode, replaces a character by
//!   others, or puts something in front.
//! - The text is cut into words without anything being left out.
//! - The model knows every byte, or has a token of its own for each character that it does not know. Runs of unknown
//!   characters that become one token, and characters that become none, have no bound.

use std::collections::HashMap;

use tokenizers::{ModelWrapper, PreTokenizerWrapper, SplitDelimiterBehavior};

use super::{AddedToken, byte_level, cuts::normalized, normal::Normal};

/// Most bytes of one character.
const LONGEST_CHARACTER: usize = 4;

/// The most bytes of a text that become one token; `None` where there may be any number.
pub(super) fn longest(inner: &tokenizers::Tokenizer, added: &[AddedToken]) -> Option<usize> {
    let shrinks_by = Normal::new(inner.get_normalizer())?.shrinks_by();
    let is_byte_level = match inner.get_pre_tokenizer() {
        Some(pre_tokenizer) => keeps_all(pre_tokenizer)?,
        None => false,
    };
    let of_model = of_model(inner.get_model(), is_byte_level)?;
    let of_added = added.iter().filter(|token| !token.content.is_empty()).map(|token| {
        if token.lstrip || token.rstrip {
            return None;
        }
        Some(normalized(inner, &token.content)?.len().max(token.content.len()))
    });
    let of_added = of_added.collect::<Option<Vec<usize>>>()?.into_iter().max().unwrap_or(0);
    Some(of_model.max(of_added).checked_mul(shrinks_by)?.max(1))
}

/// Whether words are in the byte alphabet; `None` where a part of a text may be left out.
fn keeps_all(pre_tokenizer: &PreTokenizerWrapper) -> Option<bool> {
    match pre_tokenizer {
        PreTokenizerWrapper::Sequence(sequence) => {
            let parts = sequence.as_ref();
            let kept = parts.iter().map(keeps_all).collect::<Option<Vec<bool>>>()?;
            // Nothing may rewrite what is in the alphabet already.
            let last = kept.len().checked_sub(1);
            match kept.iter().position(|is_byte_level| *is_byte_level) {
                None => Some(false),
                first if first == last => Some(true),
                Some(_) => None,
            }
        }
        PreTokenizerWrapper::ByteLevel(_) => Some(true),
        PreTokenizerWrapper::Digits(_) | PreTokenizerWrapper::Metaspace(_) => Some(false),
        PreTokenizerWrapper::Split(split) => (split.behavior != SplitDelimiterBehavior::Removed).then_some(false),
        PreTokenizerWrapper::Punctuation(punctuation) => {
            (punctuation.behavior != SplitDelimiterBehavior::Removed).then_some(false)
        }
        _ => None,
    }
}

/// The most bytes of normalised text that become one token of the model's own.
fn of_model(model: &ModelWrapper, is_byte_level: bool) -> Option<usize> {
    let (vocab, falls_back, unknown) = match model {
        ModelWrapper::BPE(bpe) => {
            // With such affixes, pieces are spelt with more than they stand for, or are looked for under another
            // spelling.
            let is_set = |affix: &Option<String>| affix.as_ref().is_some_and(|affix| !affix.is_empty());
            if is_set(&bpe.continuing_subword_prefix) || is_set(&bpe.end_of_word_suffix) {
                return None;
            }
            let of_its_own = bpe.unk_token.is_some() && !bpe.fuse_unk;
            (bpe.get_vocab(), bpe.byte_fallback, of_its_own.then_some(LONGEST_CHARACTER))
        }
        ModelWrapper::Unigram(unigram) => (tokenizers::Model::get_vocab(unigram), unigram.byte_fallback(), None),
        ModelWrapper::WordPiece(_) | ModelWrapper::WordLevel(_) => return None,
    };
    let has = |token: String| vocab.contains_key(&token);
    let knows_all = if is_byte_level {
        let known = vocab.keys().filter_map(|token| byte_level::bytes(token)).filter(|bytes| bytes.len() == 1);
        known.count() == 256
    } else {
        falls_back && (0..=255_u8).all(|byte| has(format!("<0x{byte:02X}>")))
    };
    let unknown = if knows_all { Some(1) } else { unknown };
    Some(longest_spelling(&vocab, is_byte_level).max(unknown?))
}

/// In the byte alphabet, every character is a byte.
fn longest_spelling(vocab: &HashMap<String, u32>, is_byte_level: bool) -> usize {
    let length = |token: &String| if is_byte_level { token.chars().count() } else { token.len() };
    vocab.keys().map(length).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use tokenizers::{
        Normalizer, NormalizerWrapper,
        normalizer::NormalizedString,
        normalizers::unicode::{NFC, NFD, NFKC, NFKD},
    };

    use super::*;

    fn normal(normalizer: &NormalizerWrapper, c: char) -> String {
        let mut text = NormalizedString::from(c.to_string());
        normalizer.normalize(&mut text).unwrap();
        text.get().to_owned()
    }

    /// The most bytes of a text that become one byte of a normal form: what each character of a decomposition costs at
    /// the most in a text, and then what those of each composed character cost together.
    fn most_per_byte(decomposed: &NormalizerWrapper, composed: &NormalizerWrapper) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "lengths of characters")]
        let length = |length: usize| length as f64;
        let mut costs: HashMap<char, f64> = HashMap::new();
        for c in '\0'..=char::MAX {
            let parts = normal(decomposed, c);
            let share = length(c.len_utf8()) / length(parts.chars().count());
            for part in parts.chars() {
                let cost = costs.entry(part).or_default();
                *cost = cost.max(share);
            }
        }
        let canonical = NormalizerWrapper::NFD(NFD);
        let whole = ('\0'..=char::MAX).filter(|c| normal(composed, *c) == c.to_string());
        let ratio = |c: char| {
            let cost: f64 = normal(&canonical, c).chars().map(|part| costs[&part]).sum();
            cost / length(c.len_utf8())
        };
        whole.map(ratio).fold(0.0, f64::max)
    }

    #[test]
    #[expect(clippy::similar_names, reason = "Unicode's own")]
    fn no_normal_form_of_unicode_makes_one_byte_of_more_than_four() {
        let (nfd, nfkd) = (NormalizerWrapper::NFD(NFD), NormalizerWrapper::NFKD(NFKD));
        for (decomposed, composed) in [
            (&nfd, NormalizerWrapper::NFC(NFC)),
            (&nfkd, NormalizerWrapper::NFKC(NFKC)),
            (&nfd, nfd.clone()),
            (&nfkd, nfkd.clone()),
        ] {
            let most = most_per_byte(decomposed, &composed);
            assert_eq!(Normal::new(Some(&composed)).unwrap().shrinks_by(), 4);
            assert!(most > 2.0 && most <= 4.0, "{most}");
        }
    }
}
