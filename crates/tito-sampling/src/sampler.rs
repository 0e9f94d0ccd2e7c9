//! One sequence's sampler.

use std::sync::Arc;

use uuid::Uuid;

use super::{
    FinishReason, LogprobsMode, SampleError, SampledToken, TokenMask, ValidSamplingParams,
    best::BestTokens,
    constrained::{Constrained, tokens_left},
    draw::UniformStream,
    edits::Edits,
    guidance::Left,
    log_probs::Distribution,
    masks::{Gathered, Pool, completing_tokens},
    penalties::Penalties,
    softmax::{BlockSums, Scale, max_logit},
    truncation::Truncation,
};
use crate::TokenId;

/// What one position gave.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// The token, also when it is a stop token.
    pub token: SampledToken,
    /// Set when the sequence ends with this token.
    pub finish: Option<FinishReason>,
    /// Tokens that probably follow, as a structured output leaves no choice; only where that is
    /// [asked for](SequenceSampler::foreseeing).
    pub forced: Vec<TokenId>,
}

/// Samples one sequence, position by position.
#[derive(Debug)]
pub struct SequenceSampler {
    pub(super) params: Arc<ValidSamplingParams>,
    pub(super) output: Vec<TokenId>,
    pub(super) method: Method,
    pub(super) penalties: Option<Penalties>,
    /// `allowed_token_ids`.
    pub(super) allowed: Option<TokenMask>,
    pub(super) constrained: Option<Constrained>,
    /// Where guesses begin, while there are some.
    pub(super) guessing: Option<Guessing>,
    pub(super) scratch: Scratch,
}

/// What there was before the first guess.
#[derive(Debug, Clone, Copy)]
pub(super) struct Guessing {
    /// Tokens that were sampled.
    pub(super) sampled: usize,
    /// Distinct tokens that penalties know.
    pub(super) known: usize,
}

/// How a token comes from the logits that penalties and masks leave.
#[derive(Debug)]
pub(super) enum Method {
    /// The best token.
    Greedy,
    /// A draw from all of them.
    Draw(UniformStream),
    /// A draw from the most probable ones.
    TruncatedDraw(UniformStream, Box<Truncation>),
}

/// Buffers that outlive a position; nothing is carried over in them.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    pub(super) edits: Edits,
    pub(super) raw: BlockSums,
    pool: BlockSums,
    best: BestTokens,
    /// For [`LogprobsMode::Processed`]: the logits of the tokens that could be sampled, and -infinity for all others.
    processed: Vec<f32>,
    /// With [`SamplingParams::sampling_mask`](super::SamplingParams::sampling_mask): the tokens that could be sampled.
    mask: Vec<TokenId>,
    /// What masks leave.
    gathered: Gathered,
}

impl SequenceSampler {
    /// Samples after a prompt. Where `params.seed` is `None`, nobody can repeat what is sampled.
    #[expect(clippy::needless_pass_by_value, reason = "whether the prompt is kept is not the caller's concern")]
    pub fn new(params: Arc<ValidSamplingParams>, prompt_token_ids: Arc<[TokenId]>) -> Self {
        let uniforms = UniformStream::new(params.seed.unwrap_or_else(|| Uuid::new_v4().as_u64_pair().1));
        let method = match Truncation::new(&params) {
            _ if params.is_greedy() => Method::Greedy,
            None => Method::Draw(uniforms),
            Some(truncation) => Method::TruncatedDraw(uniforms, Box::new(truncation)),
        };
        Self {
            output: Vec::new(),
            method,
            penalties: Penalties::new(&params, &prompt_token_ids),
            allowed: params.allowed_token_ids.as_ref().map(|ids| ids.iter().copied().collect()),
            constrained: Constrained::new(&params),
            guessing: None,
            scratch: Scratch::default(),
            params,
        }
    }

    /// The same sampler, which also says what a structured output leaves no choice about. What it samples stays the same.
    #[must_use]
    pub fn foreseeing(mut self) -> Self {
        if let Some(constrained) = &mut self.constrained {
            constrained.foresee();
        }
        self
    }

