//! Captured turns, sampled again: the proof that a rollout is what a model samples.
//!
//! Owns which fields of a record determine the sampled tokens, and the report on a turn that comes out differently.
//! Refuses to load models. Only the same bits of ids and log-probs count as equal.

mod end;
mod request;
#[cfg(test)]
mod tests;

use std::{collections::HashMap, sync::Arc};

use futures::{Stream, StreamExt, stream};

use crate::{
    TokenId,
    engine::{Adapter, Engine, EngineError, EngineOutput, FinishReason, SampledToken, SequenceRequest},
    structured::Grammars,
    tokenizer::Tokenizer,
    trajectory::{
        CaptureError, ComputedBy, Ended, Filter, PackedMasks, Sequence, SequenceKey, SequenceTurn, Trajectories, Unit,
        WeightSet, WeightsUsed,
    },
};
pub(crate) use end::end_name;
use end::{End, compared, is_of_model};
use request::{Unrepeatable, request};

/// What samples again.
pub(crate) struct Replayer {
    /// The engine, with the weights that are tried.
    pub engine: Arc<dyn Engine>,
    /// Finds stop strings in texts.
    pub tokenizer: Arc<Tokenizer>,
    /// Compiles what outputs had to keep to.
    pub grammars: Arc<Grammars>,
    /// The adapters that are loaded, by the names that requests give them.
    pub adapters: HashMap<String, Arc<Adapter>>,
    /// The checksum of the weights; `None` where the engine has none.
    pub checksum: Option<String>,
    /// What computes besides.
    pub computed_by: ComputedBy,
}

/// What came of a turn.
#[derive(Debug, Clone)]
pub(crate) struct Replayed {
    /// The trajectory.
    pub trajectory: Arc<str>,
    /// The turn.
    pub turn: Arc<str>,
    /// What came of it.
    pub outcome: Outcome,
}

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

