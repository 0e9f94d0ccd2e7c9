//! What came of sampling a turn again, in data and in words.

use super::end::end_name;
use crate::{TokenId, trajectory::Ended};

/// What came of sampling a turn again.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Outcome {
    /// All tokens have the ids, the log-probs and the sampling masks that were captured, to the bit, and the turn ends after them for the same
    /// reason.
    Equal {
        /// Tokens of the turn.
        tokens: usize,
    },
    /// What was sampled again is equal, and that is not all of it.
    Partial {
        /// Tokens that were sampled again, and are equal.
        tokens: usize,
        /// Tokens of the turn.
        all: usize,
        /// What is not proven, and why.
        rest: String,
    },
    /// All tokens are equal, and the end is another one.
    Ends {
        /// The end that was captured.
        captured: Ended,
        /// What is there instead.
        again: String,
        /// As for tokens.
        reasons: Vec<String>,
    },
    /// A token came out differently.
    Differs {
        /// The first one, counted from 0 among those that the turn sampled.
        index: usize,
        /// The id and the log-prob that were captured.
        captured: (TokenId, f32),
        /// Those that came out now; `None` where the turn ended before.
        again: Option<(TokenId, f32)>,
        /// What is known to be different and may be why; empty where nothing is known.
        reasons: Vec<String>,
    },
    /// A token came out as it was, and was drawn from other ids.
    MaskDiffers {
        /// The first one, counted from 0 among those that the turn sampled.
        index: usize,
        /// The ids that it was drawn from then, and is not drawn from now.
        captured: Vec<TokenId>,
        /// The ids that it is drawn from now, and was not then.
        again: Vec<TokenId>,
        /// As for tokens.
        reasons: Vec<String>,
    },
    /// It cannot be sampled again, or what is kept of it is not what was sampled.
    Unrepeatable(String),
}

impl Outcome {
    /// What is known to be different and may be why the turn came out differently.
    pub(crate) fn reasons(&self) -> &[String] {
        match self {
            Self::Ends { reasons, .. } | Self::Differs { reasons, .. } | Self::MaskDiffers { reasons, .. } => reasons,
            Self::Equal { .. } | Self::Partial { .. } | Self::Unrepeatable(_) => &[],
        }
    }

    /// Says in a sentence what came of the turn, without the reasons.
    pub(crate) fn told(&self) -> String {
        match self {
            Self::Equal { tokens } => format!("all {tokens} tokens are equal to the bit, and so is the end"),
            Self::Partial { tokens, all, rest } => {
                let which = if tokens < all { format!("the first {tokens} of {all}") } else { format!("all {all}") };
                format!("{which} tokens are equal to the bit; {rest}")
            }
            Self::Ends { captured, again, .. } => {
                format!("all tokens are equal to the bit; the end was {}, and {again}", end_name(*captured))
            }
            Self::Differs { index, captured, again, .. } => {
                let told = |(id, logprob): (TokenId, f32)| format!("id {id} with log-prob {logprob}");
                let again = again.map_or_else(|| "the end".to_owned(), told);
                format!("token {index} was {}, and is {again} now", told(*captured))
            }
            Self::MaskDiffers { index, captured, again, .. } => format!(
                "token {index} is the same, and its sampling mask is another one: only then it had {}, and only now it has {}",
                some_of(captured),
                some_of(again)
            ),
            Self::Unrepeatable(reason) => format!("not repeatable: {reason}"),
        }
    }
}

/// The first of some ids, and how many there are.
fn some_of(ids: &[TokenId]) -> String {
    const SHOWN: usize = 5;
    let first: Vec<String> = ids.iter().take(SHOWN).map(ToString::to_string).collect();
    match ids.len() {
        0 => "none".to_owned(),
        count @ ..=SHOWN => format!("{count} (id {})", first.join(", ")),
        count => format!("{count} (id {}, …)", first.join(", ")),
    }
}
