//! From a turn to the events of its answers.

use std::sync::Arc;

use futures::{StreamExt, stream::BoxStream};

use super::{
    Client, IdsWithImages, PromptRequest, Prompted, Sampling, TextForm, TurnError, Turns,
    capture::captured,
    client::party,
    in_flight,
    record::{Remembering, recorded},
};
use crate::{
    TokenId,
    continuity::TextRecorder,
    engine::{EngineError, PromptImage, ValidSamplingParams},
    generation::{Event, GenerationRequest},
    media::Hold,
    request_trace,
    trajectory::Generation,
};

/// The conversation of a turn, and the wishes for its answers.
#[derive(Debug)]
pub struct Turn {
    /// The conversation.
    pub prompt: PromptRequest,
    /// The sampling of the answers, and how many there are.
    pub sampling: Sampling,
    /// The client that asks.
    pub client: Client,
    /// The ids by which the turn can be aborted.
    pub names: Vec<Arc<str>>,
    /// The way in which answers go out.
    pub delivery: Delivery,
    /// The form in which the client has the text of an answer.
    pub form: TextForm,
}

/// The way in which an answer goes out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// It goes out as it is sampled.
    Streamed,
    /// It goes out when it has ended; until then it is kept in memory.
    Whole,
    /// It goes out with so many answers, itself included, when all of them have ended; they are about equally long.
    Together(usize),
}

/// A prompt in ids.
#[derive(Debug, Clone)]
pub struct NamedPrompt {
    /// The ids.
    pub token_ids: Arc<[TokenId]>,
    /// The ids by which its sequences can be aborted.
    pub names: Vec<Arc<str>>,
    /// The images of the prompt.
    pub images: Arc<[PromptImage]>,
    /// Remembers the answers, if the prompt came as a text.
    pub recorder: Option<Arc<TextRecorder>>,
}

/// The client and the session that ask for sequences.
#[derive(Debug, Clone, Copy)]
pub struct Asker<'a> {
    /// The client.
    pub client: Client,
    /// The session that the sequences belong to.
    pub session: Option<&'a str>,
}

/// A turn that can be served: nothing is sampled yet, and nothing more is checked.
pub struct Prepared {
    request: GenerationRequest,
    /// The memory of its images.
    hold: Option<Hold>,
    recorder: Option<Remembering>,
    /// The turn to be captured, where that is asked for.
    turn: Option<Box<Generation>>,
}

/// A prepared turn, and the results of rendering its conversation.
pub struct PreparedTurn {
    /// The part that `Turns::start` takes.
    pub prepared: Prepared,
    /// The conversation in ids.
    pub prompt: Prompted,
    /// The sampling of the answers.
    pub sampling: Sampling,
}

/// The events of all sequences, each with the index of its sequence.
type Events = BoxStream<'static, Result<(usize, Event), EngineError>>;

impl Prepared {
    /// Returns the parameters of the first sequence.
    pub fn params(&self) -> &ValidSamplingParams {
        &self.request.sampling
    }

    /// Says that its first answer is the one of this number among those of the same prompt, which others are prepared for
    /// too; it is captured so.
    pub fn count_from(&mut self, index: usize) {
        if let Some(turn) = &mut self.turn {
            turn.index = index;
        }
    }
}

impl Turns {
    /// Does every step of a turn that can be refused: puts the conversation into ids, checks them, and compiles the
    /// constraint on the answers.
    ///
    /// # Errors
    ///
    /// If the turn cannot be served as asked.
    pub async fn prepare(self: &Arc<Self>, turn: Turn) -> Result<PreparedTurn, TurnError> {
        request_trace::generates();
        let Turn { prompt, mut sampling, client, names, delivery, form } = turn;
        let mut prompt = self.prompt(prompt).await?;
        let kept = match delivery {
            Delivery::Streamed => 0,
            Delivery::Whole => 1,
            Delivery::Together(answers) => answers,
        };
        self.check_answer_size(&sampling, std::iter::repeat_n(prompt.token_ids.len(), kept))?;
        let asker = Asker { client, session: prompt.session.as_deref() };
        let mut prepared = self.prepare_ids(asker, &prompt.with_images(), &mut sampling, names).await?;
        if let (Some(turn), Some(said)) = (&mut prepared.turn, prompt.said.take()) {
            said.tell(turn, &prompt.verdict);
        }
        let recorder = prompt.recorder.take().map(|recorder| Remembering::Message(Arc::new(recorder), form));
        let prepared = Prepared { recorder, ..prepared };
        Ok(PreparedTurn { prepared, prompt, sampling })
    }

