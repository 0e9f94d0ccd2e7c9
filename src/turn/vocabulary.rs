//! Which ids there are.

use crate::tokenizer::Tokenizer;

/// What makes texts of ids, and how many ids the model knows. These are not always as many: models have rows for ids that no
/// text has, and some tokenizers have ids that the model does not know.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Vocabulary<'a> {
    /// The tokenizer.
    pub(crate) tokenizer: &'a Tokenizer,
    /// The ids that the model knows, from 0 on.
    pub(crate) size: usize,
}
