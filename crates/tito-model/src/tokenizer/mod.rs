//! Text to token ids and back.
//!
//! Owns the vocabulary, the special tokens and incremental decoding; the only module that names the `tokenizers` crate.
//! Refuses templates, and every tokenizer whose ids or text it could not reproduce exactly.

mod added_token;
mod around;
mod ascii_pairs;
mod built;
mod byte_level;
mod byte_level_bpe;
mod byte_run;
mod cuts;
mod declared;
mod decoding;
mod error;
mod fast_encoder;
mod incremental;
mod long_text;
mod longest;
mod normal;
mod parts;
mod pattern;
mod sentence_piece_bpe;
mod turn;
pub(crate) mod words;

use std::{
    collections::{HashMap, HashSet},
    path::Path,
    sync::OnceLock,
    thread,
};

pub use added_token::AddedToken;
pub(crate) use built::{Built, BuiltClass, BuiltKind};
pub use byte_level_bpe::{ByteLevelBpe, Split};
pub use error::TokenizerError;
pub use incremental::IncrementalDecoder;
pub use long_text::Extent;
pub use sentence_piece_bpe::{Piece, SentencePieceBpe};
use tokenizers::ModelWrapper;

use self::{
    around::Around,
    cuts::Cuts,
    declared::Declared,
    decoding::Decoding,
    fast_encoder::FastEncoder,
    turn::{LARGE, Turn},
};
use crate::{TokenId, files};

/// No tokenizer.json is longer; the longest have some 40 MB.
const MOST_BYTES: u64 = 256 << 20;
/// No vocabulary has larger ids.
const MOST_IDS: usize = 1 << 24;

/// Where a token starts in a text, and where it ends.
pub type Offsets = (usize, usize);

/// A model's tokenizer.
#[derive(Debug)]
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    /// Encodes in place of `inner` where it can; made for the first text.
    fast: OnceLock<Option<FastEncoder>>,
    decoding: Decoding,
    /// By id: whether a token has it.
    known: Vec<bool>,
    /// Sorted by id.
    added: Vec<AddedToken>,
    special: HashSet<TokenId>,
    /// Declarations of added tokens differ.
    contradicts: bool,
    /// Where long texts can be cut.
    cuts: Option<Cuts>,
    /// Whether a cut leaves offsets as they are.
    cuts_offsets: bool,
    /// The most bytes of a text that become one token, where there is a bound.
    longest: Option<usize>,
    /// What is put around a text, where that can be done to its ids.
    around: Option<Around>,
    turn: Turn,
}

