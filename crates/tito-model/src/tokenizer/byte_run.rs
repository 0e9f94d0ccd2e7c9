//! Runs of byte tokens, which stand for a byte each: `<0xE6>`, `<0x97>`, `<0xA5>`.

use crate::TokenId;

/// A run of byte tokens that goes on.
///
/// Its bytes are characters from the start on, one by one. With the first byte that is part of none, that byte and all
/// that follow in the run are U+FFFD, one for each, as the library decodes a run that is no UTF-8.
#[derive(Debug, Default)]
pub(super) struct ByteRun {
    /// The ids of a character that is not complete, and its bytes.
    ids: Vec<TokenId>,
    character: Vec<u8>,
    /// A byte was part of no character, and how many bytes are U+FFFD since then.
    broken: Option<usize>,
}

impl ByteRun {
    /// A run that begins with a character that a prompt leaves incomplete: its ids and their bytes.
    pub(super) fn begun(ids: Vec<TokenId>, character: Vec<u8>) -> Self {
        Self { ids, character, broken: None }
    }

    /// Adds a byte; returns the ids of the character that it completes.
    pub(super) fn push(&mut self, id: TokenId, byte: u8) -> Option<Vec<TokenId>> {
        if let Some(count) = &mut self.broken {
            *count += 1;
            return None;
        }
        self.ids.push(id);
        self.character.push(byte);
        match std::str::from_utf8(&self.character) {
            Ok(_) => {
                self.character.clear();
                return Some(std::mem::take(&mut self.ids));
            }
            Err(error) if is_incomplete(error) => {}
            Err(_) => {
                self.broken = Some(self.ids.len());
                self.ids.clear();
            }
        }
        None
    }

    /// How many bytes have no text yet, and will be U+FFFD if the run ends.
    pub(super) fn unspoken(&self) -> usize {
        self.broken.unwrap_or(self.ids.len())
    }
}

/// Whether the bytes could become valid with more of them.
pub(super) fn is_incomplete(error: std::str::Utf8Error) -> bool {
    error.error_len().is_none()
}
