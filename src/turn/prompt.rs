//! From a conversation to its ids: the known ids, the template, the truncation, and the verdict on the known ids.

use std::{ops::Range, sync::Arc};

use super::{
    IdsWithImages, Truncation, TurnError, Turns, capture::CapturedConversation, images, in_flight, noted::noted,
    templates::GivesUp,
};
use crate::{
    TokenId,
    continuity::{Carriers, Recorder, Verdict, Wanted},
    engine::PromptImage,
    images::PreparedImage,
    prompt::{ChatPrompt, HiddenPart, PromptError, Provenance, RenderedPrompt},
    request_trace,
    tokenizer::Extent,
    trajectory::Said,
};

/// A valid conversation, with everything that may tell its ids.
#[derive(Debug)]
pub struct PromptRequest {
    /// The conversation.
    pub prompt: ChatPrompt,
    /// The sources that may know its ids.
    pub carriers: Carriers,
    /// Whether the client wants to know what became of the ids, even if that costs more.
    pub asks_for_continuity: bool,
    /// How long the prompt may be.
    pub truncation: Option<Truncation>,
    /// Whether the client wants to see the prompt as text.
    pub wants_text: bool,
    /// Whether the prompt is to be continued: one that is longer than the context is then refused before it is encoded
    /// to its end.
    pub must_fit: bool,
    /// The id of the request that the client says it continues.
    pub continues: Option<Arc<str>>,
    /// What the client says, as it wrote it, where that is captured.
    pub said: Option<Said>,
}

/// A conversation in ids.
pub struct Prompted {
    /// The prompt.
    pub token_ids: Arc<[TokenId]>,
    /// The images of the prompt.
    pub images: Arc<[PromptImage]>,
    /// What became of the known ids.
    pub verdict: Verdict,
    /// Whether the client wants to see the verdict, whether or not it wants ids.
    pub asks_for_continuity: bool,
    /// What the chat template does not show of the conversation.
    pub hidden: Vec<HiddenPart>,
    /// Whether the conversation was too long, so that a part of it was cut off.
    pub is_cut: bool,
    /// The conversation as text, where that was asked for and there is one.
    pub text: Option<String>,
    /// Whether that is the text that was encoded, all of it; else it is what the ids decode to.
    pub text_was_encoded: bool,
    /// The session that the conversation belongs to.
    pub session: Option<String>,
    /// Remembers the answers.
    pub(super) recorder: Option<Recorder>,
    /// What the conversation says, where it is captured.
    pub(super) said: Option<CapturedConversation>,
}

impl Prompted {
    /// Its ids and its images.
    pub fn with_images(&self) -> IdsWithImages {
        IdsWithImages { token_ids: Arc::clone(&self.token_ids), images: Arc::clone(&self.images) }
    }

    /// The placeholders of each image.
    pub fn image_ranges(&self) -> Vec<Range<usize>> {
        images::ranges(&self.images)
    }
}

impl Turns {
    /// Puts a conversation into ids, away from the threads that serve connections. The work ends early if the client
    /// stops waiting for it.
    ///
    /// # Errors
    ///
    /// If the conversation cannot be rendered, cannot start with the ids that are known, or does not fit though it must.
    pub async fn prompt(self: &Arc<Self>, request: PromptRequest) -> Result<Prompted, TurnError> {
        request_trace::prompting(Box::pin(self.put_into_ids(request)), |prompt| noted(&prompt.verdict)).await
    }

    async fn put_into_ids(self: &Arc<Self>, mut request: PromptRequest) -> Result<Prompted, TurnError> {
        let images = self.read_images(&mut request.prompt.messages, &mut request.said).await?;
        let _waiting = GivesUp(request.prompt.patience.clone());
        // Each template of a request may take all the time and memory that a render may, so only a few of them run at
        // once.
        let turn_of_template = match request.prompt.template {
            Some(_) => Some(self.request_templates.turn().await?),
            None => None,
        };
        let (request, wanted) = self.ask_store(request).await?;
        let turns = Arc::clone(self);
        let is_short = request.prompt.is_short() && !request.carriers.have_ids() && wanted.is_none();
        let prompting = move || {
            let _turn_of_template = turn_of_template;
            turns.prompt_blocking(request, images, wanted)
        };
        in_flight::prompting(is_short, prompting).await?
    }