    /// Does the same for a prompt in ids. Its answers are not remembered here, because they end no conversation. The size of the answer is not checked.
    ///
    /// # Errors
    ///
    /// If the prompt cannot be continued as asked.
    pub async fn prepare_ids(
        &self,
        asker: Asker<'_>,
        IdsWithImages { token_ids: prompt, images }: &IdsWithImages,
        sampling: &mut Sampling,
        names: Vec<Arc<str>>,
    ) -> Result<Prepared, TurnError> {
        in_flight::release();
        self.policies.requests.check_sequences(1, sampling.n)?;
        let budget = self.thinking_budget(sampling, prompt)?;
        let vocab_size = self.vocab_size();
        self.structured.constrain(sampling, prompt, vocab_size).await?;
        if prompt.is_empty() {
            return Err(TurnError::EmptyPrompt);
        }
        if let Some(id) = prompt.iter().find(|id| **id as usize >= vocab_size) {
            return Err(TurnError::UnknownToken(*id));
        }
        let hold = self.check_images(prompt, images)?;
        let (tokens, max_model_len) = (prompt.len(), self.max_model_len);
        let room = max_model_len.saturating_sub(tokens);
        if room == 0 {
            return Err(TurnError::PromptTooLong { tokens, max_model_len, encoded_here: true });
        }
        let owner = asker.client.owner();
        let request = GenerationRequest {
            prompt_token_ids: Arc::clone(prompt),
            sequences: sampling.n,
            party: party(owner.clone(), asker.session),
            sampling: sampling.params(room, budget, vocab_size)?,
            prompt_logprobs: sampling.prompt_logprobs,
            candidates: sampling.candidates.clone(),
            adapter: sampling.adapter.clone(),
            cache_salt: asker.client.salt(sampling.cache_salt.as_ref()),
            routing: sampling.routes.routing(
                self.generator.engine(),
                self.policies.requests.return_routed_experts,
                tokens,
            )?,
            images: Arc::clone(images),
            text: Arc::clone(&sampling.text),
            owner,
            request_ids: names.into(),
        };
        let demand = || sampling.demand_with(budget);
        let capture = self.capture.as_ref().filter(|_| !sampling.scores_only);
        let turn = capture.map(|capture| Box::new(capture.begun(&request, asker.session, demand)));
        Ok(Prepared { request, hold, recorder: None, turn })
    }

    /// Does the same for all prompts of one answer, and checks its size before.
    ///
    /// # Errors
    ///
    /// If the answer could become too large, or if one of the prompts cannot be continued as asked.
    pub async fn prepare_prompts(
        &self,
        asker: Asker<'_>,
        prompts: Vec<NamedPrompt>,
        sampling: &mut Sampling,
        delivery: Delivery,
    ) -> Result<Vec<Prepared>, TurnError> {
        request_trace::generates();
        if delivery != Delivery::Streamed {
            self.check_answer_size(sampling, prompts.iter().map(|prompt| prompt.token_ids.len()))?;
        }
        let mut prepared = Vec::with_capacity(prompts.len());
        for NamedPrompt { token_ids, names, images, recorder } in prompts {
            let ready = self.prepare_ids(asker, &IdsWithImages { token_ids, images }, sampling, names).await?;
            prepared.push(Prepared { recorder: recorder.map(Remembering::Text), ..ready });
        }
        Ok(prepared)
    }

    /// Samples the answers to all of `prepared`, which enter the engine together or not at all; sequences are numbered
    /// across all of them. Dropping the events ends all sequences. An answer to a conversation is remembered, and
    /// where that is asked for captured, before its last event goes out.
    ///
    /// # Errors
    /// The server has no room for them, or takes no new requests.
    pub fn start(&self, prepared: impl IntoIterator<Item = Prepared>) -> Result<Events, EngineError> {
        let (mut requests, mut recorders, mut turns, mut holds) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for Prepared { mut request, hold, recorder, turn } in prepared {
            holds.extend(hold);
            self.generator.seed(&mut request);
            match self.capture.as_ref().zip(turn) {
                Some((capture, turn)) => turns.extend(capture.turns(&turn, &request).into_iter().map(Some)),
                // Sequences are numbered across all requests.
                None => turns.extend(std::iter::repeat_with(|| None).take(request.sequences)),
            }
            recorders.extend(std::iter::repeat_n(recorder, request.sequences));
            requests.push(request);
        }
        let events = recorded(self.generator.generate_all(requests)?, recorders, self.store.clone());
        let events: Events = if self.capture.is_some() { Box::pin(captured(events, turns)) } else { Box::pin(events) };
        // Images are let go with the stream.
        Ok(if holds.is_empty() { events } else { Box::pin(events.inspect(move |_| _ = &holds)) })
    }
}
