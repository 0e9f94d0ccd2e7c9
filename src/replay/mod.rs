//! Captured turns, sampled again: the proof that a rollout is what a model samples.
//!
//! Owns which fields of a record determine the sampled tokens, and the report on a turn that comes out differently.
//! Refuses to load models. Only the same bits of ids and log-probs count as equal.

mod captured;
mod end;
mod outcome;
mod positions;
mod replayer;
mod request;

/// Why an engine that failed repeats nothing.
fn failed(error: EngineError) -> Unrepeatable {
    Unrepeatable(match error {
        EngineError::Unsupported(reason) => reason,
        error => format!("the engine failed: {error}"),
    })
}

#[cfg(test)]
mod tests;

use std::sync::Arc;

use futures::{Stream, StreamExt, stream};

use crate::{
    TokenId,
    engine::{EngineError, EngineInfo},
    generation::{Event, Finish, GenerationRequest, WeightSpans},
    trajectory::{
        ComputedBy, Filter, PackedMasks, SequenceKey, SequenceTurn, Trajectories, Unit, WeightSet, WeightsUsed,
    },
};
pub(crate) use captured::CapturedTurn;
use end::{End, compared, is_of_model};
pub(crate) use outcome::Outcome;
pub(crate) use positions::Verdict;
use positions::{other_ids, verdicts};
pub(crate) use replayer::Replayer;
use request::{Unrepeatable, request};

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

/// What came of a turn, token by token.
#[derive(Debug, Clone)]
pub(crate) struct Compared {
    /// What came of it as a whole.
    pub outcome: Outcome,
    /// What came of each token that the turn sampled.
    pub verdicts: Vec<Verdict>,
    /// The ids and the log-probs that were sampled now: no more than the turn has, and fewer where it ended before.
    pub again: Vec<(TokenId, f32)>,
    /// What the weights are called that sampled now; `None` where nothing was sampled.
    pub version: Option<Arc<str>>,
}

/// Returns what computes, as captures say it.
pub(crate) fn computed_by(info: &EngineInfo) -> ComputedBy {
    ComputedBy {
        tito: env!("CARGO_PKG_VERSION").to_owned(),
        engine: info.engine.to_owned(),
        device: info.device.clone(),
        dtype: info.dtype.clone(),
    }
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
        let seats = self.generator.engine().seats().max(1);
        stream::iter(keys).map(|key| self.replayed(trajectories, key)).buffer_unordered(seats)
    }

    async fn replayed(&self, trajectories: &Trajectories, key: SequenceKey) -> Replayed {
        let (trajectory, turn) = (Arc::clone(&key.trajectory), Arc::clone(&key.turn));
        let outcome = match CapturedTurn::read(trajectories, &key, self.vocab_size()) {
            Ok(captured) => self.turn(&captured).await.outcome,
            Err(error) => Outcome::Unrepeatable(error.to_string()),
        };
        Replayed { trajectory, turn, outcome }
    }

    /// Samples a turn again, and compares it token by token.
    pub(crate) async fn turn(&self, captured: &CapturedTurn) -> Compared {
        self.compared(captured).await.unwrap_or_else(|Unrepeatable(reason)| Compared {
            outcome: Outcome::Unrepeatable(reason),
            verdicts: vec![Verdict::NotCompared; captured.len()],
            again: Vec::new(),
            version: None,
        })
    }

    async fn compared(&self, captured: &CapturedTurn) -> Result<Compared, Unrepeatable> {
        let CapturedTurn { turn, sets, .. } = captured;
        let generation = &turn.generation;
        let all = captured.len();
        let tokens = self.own_tokens(turn, sets)?.min(all);
        // One more than there are, so that it is seen whether the turn goes on.
        let looks_for_end = tokens == all && is_of_model(generation.finish);
        let masks_then = captured.masks();
        let asked = tokens + usize::from(looks_for_end);
        let prompt = captured.prompt();
        let (request, _hold) = request(self, captured, asked, !masks_then.is_empty()).await?;
        let Sampled { tokens: again, masks, finish, version } = self.sampled(request, tokens, looks_for_end).await?;
        let then = captured.tokens();
        let verdicts = verdicts(&then, &masks_then, &again, &masks, tokens);
        let equal = verdicts.iter().position(|verdict| *verdict != Verdict::Equal).unwrap_or(all);
        let reasons = || self.reasons(turn, sets.first().and_then(Option::as_ref));
        let outcome = if equal < tokens {
            if verdicts[equal] == Verdict::Mask {
                let (captured, again) = other_ids(&masks_then, &masks, equal);
                Outcome::MaskDiffers { index: equal, captured, again, reasons: reasons() }
            } else {
                let (captured, again) = (then[equal], again.get(equal).copied());
                Outcome::Differs { index: equal, captured, again, reasons: reasons() }
            }
        } else if tokens < all {
            let rest = "weights were replaced then, and neither the rest nor its end is proven".to_owned();
            Outcome::Partial { tokens, all, rest }
        } else {
            match compared(&self.tokenizer, &prompt, captured.sampled(), generation, finish.as_ref()) {
                End::Same => Outcome::Equal { tokens },
                End::Other(again) => Outcome::Ends { captured: generation.finish, again, reasons: reasons() },
                End::Unproven(rest) => Outcome::Partial { tokens, all, rest },
            }
        };
        Ok(Compared { outcome, verdicts, again, version })
    }

    fn vocab_size(&self) -> usize {
        self.generator.engine().info().vocab_size
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
        request: GenerationRequest,
        tokens: usize,
        looks_for_end: bool,
    ) -> Result<Sampled, Unrepeatable> {
        let mut events = self.generator.generate_all([request]).map_err(failed)?;
        let (mut sampled, mut weights) = (Sampled::default(), WeightSpans::default());
        while sampled.tokens.len() < tokens || looks_for_end {
            let delta = match events.next().await {
                Some(Ok((_, Event::Delta(delta)))) => delta,
                Some(Ok((_, Event::Prompt(_)))) => continue,
                None => return Err(Unrepeatable("the engine gave it up".to_owned())),
                Some(Err(error)) => return Err(failed(error)),
            };
            weights.push(&delta);
            if weights.spans().iter().any(|span| span.number != self.weights) {
                let reason = "weights were replaced while it was sampled again; replay it once more";
                return Err(Unrepeatable(reason.to_owned()));
            }
            sampled.version = weights.latest();
            let goes_on = delta.tokens.len() > tokens - sampled.tokens.len();
            for token in delta.tokens.into_iter().take(tokens - sampled.tokens.len()) {
                sampled.tokens.push((token.id, token.logprob));
                if let Some(row) = token.sampling_mask {
                    sampled.masks.push(&row);
                }
            }
            match delta.finish {
                _ if goes_on => break,
                Some(Finish::Abort) => return Err(Unrepeatable("the engine gave it up".to_owned())),
                Some(finish) => return Ok(Sampled { finish: Some(finish), ..sampled }),
                None => {}
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
                differ("the checksum of the weights", &set.checksum, checksum.as_deref().unwrap_or("not known"));
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
    finish: Option<Finish>,
    /// What the weights are called that sampled it.
    version: Option<Arc<str>>,
}
