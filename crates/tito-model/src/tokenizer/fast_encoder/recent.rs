//! Texts that were encoded lately, and their ids: system prompts, tools, and the prompt of a group of samples come again.
//!
//! Owns a bounded number of bytes. Refuses to guess: a text is found by the whole of it.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::TokenId;

/// The most bytes of each of the two halves.
const MOST_BYTES: usize = 4 << 20;
/// What a text takes besides itself and its ids, about.
const OVERHEAD: usize = 64;

/// See the module's documentation. When the newer half is full, it becomes the older one, which is forgotten; what is found in
/// the older one is kept in the newer one.
#[derive(Debug, Default)]
pub(super) struct RecentTexts(Mutex<Halves>);

type Half = HashMap<Box<str>, Box<[TokenId]>>;

#[derive(Debug, Default)]
struct Halves {
    newer: Half,
    older: Half,
    /// Of the newer half.
    bytes: usize,
}

impl RecentTexts {
    /// Appends the ids of a text; `false` if they are not known.
    pub(super) fn append(&self, text: &str, ids: &mut Vec<TokenId>) -> bool {
        let mut halves = self.0.lock();
        if let Some(known) = halves.newer.get(text) {
            ids.extend_from_slice(known);
            return true;
        }
        let Some((text, known)) = halves.older.remove_entry(text) else { return false };
        ids.extend_from_slice(&known);
        halves.keep(text, known);
        true
    }

    /// Keeps the ids of a text.
    pub(super) fn keep(&self, text: &str, ids: &[TokenId]) {
        self.0.lock().keep(text.into(), ids.into());
    }
}

impl Halves {
    fn keep(&mut self, text: Box<str>, ids: Box<[TokenId]>) {
        let bytes = text.len() + size_of_val(&*ids) + OVERHEAD;
        if self.bytes + bytes > MOST_BYTES {
            self.older = std::mem::take(&mut self.newer);
            self.bytes = 0;
        }
        if self.newer.insert(text, ids).is_none() {
            self.bytes += bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(texts: &RecentTexts, text: &str) -> Option<Vec<TokenId>> {
        let mut ids = vec![7];
        texts.append(text, &mut ids).then(|| ids.split_off(1))
    }

    #[test]
    fn a_text_is_found_by_the_whole_of_it() {
        let texts = RecentTexts::default();
        texts.keep("one", &[1, 2]);
        texts.keep("one two", &[3]);
        assert_eq!(
            ["one", "one two", "one tw", ""].map(|text| found(&texts, text)),
            [Some(vec![1, 2]), Some(vec![3]), None, None]
        );
    }

    #[test]
    fn what_is_kept_is_bounded_and_what_is_used_stays() {
        let texts = RecentTexts::default();
        texts.keep("used", &[1]);
        for number in 0..10_000 {
            texts.keep(&format!("{number}{}", " text".repeat(400)), &[number; 400]);
            assert_eq!(found(&texts, "used"), Some(vec![1]), "{number}");
            assert_eq!(found(&texts, "used"), Some(vec![1]), "{number}, once more");
        }
        let halves = texts.0.into_inner();
        let Halves { newer, older, bytes } = &halves;
        let held =
            |half: &Half| half.iter().map(|(text, ids)| text.len() + size_of_val(&**ids) + OVERHEAD).sum::<usize>();
        assert_eq!(held(newer), *bytes);
        assert!(held(newer) <= MOST_BYTES && held(older) <= MOST_BYTES);
        assert!(newer.len() + older.len() > 1_000, "{} and {}", newer.len(), older.len());
    }
}