    /// Asks the store of several servers what it knows of a conversation, where there is one.
    async fn ask_store(self: &Arc<Self>, request: PromptRequest) -> Result<(PromptRequest, Option<Wanted>), TurnError> {
        let Some(store) = &self.store else { return Ok((request, None)) };
        let turns = Arc::clone(self);
        let wanting = move || {
            let wanted = turns.continuity.wanted(&request.prompt, &request.carriers);
            (request, wanted)
        };
        let (request, mut wanted) = in_flight::blocking(wanting).await?;
        if let Some(wanted) = &mut wanted {
            store.look_up(wanted).await;
        }
        Ok((request, wanted))
    }

    fn prompt_blocking(
        &self,
        request: PromptRequest,
        images: Vec<PreparedImage>,
        wanted: Option<Wanted>,
    ) -> Result<Prompted, TurnError> {
        let PromptRequest {
            mut prompt,
            carriers,
            asks_for_continuity,
            truncation,
            wants_text,
            must_fit,
            continues,
            said,
        } = request;
        let capture = self.capture.as_ref().filter(|_| must_fit);
        let said = capture.map(|capture| capture.capture_conversation(&prompt, said, continues));
        let extent = match truncation {
            Some(truncation) => truncation.extent(),
            None if must_fit => Extent::AtMost(self.max_model_len),
            None => Extent::Whole,
        };
        let mut found = self.continuity.find_with(&mut prompt, &carriers, asks_for_continuity, wanted)?;
        let mut rendered = match found.take_whole_prompt() {
            Some(token_ids) => self.renderer.given(&prompt, token_ids)?,
            None => self.renderer.render_part(&prompt, extent).inspect_err(|error| {
                if let PromptError::Unprovable(reason) = error {
                    found.count_refusal(*reason);
                }
            })?,
        };
        if found.drops_foreign_ids(&mut prompt, &rendered) {
            rendered = self.renderer.render_part(&prompt, extent)?;
        }
        if must_fit && truncation.is_none() && matches!(rendered.provenance, Provenance::Rendered) {
            self.check_encoded(&rendered.token_ids)?;
        }
        // Some of the ids came from the client, or were remembered for it.
        let is_given = !matches!(rendered.provenance, Provenance::Rendered | Provenance::Retokenized(_));
        let cut = truncation.filter(|truncation| truncation.cuts(rendered.token_ids.len()));
        if let Some(truncation) = cut {
            // Ids that the client or the cache vouches for are never cut.
            if is_given {
                return Err(TurnError::CutsKnownIds);
            }
            if !images.is_empty() {
                return Err(TurnError::CutsImages);
            }
            self.truncate(&mut rendered, truncation, prompt.add_special_tokens)?;
        }
        let hidden = self.renderer.hidden(&prompt, rendered.provenance);
        if !hidden.is_empty() {
            tracing::debug!(?hidden, "the chat template does not show all of the conversation");
        }
        let (verdict, recorder) = self.continuity.conclude(found, &prompt, &rendered)?;
        // Later turns start with the whole conversation, and not with the part that this turn kept of it.
        let recorder = recorder.filter(|_| cut.is_none());
        // The text has one placeholder for an image.
        let text_was_encoded = wants_text && rendered.text.is_some() && images.is_empty();
        let images = images::placed(images, &rendered.images);
        let text = if wants_text { self.prompt_text(&mut rendered)? } else { None };
        let (token_ids, is_cut) = (rendered.token_ids, cut.is_some());
        if must_fit && is_given {
            self.check_given(&token_ids)?;
        }
        let session = carriers.session;
        Ok(Prompted {
            token_ids,
            images,
            verdict,
            asks_for_continuity,
            hidden,
            is_cut,
            text,
            text_was_encoded,
            session,
            recorder,
            said,
        })
    }

    /// Cuts a prompt that is too long and has no known ids.
    fn truncate(
        &self,
        rendered: &mut RenderedPrompt,
        truncation: Truncation,
        add_special_tokens: bool,
    ) -> Result<(), TurnError> {
        let ids = rendered.token_ids.to_vec();
        rendered.token_ids = truncation.of_encoded(ids, add_special_tokens, self.tokenizer())?.into();
        Ok(())
    }

    /// Returns the text of a prompt: what the template wrote or, if the prompt has known ids in it, the text of all
    /// ids. As in vLLM, a prompt that came as ids has no text.
    fn prompt_text(&self, rendered: &mut RenderedPrompt) -> Result<Option<String>, TurnError> {
        match (rendered.text.take(), rendered.provenance) {
            (None, Provenance::Given) => Ok(None),
            (Some(text), _) => Ok(Some(text)),
            (None, _) => self.text_of(&rendered.token_ids).map(Some),
        }
    }
}
