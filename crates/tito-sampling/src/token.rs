//! Tokens, and why there are no more of them.

/// The id of a token in the model's vocabulary.
pub type TokenId = u32;

/// Why a sequence ended, as far as tokens can tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishReason {
    /// The tokenizer's own end-of-sequence token was sampled (vLLM: `stop`, `stop_reason: null`).
    Eos,
    /// Another stop token was sampled: one of `generation_config.json` or of the request (vLLM: `stop`, `stop_reason: <id>`).
    StopToken(TokenId),
    /// `max_tokens` tokens were sampled.
    Length,
    /// The engine ended the sequence early, what was sampled so far is valid.
    Abort,
}