    /// Samples the next token from its logits. They are used as scratch space and left as they were.
    ///
    /// An error leaves the sequence where it was: no token was sampled, and none can be from these logits.
    pub fn step(&mut self, logits: &mut [f32]) -> Result<Step, SampleError> {
        debug_assert!(self.guessing.is_none(), "guesses are forgotten before a token is sampled");
        let raw_scale = Scale::new(max_logit(logits)?, 1.0);
        self.scratch.raw.compute(logits, raw_scale)?;
        self.edit(logits);
        let chosen = self.choose(logits, raw_scale);
        self.scratch.edits.undo(logits);
        let (id, scale) = chosen?;
        let Scratch { raw, pool, best, processed, mask, .. } = &mut self.scratch;
        let distribution = match self.params.logprobs_mode {
            LogprobsMode::Raw => Distribution::new(logits, raw_scale, raw.total()),
            LogprobsMode::Processed => {
                pool.compute(processed, scale)?;
                Distribution::new(processed, scale, pool.total())
            }
        };
        let mut token = distribution.describe(id, self.params.logprobs.as_ref(), best);
        token.sampling_mask = self.params.sampling_mask.is_some().then(|| mask.as_slice().into());
        Ok(self.end_position(token))
    }

    /// Ends the position with its token.
    pub(super) fn end_position(&mut self, token: SampledToken) -> Step {
        let id = token.id;
        let forced = self.constrained.as_mut().map(|constrained| constrained.choose(id)).unwrap_or_default();
        self.output.push(id);
        if let Some(penalties) = &mut self.penalties {
            penalties.record(id);
        }
        Step { token, finish: self.params.finish_after(id, self.output.len()), forced }
    }

    /// Whether a structured output takes so long to follow that the next position should be prepared aside.
    pub fn is_slow(&self) -> bool {
        self.constrained.as_ref().is_some_and(Constrained::is_slow)
    }

    /// Does what the next [`step`](Self::step) needs no logits for, which is to follow the structured output. Nothing
    /// changes but when that is done; an error is returned by the step.
    pub fn prepare(&mut self) {
        if let Some(constrained) = &mut self.constrained {
            let _ = constrained.prepare();
        }
    }

    /// Applies what comes between the raw log-probs and the temperature, except `allowed_token_ids`.
    pub(super) fn edit(&mut self, logits: &mut [f32]) {
        let Self { params, output, penalties, allowed, constrained, scratch: Scratch { edits, .. }, .. } = self;
        for id in completing_tokens(&params.bad_words, output) {
            edits.forbid(logits, id);
        }
        let mut is_complete =
            || constrained.as_mut().is_some_and(|constrained| constrained.leaves_only_ends(logits, allowed.as_ref()));
        // As in vLLM, a structured output that is complete ends, however few tokens it has.
        if output.len() < params.min_tokens && !is_complete() {
            for id in params.end_token_ids() {
                edits.forbid(logits, id);
            }
        }
        for &(id, bias) in &params.logit_bias {
            edits.edit(logits, id, |logit| logit + bias);
        }
        if let Some(penalties) = penalties {
            penalties.apply(logits, edits);
        }
    }

