//! Parts that every answer has: identity, usage, log-probs and reasons to end.

use std::time::{SystemTime, UNIX_EPOCH};

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    TokenId, engine::SampledToken, generation::Finish, sampling::TopLogprob, tokenizer::Tokenizer,
    wire::error::ApiError,
};

/// The name of the server and its version, in the form in which vLLM names itself.
pub(crate) const SYSTEM_FINGERPRINT: &str = concat!("tito-", env!("CARGO_PKG_VERSION"));

/// A field that vLLM sometimes leaves out and that is otherwise null if it has nothing to say.
pub(crate) type Nullable<T> = Option<Option<T>>;

/// Tokens that a request used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, ToSchema)]
#[expect(clippy::struct_field_names, reason = "the names are the wire's")]
pub(crate) struct Usage {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Prompt and sampled tokens.
    pub total_tokens: usize,
    /// Sampled tokens, over all choices.
    pub completion_tokens: usize,
}

impl Usage {
    /// Counts a prompt and all tokens that were sampled for it.
    pub(crate) fn new(prompt_tokens: usize, completion_tokens: usize) -> Self {
        Self { prompt_tokens, total_tokens: prompt_tokens + completion_tokens, completion_tokens }
    }
}

/// What usage says about the prompt, with `--enable-prompt-tokens-details`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct PromptTokensDetails {
    /// Tokens that were not computed again, because a cache had them.
    pub cached_tokens: usize,
}

/// Usage with its details, as vLLM spells them in JSON answers.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
pub(crate) struct DetailedUsage {
    #[serde(flatten)]
    usage: Usage,
    /// Null unless the server reports it.
    prompt_tokens_details: Option<PromptTokensDetails>,
    /// Null unless the server reads reasoning.
    completion_tokens_details: Option<CompletionTokensDetails>,
}

impl DetailedUsage {
    pub(crate) fn new(usage: Usage, prompt_tokens_details: Option<PromptTokensDetails>) -> Self {
        Self { usage, prompt_tokens_details, completion_tokens_details: None }
    }

    /// Adds details of the sampled tokens, which are there where reasoning is parsed.
    pub(crate) fn detailed(self, completion_tokens_details: Option<CompletionTokensDetails>) -> Self {
        Self { completion_tokens_details, ..self }
    }

    /// Whether so many tokens were sampled.
    pub(crate) fn counts(&self, sampled: usize) -> bool {
        self.usage.completion_tokens == sampled
    }
}

/// What usage says about what was sampled, with `--reasoning-parser`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct CompletionTokensDetails {
    /// Tokens of reasoning, over all choices.
    pub reasoning_tokens: usize,
}

/// Usage in a stream: details are absent where there are none, and those of the prompt in all chunks but the
/// last, as in vLLM.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
pub(crate) struct StreamedUsage {
    #[serde(flatten)]
    usage: Usage,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_tokens_details: Option<PromptTokensDetails>,
    /// Null in the chunks of a chat without reasoning; absent in the last one then.
    #[serde(skip_serializing_if = "Option::is_none")]
    completion_tokens_details: Nullable<CompletionTokensDetails>,
}

impl StreamedUsage {
    /// Makes the usage of the tokens sampled so far, for a chunk of a chat.
    pub(crate) fn so_far(usage: Usage, details: Option<CompletionTokensDetails>) -> Self {
        Self { completion_tokens_details: Some(details), ..Self::from(usage) }
    }

    /// Makes the usage of all sampled tokens, for the last chunk.
    pub(crate) fn last(usage: Usage, prompt_tokens_details: Option<PromptTokensDetails>) -> Self {
        Self { prompt_tokens_details, ..Self::from(usage) }
    }

    /// Adds details of the sampled tokens, which are there where reasoning is parsed.
    pub(crate) fn detailed(self, details: Option<CompletionTokensDetails>) -> Self {
        Self { completion_tokens_details: details.map(Some), ..self }
    }
}

impl From<Usage> for StreamedUsage {
    fn from(usage: Usage) -> Self {
        Self { usage, prompt_tokens_details: None, completion_tokens_details: None }
    }
}

/// Why a choice ended, in the words of the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FinishReason {
    /// A stop token or string.
    Stop,
    /// The tokens to generate ran out.
    Length,
    /// What was sampled went round in circles.
    Repetition,
    /// The server ended it.
    Abort,
    /// The message makes tool calls, and the model ended it.
    ToolCalls,
}

