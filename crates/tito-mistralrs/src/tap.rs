//! The tap: the one place where ids enter and leave mistral.rs while it runs.
//!
//! The engine calls it with the logits of every position. It scores the prompt, samples with our sampler, checks that
//! the engine's idea of the sequence is ours, and answers with logits that leave the engine no choice.
//! It never fails and never blocks: an error inside a processor would corrupt the engine's state.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use candle_core::{Device, Tensor};
use mistralrs_core::CustomLogitsProcessor;
use parking_lot::Mutex;

use super::{alphabet::Alphabet, panics::panic_text};
use crate::{
    TokenId,
    engine::{EngineError, EngineOutput, FinishReason, PromptOutput, SampledToken, SequenceRequest, backlog},
    sampling::{SampleError, SequenceSampler, score},
};

/// Where a sequence's outputs go; sending never waits.
pub(super) type Outputs = backlog::Sender;

/// Samples one sequence inside the engine.
pub(super) struct Tap {
    alphabet: Alphabet,
    cancelled: AtomicBool,
    sequence: Mutex<Sequence>,
}

/// How a sequence ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ending {
    /// The sequence ended as it should, or because it was cancelled.
    Finished(FinishReason),
    /// The request leaves nothing to sample.
    Unsampleable(SampleError),
    /// The client has left too much unread, and mistral.rs cannot pause a sequence.
    Unread,
    /// The sequence cannot go on; the text is for the log.
    Failed(String),
}

/// What the engine's sequence must look like at the next call.
#[derive(Debug, PartialEq, Eq)]
enum Expected {
    /// It has so many ids of the prompt, all of which are to be checked.
    Prompt(usize),
    /// The sequence has `length` ids, of which `last` is new and the others were checked before.
    Longer { length: usize, last: TokenId },
}

struct Sequence {
    prompt: Arc<[TokenId]>,
    /// How many ids of the prompt the engine has been given.
    given: usize,
    /// How many alternatives are to be reported, and what was scored so far.
    scores: Option<(usize, Vec<SampledToken>)>,
    sampler: SequenceSampler,
    vocab_size: usize,
    logits: Vec<f32>,
    expected: Expected,
    outputs: Outputs,
    ending: Option<Ending>,
}

impl Tap {
    /// A tap for `request`, whose prompt is not empty and of which the engine is to be given [`submitted`].
    pub(super) fn new(request: SequenceRequest, alphabet: Alphabet, outputs: Outputs) -> Self {
        let prompt = request.prompt_token_ids;
        let given = submitted(&prompt, request.prompt_logprobs).len();
        let sequence = Sequence {
            sampler: SequenceSampler::new(request.sampling, Arc::clone(&prompt)),
            expected: Expected::Prompt(given),
            prompt,
            given,
            scores: request.prompt_logprobs.map(|top| (top, Vec::new())),
            vocab_size: alphabet.size(),
            logits: Vec::new(),
            outputs,
            ending: None,
        };
        Self { alphabet, cancelled: AtomicBool::new(false), sequence: Mutex::new(sequence) }
    }

    /// Ends the sequence at its next position.
    pub(super) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// How the sequence ended, if it did.
    pub(super) fn ending(&self) -> Option<Ending> {
        self.sequence.lock().ending.clone()
    }

    /// The id that the engine must take next.
    fn next_id(&self, logits: &Tensor, context: &[TokenId]) -> TokenId {
        let mut sequence = self.sequence.lock();
        if self.cancelled.load(Ordering::Relaxed) {
            sequence.ending.get_or_insert(Ending::Finished(FinishReason::Abort));
        }
        if sequence.ending.is_some() {
            return self.end(&mut sequence);
        }
        let stepped = catch_unwind(AssertUnwindSafe(|| sequence.step(logits, context)))
            .unwrap_or_else(|panic| Err(Ending::Failed(format!("the sampler panicked: {}", panic_text(&*panic)))));
        match stepped {
            Ok(id) => {
                sequence.expected = Expected::Longer { length: context.len() + 1, last: id };
                id
            }
            Err(ending) => {
                sequence.ending = Some(ending);
                self.end(&mut sequence)
            }
        }
    }