    /// Takes the best of the edited logits or draws one of them; also gives the scale that makes them weights.
    pub(super) fn choose(&mut self, logits: &[f32], raw_scale: Scale) -> Result<(TokenId, Scale), SampleError> {
        let Self { params, method, allowed, constrained, scratch, .. } = self;
        let Scratch { edits, raw, pool: sums, processed, mask: support, gathered, .. } = scratch;
        let left = constrained.as_mut().map_or(Ok(Left::Anything), Constrained::prepare)?;
        let untouched = allowed.is_none() && left == Left::Anything && edits.is_empty();
        let left = tokens_left(constrained.as_ref(), left, allowed.as_ref());
        let pool = left.map_or(Pool::whole(logits), |mask| gathered.gather(&mask, logits));
        let max = if untouched { raw_scale.max() } else { edited_max(pool.logits)? };
        let scale = Scale::new(max, if params.is_greedy() { 1.0 } else { params.temperature });
        let position = self.output.len();

        // Where nothing sets the pool apart from the raw logits, their sums serve both.
        let shared = (untouched && scale == raw_scale).then_some(&*raw);
        let index = match method {
            Method::Greedy => pool.position(max),
            Method::Draw(uniforms) => pool.locate(pool_sums(shared, sums, pool, scale)?, scale, uniforms.at(position)),
            Method::TruncatedDraw(uniforms, truncation) => {
                let total = if truncation.needs_total(pool.logits.len()) {
                    pool_sums(shared, sums, pool, scale)?.total()
                } else {
                    0.0
                };
                truncation.apply(pool.logits, scale, total);
                truncation.locate(uniforms.at(position))
            }
        };
        let id = pool.id(index);
        if let Some(most) = params.sampling_mask {
            support.clear();
            match method {
                Method::Greedy => support.push(id),
                Method::Draw(_) => support.extend(pool.possible()),
                Method::TruncatedDraw(_, truncation) => support.extend(pool.ids_of(truncation.candidates())),
            }
            if support.len() > most {
                return Err(SampleError::MaskTooLong { tokens: support.len(), most });
            }
        }
        if params.logprobs_mode == LogprobsMode::Processed {
            processed.clear();
            processed.resize(logits.len(), f32::NEG_INFINITY);
            match method {
                Method::TruncatedDraw(_, truncation) => pool.scatter(truncation.candidates(), processed),
                // As vLLM, the best token is said to be as probable as the model has it; beside a mask, log-probs are those
                // over the mask.
                Method::Greedy if params.sampling_mask.is_some() => processed[id as usize] = logits[id as usize],
                Method::Greedy | Method::Draw(_) => pool.scatter_all(processed),
            }
        }
        Ok((id, scale))
    }
}

fn pool_sums<'a>(
    shared: Option<&'a BlockSums>,
    own: &'a mut BlockSums,
    pool: Pool<'_>,
    scale: Scale,
) -> Result<&'a BlockSums, SampleError> {
    match shared {
        Some(sums) => Ok(sums),
        None => pool.sum_into(own, scale),
    }
}

