//! Which tokens a structured output leaves at each position.
//!
//! Owns the seam: a grammar (`structured`) says what may come next, the sampler draws among that. Refuses to know what
//! a grammar is, and when a sequence ends: end tokens are the sampler's.

use std::{fmt, sync::Arc, time::Duration};

use pulp::{Arch, Simd, WithSimd};

use super::SampleError;
use crate::TokenId;

/// What all sequences of a request must keep to.
pub trait TokenConstraint: fmt::Debug + Send + Sync {
    /// The beginning of one sequence's output.
    fn start(&self) -> Box<dyn ConstraintState>;

    /// Who says what one sequence is left no choice about, for drafts; `None` if nobody can.
    fn foresight(&self) -> Option<Box<dyn Foresight>> {
        None
    }
}

/// Follows the output of one sequence beside its [`ConstraintState`], and says what has to come next.
///
/// What it says is a draft: it is only kept as far as it is what is sampled. So it may be wrong, and may give up.
pub trait Foresight: fmt::Debug + Send {
    /// Takes in the next token of the output; `false` if it can say nothing from here on.
    fn follow(&mut self, id: TokenId) -> bool;

    /// The tokens of the text that has to come next, as it is most likely spelled; none where there is a choice.
    fn forced(&mut self) -> Vec<TokenId>;

    /// How many of these tokens, from the first on, may come next one after the other. All of them where that is not known.
    fn accepts(&mut self, token_ids: &[TokenId]) -> usize {
        token_ids.len()
    }

    /// Writes the tokens that may come next, and says whether the output may also end here; `None` where any token may come, or
    /// that is not known.
    fn allow(&mut self, _mask: &mut TokenMask) -> Option<bool> {
        None
    }

    /// Another one at the same place, which follows a guess and leaves this one where it is; `None` if there cannot be one.
    fn ahead(&self) -> Option<Box<dyn Foresight>> {
        None
    }
}

/// What one sequence must keep to from here on.
pub trait ConstraintState: fmt::Debug + Send {
    /// Whether any token may come next, the end included, just as if there were no constraint.
    fn is_free(&self) -> bool {
        false
    }

    /// Writes the tokens that may come next, and returns whether the output may also end here.
    fn allow(&mut self, mask: &mut TokenMask) -> Result<bool, SampleError>;

    /// Takes in the next token: one of those that [`allow`](Self::allow) wrote, or any where the constraint
    /// [is free](Self::is_free).
    fn accept(&mut self, id: TokenId) -> Result<(), SampleError>;
}

/// A position that takes longer than this is one that others should not have to wait for.
pub(super) const LONG: Duration = Duration::from_millis(4);

/// A [`TokenConstraint`] as a parameter; equal to itself only.
#[derive(Debug, Clone)]
pub struct SharedConstraint {
    constraint: Arc<dyn TokenConstraint>,
    long: Duration,
}

impl SharedConstraint {
    /// Shares a constraint among sequences.
    pub fn new(constraint: Arc<dyn TokenConstraint>) -> Self {
        Self { constraint, long: LONG }
    }

    /// The same constraint, of which every position counts as long: a test need not make one that takes its time.
    #[cfg(any(test, feature = "internals"))]
    #[must_use]
    pub fn always_long(self) -> Self {
        Self { long: Duration::ZERO, ..self }
    }

    /// The same constraint, of which no position counts as long: a test does not depend on how busy a machine is.
    #[cfg(any(test, feature = "internals"))]
    #[must_use]
    pub fn never_long(self) -> Self {
        Self { long: Duration::MAX, ..self }
    }

    /// What a position may take before others should not have to wait for it.
    pub(super) fn long(&self) -> Duration {
        self.long
    }

    /// The beginning of one sequence's output.
    pub fn start(&self) -> Box<dyn ConstraintState> {
        self.constraint.start()
    }

    /// Who says what one sequence is left no choice about; `None` if nobody can.
    pub fn foresight(&self) -> Option<Box<dyn Foresight>> {
        self.constraint.foresight()
    }
}

impl PartialEq for SharedConstraint {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.constraint, &other.constraint)
    }
}

/// A set of tokens, a bit each.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct TokenMask {
    words: Vec<u32>,
}

impl TokenMask {
    /// Makes it empty.
    pub fn clear(&mut self) {
        self.words.clear();
    }

    /// Makes it the set of these bits, lowest first.
    pub fn set(&mut self, words: &[u32]) {
        self.words.clear();
        self.words.extend_from_slice(words);
    }

