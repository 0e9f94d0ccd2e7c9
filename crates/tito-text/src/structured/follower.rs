//! A parser of `llguidance` at work: its panics are errors, its work has an end, and why it stopped is known.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use llguidance::{
    CancellationHandle, TokenParser,
    api::StopReason,
    toktrie::{SimpleVob, TokTrie, parse_numeric_token},
};

use super::watchdog::{Watchdog, Watched};
use crate::TokenId;

/// How many tokens are tried ahead where the beginning of an output is fixed.
const MOST_AHEAD: usize = 64;

/// How many bytes of a text that must come are looked at.
const MOST_BYTES: usize = 1_024;

/// Why a grammar could not be followed further.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fault {
    /// The grammar goes on, but with bytes that no token has.
    NothingFits,
    /// The lexer gave up.
    TooManyStates,
    /// The parser gave up.
    TooAmbiguous,
    /// One piece of work took too long, or nobody waits for it any more.
    Cancelled,
    /// Something else went wrong; the text is for the log.
    Failed(String),
}

impl Fault {
    /// What to tell a client.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::NothingFits => "no token can go on as its grammar does",
            Self::TooManyStates => "the regular expressions of its grammar need too many states for one token",
            Self::TooAmbiguous => "its grammar is too ambiguous: there are too many ways to read one token",
            Self::Cancelled => "its grammar took too long for one token",
            Self::Failed(_) => "its grammar failed, see the server's log",
        }
    }

    /// Whether the grammar asks for more than it gets.
    pub(super) fn is_excess(&self) -> bool {
        matches!(self, Self::TooManyStates | Self::TooAmbiguous | Self::Cancelled)
    }
}

/// Where an output stands in its grammar.
pub(super) struct Follower {
    parser: TokenParser,
    handle: CancellationHandle,
    /// While it is followed.
    watched: Option<Arc<Watched>>,
}

impl Follower {
    /// At the beginning.
    pub(super) fn new(mut parser: TokenParser, watchdog: &Watchdog) -> Self {
        if parser.is_fresh() {
            parser.start_without_prompt();
        }
        let handle = parser.enable_cancellation();
        let watched = Some(watchdog.watch(handle.clone()));
        Self { parser, handle, watched }
    }

    /// A copy at the same place, with a lexer of its own: what the lexers of other sequences have learned neither
    /// changes nor exhausts it.
    pub(super) fn copy(&self, watchdog: &Watchdog) -> Self {
        Self::new(self.parser.deep_clone(), watchdog)
    }

    /// A copy at the same place that is quickly made, for a few tokens: what its lexer learns and exhausts is this one's too.
    pub(super) fn ahead(&self) -> Self {
        Self { parser: self.parser.clone(), handle: self.handle.clone(), watched: self.watched.clone() }
    }

    /// The follower as one that is only to be copied, so that nothing watches it.
    pub(super) fn resting(self) -> Self {
        Self { watched: None, ..self }
    }

    /// Ends the work.
    pub(super) fn handle(&self) -> CancellationHandle {
        self.handle.clone()
    }

    /// The tokens that may come next.
    pub(super) fn mask(&mut self) -> Result<SimpleVob, Fault> {
        self.run(TokenParser::compute_mask)
    }

    /// Goes on by a token.
    pub(super) fn consume(&mut self, id: TokenId) -> Result<(), Fault> {
        self.run(|parser| {
            let back = parser.consume_token(id)?;
            anyhow::ensure!(back == 0, "unexpected backtracking");
            parser.check_stop()?;
            Ok(())
        })
    }

    /// How many of these tokens may come next, one after the other.
    pub(super) fn accepts(&mut self, ids: &[TokenId]) -> Result<usize, Fault> {
        let known = self.parser.token_env.tok_trie().vocab_size();
        let ids = ids.split(|id| *id as usize >= known).next().unwrap_or_default();
        self.run(|parser| parser.validate_tokens_raw(ids))
    }

    /// Whether nothing can follow but the end.
    pub(super) fn finished(&self) -> bool {
        matches!(self.parser.stop_reason(), StopReason::NoExtension | StopReason::EndOfSentence)
    }

    /// The tokens of the text that must come next, as many as are worth knowing.
    ///
    /// The parser takes in the text at once, with the limits of a single token. So a follower that is asked is one whose
    /// faults nobody minds.
    pub(super) fn forced(&mut self) -> Result<Vec<TokenId>, Fault> {
        if self.finished() {
            return Ok(Vec::new());
        }
        let bytes = self.run(|parser| Ok(parser.force_bytes()))?;
        Ok(spelled(self.parser.token_env.tok_trie(), &bytes))
    }

    /// Follows what must come first, and works out what may come after it.
    pub(super) fn try_ahead(&mut self) -> Result<(), Fault> {
        let bytes = self.run(|parser| Ok(parser.force_bytes()))?;
        // Special tokens come by their numbers in there.
        for token in spelled(self.parser.token_env.tok_trie(), &bytes) {
            self.consume(token)?;
            if self.finished() {
                return Ok(());
            }
        }
        self.mask().map(|_| ())
    }

    fn run<T>(&mut self, work: impl FnOnce(&mut TokenParser) -> anyhow::Result<T>) -> Result<T, Fault> {
        let Self { parser, watched, .. } = self;
        let busy = watched.as_deref().map(Watched::busy);
        let result = catch_unwind(AssertUnwindSafe(|| work(parser)));
        drop(busy);
        match result {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(match parser.stop_reason() {
                _ if self.handle.is_cancelled() => Fault::Cancelled,
                StopReason::NoExtensionBias => Fault::NothingFits,
                StopReason::LexerTooComplex => Fault::TooManyStates,
                StopReason::ParserTooComplex => Fault::TooAmbiguous,
                reason => Fault::Failed(format!("{error} ({reason})")),
            }),
            Err(_) => Err(Fault::Failed("the parser panicked".to_owned())),
        }
    }
}

/// The tokens of a text, the longest ones first, as models mostly spell it. A special token is written by its number.
fn spelled(trie: &TokTrie, bytes: &[u8]) -> Vec<TokenId> {
    let (mut tokens, mut rest) = (Vec::new(), bytes);
    while !rest.is_empty() && tokens.len() < MOST_AHEAD {
        let text = rest.iter().position(|&byte| byte == TokTrie::SPECIAL_TOKEN_MARKER).unwrap_or(rest.len());
        // No token is longer on average than a few bytes, and no text need be read to its end.
        tokens.extend(trie.greedy_tokenize(&rest[..text.min(MOST_BYTES)]));
        if text > MOST_BYTES {
            break;
        }
        rest = &rest[text..];
        if let Some(marked) = rest.get(1..) {
            let Some((length, token)) = parse_numeric_token(marked) else { break };
            tokens.push(token);
            rest = &marked[length..];
        }
    }
    tokens.truncate(MOST_AHEAD);
    tokens
}