impl Tokenizer {
    /// Reads a tokenizer.json.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, TokenizerError> {
        Self::from_bytes(&Self::read(path.as_ref())?)
    }

    /// Reads a tokenizer.json as it is.
    pub(crate) fn read(path: &Path) -> Result<Vec<u8>, TokenizerError> {
        files::read(path, MOST_BYTES).map_err(|source| TokenizerError::Read { path: path.to_owned(), source })
    }

    /// Reads the content of a tokenizer.json. Truncation and padding in it are ignored.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, TokenizerError> {
        let declared = Declared::read(bytes)?;
        let read = || tokenizers::Tokenizer::from_bytes(bytes).map_err(|e| TokenizerError::Invalid(e.to_string()));
        let inner = on_a_deep_stack(|| tried(read))?;
        check_ids(&inner, &declared.added_tokens)?;
        let contradicts = contradict(&declared.added_tokens);
        let tokenizer = Self::from_inner(inner, contradicts)?;
        tokenizer.try_out()?;
        Ok(tokenizer)
    }

    /// The library panics at some tokenizers when they are first used; that is to be known before anybody waits.
    fn try_out(&self) -> Result<(), TokenizerError> {
        tried(|| {
            for text in ["", "Hello 12,\n  world", "\u{e9}\u{65e5}\u{1f642} e\u{301}\0"] {
                // An error does not count here, as not every vocabulary has a token for every character.
                let _ = self.encode_by_library(text, true).and_then(|ids| self.decode(&ids, false));
            }
            Ok(())
        })
    }

    /// Texts are not cut where declarations of added tokens contradict each other, since the library sometimes goes by
    /// the first one and sometimes by the last one.
    fn from_inner(inner: tokenizers::Tokenizer, contradicts: bool) -> Result<Self, TokenizerError> {
        tried(|| Self::described(inner, contradicts))
    }

    fn described(mut inner: tokenizers::Tokenizer, contradicts: bool) -> Result<Self, TokenizerError> {
        inner.with_padding(None);
        inner.with_truncation(None).map_err(|e| TokenizerError::Invalid(e.to_string()))?;
        if let ModelWrapper::BPE(bpe) = inner.get_model()
            && bpe.dropout.is_some_and(|dropout| dropout > 0.0)
        {
            return Err(TokenizerError::Unsupported("BPE dropout makes the ids random".to_owned()));
        }
        let mut known = Vec::new();
        for id in inner.get_vocab(true).into_values() {
            let index = id as usize;
            if index >= MOST_IDS {
                return Err(TokenizerError::Invalid(format!("a token has the id {id}, more than any vocabulary has")));
            }
            if known.len() <= index {
                known.resize(index + 1, false);
            }
            known[index] = true;
        }
        let mut added: Vec<AddedToken> = inner
            .get_added_tokens_decoder()
            .into_iter()
            .map(|(id, token)| AddedToken::from_library(id, token))
            .collect();
        added.sort_unstable_by_key(|token| token.id);
        // The library goes by the text, whatever attributes a token was added with later.
        let is_special = |token: &&AddedToken| inner.get_added_vocabulary().is_special_token(&token.content);
        let special = added.iter().filter(is_special).map(|token| token.id).collect();
        let decoding = Decoding::new(&inner)?;
        let cuts = if contradicts { None } else { Cuts::new(&inner, &added) };
        Ok(Self {
            cuts_offsets: cuts.as_ref().is_some_and(|cuts| cuts.keep_offsets(&inner)),
            cuts,
            contradicts,
            longest: longest::longest(&inner, &added),
            around: Around::new(&inner),
            turn: Turn::default(),
            inner,
            fast: OnceLock::new(),
            decoding,
            known,
            added,
            special,
        })
    }

    /// Returns the tokenizer with more added tokens; a token that is there already takes the new attributes.
    ///
    /// Fails if a declared id is not the one that the vocabulary gives the token.
    pub fn with_added_tokens(self, tokens: &[AddedToken]) -> Result<Self, TokenizerError> {
        let declared: Vec<AddedToken> = self.added.iter().chain(tokens).cloned().collect();
        let contradicts = self.contradicts || contradict(&declared);
        let Self { mut inner, .. } = self;
        inner.add_tokens(&tokens.iter().map(AddedToken::to_library).collect::<Vec<_>>());
        check_ids(&inner, tokens)?;
        Self::from_inner(inner, contradicts)
    }

    /// The ids of a text as the library `tokenizers` has them.
    fn encode_by_library(&self, text: &str, add_special_tokens: bool) -> Result<Vec<TokenId>, TokenizerError> {
        let _turn = (text.len() > LARGE).then(|| self.turn.lock());
        let encoding = self.inner.encode_fast(text, add_special_tokens);
        Ok(encoding.map_err(|e| TokenizerError::Encode(e.to_string()))?.get_ids().to_vec())
    }

    /// Converts ids to text; bytes that are not UTF-8 become U+FFFD. An id without a token is an error.
    ///
    /// An answer's text is [`Self::decode_as_streamed`].
    pub fn decode(&self, ids: &[TokenId], skip_special_tokens: bool) -> Result<String, TokenizerError> {
        if let Some(&id) = ids.iter().find(|&&id| !self.contains(id)) {
            return Err(TokenizerError::OutOfVocabulary(id));
        }
        self.inner.decode(ids, skip_special_tokens).map_err(|e| TokenizerError::Decode(e.to_string()))
    }

    /// Returns a token as the vocabulary spells it, such as `Ġhello`.
    pub fn token(&self, id: TokenId) -> Option<String> {
        if self.contains(id) { self.inner.id_to_token(id) } else { None }
    }

    /// Returns the id of a token as the vocabulary spells it.
    pub fn id_of(&self, token: &str) -> Option<TokenId> {
        self.inner.token_to_id(token)
    }

    /// Returns the bytes that a token stands for in the middle of a text.
    pub fn token_bytes(&self, id: TokenId) -> Result<Vec<u8>, TokenizerError> {
        let token = self.token(id).ok_or(TokenizerError::OutOfVocabulary(id))?;
        self.decoding.bytes(&self.inner, id, &token)
    }

    /// Returns the number of ids up to the largest one, added tokens included.
    pub fn vocab_size(&self) -> usize {
        self.known.len()
    }

    /// Returns the number of ids up to the largest one of a token that was not added.
    pub fn trained_size(&self) -> usize {
        let added: HashSet<TokenId> = self.added.iter().map(|token| token.id).collect();
        let trained = self.inner.get_vocab(false).into_values().filter(|id| !added.contains(id));
        trained.max().map_or(0, |id| id as usize + 1)
    }

    /// Returns whether a token has this id.
    pub fn contains(&self, id: TokenId) -> bool {
        self.known.get(id as usize).copied().unwrap_or(false)
    }

    /// Returns the added tokens, sorted by id.
    pub fn added_tokens(&self) -> &[AddedToken] {
        &self.added
    }

    /// Returns whether `skip_special_tokens` leaves this token out.
    pub fn is_special(&self, id: TokenId) -> bool {
        self.special.contains(&id)
    }

    /// Has the first text encoded as fast as the others: what that needs is made now.
    pub fn prepare(&self) {
        let _ = self.fast();
    }

    fn fast(&self) -> Option<&FastEncoder> {
        let make =
            || if self.contradicts { None } else { FastEncoder::new(&self.inner, &self.added, self.cuts.as_ref()) };
        self.fast.get_or_init(make).as_ref()
    }

    /// Returns the tokenizer as the content of a tokenizer.json.
    pub fn to_json(&self) -> Result<String, TokenizerError> {
        self.inner.to_string(true).map_err(|e| TokenizerError::Invalid(e.to_string()))
    }
}