    /// Makes it every token below `count`.
    pub fn fill(&mut self, count: usize) {
        self.words.clear();
        self.words.resize(count / 32, u32::MAX);
        if !count.is_multiple_of(32) {
            self.words.push((1 << (count % 32)) - 1);
        }
    }

    /// Adds a token.
    pub fn allow(&mut self, id: TokenId) {
        let word = (id / 32) as usize;
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (id % 32);
    }

    /// Takes a token out.
    pub fn forbid(&mut self, id: TokenId) {
        if let Some(word) = self.words.get_mut((id / 32) as usize) {
            *word &= !(1 << (id % 32));
        }
    }

    /// Whether a token is in it.
    pub fn allows(&self, id: TokenId) -> bool {
        self.words.get((id / 32) as usize).is_some_and(|word| word & (1 << (id % 32)) != 0)
    }

    /// Leaves only the tokens that are in another one, too.
    pub fn intersect(&mut self, other: &Self) {
        self.words.truncate(other.words.len());
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            *word &= other;
        }
    }

    /// Writes logits, and -infinity in the place of those of tokens that are not in it.
    pub(super) fn leave(&self, logits: &[f32], left: &mut Vec<f32>) {
        left.clear();
        left.resize(logits.len(), f32::NEG_INFINITY);
        Arch::new().dispatch(Leave { words: &self.words, logits, left });
    }

    /// How many tokens there are.
    pub(super) fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// The bits, lowest first. No token after the last word is in the set.
    pub fn words(&self) -> &[u32] {
        &self.words
    }

    /// The tokens, ascending.
    pub fn ids(&self) -> impl Iterator<Item = TokenId> {
        (0..).step_by(32).zip(&self.words).flat_map(|(first, &word)| Bits(word).map(move |bit| first + bit))
    }
}

impl FromIterator<TokenId> for TokenMask {
    fn from_iter<I: IntoIterator<Item = TokenId>>(ids: I) -> Self {
        let mut mask = Self::default();
        for id in ids {
            mask.allow(id);
        }
        mask
    }
}

/// The loop over all logits, compiled for several instruction sets.
struct Leave<'a> {
    words: &'a [u32],
    logits: &'a [f32],
    left: &'a mut [f32],
}

impl WithSimd for Leave<'_> {
    type Output = ();

    #[expect(clippy::inline_always, reason = "only what is inlined uses the wider instructions")]
    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let (logits, last) = self.logits.as_chunks::<32>();
        let (left, last_left) = self.left.as_chunks_mut::<32>();
        for ((left, logits), word) in left.iter_mut().zip(logits).zip(self.words) {
            for (bit, (left, logit)) in left.iter_mut().zip(logits).enumerate() {
                *left = if word & (1 << bit) != 0 { *logit } else { f32::NEG_INFINITY };
            }
        }
        if let Some(word) = self.words.get(logits.len()) {
            let allowed = last_left.iter_mut().zip(last).enumerate().filter(|(bit, _)| word & (1 << bit) != 0);
            allowed.for_each(|(_, (left, logit))| *left = *logit);
        }
    }
}

/// The set bits of a word, lowest first.
struct Bits(u32);

impl Iterator for Bits {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        if self.0 == 0 {
            return None;
        }
        let bit = self.0.trailing_zeros();
        self.0 &= self.0 - 1;
        Some(bit)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        #[test]
        fn a_mask_gives_back_the_tokens_that_were_put_in(ids in prop::collection::btree_set(0_u32..2_000, 0..200)) {
            let mut mask: TokenMask = ids.iter().copied().collect();
            prop_assert!(mask.ids().eq(ids.iter().copied()));
            prop_assert!(ids.iter().all(|&id| mask.allows(id)));
            let Some(&first) = ids.first() else { return Ok(()) };
            mask.forbid(first);
            prop_assert!(!mask.allows(first));
            let mut low = TokenMask::default();
            low.fill(1_000);
            let mut both = mask.clone();
            both.intersect(&low);
            prop_assert!(both.ids().eq(mask.ids().filter(|id| *id < 1_000)));
            low.intersect(&mask);
            prop_assert_eq!(mask.len(), ids.len() - 1);
            let (logits, mut left) = ([1.5; 1_999], Vec::new());
            mask.leave(&logits, &mut left);
            let expected = (0..).zip(logits).map(|(id, logit)| if mask.allows(id) { logit } else { f32::NEG_INFINITY });
            prop_assert!(left.iter().copied().eq(expected));
            prop_assert!(low.ids().eq(both.ids()));
            mask.fill(first as usize);
            prop_assert!(mask.ids().eq(0..first));
        }
    }
}
