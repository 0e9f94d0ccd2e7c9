//! A structured output that guesses follow: what it leaves for each of them.
//!
//! Refuses to decide anything about what is sampled: it follows guesses on a copy.

use super::{Foresight, TokenMask};
use crate::TokenId;

/// What a constraint leaves of a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Left {
    /// Any token, just as if there were no constraint.
    Anything,
    /// The tokens of the mask, and the end tokens where the output `may_end`.
    Masked { may_end: bool },
}

/// How often a thread may be kept from its work by others before that counts as the structured output's own time.
const MOST_SLOW: u32 = 3;

/// What guesses follow.
#[derive(Debug, Default)]
pub(super) struct Guidance {
    state: State,
    mask: TokenMask,
    /// How often it took too long to follow a guess.
    slow: u32,
}

#[derive(Debug, Default)]
enum State {
    /// Nothing was guessed.
    #[default]
    NotBegun,
    /// Nobody says what may come: anything is guessed.
    Alone,
    /// Where the last guess leads.
    By(Box<dyn Foresight>),
    /// Nothing is guessed any more.
    Over,
}

impl Guidance {
    /// Begins where the output is, unless guesses have begun.
    pub(super) fn begin(&mut self, foresight: Option<&dyn Foresight>) {
        if let State::NotBegun = self.state {
            self.state = foresight.and_then(Foresight::ahead).map_or(State::Alone, State::By);
        }
    }

    /// What is left for the next guess; `None` where nothing is guessed any more.
    pub(super) fn left(&mut self) -> Option<Left> {
        match &mut self.state {
            State::Over => None,
            State::NotBegun | State::Alone => Some(Left::Anything),
            State::By(foresight) => {
                let left = foresight.allow(&mut self.mask);
                Some(left.map_or(Left::Anything, |may_end| Left::Masked { may_end }))
            }
        }
    }

    /// Exchanges the mask of the next guess.
    pub(super) fn swap_mask(&mut self, mask: &mut TokenMask) {
        std::mem::swap(&mut self.mask, mask);
    }

    /// Takes note of a guess, and returns those that there is no choice about after it.
    pub(super) fn follow(&mut self, id: TokenId, left: Left) -> Vec<TokenId> {
        let ends = left != Left::Anything && !self.mask.allows(id);
        match &mut self.state {
            State::By(foresight) => {
                if !ends && foresight.follow(id) {
                    return foresight.forced();
                }
                self.end();
                Vec::new()
            }
            State::NotBegun | State::Alone | State::Over => Vec::new(),
        }
    }

    /// Takes note of one of these; `false` where nothing is guessed after it.
    pub(super) fn follow_forced(&mut self, id: TokenId) -> bool {
        let State::By(foresight) = &mut self.state else { return false };
        let follows = foresight.follow(id);
        if !follows {
            self.end();
        }
        follows
    }

    /// Guesses nothing any more.
    pub(super) fn end(&mut self) {
        self.state = State::Over;
    }

    /// The same because following them took too long; whether it did so too often.
    pub(super) fn end_slowly(&mut self) -> bool {
        self.end();
        self.slow += 1;
        self.slow >= MOST_SLOW
    }

    /// Forgets all guesses.
    pub(super) fn forget(&mut self) {
        self.state = State::NotBegun;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{ConstraintState, SampleError, SamplingParams, SequenceSampler, SharedConstraint, TokenConstraint};

    /// Leaves the token of the place and the one after it, of seven; the fourth place leaves one.
    #[derive(Debug, Clone, Copy)]
    struct Rising(TokenId);

    impl Rising {
        fn write(self, mask: &mut TokenMask) {
            mask.clear();
            (self.0..self.0 + if self.0 == 3 { 1 } else { 2 }).for_each(|id| mask.allow(id));
        }
    }

    impl TokenConstraint for Rising {
        fn start(&self) -> Box<dyn ConstraintState> {
            Box::new(*self)
        }

        fn foresight(&self) -> Option<Box<dyn Foresight>> {
            Some(Box::new(*self))
        }
    }

    impl ConstraintState for Rising {
        fn allow(&mut self, mask: &mut TokenMask) -> Result<bool, SampleError> {
            self.write(mask);
            Ok(false)
        }

        fn accept(&mut self, _: TokenId) -> Result<(), SampleError> {
            self.0 += 1;
            Ok(())
        }
    }

    impl Foresight for Rising {
        fn follow(&mut self, _: TokenId) -> bool {
            self.0 += 1;
            self.0 < 6
        }

        fn forced(&mut self) -> Vec<TokenId> {
            if self.0 == 3 { vec![3] } else { Vec::new() }
        }

        fn allow(&mut self, mask: &mut TokenMask) -> Option<bool> {
            self.write(mask);
            Some(false)
        }

        fn ahead(&self) -> Option<Box<dyn Foresight>> {
            Some(Box::new(*self))
        }
    }

    /// The last token is the best.
    const LOGITS: [f32; 9] = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];

