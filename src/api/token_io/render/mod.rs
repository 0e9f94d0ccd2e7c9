//! The parts that all render endpoints share: the fields that only they read, and the request that a prompt becomes.

pub(super) mod chat;
pub(super) mod completion;
pub(super) mod message;
mod parse_context;
pub(super) mod response;

use std::sync::Arc;

use serde_json::{Map, Value, json};

use axum::response::{IntoResponse, Response};

use super::generate::Rendered;
use crate::{
    engine::PromptImage,
    generation::reasoning_ended,
    http::{caller::Caller, hidden_parts::announce_hidden, json_answer::JsonAnswer, json_body::JsonBodyAndFields},
    state::Api,
    turn::{Asker, IdsWithImages, ImageTexts, Sampling, Turn, WholePrompt},
    wire::{
        answer::{mm_placeholders::MmPlaceholders, token_continuity::TokenContinuity},
        error::ApiError,
        fields::{sampling::SamplingFields, stream_options::StreamOptions},
        token_io::{
            features::{Features, MmHashes, MmItems},
            generate::{ReasoningParserKwargs, RenderedRequest},
            render::{MmPayload, RenderFields},
        },
    },
};
use parse_context::ChatBefore;

/// What `/inference/v1/generate` takes of the images of a prompt.
async fn features(images: &Arc<[PromptImage]>, payload: MmPayload, api: &Api) -> Result<Option<Features>, ApiError> {
    let hashes = images.iter().map(|image| image.image.identity().to_string()).collect();
    let Some(mm_placeholders) = MmPlaceholders::of(images.iter().map(PromptImage::placeholders)) else {
        return Ok(None);
    };
    let texts = match payload {
        MmPayload::Tensors => api.turns.image_tensors(images).await?,
        MmPayload::None => Vec::new(),
    };
    let (tensors, metadata): (Vec<_>, Vec<_>) =
        texts.into_iter().map(|ImageTexts { tensors, metadata }| (Some(tensors), metadata)).unzip();
    let items = |image: Vec<Option<String>>| image.iter().any(Option::is_some).then_some(MmItems { image });
    let (kwargs_data, mm_metadata) = (items(tensors), items(metadata));
    Ok(Some(Features { mm_hashes: MmHashes { image: hashes }, mm_placeholders, kwargs_data, mm_metadata }))
}

/// The fields of `structured_outputs`, in vLLM's order.
const CONSTRAINTS: [&str; 9] = [
    "json",
    "regex",
    "choice",
    "grammar",
    "json_object",
    "disable_any_whitespace",
    "disable_additional_properties",
    "whitespace_pattern",
    "structural_tag",
];

/// A body to be rendered.
type RenderBody<T> = JsonBodyAndFields<T, RenderFields>;

impl RenderFields {
    /// Refuses fields that cannot be written down as parameters.
    fn check(&self) -> Result<(), ApiError> {
        if self.use_beam_search.as_ref().is_some_and(|value| *value != Value::Bool(false) && !value.is_null()) {
            return Err(ApiError::invalid_request("Beam search is not supported by the render endpoint"));
        }
        let forces = |choice: &Value| choice.is_object() || choice.as_str() == Some("required");
        if self.tool_choice.as_ref().is_some_and(forces) {
            let message = "a `tool_choice` that forces a call cannot be rendered: pass \"auto\", or ask for the chat \
                           completion itself";
            return Err(ApiError::invalid("tool_choice", message));
        }
        Ok(())
    }

    /// Returns the constraint on the answer as vLLM's engine takes it; `response_format` adds to `structured_outputs`,
    /// as in vLLM.
    fn structured_outputs(&self) -> Option<Value> {
        let mut given = self.structured_outputs.clone().unwrap_or_default();
        let format = self.response_format.as_ref();
        let kind = format.and_then(|format| format.get("type")).and_then(Value::as_str);
        match (kind, format) {
            (Some("json_object"), _) => _ = given.insert("json_object".to_owned(), json!(true)),
            (Some("json_schema"), Some(format)) => {
                let schema = format.pointer("/json_schema/schema").cloned();
                given.insert("json".to_owned(), schema.unwrap_or(Value::Null));
            }
            (Some("structural_tag"), Some(format)) => {
                given.insert("structural_tag".to_owned(), json!(format.to_string()));
            }
            _ if given.is_empty() => return None,
            _ => {}
        }
        let default = |name: &str| if name.starts_with("disable") { json!(false) } else { Value::Null };
        let field = |name: &str| (name.to_owned(), given.get(name).cloned().unwrap_or_else(|| default(name)));
        Some(CONSTRAINTS.into_iter().map(field).collect::<Map<_, _>>().into())
    }
}

