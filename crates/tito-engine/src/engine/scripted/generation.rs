//! One scripted sequence, from the queue to its end, polled lazily.

use std::{collections::VecDeque, sync::Arc};

use super::{Gate, logits::SequenceLogits};
use crate::{
    TokenId,
    engine::{
        Candidates, EngineError, EngineOutput, FinishReason, GivenRoutes, PromptOutput, RequestTimes, RouteShape,
        Routes, SequenceRequest, WeightsInUse, admission::Place, meters::SamplingMeter,
    },
    sampling::{SampleError, SequenceSampler, score},
};

/// A sequence of a [`ScriptedEngine`](super::ScriptedEngine).
#[derive(Debug)]
pub(super) struct Generation {
    prompt: Arc<[TokenId]>,
    prompt_logprobs: Option<usize>,
    candidates: Option<Arc<Candidates>>,
    /// What is said to be cached, if anything is said.
    cached_tokens: Option<usize>,
    /// Which weights are said to compute the tokens, each from a token on.
    weights: VecDeque<(usize, WeightsInUse)>,
    routes: Option<Routed>,
    /// The times that are reported, each before the token of its number.
    times: VecDeque<(usize, RequestTimes)>,
    sampled: usize,
    sampler: SequenceSampler,
    source: SequenceLogits,
    logits: Vec<f32>,
    gate: Gate,
    meter: SamplingMeter,
    phase: Phase,
}

/// The routes that are said to be taken.
#[derive(Debug)]
pub(super) struct Routed {
    shape: RouteShape,
    given: Option<Arc<GivenRoutes>>,
    /// The position of the first token whose routes were not reported.
    next: usize,
    /// The tokens before which routes were reported.
    reports: usize,
}

impl Routed {
    pub(super) fn new(shape: RouteShape, given: Option<Arc<GivenRoutes>>, next: usize) -> Self {
        Self { shape, given, next, reports: 0 }
    }

    /// The routes of the tokens before the next one, which is sampled after so many others; `None` where they were
    /// reported.
    fn before(&mut self, sampled: usize, prompt: usize) -> Option<Routes> {
        if self.reports > sampled {
            return None;
        }
        self.reports = sampled + 1;
        let computed = prompt + sampled;
        let mut routes = Vec::new();
        for position in std::mem::replace(&mut self.next, computed)..computed {
            for mixture in 0..self.shape.mixtures.len() {
                match self.given.as_ref().and_then(|given| given.experts(position, mixture)) {
                    Some(given) => routes.extend(given),
                    None => routes.extend(self.own(position + mixture)),
                }
            }
        }
        Some(Routes(routes))
    }

    fn own(&self, first: usize) -> impl Iterator<Item = u16> {
        let experts = self.shape.experts;
        (first..first + self.shape.per_token).map(move |expert| u16::try_from(expert % experts).unwrap_or(0))
    }
}

#[derive(Debug)]
enum Phase {
    Queued(Place),
    Sampling(Place),
    Ending(FinishReason),
    Ended,
}

impl Generation {
    pub(super) fn new(
        request: SequenceRequest,
        source: SequenceLogits,
        vocab_size: usize,
        meter: SamplingMeter,
    ) -> Self {
        let prompt = request.prompt_token_ids;
        Self {
            meter,
            sampler: SequenceSampler::new(request.sampling, Arc::clone(&prompt)),
            prompt,
            prompt_logprobs: request.prompt_logprobs,
            candidates: request.candidates,
            cached_tokens: None,
            weights: VecDeque::new(),
            routes: None,
            times: VecDeque::new(),
            sampled: 0,
            source,
            logits: vec![0.0; vocab_size],
            gate: Gate::opened(),
            phase: Phase::Ended,
        }
    }

    /// Queues the sequence after `place`; every token waits for `gate`.
    pub(super) fn queued(mut self, place: Place, gate: Gate) -> Self {
        self.phase = Phase::Queued(place);
        self.gate = gate;
        self
    }

    /// Says that the prompt's first tokens were cached, at most all but one: logits come from the last.
    pub(super) fn cached(mut self, tokens: Option<usize>) -> Self {
        self.cached_tokens = tokens.map(|tokens| tokens.min(self.prompt.len().saturating_sub(1)));
        self
    }

    /// Says that these weights compute the tokens, each from a token on.
    pub(super) fn computed_by(mut self, weights: Vec<(usize, WeightsInUse)>) -> Self {
        self.weights = weights.into();
        self
    }

    /// Says that these are the times of the sequence, token by token.
    pub(super) fn taking(mut self, times: Vec<RequestTimes>) -> Self {
        self.times = times.into_iter().enumerate().collect();
        self
    }

