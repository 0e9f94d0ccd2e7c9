//! Drafts: tokens that are guessed, computed beside the last sampled one, and kept as far as they are what is sampled.
//!
//! Owns where guesses come from and how many are worth their rows. Refuses to sample: a token's logits do not depend on
//! the rows beside it, so what is kept is what would have been sampled without drafts, to the bit.

mod confidence;
mod drafter;
mod gains;
mod loads;
mod ngram;
mod occurrence;
mod pace;
mod suffix;
mod texts;
mod trials;

pub use self::drafter::{Drafting, ModelDrafts, Speculation};
pub use self::ngram::NgramLookup;
pub use self::suffix::SuffixDecoding;
pub(super) use self::{
    confidence::Confidence,
    drafter::{Asked, DraftContext, DraftSource, Drafter},
    texts::RecordedText,
};
