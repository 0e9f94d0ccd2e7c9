//! A captured sequence as a person looks at it: the text of each id, where the id came from, and where encoding the text
//! again would have given other ids.
//!
//! This is for people, and proves nothing. It finds out which words are the template's and which are a message's by
//! looking for the messages in the text. The ids themselves were checked when the sequence was made.

mod drift;
mod origins;
mod texts;

use std::collections::{BTreeMap, BTreeSet};

pub use drift::Drift;
pub use origins::{Origin, OriginSpan};

use crate::{
    TokenId,
    tokenizer::Tokenizer,
    trajectory::{Generation, Sequence},
};
use texts::Vocabulary;

/// What there is to see of a sequence. Columns are as long as the sequence.
#[derive(Debug)]
pub struct Inspection {
    /// All ids, from the first of the prompt to the last that was sampled.
    pub token_ids: Vec<TokenId>,
    /// What each id stands for in the middle of a text, without a tokenizer nothing. Bytes that are no whole characters are
    /// written as `\xF0`.
    pub texts: BTreeMap<TokenId, String>,
    /// The ids whose bytes are no whole characters.
    pub fragments: BTreeSet<TokenId>,
    /// The log-prob of each id that was sampled here.
    pub logprobs: Vec<Option<f32>>,
    /// The rank of each id that was sampled here; `None` as a whole where no rank is known.
    pub ranks: Option<Vec<Option<u32>>>,
    /// The least entropy, in nats, that the distribution of each id that was sampled here can have; `None` as a whole where none is known.
    pub entropies: Option<Vec<Option<f32>>>,
    /// The origins of all ids, without gaps, in their order.
    pub spans: Vec<OriginSpan>,
    /// Where encoding the text of the sequence gives other ids; `None` where that cannot be told.
    pub drift: Option<Vec<Drift>>,
}

/// What turns know of each id that they sampled, in a column of the whole sequence; `None` where none knows anything.
fn column<T: Clone>(sequence: &Sequence, of: impl Fn(&Generation) -> Vec<Option<T>>) -> Option<Vec<Option<T>>> {
    let mut column = vec![None; sequence.token_ids.len()];
    for turn in &sequence.turns {
        let own = of(&turn.generation);
        if own.len() == turn.end - turn.start {
            column[turn.start..turn.end].clone_from_slice(&own);
        }
    }
    column.iter().any(Option::is_some).then_some(column)
}

impl Inspection {
    /// Looks at a sequence. Without the tokenizer there are no texts, no drift, and nothing that tells a template's words
    /// from those of messages.
    pub fn of(sequence: &Sequence, tokenizer: Option<&Tokenizer>) -> Self {
        let mut vocabulary = tokenizer.map(Vocabulary::new);
        let drift = vocabulary.as_mut().and_then(|vocabulary| drift::find(vocabulary, &sequence.token_ids));
        let spans = origins::spans(sequence, vocabulary.as_mut());
        let (texts, fragments) = vocabulary.map(|mut all| all.texts_by_id(&sequence.token_ids)).unwrap_or_default();
        Self {
            token_ids: sequence.token_ids.clone(),
            texts,
            fragments,
            logprobs: sequence.logprobs.clone(),
            ranks: column(sequence, |own| own.ranks.iter().copied().map(Some).collect()),
            entropies: column(sequence, |own| {
                own.entropies.iter().map(|bits| bits.is_finite().then_some(*bits)).collect()
            }),
            spans,
            drift,
        }
    }
}
