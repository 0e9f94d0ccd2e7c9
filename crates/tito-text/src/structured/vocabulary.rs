//! The model's tokens as bytes, in the form that `llguidance` walks.
//!
//! A special token is never text: it is left out of what clients read, so a text that needed its characters would not
//! be there. Grammars name it by its id.

use std::sync::Arc;

use llguidance::toktrie::{InferenceCapabilities, SimpleVob, TokEnv, TokRxInfo, TokTrie, TokenizerEnv};
use llguidance::{ParserFactory, earley::SlicedBiasComputer};

use super::watchdog::Watchdog;
use crate::{TokenId, tokenizer::Tokenizer};

/// Fuel for the mask of one position. Grammars that were written for a parser of characters need more than the library
/// gives: 740,000 items for free text over 151,000 tokens. The most that one position can cost is then some tenths of a
/// second, and with grammars that make much of an item no more than the watchdog lets pass.
const STEP_ITEMS: usize = 1_000_000;
const STEP_LEXER_FUEL: u64 = 1_000_000;
/// States of a lexer, at 1 to 2 KiB each; every sequence has its own.
const LEXER_STATES: usize = 50_000;
/// Symbols of a grammar before it is made smaller: the compiler numbers them in 16 bits afterwards.
const GRAMMAR_SYMBOLS: usize = 150_000;

/// What a grammar is compiled against; built once for a model.
pub(super) struct Vocabulary {
    pub(super) factory: ParserFactory,
    /// The end tokens that the mask of a grammar may name.
    pub(super) end: Vec<TokenId>,
    pub(super) watchdog: Watchdog,
}

struct Tokens {
    trie: TokTrie,
}

impl TokenizerEnv for Tokens {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, text: &[u8]) -> Vec<TokenId> {
        self.trie.greedy_tokenize(text)
    }

    /// Every spelling of a text that the grammar allows is allowed: a model is never made to spell it in one way.
    fn tokenize_is_canonical(&self) -> bool {
        false
    }
}

impl Vocabulary {
    /// `end` are the model's end-of-sequence tokens.
    pub(super) fn new(tokenizer: &Tokenizer, end: &[TokenId]) -> Result<Self, String> {
        let end: Vec<TokenId> = end.iter().copied().filter(|&id| tokenizer.contains(id)).collect();
        let count = u32::try_from(tokenizer.vocab_size()).map_err(|error| error.to_string())?;
        let words: Vec<Vec<u8>> = (0..count).map(|id| bytes(tokenizer, &end, id)).collect();
        let trie = TokTrie::from(&TokRxInfo::new(count, end.first().copied().unwrap_or(NO_TOKEN)), &words);
        let trie = if end.is_empty() { trie } else { trie.with_eos_tokens(&end) };
        let tokens: TokEnv = Arc::new(Tokens { trie });
        let slices = SlicedBiasComputer::general_slices();
        let mut factory = ParserFactory::new(&tokens, InferenceCapabilities::default(), &slices)
            .map_err(|error| error.to_string())?;
        factory.quiet();
        let limits = factory.limits_mut();
        limits.verbose_errors = false;
        limits.step_max_items = STEP_ITEMS;
        limits.step_lexer_fuel = STEP_LEXER_FUEL;
        limits.max_lexer_states = LEXER_STATES;
        limits.max_grammar_size = GRAMMAR_SYMBOLS;
        Ok(Self { factory, end, watchdog: Watchdog::new() })
    }

    /// Takes the end tokens out of a mask; whether there was one.
    pub(super) fn take_end(&self, mask: &mut SimpleVob) -> bool {
        let mut found = false;
        for &id in &self.end {
            found |= mask.is_allowed(id);
            mask.disallow_token(id);
        }
        found
    }
}

/// `llguidance`'s way to say that there is none.
const NO_TOKEN: TokenId = llguidance::toktrie::INVALID_TOKEN;

/// A token as the trie has it; nothing for one that no text contains.
fn bytes(tokenizer: &Tokenizer, end: &[TokenId], id: TokenId) -> Vec<u8> {
    if tokenizer.is_special(id) || end.contains(&id) {
        let mut marked = vec![TokTrie::SPECIAL_TOKEN_MARKER];
        marked.extend_from_slice(tokenizer.token(id).unwrap_or_default().as_bytes());
        return marked;
    }
    let bytes = tokenizer.token_bytes(id).unwrap_or_default();
    // No UTF-8 has this byte, and to the trie it would mark a special token.
    if bytes.first() == Some(&TokTrie::SPECIAL_TOKEN_MARKER) { Vec::new() } else { bytes }
}