    /// The id that makes the engine stop. It forgets that a sequence has ended at the first position, computes one more,
    /// and asks again; so it first gets an id that it can compute with.
    fn end(&self, sequence: &mut Sequence) -> TokenId {
        match sequence.expected {
            Expected::Prompt(length) => {
                let stand_in = sequence.prompt.first().copied().unwrap_or_default();
                sequence.expected = Expected::Longer { length: length + 1, last: stand_in };
                stand_in
            }
            Expected::Longer { .. } => self.alphabet.end(),
        }
    }
}

impl Sequence {
    /// The id of the next position. An error is the end of the sequence, before or at that position.
    fn step(&mut self, logits: &Tensor, context: &[TokenId]) -> Result<TokenId, Ending> {
        self.check(context)?;
        self.logits = logits.to_vec1().map_err(|error| Ending::Failed(format!("unreadable logits: {error}")))?;
        if self.logits.len() != self.vocab_size {
            let (width, vocab_size) = (self.logits.len(), self.vocab_size);
            return Err(Ending::Failed(format!("{width} logits for a vocabulary of {vocab_size}")));
        }
        match self.prompt.get(self.given).copied() {
            Some(id) => {
                self.given += 1;
                if let Some((top, scores)) = &mut self.scores {
                    let score = score(&self.logits, Some((id, *top)), &[]).map_err(failed)?;
                    scores.extend(score.token);
                }
                Ok(id)
            }
            None => self.sample(),
        }
    }

    fn sample(&mut self) -> Result<TokenId, Ending> {
        if let Some((_, logprobs)) = self.scores.take() {
            // Every prompt is computed as a whole.
            self.send(EngineOutput::Prompt(PromptOutput { logprobs, ..PromptOutput::default() }))?;
        }
        let step = self.sampler.step(&mut self.logits).map_err(|error| match EngineError::from(error) {
            EngineError::Unsampleable(error) => Ending::Unsampleable(error),
            _ => failed(error),
        })?;
        let id = step.token.id;
        self.send(EngineOutput::Token(step.token))?;
        step.finish.map_or(Ok(id), |reason| Err(Ending::Finished(reason)))
    }

    /// Refuses to go on where the engine computes another sequence than ours.
    fn check(&self, context: &[TokenId]) -> Result<(), Ending> {
        let ours = match self.expected {
            Expected::Prompt(length) => self.prompt.get(..length) == Some(context),
            Expected::Longer { length, last } => context.len() == length && context.last() == Some(&last),
        };
        if ours {
            return Ok(());
        }
        let (expected, length, last) = (&self.expected, context.len(), context.last());
        Err(Ending::Failed(format!(
            "expected {expected:?}, but the engine's sequence has {length} ids, the last {last:?}"
        )))
    }

    fn send(&self, output: EngineOutput) -> Result<(), Ending> {
        // However long a prompt's log-probs are, their client gets the time of a token to read them.
        let is_token = matches!(output, EngineOutput::Token(_));
        self.outputs.send(Ok(output)).map_err(|backlog::Gone| Ending::Finished(FinishReason::Abort))?;
        if is_token && self.outputs.pauses() { Err(Ending::Unread) } else { Ok(()) }
    }
}

impl CustomLogitsProcessor for Tap {
    fn apply(&self, logits: &Tensor, context: &[TokenId]) -> candle_core::Result<Tensor> {
        only(self.next_id(logits, context))
    }
}

/// The part of a prompt to submit to the engine; the tap feeds the rest.
///
/// Scoring a prompt takes the logits of all its positions, and the engine only shows those of the last one. So a scored
/// prompt is fed id by id: exact, and as slow as sampling as many tokens.
pub(super) fn submitted(prompt: &[TokenId], prompt_logprobs: Option<usize>) -> &[TokenId] {
    let scored = prompt_logprobs.is_some() && !prompt.is_empty();
    if scored { &prompt[..1] } else { prompt }
}

fn failed(error: SampleError) -> Ending {
    Ending::Failed(error.to_string())
}

