//! What is edited of the logits of a position before its token is drawn, as data.
//!
//! Owns what a device has to do that edits logits where they are: [`RowEdits::apply`] is the definition of its kernels. What comes
//! out is what [`SequenceSampler::step`] draws from, to the bit.

use std::borrow::Cow;

use super::{
    SequenceSampler, TokenMask,
    constrained::{Constrained, tokens_left},
    guidance::Left,
    masks::completing_tokens,
    penalties::{Penalties, PenaltyFactors},
};
use crate::TokenId;

/// Edits of the logits of one position, in the order in which they are made. A token without a logit is passed over.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RowEdits {
    /// The tokens that are left: the logits of all others become -infinity. `None` leaves all.
    pub mask: Option<TokenMask>,
    /// Tokens whose logits become -infinity.
    pub forbidden: Vec<TokenId>,
    /// What is added to logits, in `f32`. Each token is there once.
    pub biases: Vec<(TokenId, f32)>,
    /// How the logits of tokens that occurred are penalised.
    pub penalties: Option<PenaltyFactors>,
    /// The tokens that occurred, each once, with how often it was sampled.
    pub occurrences: Vec<(TokenId, u32)>,
}

impl RowEdits {
    /// Whether nothing is edited.
    pub fn is_empty(&self) -> bool {
        let Self { mask, forbidden, biases, occurrences, .. } = self;
        mask.is_none() && forbidden.is_empty() && biases.is_empty() && occurrences.is_empty()
    }

    /// Edits a row of logits: what a kernel has to do.
    pub fn apply(&self, logits: &mut [f32]) {
        if let Some(mask) = &self.mask {
            let left_out = (0..).zip(&mut *logits).filter(|(id, _)| !mask.allows(*id));
            left_out.for_each(|(_, logit)| *logit = f32::NEG_INFINITY);
        }
        for id in &self.forbidden {
            edit(logits, *id, |_| f32::NEG_INFINITY);
        }
        for (id, bias) in &self.biases {
            edit(logits, *id, |logit| logit + bias);
        }
        if let Some(factors) = self.penalties {
            for (id, count) in &self.occurrences {
                edit(logits, *id, |logit| factors.penalised(logit, *count));
            }
        }
    }
}

fn edit(logits: &mut [f32], id: TokenId, change: impl FnOnce(f32) -> f32) {
    if let Some(logit) = logits.get_mut(id as usize) {
        *logit = change(*logit);
    }
}

impl SequenceSampler {
    /// Whether anything may edit the logits of the next position, or of one after it.
    pub(super) fn edits_logits(&self) -> bool {
        self.allowed.is_some()
            || self.constrained.is_some()
            || self.penalties.is_some()
            || !self.params.bad_words.is_empty()
            || !self.params.logit_bias.is_empty()
            || self.output.len() < self.params.min_tokens
    }

    /// What is edited of the logits of the next position; `None` where that depends on these, or a structured output cannot be
    /// followed.
    pub(super) fn row_edits(&mut self) -> Option<RowEdits> {
        let left = self.constrained.as_mut().map_or(Ok(Left::Anything), Constrained::prepare).ok()?;
        let Self { params, output, penalties, allowed, constrained, .. } = self;
        let may_not_end = output.len() < params.min_tokens;
        if may_not_end && constrained.is_some() {
            // Whether the output is complete depends on which logits are finite.
            return None;
        }
        let mask = tokens_left(constrained.as_ref(), left, allowed.as_ref()).map(Cow::into_owned);
        let mut forbidden: Vec<TokenId> = completing_tokens(&params.bad_words, output).collect();
        if may_not_end {
            forbidden.extend(params.end_token_ids());
        }
        let (penalties, occurrences) = penalties.as_ref().map(Penalties::get).unzip();
        Some(RowEdits {
            mask,
            forbidden,
            biases: params.logit_bias.clone(),
            penalties,
            occurrences: occurrences.unwrap_or_default().to_vec(),
        })
    }
}