/// What exactly ended a choice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum StopReason {
    /// A stop token other than the tokenizer's own end-of-sequence token.
    Token(TokenId),
    /// A stop string, or the word for a loop.
    Text(String),
}

/// Splits the end of a generation into the two fields that answers have for it.
pub(crate) fn finish_fields(finish: &Finish) -> (FinishReason, Option<StopReason>) {
    match finish {
        Finish::Eos => (FinishReason::Stop, None),
        Finish::StopToken(id) => (FinishReason::Stop, Some(StopReason::Token(*id))),
        Finish::StopString(stop) => (FinishReason::Stop, Some(StopReason::Text(stop.clone()))),
        Finish::Length => (FinishReason::Length, None),
        Finish::Repetition => (FinishReason::Repetition, Some(StopReason::Text("repetition_detected".to_owned()))),
        Finish::Abort => (FinishReason::Abort, None),
    }
}

/// Returns the seconds since 1970.
pub(crate) fn created() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Spells tokens in log-probs, either as texts or as `token_id:N`.
#[derive(Clone, Copy)]
pub(crate) struct TokenSpelling<'a> {
    pub tokenizer: &'a Tokenizer,
    pub as_ids: bool,
}

/// Returns the name of a token that is not shown as text.
pub(crate) fn spelt_id(id: TokenId) -> String {
    format!("token_id:{id}")
}

impl TokenSpelling<'_> {
    /// Returns the token's name in log-probs.
    pub(crate) fn name(&self, id: TokenId) -> Result<String, ApiError> {
        if self.as_ids { Ok(spelt_id(id)) } else { self.text(id) }
    }

    /// Returns the token's own text: an incomplete character is U+FFFD, and an id that only the model knows has no
    /// text.
    pub(crate) fn text(&self, id: TokenId) -> Result<String, ApiError> {
        if !self.tokenizer.contains(id) {
            return Ok(String::new());
        }
        Ok(self.tokenizer.decode(&[id], false)?)
    }

    /// Returns the bytes of an alternative: those of its name where that is an id, as in vLLM.
    pub(crate) fn bytes_of_alternative(&self, id: TokenId) -> Result<Vec<u8>, ApiError> {
        if self.as_ids { Ok(spelt_id(id).into_bytes()) } else { self.bytes(id) }
    }

    /// Returns the token's bytes.
    pub(crate) fn bytes(&self, id: TokenId) -> Result<Vec<u8>, ApiError> {
        if !self.tokenizer.contains(id) {
            return Ok(Vec::new());
        }
        Ok(self.tokenizer.token_bytes(id)?)
    }
}

/// The number of alternatives to show at each position, the sampled token among them; `None` shows all that there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ShownAlternatives(pub Option<usize>);

/// Returns the alternatives that are shown. If `k` are asked for, these are the sampled token and then the best ones,
/// `k` in all. vLLM puts the sampled token first and then cuts the list, so that it is always shown, except with a `k`
/// of 0.
pub(crate) fn shown_alternatives(token: &SampledToken, asked: Option<usize>) -> Vec<TopLogprob> {
    let own = TopLogprob { id: token.id, logprob: token.logprob, rank: token.rank };
    let others = token.top_logprobs.iter().copied().filter(|other| other.id != token.id);
    std::iter::once(own).chain(others).take(asked.unwrap_or(usize::MAX)).collect()
}

/// One entry of `prompt_logprobs`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct PromptLogprob {
    /// Natural logarithm.
    logprob: f32,
    /// 1 for the most probable token.
    rank: u32,
    /// The token's text.
    decoded_token: String,
}

/// vLLM's `prompt_logprobs`: null for the first token, and for each other token an object by token id, whose first
/// entry is the token of the prompt.
pub(crate) type PromptLogprobs = Vec<Option<IndexMap<String, PromptLogprob>>>;

/// Spells the log-probs of a prompt.
pub(crate) fn prompt_logprobs(tokens: &[SampledToken], tokenizer: &Tokenizer) -> Result<PromptLogprobs, ApiError> {
    let spelling = TokenSpelling { tokenizer, as_ids: false };
    let position = |token: &SampledToken| {
        let entry = |shown: TopLogprob| {
            let decoded_token = spelling.text(shown.id)?;
            Ok((shown.id.to_string(), PromptLogprob { logprob: shown.logprob, rank: shown.rank, decoded_token }))
        };
        shown_alternatives(token, None).into_iter().map(entry).collect::<Result<_, ApiError>>().map(Some)
    };
    std::iter::once(Ok(None)).chain(tokens.iter().map(position)).collect()
}
