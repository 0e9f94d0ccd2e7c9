//! What ids stand for: their bytes, and how these are shown.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;

use crate::{TokenId, tokenizer::Tokenizer};

/// A tokenizer, and the bytes of each id that was asked for.
pub(super) struct Vocabulary<'t> {
    pub(super) tokenizer: &'t Tokenizer,
    bytes: HashMap<TokenId, Vec<u8>>,
}

impl<'t> Vocabulary<'t> {
    pub(super) fn new(tokenizer: &'t Tokenizer) -> Self {
        Self { tokenizer, bytes: HashMap::new() }
    }

    /// The bytes of an id in the middle of a text. A model may have ids that no token has; these have none.
    pub(super) fn bytes(&mut self, id: TokenId) -> &[u8] {
        self.bytes.entry(id).or_insert_with(|| self.tokenizer.token_bytes(id).unwrap_or_default())
    }

    /// The bytes of ids, and where each one ends.
    pub(super) fn all(&mut self, ids: &[TokenId]) -> (Vec<u8>, Vec<usize>) {
        let mut all = Vec::new();
        let end = |id: &TokenId| {
            all.extend_from_slice(self.bytes(*id));
            all.len()
        };
        let ends = ids.iter().map(end).collect();
        (all, ends)
    }

    /// What is shown for each of the ids and of all others that were asked for, and which of them are no whole characters.
    pub(super) fn texts_by_id(&mut self, ids: &[TokenId]) -> (BTreeMap<TokenId, String>, BTreeSet<TokenId>) {
        for id in ids {
            self.bytes(*id);
        }
        let (mut texts, mut fragments) = (BTreeMap::new(), BTreeSet::new());
        for (id, bytes) in self.bytes.iter().filter(|(id, _)| self.tokenizer.contains(**id)) {
            let (text, is_whole) = escaped_text(bytes);
            texts.insert(*id, text);
            if !is_whole {
                fragments.insert(*id);
            }
        }
        (texts, fragments)
    }
}

/// Bytes as text, and whether they are whole characters; those that are not are written as `\xF0`.
fn escaped_text(bytes: &[u8]) -> (String, bool) {
    let (mut text, mut is_whole) = (String::new(), true);
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            is_whole = false;
            let _ = write!(text, "\\x{byte:02X}");
        }
    }
    (text, is_whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_characters_are_written_as_bytes() {
        assert_eq!(escaped_text("a é\n".as_bytes()), ("a é\n".to_owned(), true));
        assert_eq!(escaped_text(b"a\xF0\x9F"), ("a\\xF0\\x9F".to_owned(), false));
        assert_eq!(escaped_text(b""), (String::new(), true));
    }
}