/// The library trusts what it reads, and panics where it should not have.
fn tried<T>(action: impl FnOnce() -> Result<T, TokenizerError>) -> Result<T, TokenizerError> {
    let failed = |reason| Err(TokenizerError::Invalid(format!("it cannot be used: {reason}")));
    files::without_panics(action).unwrap_or_else(failed)
}

/// Reads what the library reads by recursion: a pattern may have some 4,000 groups within each other, which take more than 2 MiB.
fn on_a_deep_stack<T: Send>(read: impl FnOnce() -> Result<T, TokenizerError> + Send) -> Result<T, TokenizerError> {
    const STACK_BYTES: usize = 16 << 20;
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("tokenizer".to_owned()).stack_size(STACK_BYTES);
        let read = thread.spawn_scoped(scope, read).map_err(|error| TokenizerError::Invalid(error.to_string()))?;
        read.join().unwrap_or_else(|_| Err(TokenizerError::Invalid("its reader ended in a panic".to_owned())))
    })
}

/// Whether a token is declared twice, once to be looked for in the text as it is, and once in the normalised one.
fn contradict(tokens: &[AddedToken]) -> bool {
    let mut normalized: HashMap<&str, bool> = HashMap::new();
    tokens.iter().any(|token| *normalized.entry(&token.content).or_insert(token.normalized) != token.normalized)
}

/// The library logs a token whose id differs from the declared one and goes on; ids would then be silently wrong.
fn check_ids(tokenizer: &tokenizers::Tokenizer, declared: &[AddedToken]) -> Result<(), TokenizerError> {
    for token in declared.iter().filter(|token| !token.content.is_empty()) {
        let actual = tokenizer
            .token_to_id(&token.content)
            .ok_or_else(|| TokenizerError::Invalid(format!("added token {:?} has no id", token.content)))?;
        if actual != token.id {
            return Err(TokenizerError::AddedTokenId { content: token.content.clone(), declared: token.id, actual });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
