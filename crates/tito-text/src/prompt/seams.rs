//! The added tokens at which a tail may start.

use aho_corasick::{AhoCorasick, MatchKind};

use crate::{TokenId, tokenizer::AddedToken};

/// The special tokens of a vocabulary and those that end generations, found in text as the tokenizer finds them.
pub(super) struct Seams {
    automaton: AhoCorasick,
    ids: Vec<TokenId>,
}

/// A seam in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seam {
    /// Its first byte.
    pub(super) start: usize,
    /// The byte after it.
    pub(super) end: usize,
    /// The token.
    pub(super) id: TokenId,
}

impl Seams {
    /// Takes the special tokens of the vocabulary and every stop token that is an added token.
    pub(super) fn new(added: &[AddedToken], stops: &[TokenId]) -> Self {
        let seams = added.iter().filter(|token| !token.content.is_empty());
        let seams: Vec<_> = seams.filter(|token| token.special || stops.contains(&token.id)).collect();
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(seams.iter().map(|token| token.content.as_str()))
            .expect("a few thousand short patterns fit an automaton");
        Self { automaton, ids: seams.iter().map(|token| token.id).collect() }
    }

    /// The seams in `text`, from left to right.
    pub(super) fn find<'t>(&'t self, text: &'t str) -> impl Iterator<Item = Seam> + 't {
        let seam = |found: aho_corasick::Match| Seam {
            start: found.start(),
            end: found.end(),
            id: self.ids[found.pattern().as_usize()],
        };
        self.automaton.find_iter(text).map(seam)
    }

    /// Whether the token is one.
    pub(super) fn contains(&self, id: TokenId) -> bool {
        self.ids.contains(&id)
    }
}
