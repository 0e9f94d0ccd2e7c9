//! How the answers of a turn are sampled.

use std::sync::Arc;

use super::SamplingPolicy;
use crate::{
    TokenId,
    generation::TextOptions,
    parser::OutputFormat,
    sampling::{Logprobs, SamplingError, SamplingParams, SharedConstraint, ValidSamplingParams},
    structured::Constraint,
};

/// Valid parameters, before the room for the output is known.
#[derive(Debug, Clone)]
pub struct Sampling {
    params: ValidSamplingParams,
    /// What the output must be, not compiled yet.
    constraint: Option<Constraint>,
    /// Sequences to generate.
    pub n: usize,
    /// Tokens to generate, if the request or the model says so.
    pub max_tokens: Option<usize>,
    /// Most tokens that the server samples for anyone.
    most_tokens: Option<usize>,
    /// How tokens become text.
    pub text: Arc<TextOptions>,
    /// Alternatives a position of the prompt.
    pub prompt_logprobs: Option<usize>,
    /// The answer names tokens `token_id:N` instead of by their texts.
    pub tokens_as_ids: bool,
    /// The answer shows token ids.
    pub return_token_ids: bool,
    /// Who shares cached prefixes with the request.
    pub cache_salt: Option<Arc<str>>,
}

impl Sampling {
    /// One sequence of these parameters, as `policy` has it, of which nothing is demanded.
    pub fn new(params: ValidSamplingParams, policy: &SamplingPolicy) -> Self {
        Self {
            params,
            constraint: None,
            n: 1,
            max_tokens: None,
            most_tokens: policy.most_tokens,
            text: Arc::default(),
            prompt_logprobs: None,
            tokens_as_ids: policy.return_tokens_as_token_ids,
            return_token_ids: false,
            cache_salt: None,
        }
    }

    /// Reads reasoning and tool calls out of the text as `format` says.
    pub fn read(&mut self, format: OutputFormat) {
        Arc::make_mut(&mut self.text).format = format;
    }

    /// Demands something of the output, instead of anything that was demanded before.
    pub fn demand(&mut self, constraint: Constraint) {
        self.constraint = Some(constraint);
    }

    /// Whether something is demanded of the output already.
    pub fn demands(&self) -> bool {
        self.constraint.is_some()
    }

    /// What the output must be, to be compiled.
    pub fn take_constraint(&mut self) -> Option<Constraint> {
        self.constraint.take()
    }

    /// Has the output keep to what was compiled.
    pub(super) fn set_compiled(&mut self, constraint: SharedConstraint) {
        self.params.constrain(constraint);
    }

    /// Whether the output must be something, once that is compiled.
    pub fn is_constrained(&self) -> bool {
        self.params.constraint.is_some()
    }

    /// Whether there is a token that ends an output.
    pub(super) fn can_end(&self) -> bool {
        let SamplingParams { eos_token_id, extra_eos_token_ids, stop_token_ids, .. } = &*self.params;
        eos_token_id.is_some() || !extra_eos_token_ids.is_empty() || !stop_token_ids.is_empty()
    }

    /// The stop tokens of the request, which may also close a message.
    pub fn stop_token_ids(&self) -> &[TokenId] {
        &self.params.stop_token_ids
    }

    /// Whether the most probable token is taken rather than drawn.
    pub fn is_greedy(&self) -> bool {
        self.params.is_greedy()
    }

    /// Tokens before which nothing ends a sequence.
    pub fn min_tokens(&self) -> usize {
        self.params.min_tokens
    }

    /// Whether log-probs were asked for.
    pub fn wants_logprobs(&self) -> bool {
        self.params.logprobs.is_some()
    }

    /// Alternatives that are reported for a token.
    pub fn alternatives(&self) -> usize {
        match &self.params.logprobs {
            None => 0,
            Some(Logprobs::Top(top)) => *top,
            Some(Logprobs::All) => usize::MAX,
            Some(Logprobs::Ids(ids)) => ids.len(),
        }
    }

    /// The most tokens that a sequence may have in `room`.
    pub fn most_tokens(&self, room: usize) -> usize {
        [self.max_tokens, self.most_tokens].into_iter().flatten().fold(room, usize::min)
    }

    /// The parameters of the first sequence, with `room` tokens left in the context.
    pub fn params(&self, room: usize) -> Result<Arc<ValidSamplingParams>, SamplingError> {
        Ok(Arc::new(self.params.with_max_tokens(self.most_tokens(room))?))
    }
}
