//! From a conversation to the prompt of a model that reads Harmony, with known ids or without.

use super::{
    Harmony,
    preamble::Circumstances,
    settings::Effort,
    splice::Continued,
    spoken::{Spoken, spoken},
    text_of,
};
use crate::{
    TokenId,
    json::Path,
    prompt::{
        AnswerFormats, ChatPrompt, Drift, Edits, KnownPrefix, OnUnprovable, PromptError, Provenance, RenderedPrompt,
        comparison::Comparison, edits, eos_count::replace_prefix_tokens,
    },
    tokenizer::{Extent, Tokenizer},
};

/// Who renders, besides Harmony itself.
#[derive(Clone, Copy)]
pub(in crate::prompt) struct House<'a> {
    pub(in crate::prompt) tokenizer: &'a Tokenizer,
    pub(in crate::prompt) eos_token_id: Option<TokenId>,
    pub(in crate::prompt) stop_token_ids: &'a [TokenId],
    pub(in crate::prompt) on_unprovable: OnUnprovable,
    /// How the model writes its answers.
    pub(in crate::prompt) formats: AnswerFormats,
}

impl Harmony {
    /// Renders a conversation; where no ids of it are known, only as many ids are made as `extent` wants.
    pub(in crate::prompt) fn render(
        &self,
        prompt: &ChatPrompt,
        extent: Extent,
        house: House<'_>,
    ) -> Result<RenderedPrompt, PromptError> {
        refuse_other_ends(prompt)?;
        let spoken = self.spoken(prompt)?;
        let honest = |extent| {
            let ids = self.ids(&spoken, house.tokenizer, extent)?;
            Ok::<_, PromptError>([ids, self.opening(house.tokenizer)?].concat())
        };
        let Some(known) = &prompt.known else {
            let rendered = RenderedPrompt::new(honest(extent)?, Provenance::Rendered);
            return Ok(RenderedPrompt { drift: prompt.checks.drift.then_some(Drift { position: None }), ..rendered });
        };
        let joined = self.joined(prompt, known, &spoken, house);
        let mut rendered = match joined {
            Err(PromptError::Unprovable(reason)) => match known.on_unprovable.unwrap_or(house.on_unprovable) {
                OnUnprovable::Error => return Err(PromptError::Unprovable(reason)),
                OnUnprovable::Retokenize => {
                    RenderedPrompt::new(honest(Extent::Whole)?, Provenance::Retokenized(reason))
                }
                OnUnprovable::EosCount => self.count_eos(prompt, known, &spoken, house)?,
            },
            joined => joined?,
        };
        if prompt.checks.drift {
            rendered.drift = Some(Drift::between(&honest(Extent::Whole)?, &rendered.token_ids));
        }
        rendered.edits = edits_of(prompt, known, &rendered, &spoken, house)?;
        Ok(rendered)
    }

    fn spoken(&self, prompt: &ChatPrompt) -> Result<Vec<Spoken>, PromptError> {
        let tools = prompt.tools.as_deref().unwrap_or_default();
        let date = self.settings.start_date.clone().unwrap_or_else(|| {
            let (year, month, day) = prompt.now.to_calendar_date();
            format!("{year:04}-{:02}-{day:02}", u8::from(month))
        });
        let circumstances = Circumstances { settings: &self.settings, date, has_tools: !tools.is_empty() };
        spoken(&prompt.messages, tools, Effort::of(prompt.reasoning_effort.as_deref())?, &circumstances)
    }

    /// The known ids, and what follows the message that they end with.
    fn joined(
        &self,
        prompt: &ChatPrompt,
        known: &KnownPrefix,
        spoken: &[Spoken],
        house: House<'_>,
    ) -> Result<RenderedPrompt, PromptError> {
        let KnownPrefix { token_ids, sampled, .. } = known;
        let continued = Continued {
            harmony: self,
            prompt,
            spoken,
            known: token_ids,
            sampled: *sampled,
            tokenizer: house.tokenizer,
        };
        let anchor = match (known.anchor, prompt.assistants().collect::<Vec<_>>().as_slice()) {
            (Some(anchor), _) => anchor,
            (None, []) => prompt.messages.len() - 1,
            (None, [only]) => *only,
            (None, several) => continued.find_anchor(several)?,
        };
        let stops = [house.stop_token_ids, &prompt.stop_token_ids].concat();
        let joined = continued.join(anchor, &stops)?;
        let provenance =
            Provenance::Spliced { anchor, reused: known.token_ids.len(), foreign_stop: joined.foreign_stop };
        Ok(RenderedPrompt::new(joined.token_ids, provenance))
    }

    fn count_eos(
        &self,
        prompt: &ChatPrompt,
        known: &KnownPrefix,
        spoken: &[Spoken],
        house: House<'_>,
    ) -> Result<RenderedPrompt, PromptError> {
        let last = || prompt.assistants().last().unwrap_or(prompt.messages.len() - 1);
        let anchor = known.anchor.unwrap_or_else(last);
        let through = spoken.iter().take_while(|message| message.source.is_none_or(|source| source <= anchor)).count();
        let prefix = self.ids(&spoken[..through], house.tokenizer, Extent::Whole)?;
        let rest = self.ids(&spoken[through..], house.tokenizer, Extent::Whole)?;
        let whole = [prefix.clone(), rest, self.opening(house.tokenizer)?].concat();
        let ids = replace_prefix_tokens(house.eos_token_id, &known.token_ids, &prefix, &whole)
            .map_err(PromptError::Unprovable)?;
        let reused = ids.iter().zip(&known.token_ids).take_while(|(id, known)| id == known).count();
        Ok(RenderedPrompt::new(ids, Provenance::SplicedByEosCount { reused }))
    }
}

/// Where known ids say something else than the messages, as far as the prompt asks for it.
fn edits_of(
    prompt: &ChatPrompt,
    known: &KnownPrefix,
    rendered: &RenderedPrompt,
    spoken: &[Spoken],
    house: House<'_>,
) -> Result<Edits, PromptError> {
    let anchor = match rendered.provenance {
        Provenance::Spliced { anchor, .. } => Some(anchor),
        _ => known.anchor,
    };
    let Some(anchor) = anchor else { return Ok(Edits::default()) };
    let stops = [house.stop_token_ids, &prompt.stop_token_ids].concat();
    let House { tokenizer, formats, .. } = house;
    let (stops, render) = (&stops, &text_of(spoken));
    let (answer, written) = (None, None);
    edits::find(&Comparison { tokenizer, prompt, known, anchor, answer, render, stops, formats, written })
}

/// Refuses a prompt that is to end otherwise than by the start of an answer: vLLM would not do as the request says, and
/// not say so.
fn refuse_other_ends(prompt: &ChatPrompt) -> Result<(), PromptError> {
    let (field, message) = if prompt.continue_final_message {
        ("continue_final_message", "a prompt of Harmony cannot end inside a message: send its ids instead")
    } else if !prompt.add_generation_prompt {
        ("add_generation_prompt", "a prompt of Harmony always ends with the start of an answer")
    } else {
        return Ok(());
    };
    Err(PromptError::Content { field: Path::from(field), message: message.to_owned() })
}
