//! Log-probs of captured sequences, computed again with the present weights.

use std::sync::Arc;

use futures::StreamExt;

use super::Turns;
use crate::{
    engine::{Adapter, PromptOutput, Routing},
    generation::{Event, GenerationRequest, WeightSpans},
    sampling::SamplingParams,
    trajectory::{Rescored, Sequence, SequenceTurn},
};

impl Turns {
    /// Computes the log-probs again of all ids of a sequence that are learnt from, and compares them with those that were
    /// captured. `adapter` is the one that sampled them, if one did.
    ///
    /// # Errors
    ///
    /// If they cannot be compared; the text says why.
    pub async fn rescore(&self, sequence: &Sequence, adapter: Option<Arc<Adapter>>) -> Result<Rescored, String> {
        let (again, version) = self.logprobs_again(sequence, adapter).await?;
        let then = sequence.logprobs.iter().zip(&sequence.loss_mask);
        let pairs = then.zip(again).filter(|((_, learnt), _)| **learnt);
        let pairs: Vec<(f32, f32)> = pairs.filter_map(|((then, _), now)| Some(((*then)?, now?))).collect();
        Rescored::of(version, &pairs).ok_or_else(|| "nothing of it is learnt from".to_owned())
    }

    /// Computes the log-probs again of all ids of a sequence, of which only those that are learnt from are comparable, and says
    /// what the weights are called that did. The first id has none.
    ///
    /// # Errors
    ///
    /// As [`Self::rescore`].
    pub async fn logprobs_again(
        &self,
        sequence: &Sequence,
        adapter: Option<Arc<Adapter>>,
    ) -> Result<(Vec<Option<f32>>, Arc<str>), String> {
        let is_learnt = |turn: &&SequenceTurn| sequence.loss_mask[turn.start..turn.end].contains(&true);
        sequence.turns.iter().filter(is_learnt).try_for_each(can_be_rescored)?;
        let (output, version) = self.scored(sequence, adapter).await?;
        if output.logprobs.len() + 1 != sequence.token_ids.len() {
            return Err("the engine gave not one log-prob for each id".to_owned());
        }
        let again = output.logprobs.iter().map(|token| Some(token.logprob));
        Ok(([None].into_iter().chain(again).collect(), version))
    }

    /// Scores the ids of a sequence, and says what the weights are called that did.
    async fn scored(
        &self,
        sequence: &Sequence,
        adapter: Option<Arc<Adapter>>,
    ) -> Result<(PromptOutput, Arc<str>), String> {
        let (tokens, most) = (sequence.token_ids.len(), self.max_model_len);
        if tokens >= most {
            return Err(format!(
                "it has {tokens} ids, and a prompt that is scored has fewer than {most} (--max-model-len)"
            ));
        }
        let params = SamplingParams { temperature: 0.0, max_tokens: 1, ..SamplingParams::default() };
        let params = params.validated(self.vocab_size()).map_err(|error| error.to_string())?;
        let request = GenerationRequest {
            prompt_token_ids: sequence.token_ids.as_slice().into(),
            sequences: 1,
            party: None,
            sampling: Arc::new(params),
            prompt_logprobs: Some(0),
            candidates: None,
            adapter,
            cache_salt: None,
            routing: Routing::default(),
            images: Arc::default(),
            text: Arc::default(),
            owner: None,
            request_ids: Arc::new([]),
        };
        let (mut prompt, mut weights) = (None, WeightSpans::default());
        let mut events = self.generator.generate_all([request]);
        while let Some(event) = events.next().await {
            match event.map_err(|error| error.to_string())? {
                (_, Event::Prompt(output)) => prompt = Some(output),
                (_, Event::Delta(delta)) => weights.push(&delta),
            }
        }
        let prompt = prompt.ok_or("the engine gave no log-probs")?;
        let version = weights.latest().ok_or("the engine computed nothing")?;
        Ok((prompt, version))
    }
}

/// Refuses a turn that was computed otherwise than the prompt of a request without wishes is.
fn can_be_rescored(turn: &SequenceTurn) -> Result<(), String> {
    let Some(used) = &turn.generation.sampling else { return Ok(()) };
    if used.logprobs_mode != "raw_logprobs" {
        return Err("its log-probs are those of the edited distribution (processed_logprobs), which is gone".to_owned());
    }
    if used.gives_experts {
        let id = &turn.place.id;
        return Err(format!("the request of {id} gave experts (`routed_experts`), which are not kept"));
    }
    Ok(())
}