/// The greatest logit after edits; what the model itself returned is known to be in order.
fn edited_max(logits: &[f32]) -> Result<f32, SampleError> {
    max_logit(logits).map_err(|error| match error {
        SampleError::NonFiniteLogits => SampleError::EditOverflow,
        other => other,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Logprobs, SamplingParams};

    fn sampler(params: SamplingParams) -> SequenceSampler {
        SequenceSampler::new(params.unchecked(), Arc::new([]))
    }

    fn greedy() -> SamplingParams {
        SamplingParams { temperature: 0.0, ..Default::default() }
    }

    /// The ids of as many steps over the same logits.
    fn ids(params: SamplingParams, logits: &[f32], steps: usize) -> Vec<TokenId> {
        let mut sampler = sampler(params);
        let mut scratch = logits.to_vec();
        let ids = (0..steps).map(|_| sampler.step(&mut scratch).unwrap().token.id).collect();
        assert_eq!(scratch, logits, "the logits are left as they were");
        ids
    }

    fn finish(params: SamplingParams, logits: &[f32]) -> Option<FinishReason> {
        sampler(params).step(&mut logits.to_vec()).unwrap().finish
    }

    #[test]
    fn greedy_takes_the_lowest_id_among_the_best() {
        assert_eq!(ids(greedy(), &[1.0, 3.0, 3.0, 2.0], 1), [1]);
        let params = SamplingParams { temperature: 9e-6, top_k: 1, top_p: 0.1, min_p: 1.0, ..Default::default() };
        assert_eq!(ids(params, &[1.0, 3.0, 3.0, 2.0], 3), [1, 1, 1]);
    }

    #[test]
    fn allowed_tokens_are_the_only_ones() {
        let params = SamplingParams { allowed_token_ids: Some(vec![3, 0, 99]), ..greedy() };
        assert_eq!(ids(params.clone(), &[1.0, 3.0, 3.0, 2.0], 1), [3]);
        let drawn = ids(SamplingParams { temperature: 1.0, ..params }, &[0.0; 8], 200);
        assert!(drawn.iter().all(|id| [0, 3].contains(id)) && drawn.contains(&0) && drawn.contains(&3));
    }

    #[test]
    fn bad_words_read_the_output_but_not_the_prompt() {
        let params = SamplingParams { bad_words: vec![vec![2], vec![1, 1]], ..greedy() };
        let logits = [0.0, 2.0, 3.0, 1.0];
        assert_eq!(ids(params.clone(), &logits, 4), [1, 3, 1, 3]);
        let mut with_prompt = SequenceSampler::new(params.valid(), Arc::new([1]));
        assert_eq!(with_prompt.step(&mut logits.clone()).unwrap().token.id, 1);
    }

    #[test]
    fn min_tokens_holds_every_end_token_back_even_with_ignore_eos() {
        for ignore_eos in [false, true] {
            let params = SamplingParams {
                min_tokens: 2,
                ignore_eos,
                eos_token_id: Some(3),
                extra_eos_token_ids: vec![2],
                stop_token_ids: vec![1],
                ..greedy()
            };
            assert_eq!(ids(params, &[0.0, 1.0, 2.0, 3.0], 3), [0, 0, 3]);
        }
    }

    #[test]
    fn a_bias_cannot_bring_a_masked_token_back() {
        let params = SamplingParams {
            min_tokens: 1,
            stop_token_ids: vec![1],
            logit_bias: vec![(1, 100.0), (0, 1.0)],
            ..greedy()
        };
        assert_eq!(ids(params, &[0.0, 0.0, 0.5], 2), [0, 1]);
    }

    #[test]
    fn penalties_follow_what_was_sampled() {
        let params = SamplingParams { presence_penalty: 1.5, ..greedy() };
        assert_eq!(ids(params, &[1.0, 2.0, 3.0], 5), [2, 1, 2, 2, 2]);
        let params = SamplingParams { frequency_penalty: 1.5, ..greedy() };
        assert_eq!(ids(params, &[1.0, 2.0, 3.0], 4), [2, 1, 2, 0]);
    }

    #[test]
    fn a_repetition_penalty_covers_the_prompt() {
        let params = SamplingParams { repetition_penalty: 2.0, ..greedy() };
        let mut sampler = SequenceSampler::new(params.valid(), Arc::new([2, 2]));
        assert_eq!(sampler.step(&mut [1.0, 2.0, 3.0]).unwrap().token.id, 1);
    }

    #[test]
    fn truncation_limits_the_draw() {
        let logits = [0.0, 1.0, 2.0, 3.0];
        let only = |params| ids(params, &logits, 100).iter().all(|&id| id == 3);
        assert!(only(SamplingParams { top_k: 1, ..Default::default() }));
        assert!(only(SamplingParams { top_p: 0.6, ..Default::default() }));
        assert!(only(SamplingParams { min_p: 0.4, ..Default::default() }));
        assert!(!only(SamplingParams::default()));
    }

    #[test]
    fn the_sequence_ends_as_in_vllm() {
        let logits = [0.0, 1.0];
        let ended_by_1 = |params: SamplingParams| finish(SamplingParams { temperature: 0.0, ..params }, &logits);
        let base = SamplingParams::default();
        assert_eq!(ended_by_1(base.clone()), None);
        assert_eq!(ended_by_1(SamplingParams { max_tokens: 1, ..base.clone() }), Some(FinishReason::Length));

        let eos = SamplingParams { eos_token_id: Some(1), max_tokens: 1, ..base.clone() };
        assert_eq!(ended_by_1(eos.clone()), Some(FinishReason::Eos));
        assert_eq!(ended_by_1(SamplingParams { ignore_eos: true, ..eos.clone() }), Some(FinishReason::Length));
        let both = SamplingParams { stop_token_ids: vec![1], ..eos };
        assert_eq!(ended_by_1(both.clone()), Some(FinishReason::Eos));
        assert_eq!(ended_by_1(SamplingParams { ignore_eos: true, ..both }), Some(FinishReason::StopToken(1)));

        let extra = SamplingParams { extra_eos_token_ids: vec![1], max_tokens: 1, ..base };
        assert_eq!(ended_by_1(extra.clone()), Some(FinishReason::StopToken(1)));
        assert_eq!(ended_by_1(SamplingParams { ignore_eos: true, ..extra }), Some(FinishReason::Length));
    }

    #[test]
    fn raw_log_probs_ignore_everything_that_decides_the_token() {
        let logits = [1.0, 2.0, 3.0];
        let params = SamplingParams {
            logit_bias: vec![(0, 50.0)],
            top_k: 1,
            temperature: 0.5,
            logprobs: Some(Logprobs::Top(3)),
            ..Default::default()
        };
        let token = sampler(params).step(&mut logits.clone()).unwrap().token;
        assert_eq!(token, crate::score_token(&logits, 0, 3).unwrap());
    }

    #[test]
    fn processed_log_probs_describe_what_was_sampled_from() {
        let params = SamplingParams {
            temperature: 0.5,
            top_k: 2,
            allowed_token_ids: Some(vec![0, 1, 3]),
            logprobs: Some(Logprobs::All),
            logprobs_mode: LogprobsMode::Processed,
            ..Default::default()
        };
        let token = sampler(params).step(&mut [1.0, 2.0, 9.0, 0.0]).unwrap().token;
        let listed: Vec<(TokenId, f32)> = token.top_logprobs.iter().map(|top| (top.id, top.logprob)).collect();
        // Logits 1 and 2 at temperature 0.5 are 2 apart.
        let best = -(-2.0_f64).exp().ln_1p();
        #[expect(clippy::cast_possible_truncation, reason = "log-probs are f32")]
        let expected = [(1, best as f32), (0, (best - 2.0) as f32), (2, -9999.0), (3, -9999.0)];
        assert_eq!(listed, expected);
    }

    #[test]
    fn processed_log_probs_of_a_greedy_choice_have_no_temperature() {
        let params = SamplingParams { logprobs_mode: LogprobsMode::Processed, ..greedy() };
        let token = sampler(params).step(&mut [1.0, 1.0]).unwrap().token;
        assert_eq!((token.id, token.logprob), (0, 0.5_f32.ln()));
    }

    #[test]
    fn what_cannot_be_sampled_is_an_error_and_not_a_token() {
        let step = |params, logits: &mut [f32]| sampler(params).step(logits).map(|step| step.token.id);
        for params in [greedy(), SamplingParams::default(), SamplingParams { top_k: 1, ..Default::default() }] {
            assert_eq!(step(params.clone(), &mut [0.0, f32::NAN]), Err(SampleError::NonFiniteLogits));
            assert_eq!(step(params.clone(), &mut [0.0, f32::INFINITY]), Err(SampleError::NonFiniteLogits));
            assert_eq!(step(params.clone(), &mut [f32::NEG_INFINITY; 3]), Err(SampleError::NothingLeft));
            assert_eq!(step(params.clone(), &mut []), Err(SampleError::NothingLeft));
            let masked = SamplingParams { bad_words: vec![vec![0], vec![1]], ..params.clone() };
            assert_eq!(step(masked, &mut [0.0, 0.0]), Err(SampleError::NothingLeft));
            let unknown = SamplingParams { allowed_token_ids: Some(vec![7]), ..params.clone() };
            assert_eq!(step(unknown, &mut [0.0, 0.0]), Err(SampleError::NothingLeft));
            let overflowing = SamplingParams { logit_bias: vec![(0, f32::MAX)], ..params };
            assert_eq!(step(overflowing, &mut [f32::MAX, 0.0]), Err(SampleError::EditOverflow));
        }
    }

    #[test]
    fn an_error_restores_the_logits_and_the_sequence_goes_on() {
        let params = SamplingParams { bad_words: vec![vec![0], vec![1]], seed: Some(3), ..Default::default() };
        let mut interrupted = sampler(params.clone());
        let mut masked = [1.0, 2.0];
        assert_eq!(interrupted.step(&mut masked), Err(SampleError::NothingLeft));
        assert_eq!(masked, [1.0, 2.0]);
        let mut logits = [0.0; 100];
        let mut undisturbed = sampler(params);
        for _ in 0..20 {
            assert_eq!(interrupted.step(&mut logits), undisturbed.step(&mut logits));
        }
    }
}