impl Replayer {
    /// Samples the turns of a capture again, or those of one trajectory, several at a time; they come as they are done.
    pub(crate) fn replay<'r>(
        &'r self,
        trajectories: &'r Trajectories,
        trajectory: Option<&str>,
    ) -> impl Stream<Item = Replayed> + use<'r> {
        let mut keys = Vec::new();
        for owner in trajectories.owners() {
            let Some(mut found) = trajectories.sequences(&owner, &Filter::default(), Unit::Turn) else { continue };
            loop {
                let part = trajectories.next_sequences(&mut found);
                if part.is_empty() {
                    break;
                }
                keys.extend(part.into_iter().filter(|key| trajectory.is_none_or(|wanted| *key.trajectory == *wanted)));
            }
        }
        let seats = self.engine.seats().max(1);
        stream::iter(keys).map(|key| self.turn(trajectories, key)).buffer_unordered(seats)
    }

    async fn turn(&self, trajectories: &Trajectories, key: SequenceKey) -> Replayed {
        let (trajectory, turn) = (Arc::clone(&key.trajectory), Arc::clone(&key.turn));
        let outcome = match self.outcome(trajectories, &key).await {
            Ok(outcome) => outcome,
            Err(Unrepeatable(reason)) => Outcome::Unrepeatable(reason),
        };
        Replayed { trajectory, turn, outcome }
    }

    async fn outcome(&self, trajectories: &Trajectories, key: &SequenceKey) -> Result<Outcome, Unrepeatable> {
        let failed = |error: CaptureError| Unrepeatable(error.to_string());
        let mut sequence = trajectories.sequence(key, self.engine.info().vocab_size).map_err(failed)?;
        let turn = sequence.turns.pop().ok_or_else(|| Unrepeatable("it has no turn".to_owned()))?;
        let generation = &turn.generation;
        let used = |number| trajectories.weights(&generation.process, number).map_err(failed);
        let sets = generation.weights.iter().map(|weights| used(weights.number)).collect::<Result<Vec<_>, _>>()?;
        let all = turn.end - turn.start;
        let tokens = self.own_tokens(&turn, &sets)?.min(all);
        let prompt: Arc<[TokenId]> = sequence.token_ids[..turn.start].into();
        // One more than there are, so that it is seen whether the turn goes on.
        let looks_for_end = tokens == all && is_of_model(generation.finish);
        let masks_then = sequence.masks.of(turn.start, turn.end);
        let asked = tokens + usize::from(looks_for_end);
        let request = request(self, generation, Arc::clone(&prompt), asked, !masks_then.is_empty()).await?;
        let captured = captured(&sequence, &turn);
        let Sampled { tokens: again, masks, finish } = self.sampled(request, tokens, looks_for_end).await?;
        let same = |(captured, again): (&(TokenId, f32), &(TokenId, f32))| {
            captured.0 == again.0 && captured.1.to_bits() == again.1.to_bits()
        };
        let equal = captured.iter().zip(&again).take_while(|pair| same(*pair)).count();
        let reasons = || self.reasons(&turn, sets.first().and_then(Option::as_ref));
        if let Some((index, captured, again)) = other_mask(&masks_then, &masks, equal) {
            return Ok(Outcome::MaskDiffers { index, captured, again, reasons: reasons() });
        }
        if equal < tokens {
            let (captured, again) = (captured[equal], again.get(equal).copied());
            return Ok(Outcome::Differs { index: equal, captured, again, reasons: reasons() });
        }
        if tokens < all {
            let rest = "weights were replaced then, and neither the rest nor its end is proven".to_owned();
            return Ok(Outcome::Partial { tokens, all, rest });
        }
        let sampled = &sequence.token_ids[turn.start..turn.end];
        Ok(match compared(&self.tokenizer, &prompt, sampled, generation, finish) {
            End::Same => Outcome::Equal { tokens },
            End::Other(again) => Outcome::Ends { captured: generation.finish, again, reasons: reasons() },
            End::Unproven(rest) => Outcome::Partial { tokens, all, rest },
        })
    }

    /// How many of a turn's first tokens one set of weights sampled, if it may be the one that is tried.
    fn own_tokens(&self, turn: &SequenceTurn, sets: &[Option<WeightSet>]) -> Result<usize, Unrepeatable> {
        let weights = &turn.generation.weights;
        let (Some(first), Some(set)) = (weights.first(), sets.first()) else { return Ok(turn.end - turn.start) };
        if first.reuse_older_keys {
            let reason =
                "the weights that sampled it read keys and values that older ones wrote (--on-weights-change reuse)";
            return Err(Unrepeatable(reason.to_owned()));
        }
        // Weights that are called something else are still the same.
        let of_first = |used: &&WeightsUsed| used.number == first.number && !used.reuse_older_keys;
        let own = weights.iter().take_while(of_first);
        let (count, end) = own.fold((0, 0), |(count, _), used| (count + 1, used.end));
        let is_other = |set: &WeightSet| self.checksum.as_ref().is_some_and(|own| *own != set.checksum);
        if count < weights.len() && set.as_ref().is_some_and(is_other) {
            let reason = format!(
                "weights were replaced while it was sampled, and its first {end} tokens were sampled by others than these; \
                 replay it with those"
            );
            return Err(Unrepeatable(reason));
        }
        Ok(end)
    }

    /// The first `tokens` tokens, and how the engine ended the turn after them, where that is looked for and it did.
    async fn sampled(
        &self,
        request: SequenceRequest,
        tokens: usize,
        looks_for_end: bool,
    ) -> Result<Sampled, Unrepeatable> {
        let mut outputs = self.engine.generate(request);
        let mut sampled = Sampled::default();
        while sampled.tokens.len() < tokens || looks_for_end {
            match outputs.next().await {
                // It goes on.
                Some(Ok(EngineOutput::Token(_))) if sampled.tokens.len() == tokens => break,
                Some(Ok(EngineOutput::Token(SampledToken { id, logprob, sampling_mask, .. }))) => {
                    sampled.tokens.push((id, logprob));
                    if let Some(row) = sampling_mask {
                        sampled.masks.push(&row);
                    }
                }
                Some(Ok(EngineOutput::Finished(FinishReason::Abort))) | None => {
                    return Err(Unrepeatable("the engine gave it up".to_owned()));
                }
                Some(Ok(EngineOutput::Finished(reason))) => return Ok(Sampled { finish: Some(reason), ..sampled }),
                Some(Ok(_)) => {}
                Some(Err(EngineError::Unsupported(reason))) => return Err(Unrepeatable(reason)),
                Some(Err(error)) => return Err(Unrepeatable(format!("the engine failed: {error}"))),
            }
        }
        Ok(sampled)
    }

    /// What is known to be different from when a turn was sampled.
    fn reasons(&self, turn: &SequenceTurn, set: Option<&WeightSet>) -> Vec<String> {
        let mut reasons = Vec::new();
        let mut differ = |what: &str, then: &str, now: &str| {
            if then != now {
                reasons.push(format!("{what}: {then} then, {now} now"));
            }
        };
        match (set, &self.checksum) {
            (Some(set), checksum) => {
                differ("the checksum of the weights", &set.checksum, checksum.as_deref().unwrap_or("none"));
                let (then, now) = (&set.computed_by, &self.computed_by);
                differ("the version of tito", &then.tito, &now.tito);
                differ("the engine", &then.engine, &now.engine);
                differ("the device and its kernels", &then.device, &now.device);
                differ("the arithmetic", &then.dtype, &now.dtype);
            }
            (None, _) => reasons.push("nobody knows which weights sampled it: no checksum of them was kept".to_owned()),
        }
        if let Some(adapter) = turn.generation.adapter.as_ref().filter(|adapter| adapter.checksum.is_none()) {
            reasons.push(format!("no checksum of its adapter was kept, and {} may be another one now", adapter.label));
        }
        reasons
    }
}

/// What was sampled again.
#[derive(Default)]
struct Sampled {
    tokens: Vec<(TokenId, f32)>,
    /// The ids that each token was drawn from, where the turn has them.
    masks: PackedMasks,
    /// How the engine ended it.
    finish: Option<FinishReason>,
}

/// The first of so many tokens that was drawn from other ids, with those that are in its row only then and only now; `None`
/// where rows are equal, or the turn has none.
fn other_mask(
    captured: &PackedMasks,
    again: &PackedMasks,
    tokens: usize,
) -> Option<(usize, Vec<TokenId>, Vec<TokenId>)> {
    let mut again = again.rows();
    captured.rows().take(tokens).enumerate().find_map(|(index, then)| {
        let now = again.next().unwrap_or_default();
        // Rows are in ascending order.
        let only = |of: &[TokenId], not: &[TokenId]| {
            of.iter().copied().filter(|id| not.binary_search(id).is_err()).collect::<Vec<_>>()
        };
        (then != now).then(|| (index, only(then, now), only(now, then)))
    })
}

/// The ids that a turn sampled, and their log-probs.
fn captured(sequence: &Sequence, turn: &SequenceTurn) -> Vec<(TokenId, f32)> {
    let ids = &sequence.token_ids[turn.start..turn.end];
    let logprobs = &sequence.logprobs[turn.start..turn.end];
    ids.iter().copied().zip(logprobs.iter().map(|logprob| logprob.unwrap_or(f32::NAN))).collect()
}