    /// A sampler after its first token.
    fn begun(constraint: SharedConstraint, max_tokens: usize) -> SequenceSampler {
        let params =
            SamplingParams { constraint: Some(constraint), temperature: 0.0, max_tokens, ..SamplingParams::default() };
        let mut sampler = SequenceSampler::new(params.valid(), Arc::new([])).foreseeing();
        assert_eq!(sampler.step(&mut LOGITS.clone()).unwrap().token.id, 1);
        sampler
    }

    fn guesses(sampler: &mut SequenceSampler, most: [usize; 3]) -> [Vec<TokenId>; 3] {
        let found = most.map(|most| sampler.guess(&mut LOGITS.clone(), most));
        sampler.forget_guesses();
        found
    }

    #[test]
    fn guesses_are_of_what_is_left_and_bring_what_is_forced() {
        let mut sampler = begun(SharedConstraint::new(Arc::new(Rising(0))).never_long(), 9);
        for _ in 0..2 {
            assert_eq!(guesses(&mut sampler, [9, 9, 9]), [vec![2], vec![3, 3], vec![5]], "from the same place");
        }
        assert_eq!(guesses(&mut sampler, [9, 1, 9])[1], [3], "there is room for one");
        let rest: Vec<TokenId> = (0..4).map(|_| sampler.step(&mut LOGITS.clone()).unwrap().token.id).collect();
        assert_eq!(rest, [2, 3, 3, 5], "that is what comes");
        let mut short = begun(SharedConstraint::new(Arc::new(Rising(0))).never_long(), 4);
        assert_eq!(guesses(&mut short, [9, 9, 9]), [vec![2], vec![3], vec![]], "a forced token would be the last");
    }

    #[test]
    fn guesses_come_after_what_is_forced() {
        let mut sampler = begun(SharedConstraint::new(Arc::new(Rising(0))).never_long(), 9);
        let steps = [2, 3].map(|_| sampler.step(&mut LOGITS.clone()).unwrap());
        assert_eq!((steps[1].token.id, &steps[1].forced[..]), (3, &[3][..]));
        for _ in 0..2 {
            assert!(sampler.guess_forced(&[3]));
            assert_eq!(guesses(&mut sampler, [9, 9, 9])[0], [5]);
        }
        assert!(!sampler.guess_forced(&[3, 4, 5, 6]), "nobody says what comes after the last place");
        sampler.forget_guesses();
        let rest = [3, 5].map(|_| sampler.step(&mut LOGITS.clone()).unwrap().token.id);
        assert_eq!(rest, [3, 5], "that is what comes");
        let mut free = SequenceSampler::new(SamplingParams::default().valid(), Arc::new([]));
        assert!(free.guess_forced(&[]) && !free.guess_forced(&[1]));
    }

    #[test]
    fn guesses_that_take_long_are_given_up() {
        let mut sampler = begun(SharedConstraint::new(Arc::new(Rising(0))).always_long(), 9);
        assert_eq!(guesses(&mut sampler, [9, 9, 9])[0], [8], "nobody says what is left");
        assert_eq!(sampler.guided(&[7]), None);
        assert_eq!(sampler.step(&mut LOGITS.clone()).unwrap().token.id, 2);
    }
}