    /// Reports routes.
    pub(super) fn routed(mut self, routes: Option<Routed>) -> Self {
        self.routes = routes;
        self
    }

    /// The next item of the stream; `None` after the end. The seat may be given on until the one after it is asked for.
    pub(super) async fn next(&mut self) -> Option<Result<EngineOutput, EngineError>> {
        let output = self.output().await;
        if let Some(Ok(output)) = &output {
            self.meter.observe(output);
        }
        if let Phase::Sampling(place) = &self.phase {
            place.rest();
        }
        output
    }

    async fn output(&mut self) -> Option<Result<EngineOutput, EngineError>> {
        loop {
            // A poll that is abandoned half-way ends the sequence; the stream is then dropped anyway.
            match std::mem::replace(&mut self.phase, Phase::Ended) {
                Phase::Queued(mut place) => {
                    let seated = place.seated().await;
                    if !seated {
                        self.phase = Phase::Ending(FinishReason::Abort);
                        continue;
                    }
                    let scores = match self.read_prompt().await {
                        Ok(scores) => scores,
                        Err(error) => return Some(Err(EngineError::Failed(error.to_string()))),
                    };
                    self.phase = Phase::Sampling(place);
                    if scores.is_some() || self.cached_tokens.is_some() {
                        let cached_tokens = self.cached_tokens.unwrap_or(0);
                        let output = PromptOutput { cached_tokens, ..scores.unwrap_or_default() };
                        return Some(Ok(EngineOutput::Prompt(output)));
                    }
                }
                Phase::Sampling(mut place) => {
                    if !place.seated().await {
                        self.phase = Phase::Ending(FinishReason::Abort);
                        continue;
                    }
                    let sampled = self.sampled;
                    if let Some((_, weights)) = self.weights.pop_front_if(|(from, _)| *from <= sampled) {
                        self.phase = Phase::Sampling(place);
                        return Some(Ok(EngineOutput::Weights(weights)));
                    }
                    let prompt = self.prompt.len();
                    if let Some(routes) = self.routes.as_mut().and_then(|routes| routes.before(sampled, prompt)) {
                        self.phase = Phase::Sampling(place);
                        return Some(Ok(EngineOutput::Routes(routes)));
                    }
                    if let Some((_, times)) = self.times.pop_front_if(|(token, _)| *token <= sampled) {
                        self.phase = Phase::Sampling(place);
                        return Some(Ok(EngineOutput::Times(times)));
                    }
                    let passed = tokio::select! {
                        passed = self.gate.passed() => passed,
                        () = place.dismissed() => true,
                    };
                    if !passed {
                        return Some(Err(EngineError::Failed("the gate fails".to_owned())));
                    }
                    if let Some(output) = self.sample(place) {
                        tokio::task::yield_now().await;
                        return Some(output);
                    }
                }
                Phase::Ending(reason) => return Some(Ok(EngineOutput::Finished(reason))),
                Phase::Ended => return None,
            }
        }
    }

    async fn read_prompt(&mut self) -> Result<Option<PromptOutput>, SampleError> {
        let (prompt, candidates) = (Arc::clone(&self.prompt), self.candidates.clone());
        let scores = self.prompt_logprobs.is_some() || candidates.is_some();
        let mut output = PromptOutput::default();
        for (position, &id) in prompt.iter().enumerate() {
            if scores && position > 0 {
                self.source.write(&mut self.logits);
                let candidates = candidates.as_ref().map_or(&[][..], |candidates| candidates.at(position - 1));
                let score = score(&self.logits, self.prompt_logprobs.map(|top| (id, top)), candidates)?;
                output.logprobs.extend(score.token);
                output.candidates.extend(score.candidates);
                tokio::task::yield_now().await;
            }
            self.source.push(id);
        }
        Ok(scores.then_some(output))
    }

    /// Samples one token in `place`; `None` where the sequence ends without one.
    fn sample(&mut self, place: Place) -> Option<Result<EngineOutput, EngineError>> {
        if place.is_dismissed() || !self.source.write_next(&mut self.logits) {
            self.phase = Phase::Ending(FinishReason::Abort);
            return None;
        }
        let step = match self.sampler.step(&mut self.logits) {
            Ok(step) => step,
            Err(error) => return Some(Err(error.into())),
        };
        self.source.push(step.token.id);
        self.sampled += 1;
        self.phase = match step.finish {
            Some(reason) => Phase::Ending(reason),
            None => Phase::Sampling(place),
        };
        Some(Ok(EngineOutput::Token(step.token)))
    }
}
