//! Long texts, piece by piece: the ids of the whole text, in memory that does not grow with it.
//!
//! The library holds some 75 bytes for each byte of what it encodes. So a text longer than [`PIECE`] is cut where that is
//! exact ([`super::cuts`]), and no further than its ids are wanted.

use super::{Offsets, Tokenizer, TokenizerError, around::Around, fast_encoder::encode_by_model, turn::LARGE};
use crate::TokenId;

/// A text up to this many bytes is encoded at once. It is no longer where the fast encoder has made it so.
const PIECE: usize = 1 << 15;
/// The most bytes that are encoded at once where a text cannot be cut.
const MOST_UNCUT: usize = 1 << 22;

/// How much of the ids of a text is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// All.
    Whole,
    /// So many ids from the start; what follows them may be left out.
    First(usize),
    /// So many ids from the end; what precedes them may be left out.
    Last(usize),
    /// All ids if there are no more than this many. A text that has more gives more than this many, though not all; or
    /// an error, if its length alone shows that it has more.
    AtMost(usize),
}

impl Tokenizer {
    /// Converts text to ids. `add_special_tokens` adds what the model family puts around a text, such as BOS.
    ///
    /// A text of which more than 4 MiB can only be encoded at once is an error.
    pub fn encode(&self, text: &str, add_special_tokens: bool) -> Result<Vec<TokenId>, TokenizerError> {
        self.encode_part(text, add_special_tokens, Extent::Whole)
    }

    /// Converts as much of a text to ids as is wanted. The special tokens before the text are there in any case, and
    /// those after it unless the end of the text was left out.
    pub fn encode_part(
        &self,
        text: &str,
        add_special_tokens: bool,
        extent: Extent,
    ) -> Result<Vec<TokenId>, TokenizerError> {
        if let (Extent::AtMost(most_tokens), Some(longest)) = (extent, self.longest) {
            let most_bytes = most_tokens.saturating_mul(longest);
            if text.len() > most_bytes {
                let characters = text.chars().count();
                return Err(TokenizerError::TooLong { bytes: text.len(), characters, most_bytes, most_tokens });
            }
        }
        if text.len() <= PIECE {
            return self.at_once(text, add_special_tokens);
        }
        match &self.around {
            Some(around) if add_special_tokens => self.piecewise(text, around, extent, PIECE),
            Some(_) => self.piecewise(text, &Around::default(), extent, PIECE),
            None => {
                check_uncut(text.len())?;
                self.at_once(text, add_special_tokens)
            }
        }
    }

    /// The ids of a text that is cut into pieces of about so many bytes.
    fn piecewise(
        &self,
        text: &str,
        around: &Around,
        extent: Extent,
        size: usize,
    ) -> Result<Vec<TokenId>, TokenizerError> {
        let enough = match extent {
            Extent::Whole | Extent::Last(_) => usize::MAX,
            Extent::First(count) => count,
            Extent::AtMost(count) => count.saturating_add(1),
        };
        let keep = if let Extent::Last(count) = extent { count } else { usize::MAX };
        let mut ids = around.before.clone();
        let mut at = self.start_of_last(text, keep);
        while at < text.len() {
            let piece = self.piece(text, at, size)?;
            ids.extend(self.at_once(&text[at..piece.end], false)?);
            at = piece.next;
            if ids.len() >= enough && at < text.len() {
                return Ok(ids);
            }
            let surplus = (ids.len() - around.before.len()).saturating_sub(keep);
            // Seldom, as what is kept is moved.
            if surplus > keep.max(size) {
                ids.drain(around.before.len()..around.before.len() + surplus);
            }
        }
        ids.extend(&around.after);
        Ok(ids)
    }

    /// Converts text to ids, and says where each token stands in the text, in characters. What `add_special_tokens` adds
    /// stands nowhere in it, and has `(0, 0)`.
    pub fn encode_with_offsets(
        &self,
        text: &str,
        add_special_tokens: bool,
    ) -> Result<(Vec<TokenId>, Vec<Offsets>), TokenizerError> {
        if !add_special_tokens {
            return self.piecewise_with_offsets(text, PIECE);
        }
        let Some(Around { before, after }) = &self.around else {
            check_uncut(text.len())?;
            let _turn = (text.len() > LARGE).then(|| self.turn.lock());
            let encoding = self.inner.encode_char_offsets(text, true);
            let encoding = encoding.map_err(|e| TokenizerError::Encode(e.to_string()))?;
            return Ok((encoding.get_ids().to_vec(), encoding.get_offsets().to_vec()));
        };
        let (ids, offsets) = self.piecewise_with_offsets(text, PIECE)?;
        let nowhere = |ids: &[TokenId]| vec![(0, 0); ids.len()];
        let offsets = [nowhere(before), offsets, nowhere(after)].concat();
        Ok(([before.as_slice(), &ids, after].concat(), offsets))
    }

