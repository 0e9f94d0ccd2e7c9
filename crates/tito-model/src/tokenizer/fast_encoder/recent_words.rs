//! Words that were encoded lately, and their ids: a text is seldom the same as another one, and most of its words are.
//!
//! Owns a bounded number of words. A word ends where texts may be cut, whatever surrounds the place (`tokenizer/cuts.rs`), so that the
//! ids of a text are those of its words.

use std::{collections::HashMap, ops::Range};

use ahash::RandomState;
use parking_lot::RwLock;

use crate::{TokenId, tokenizer::ascii_pairs::AsciiPairs};

/// The most words that are kept; after that, all are forgotten.
const MOST_WORDS: usize = 1 << 15;
/// The most bytes of a word that is kept.
const MOST_BYTES: usize = 32;
/// The most ids of a word that is kept.
const MOST_IDS: usize = 4;
/// The most words of one text that are encoded one by one, which takes longer than to encode them together.
const MOST_ALONE: usize = 16;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct RecentWords {
    /// What a word ends between.
    ends: AsciiPairs,
    known: RwLock<Known>,
}

/// Hashed with a random key: clients choose the words.
type Known = HashMap<Box<str>, WordIds, RandomState>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct WordIds {
    count: u8,
    ids: [TokenId; MOST_IDS],
}

impl WordIds {
    /// `None` for a word that is not kept.
    fn new(ids: &[TokenId]) -> Option<Self> {
        let mut kept = [0; MOST_IDS];
        kept.get_mut(..ids.len())?.copy_from_slice(ids);
        Some(Self { count: u8::try_from(ids.len()).ok()?, ids: kept })
    }

    fn as_slice(&self) -> &[TokenId] {
        &self.ids[..usize::from(self.count)]
    }
}

impl RecentWords {
    /// No words yet; they end between these characters.
    pub(super) fn new(ends: AsciiPairs) -> Self {
        Self { ends, known: RwLock::default() }
    }

    /// Appends the ids of a text; `encode` gives those of a part of it. `None` where it does not.
    pub(super) fn append(
        &self,
        text: &str,
        ids: &mut Vec<TokenId>,
        encode: impl Fn(&str) -> Option<Vec<TokenId>>,
    ) -> Option<()> {
        let (mut learned, mut alone) = (Vec::new(), 0);
        // Nobody waits here, neither for those who add words nor for those who encode.
        let Some(known) = self.known.try_read() else {
            ids.extend(encode(text)?);
            return Some(());
        };
        let mut together = 0..0;
        for word in self.words(text) {
            let found = known.get(&text[word.clone()]);
            if found.is_none() && (word.len() > MOST_BYTES || alone == MOST_ALONE) {
                together.end = word.end;
                continue;
            }
            if !together.is_empty() {
                ids.extend(encode(&text[together.clone()])?);
            }
            together = word.end..word.end;
            if let Some(found) = found {
                ids.extend_from_slice(found.as_slice());
                continue;
            }
            alone += 1;
            let encoded = encode(&text[word.clone()])?;
            learned.extend(WordIds::new(&encoded).map(|ids| (&text[word], ids)));
            ids.extend(encoded);
        }
        if !together.is_empty() {
            ids.extend(encode(&text[together])?);
        }
        drop(known);
        self.keep(&learned);
        Some(())
    }

    /// The words of a text.
    fn words<'a>(&'a self, text: &'a str) -> impl Iterator<Item = Range<usize>> + 'a {
        let mut start = 0;
        let starts = text
            .bytes()
            .zip(text.bytes().skip(1))
            .enumerate()
            .filter_map(move |(at, (left, right))| self.ends.has(left, right).then_some(at + 1));
        starts.chain([text.len()]).map(move |end| std::mem::replace(&mut start, end)..end)
    }

    fn keep(&self, learned: &[(&str, WordIds)]) {
        if learned.is_empty() {
            return;
        }
        let Some(mut known) = self.known.try_write() else { return };
        if known.len() + learned.len() > MOST_WORDS {
            *known = Known::default();
        }
        known.extend(learned.iter().map(|(word, ids)| (Box::from(*word), *ids)));
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// Words that end between letters and spaces.
    fn words() -> RecentWords {
        RecentWords::new(AsciiPairs::of(|left, right| left.is_ascii_alphabetic() && right == ' '))
    }

    /// The ids of a text whose bytes are its ids, and what was asked for on the way.
    fn encoded(words: &RecentWords, text: &str) -> (Vec<TokenId>, Vec<String>) {
        let asked = RefCell::new(Vec::new());
        let encode = |part: &str| {
            asked.borrow_mut().push(part.to_owned());
            Some(part.bytes().map(TokenId::from).collect())
        };
        let mut ids = Vec::new();
        words.append(text, &mut ids, encode).unwrap();
        (ids, asked.into_inner())
    }

    fn ids(text: &str) -> Vec<TokenId> {
        text.bytes().map(TokenId::from).collect()
    }

    #[test]
    fn a_word_that_was_encoded_is_not_encoded_again() {
        let words = words();
        for (text, asked) in [
            ("an ox. is an ox", vec!["an", " ox. is", " an", " ox"]),
            ("an ox", vec![]),
            (" an  an", vec!["  an"]),
            // Five ids are not kept.
            ("an abcd an", vec![" abcd"]),
            ("an abcd an", vec![" abcd"]),
            ("é an", vec!["é an"]),
        ] {
            assert_eq!(encoded(&words, text), (ids(text), asked.into_iter().map(str::to_owned).collect()), "{text}");
        }
    }

    #[test]
    fn many_new_words_are_encoded_together() {
        let words = words();
        let text = (0..40).map(|number| format!("w{number}x ")).collect::<Vec<_>>().concat();
        let (found, asked) = encoded(&words, &text);
        assert_eq!((found, asked.len()), (ids(&text), MOST_ALONE + 1));
        let long = format!("an {} an", "l".repeat(MOST_BYTES + 1));
        let (found, asked) = encoded(&words, &long);
        assert_eq!((found, asked.len()), (ids(&long), 3));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let words = words();
        for letter in ('\u{4e00}'..).take(MOST_WORDS + 100) {
            let text = letter.to_string();
            assert_eq!(encoded(&words, &text).0, ids(&text));
        }
        assert!((1..=MOST_WORDS).contains(&words.known.read().len()));
    }

    #[test]
    fn a_part_that_cannot_be_encoded_leaves_the_text_to_others() {
        let words = words();
        assert_eq!(words.append("an ox", &mut Vec::new(), |part| (part == "an").then(Vec::new)), None);
        assert_eq!(encoded(&words, "an ox").0, ids("an ox"));
    }
}
