//! Log-probs of captured sequences, computed again with the present weights.

use std::sync::Arc;

use futures::StreamExt;
use tokio::task;

use super::{Turns, captured_images::kept_images, routing::kept_routes};
use crate::{
    TokenId,
    engine::{Adapter, GivenRoutes, PromptImage, Routing},
    generation::{Event, GenerationRequest, WeightSpans},
    media::Hold,
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
        sequence.learnt_turns().try_for_each(can_be_rescored)?;
        let (images, _hold) = self.images_again(sequence).await?;
        let (mut all, mut version) = (vec![None; sequence.token_ids.len()], None);
        // What chose its experts itself is scored in one go.
        if sequence.learnt_turns().any(|turn| !gives_experts(turn)) {
            let (logprobs, by) = self.scored(&sequence.token_ids, Arc::clone(&images), None, adapter.clone()).await?;
            (all, version) = (logprobs, Some(by));
        }
        for turn in sequence.learnt_turns().filter(|turn| gives_experts(turn)) {
            let given = self.kept_routes(turn).await?;
            let before = images.iter().filter(|image| image.offset < turn.end).cloned().collect();
            let (logprobs, by) =
                self.scored(&sequence.token_ids[..turn.end], before, Some(given), adapter.clone()).await?;
            all[turn.start..turn.end].copy_from_slice(&logprobs[turn.start..]);
            if version.as_ref().is_some_and(|version| *version != by) {
                return Err("weights were replaced while it was scored; score it once more".to_owned());
            }
            version = Some(by);
        }
        let version = version.ok_or("nothing of it is learnt from")?;
        Ok((all, version))
    }

    /// The images of a sequence, and their memory.
    async fn images_again(&self, sequence: &Sequence) -> Result<(Arc<[PromptImage]>, Option<Hold>), String> {
        if sequence.images.is_empty() {
            return Ok((Arc::default(), None));
        }
        let trajectories = self.capture.as_ref().map(|capture| Arc::clone(&capture.trajectories));
        let trajectories = trajectories.ok_or("nothing is captured here")?;
        let images = sequence.images.clone();
        let kept = task::spawn_blocking(move || trajectories.with_files(&images)).await;
        let kept = kept.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
        kept_images(self.media.as_ref(), &kept).await
    }

    /// Reads the experts that the request of a turn gave.
    async fn kept_routes(&self, turn: &SequenceTurn) -> Result<Arc<GivenRoutes>, String> {
        let trajectories = self.capture.as_ref().map(|capture| Arc::clone(&capture.trajectories));
        let trajectories = trajectories.ok_or("nothing is captured here")?;
        let read = turn.clone();
        let kept = task::spawn_blocking(move || trajectories.given_experts(&read)).await;
        let kept = kept.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
        let id = &turn.place.id;
        let kept =
            kept.ok_or_else(|| format!("the request of {id} gave experts (`routed_experts`), which were not kept"))?;
        kept_routes(&kept, self.generator.engine().route_shape(), turn.start)
    }

    /// Returns the log-prob of each id but the first, with these images among them, whose tokens go through `given` experts, and what the weights are called
    /// that computed them.
    async fn scored(
        &self,
        token_ids: &[TokenId],
        images: Arc<[PromptImage]>,
        given: Option<Arc<GivenRoutes>>,
        adapter: Option<Arc<Adapter>>,
    ) -> Result<(Vec<Option<f32>>, Arc<str>), String> {
        let (tokens, most) = (token_ids.len(), self.max_model_len);
        if tokens >= most {
            return Err(format!(
                "it has {tokens} ids, and a prompt that is scored has fewer than {most} (--max-model-len)"
            ));
        }
        let params = SamplingParams { temperature: 0.0, max_tokens: 1, ..SamplingParams::default() };
        let params = params.validated(self.vocab_size()).map_err(|error| error.to_string())?;
        let request = GenerationRequest {
            prompt_token_ids: token_ids.into(),
            sequences: 1,
            party: None,
            sampling: Arc::new(params),
            prompt_logprobs: Some(0),
            candidates: None,
            adapter,
            // All of it is computed anew, and nobody learns from it what the cache has, as in a replay.
            cache_salt: Some(uuid::Uuid::new_v4().simple().to_string().into()),
            routing: Routing { shown_from: None, given },
            images,
            text: Arc::default(),
            owner: None,
            request_ids: Arc::new([]),
        };
        let (mut prompt, mut weights) = (None, WeightSpans::default());
        let mut events = self.generator.generate_all([request]).map_err(|error| error.to_string())?;
        while let Some(event) = events.next().await {
            match event.map_err(|error| error.to_string())? {
                (_, Event::Prompt(output)) => prompt = Some(output),
                (_, Event::Delta(delta)) => weights.push(&delta),
            }
        }
        let prompt = prompt.ok_or("the engine gave no log-probs")?;
        let version = weights.latest().ok_or("the engine computed nothing")?;
        if prompt.logprobs.len() + 1 != tokens {
            return Err("the engine gave not one log-prob for each id".to_owned());
        }
        let logprobs = prompt.logprobs.iter().map(|token| Some(token.logprob));
        Ok(([None].into_iter().chain(logprobs).collect(), version))
    }
}

/// Refuses a turn that was computed otherwise than the prompt of a request without wishes is.
fn can_be_rescored(turn: &SequenceTurn) -> Result<(), String> {
    let Some(used) = &turn.generation.sampling else { return Ok(()) };
    if used.logprobs_mode != "raw_logprobs" {
        return Err("its log-probs are those of the edited distribution (processed_logprobs), which is gone".to_owned());
    }
    Ok(())
}

/// Whether the request of a turn said through which experts tokens go.
fn gives_experts(turn: &SequenceTurn) -> bool {
    turn.generation.sampling.as_ref().is_some_and(|used| used.gives_experts)
}
