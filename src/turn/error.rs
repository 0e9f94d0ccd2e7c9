//! What can be wrong with a turn. The API gives each error a status, a field and the words of its dialect.

use std::sync::Arc;

use crate::{
    TokenId,
    continuity::ContinuityError,
    engine::{EngineError, RouteError},
    json::Path,
    media::MediaError,
    prompt::PromptError,
    sampling::SamplingError,
    structured::StructuredError,
    tokenizer::TokenizerError,
};

/// Why a turn is refused, or failed.
#[derive(Debug, thiserror::Error)]
pub enum TurnError {
    /// The conversation cannot be put into ids.
    #[error(transparent)]
    Prompt(#[from] PromptError),
    /// The known ids cannot be kept.
    #[error(transparent)]
    Continuity(#[from] ContinuityError),
    /// A text cannot be put into ids, or ids into text.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The sampling parameters contradict each other.
    #[error(transparent)]
    Sampling(#[from] SamplingError),
    /// The constraint on the output cannot be compiled.
    #[error("{}", .0.message)]
    Structured(#[from] StructuredError),
    /// The engine refused, or failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// An image cannot be had, or cannot be shown to the model.
    #[error("the image cannot be read: {error}")]
    Image {
        /// The field that names it.
        field: Path,
        /// What is wrong.
        error: MediaError,
    },
    /// The images of other requests leave no room.
    #[error(transparent)]
    ImagesHeld(MediaError),
    /// A part of a message names no image.
    #[error("`image_url` must be a URL; images are not known by a `uuid` alone")]
    NoImage {
        /// The part.
        field: Path,
    },
    /// A request has more images than one may have.
    #[error("At most {most} image(s) may be provided in one prompt.")]
    TooManyImages {
        /// The server's bound.
        most: usize,
    },
    /// The model would see images, but its files or this server do not say how they are read.
    #[error("images are refused: {reason}")]
    RefusedImages {
        /// What has them.
        field: Path,
        /// What is wrong.
        reason: Arc<str>,
    },
    /// The model, or the engine, sees no images.
    #[error("images are for models that see some, on the native engine; this one sees none")]
    SeesNoImages,
    /// Ids have placeholders of images, and the request has no images for them.
    #[error("the token ids have the placeholders of images that the request does not have")]
    LacksImages,
    /// Truncation would cut a prompt with images.
    #[error("`truncate_prompt_tokens` would cut a prompt with images")]
    CutsImages,
    /// There is nothing to continue.
    #[error("the prompt is empty")]
    EmptyPrompt,
    /// The tokenizer knows a token that the model does not.
    #[error("Token id {0} is out of vocabulary")]
    UnknownToken(TokenId),
    /// The prompt leaves no room for output.
    #[error("a prompt of {tokens} tokens leaves no room in a context of {max_model_len}")]
    PromptTooLong {
        /// The length of the prompt in tokens. Some may have been left out of a text that was encoded here.
        tokens: usize,
        /// The longest sequence, prompt and output together.
        max_model_len: usize,
        /// Whether the ids were made here from a text, rather than given by the client.
        encoded_here: bool,
    },
    /// A request has more prompts than one may have.
    #[error("{prompts} prompts are more than the {most} of one request")]
    TooManyPrompts {
        /// The number of prompts of the request.
        prompts: usize,
        /// The server's bound.
        most: usize,
    },
    /// A request asks for more sequences than one may have.
    #[error(
        "an `n` of {n} for {prompts} prompts makes {} sequences, more than the {most} of one request: send several \
         requests, or start the server with a larger --max-request-sequences",
        .prompts.saturating_mul(*.n)
    )]
    TooManySequences {
        /// The number of prompts of the request.
        prompts: usize,
        /// The number of sequences for each prompt.
        n: usize,
        /// The server's bound.
        most: usize,
    },
    /// An answer in one piece would take up too much memory.
    #[error(
        "the answer could have {log_probs} log-probs, more than the {most} that fit into one in JSON with over {few} for \
         a token; ask for less ({}), or for a stream",
        if *.of_output { "n, max_tokens, or logprobs" } else { "prompt_logprobs" }
    )]
    AnswerTooLarge {
        /// The number of log-probs that the answer could have.
        log_probs: usize,
        /// The largest number that it may have.
        most: usize,
        /// A request with at most this many log-probs for each token is never refused for them.
        few: usize,
        /// Whether the log-probs are those of sampled tokens, rather than those of the prompt.
        of_output: bool,
    },
    /// Truncation would cut ids that are known.
    #[error("`truncate_prompt_tokens` would cut token ids that this prompt has to start with")]
    CutsKnownIds,
    /// Truncation leaves no room for what the tokenizer adds to every text.
    #[error(
        "the tokenizer puts {special_tokens} special tokens around the text, which `truncate_prompt_tokens` leaves no \
         room for"
    )]
    CutsSpecialTokens {
        /// The number of special tokens that the tokenizer adds.
        special_tokens: usize,
    },
    /// A constraint could never be seen to end.
    #[error("structured outputs need a token that ends them, and the model has none: pass `stop_token_ids`")]
    NoEnd,
    /// A constraint after reasoning would never begin.
    #[error("structured outputs after reasoning need a token that ends reasoning, and the vocabulary has none")]
    NoEndOfReasoning,
    /// A budget for thoughts could not be kept.
    #[error("thinking_token_budget (thinking.budget_tokens) is set but {reason}")]
    ThinkingBudget {
        /// What is missing, and what to do.
        reason: &'static str,
    },
    /// The experts that are shown would begin after the prompt.
    #[error("routed_experts_prompt_start must be between 0 and the prompt length ({prompt}), inclusive.")]
    RoutesStart {
        /// The token from which on they are wanted.
        start: i64,
        /// The length of the prompt in tokens.
        prompt: usize,
    },
    /// Experts are given to a model, or to an engine, that has none to choose from.
    #[error(
        "`routed_experts` needs a model with mixtures of experts on the native engine; this is the {engine} engine, \
             or a model without"
    )]
    NoExperts {
        /// The engine.
        engine: &'static str,
    },
    /// The given experts cannot be followed.
    #[error("`routed_experts` {0}")]
    Routes(#[from] RouteError),
    /// There is no room for the request besides those that are being read and put into ids.
    #[error(
        "the requests that are being read and put into ids take up the {most} bytes of --max-bytes-in-flight: try \
         again later, or send a shorter request"
    )]
    BytesInFlight {
        /// The server's bound.
        most: usize,
    },
    /// A fault of the server.
    #[error("{0}")]
    Internal(String),
}

impl TurnError {
    /// Wraps a fault of the server.
    pub(super) fn internal(cause: impl std::fmt::Display) -> Self {
        Self::Internal(cause.to_string())
    }
}