/// Logits whose greatest is `id`. They need not be as many as the vocabulary: the engine only looks for the greatest.
pub(super) fn only(id: TokenId) -> candle_core::Result<Tensor> {
    let mut logits = vec![0_f32; id as usize];
    logits.push(1.0);
    let width = logits.len();
    Tensor::from_vec(logits, width, &Device::Cpu)
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt, StreamExt};

    use super::*;
    use crate::{engine::Routing, sampling::SamplingParams};

    const VOCAB_SIZE: usize = 8;
    const END: TokenId = 8;
    const EOS: TokenId = 2;

    type Received = backlog::Receiver;

    fn request(prompt: &[TokenId], prompt_logprobs: Option<usize>, max_tokens: usize) -> SequenceRequest {
        let sampling =
            SamplingParams { temperature: 0.0, max_tokens, eos_token_id: Some(EOS), ..SamplingParams::default() };
        SequenceRequest {
            prompt_token_ids: prompt.into(),
            sampling: sampling.valid(),
            prompt_logprobs,
            candidates: None,
            cache_salt: None,
            adapter: None,
            routing: Routing::default(),
            images: Arc::default(),
            timed: false,
        }
    }

    /// The same request, but end tokens do not end the sequence.
    fn ignoring_eos(request: SequenceRequest) -> SequenceRequest {
        let sampling = SamplingParams { ignore_eos: true, ..SamplingParams::clone(&request.sampling) };
        SequenceRequest { sampling: sampling.valid(), ..request }
    }

    fn tap(request: SequenceRequest) -> (Tap, Received) {
        let bounds = backlog::Bounds { sequence: 2_000, ..backlog::Bounds::default() };
        let (outputs, received) =
            backlog::Backlog::new(bounds).channel(request.prompt_token_ids.len(), std::time::Instant::now(), || ());
        (Tap::new(request, Alphabet::new(VOCAB_SIZE).unwrap(), outputs), received)
    }

    /// Logits whose greatest, id + 1, follows from the last id.
    fn logits(context: &[TokenId]) -> Tensor {
        let next = (context.last().unwrap() + 1) % 8;
        let logits: Vec<f32> =
            (0..8_u8).map(|id| if u32::from(id) == next { 3.0 } else { f32::from(id) / 8.0 }).collect();
        Tensor::from_vec(logits, VOCAB_SIZE, &Device::Cpu).unwrap()
    }

    /// What the engine takes for sampled, at most `positions` ids.
    fn engine(tap: &Tap, context: &mut Vec<TokenId>, positions: usize) -> Vec<TokenId> {
        let mut taken = Vec::new();
        for _ in 0..positions {
            let answer = tap.apply(&logits(context), context).unwrap().to_vec1::<f32>().unwrap();
            let id = TokenId::try_from(answer.iter().position(|logit| *logit > 0.0).unwrap()).unwrap();
            taken.push(id);
            context.push(id);
            if id == END {
                break;
            }
        }
        taken
    }

    fn received(mut outputs: Received) -> Vec<EngineOutput> {
        std::iter::from_fn(|| outputs.next().now_or_never().flatten()).map(Result::unwrap).collect()
    }

    fn ids(outputs: &[EngineOutput]) -> Vec<TokenId> {
        let token = |output: &EngineOutput| match output {
            EngineOutput::Token(token) => Some(token.id),
            _ => None,
        };
        outputs.iter().filter_map(token).collect()
    }

    #[test]
    fn sampled_ids_reach_the_client_and_the_engine_and_the_end_only_the_engine() {
        let (tap, outputs) = tap(request(&[5, 6], None, 9));
        assert_eq!(engine(&tap, &mut vec![5, 6], 20), [7, 0, 1, END]);
        assert_eq!(ids(&received(outputs)), [7, 0, 1, EOS]);
        assert_eq!(tap.ending(), Some(Ending::Finished(FinishReason::Eos)));
    }

    #[test]
    fn the_models_own_end_is_an_id_like_any_other_where_it_does_not_end_the_sequence() {
        let (tap, outputs) = tap(ignoring_eos(request(&[1, EOS, 1], None, 4)));
        assert_eq!(engine(&tap, &mut vec![1, EOS, 1], 20), [EOS, 3, 4, END]);
        assert_eq!(ids(&received(outputs)), [EOS, 3, 4, 5]);
        assert_eq!(tap.ending(), Some(Ending::Finished(FinishReason::Length)));
    }

    #[test]
    fn an_end_at_the_first_position_is_told_at_the_second() {
        let (tap, outputs) = tap(request(&[5, 6], None, 1));
        assert_eq!(engine(&tap, &mut vec![5, 6], 20), [5, END]);
        assert_eq!(ids(&received(outputs)), [7]);
    }

    #[test]
    fn a_scored_prompt_is_fed_id_by_id() {
        let prompt = [5, 3, EOS, 4];
        assert_eq!(submitted(&prompt, Some(1)), [5]);
        assert_eq!(submitted(&prompt, None), prompt);
        let (tap, outputs) = tap(request(&prompt, Some(1), 2));
        assert_eq!(engine(&tap, &mut vec![5], 20), [3, EOS, 4, 5, END]);
        let outputs = received(outputs);
        let EngineOutput::Prompt(PromptOutput { logprobs: scores, .. }) = &outputs[0] else { panic!("{outputs:?}") };
        assert_eq!(scores.iter().map(|score| score.id).collect::<Vec<_>>(), prompt[1..]);
        assert_eq!(scores.iter().map(|score| score.top_logprobs[0].id).collect::<Vec<_>>(), [6, 4, 3]);
        assert_eq!(ids(&outputs), [5, 6]);
    }

    #[test]
    fn a_prompt_of_one_id_has_empty_scores() {
        let (tap, outputs) = tap(request(&[5], Some(1), 1));
        engine(&tap, &mut vec![5], 20);
        assert_eq!(received(outputs)[0], EngineOutput::Prompt(PromptOutput::default()));
    }

    #[test]
    fn another_sequence_than_ours_is_not_sampled() {
        for (seen, then) in [(vec![5, 6], vec![5, 6, 0]), (vec![5, 6], vec![5, 6, 7, 0]), (vec![4, 6], vec![4, 6, 7])] {
            let (tap, outputs) = tap(request(&[5, 6], None, 9));
            engine(&tap, &mut seen.clone(), 1);
            assert_eq!(engine(&tap, &mut then.clone(), 1)[0], END);
            assert!(matches!(tap.ending(), Some(Ending::Failed(_))), "{seen:?} {then:?}");
            assert!(received(outputs).len() <= 1);
        }
    }

    #[test]
    fn unusable_logits_are_a_failure() {
        let unusable = [vec![0.0_f32; 7], vec![f32::NAN; 8]];
        for logits in unusable {
            let (tap, outputs) = tap(request(&[5, 6], None, 9));
            let width = logits.len();
            tap.apply(&Tensor::from_vec(logits, width, &Device::Cpu).unwrap(), &[5, 6]).unwrap();
            assert!(matches!(tap.ending(), Some(Ending::Failed(_))));
            assert_eq!(received(outputs), []);
        }
    }

    #[test]
    fn a_cancelled_sequence_ends_at_its_next_position() {
        let (tap, outputs) = tap(request(&[5, 6], None, 9));
        let mut context = vec![5, 6];
        engine(&tap, &mut context, 2);
        tap.cancel();
        assert_eq!(engine(&tap, &mut context, 1), [END]);
        assert_eq!(ids(&received(outputs)), [7, 0]);
        assert_eq!(tap.ending(), Some(Ending::Finished(FinishReason::Abort)));
    }

    #[test]
    fn a_sequence_whose_client_leaves_too_much_unread_ends() {
        let (tap, outputs) = tap(ignoring_eos(request(&[5, 6], None, 1_000)));
        assert_eq!(engine(&tap, &mut vec![5, 6], 1_000).last(), Some(&END));
        assert_eq!(tap.ending(), Some(Ending::Unread));
        assert!(received(outputs).len() < 100);
    }

    #[test]
    fn a_sequence_without_a_client_ends() {
        let (tap, outputs) = tap(request(&[5, 6], None, 9));
        drop(outputs);
        assert_eq!(engine(&tap, &mut vec![5, 6], 20), [5, END]);
        assert_eq!(tap.ending(), Some(Ending::Finished(FinishReason::Abort)));
    }
}
