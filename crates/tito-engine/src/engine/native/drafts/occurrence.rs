//! Where the last tokens of a sequence were before, and what followed there.

use crate::TokenId;

/// An earlier place of the last tokens of a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Occurrence<'a> {
    /// How many of the last tokens are the same there, at least 1.
    pub(super) agreeing: usize,
    /// What followed, at least one token.
    pub(super) follows: &'a [TokenId],
    /// Whether it is in the same text, so that `follows` leads to the end of the sequence and would go on from its start.
    pub(super) repeats: bool,
}

impl Occurrence<'_> {
    /// The token of this number, from 0, among those that followed.
    pub(super) fn token(&self, number: usize) -> Option<TokenId> {
        let number = if self.repeats { number % self.follows.len() } else { number };
        self.follows.get(number).copied()
    }
}

/// How many tokens before the end of two texts are the same.
pub(super) fn agreeing(one: &[TokenId], other: &[TokenId]) -> usize {
    one.iter().rev().zip(other.iter().rev()).take_while(|(one, other)| one == other).count()
}