/// A request that is put into ids, without its prompts.
struct Rendering {
    caller: Caller,
    own: RenderFields,
    /// The sampling fields as they were sent.
    fields: SamplingFields,
    /// The number of alternatives for each position as it was sent.
    logprobs: Option<i64>,
    model: Option<String>,
    stream: bool,
    stream_options: Option<StreamOptions>,
}

impl Rendering {
    /// Puts the prompt of a turn into ids, and answers with the request that it becomes; `before` is what is known of a chat
    /// whose answer is to be read.
    async fn answer(self, api: &Api, id: String, turn: Turn, before: Option<ChatBefore>) -> Result<Response, ApiError> {
        let Turn { mut prompt, mut sampling, .. } = turn;
        let chat_template_kwargs = prompt.prompt.template_variables();
        let (add_special_tokens, truncation) = (prompt.prompt.add_special_tokens, prompt.truncation);
        prompt.wants_text |= self.shows_offsets();
        let mut prompt = api.turns.prompt(prompt).await?;
        let mut answer = self.request(api, id, &prompt.with_images(), &mut sampling).await?;
        let whole = match prompt.text.take() {
            Some(text) if prompt.text_was_encoded => Some(WholePrompt::Text { text, add_special_tokens }),
            // What was cut off is not known.
            _ if prompt.is_cut => None,
            // As in vLLM, ids of images have no offsets.
            _ if !prompt.images.is_empty() => None,
            _ => Some(WholePrompt::Ids(Arc::clone(&prompt.token_ids))),
        };
        if let Some(whole) = whole.filter(|_| self.shows_offsets()) {
            answer.token_offsets = api.turns.offsets(whole, truncation, &prompt.token_ids).await?;
        }
        let before = before.map(|before| before.cut(prompt.is_cut));
        answer.parse_context = before.map(|before| self.own.parse_context(chat_template_kwargs.clone(), before));
        // The variables decide whether the model thinks, on a server that reads thoughts.
        let reads_reasoning = api.turns.policies.tools.reasoning.is_some();
        answer.reasoning_parser_kwargs = reads_reasoning.then_some(ReasoningParserKwargs { chat_template_kwargs });
        let response = TokenContinuity::from(&prompt.verdict).announce(JsonAnswer(answer).into_response());
        Ok(announce_hidden(&prompt.hidden, response))
    }

    fn shows_offsets(&self) -> bool {
        self.own.return_token_offsets == Some(true)
    }

    /// Makes the request that a prompt becomes, without the offsets of its tokens.
    async fn request(
        &self,
        api: &Api,
        request_id: String,
        prompt: &IdsWithImages,
        sampling: &mut Sampling,
    ) -> Result<RenderedRequest, ApiError> {
        let asker = Asker { client: self.caller.client, session: None };
        let prepared = api.turns.prepare_ids(asker, prompt, sampling, Vec::new()).await?;
        let structured_outputs = self.own.structured_outputs();
        if sampling.holds_calls() || (sampling.is_constrained() && structured_outputs.is_none()) {
            let message = "tools that are `strict`, or held by --tool-strict-level, cannot be rendered: ask for the answer \
                           itself";
            return Err(ApiError::invalid("tools", message));
        }
        let params = Rendered {
            fields: &self.fields,
            sampling,
            max_tokens: prepared.params().max_tokens,
            logprobs: self.logprobs,
            stream: self.stream,
            structured_outputs,
        };
        Ok(RenderedRequest {
            request_id,
            token_ids: prompt.token_ids.to_vec(),
            features: features(&prompt.images, self.own.mm_payload(), api).await?,
            sampling_params: params.params(&api.turns.policies.sampling),
            model: self.model.clone(),
            stream: self.stream,
            stream_options: self.stream_options.filter(|_| self.stream).map(Into::into),
            reasoning_ended: sampling
                .text
                .format
                .reasoning
                .map(|format| reasoning_ended(format, api.turns.tokenizer(), &prompt.token_ids)),
            return_token_ids: self.fields.return_token_ids,
            cache_salt: self.fields.cache_salt.clone(),
            priority: self.own.priority.unwrap_or(0),
            routed_experts: self.own.routed_experts.clone(),
            ..RenderedRequest::default()
        })
    }
}