    fn piecewise_with_offsets(&self, text: &str, size: usize) -> Result<(Vec<TokenId>, Vec<Offsets>), TokenizerError> {
        let (mut ids, mut offsets) = (Vec::new(), Vec::new());
        let (mut at, mut characters) = (0, 0);
        while at < text.len() {
            let piece = if self.cuts_offsets { self.piece(text, at, size)? } else { Piece::whole(text, at)? };
            let _turn = (piece.end - at > LARGE).then(|| self.turn.lock());
            let encoding = self.inner.encode_char_offsets(&text[at..piece.end], false);
            let encoding = encoding.map_err(|e| TokenizerError::Encode(e.to_string()))?;
            ids.extend(encoding.get_ids());
            offsets.extend(encoding.get_offsets().iter().map(|(start, end)| (start + characters, end + characters)));
            characters += text[at..piece.next].chars().count();
            at = piece.next;
        }
        Ok((ids, offsets))
    }

    /// Converts a text to ids in which added tokens are only text, so that none of their ids is among them.
    pub fn encode_without_added_tokens(&self, text: &str) -> Result<Vec<TokenId>, TokenizerError> {
        check_uncut(text.len())?;
        if let Some(ids) = self.fast().and_then(|fast| fast.encode_without_added_tokens(text)) {
            return Ok(ids);
        }
        let _turn = (text.len() > LARGE).then(|| self.turn.lock());
        encode_by_model(&self.inner, text).map_err(|e| TokenizerError::Encode(e.to_string()))
    }

    fn at_once(&self, text: &str, add_special_tokens: bool) -> Result<Vec<TokenId>, TokenizerError> {
        match (&self.around, add_special_tokens) {
            (_, false) => match self.fast().and_then(|fast| fast.encode(text)) {
                Some(ids) => Ok(ids),
                None => self.encode_by_library(text, false),
            },
            (Some(Around { before, after }), true) => {
                Ok([before.as_slice(), &self.at_once(text, false)?, after].concat())
            }
            (None, true) => self.encode_by_library(text, true),
        }
    }

    /// The piece of a text that starts at `at`, about `size` bytes long if it can be cut there.
    fn piece(&self, text: &str, at: usize, size: usize) -> Result<Piece, TokenizerError> {
        let left = text.len() - at;
        if left <= size {
            return Ok(Piece { end: text.len(), next: text.len() });
        }
        // Rounded up: a piece is never empty.
        let aim = text.ceil_char_boundary(at + size);
        let most = text.floor_char_boundary((at + MOST_UNCUT).min(text.len()));
        let cut = self.cuts.as_ref().and_then(|cuts| cuts.last(text, at, aim).or_else(|| cuts.first(text, aim, most)));
        match cut {
            Some(cut) => Ok(Piece { end: cut.end, next: cut.start }),
            None => Piece::whole(text, at),
        }
    }

    /// Where to start so that at least the last `count` ids are found.
    fn start_of_last(&self, text: &str, count: usize) -> usize {
        let (Some(longest), Some(cuts)) = (self.longest, &self.cuts) else { return 0 };
        let bytes = longest.saturating_mul(count).saturating_add(1);
        let Some(latest) = text.len().checked_sub(bytes) else { return 0 };
        let latest = text.floor_char_boundary(latest);
        let earliest = text.floor_char_boundary(latest.saturating_sub(MOST_UNCUT));
        cuts.last(text, earliest, latest).map_or(0, |cut| cut.start)
    }
}

/// A piece of a text.
struct Piece {
    end: usize,
    /// Where the next one starts.
    next: usize,
}

impl Piece {
    /// All that is left.
    fn whole(text: &str, at: usize) -> Result<Self, TokenizerError> {
        check_uncut(text.len() - at)?;
        Ok(Self { end: text.len(), next: text.len() })
    }
}

fn check_uncut(bytes: usize) -> Result<(), TokenizerError> {
    if bytes > MOST_UNCUT { Err(TokenizerError::Uncuttable { most: MOST_UNCUT }) } else { Ok(()) }
}

#[cfg(test)]
pub(super) mod tests;
