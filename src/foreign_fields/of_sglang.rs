//! SGLang's fields, in groups that endpoints share.

use super::field::{ForeignField, NOTHING_LIKE_IT, field, given, number_or_off, position};
use crate::json::Node;

/// SGLang's names of what is logged.
pub(super) const SGLANG_LOGPROBS: [ForeignField; 4] = [
    position("logprob_start_len", "log-probs of the prompt are `prompt_logprobs` on chats and completions"),
    field("return_logprob", "`logprobs` on chats and completions asks for log-probs"),
    field("token_ids_logprob", "`logprob_token_ids` on chats and completions names the tokens"),
    field("top_logprobs_num", "`top_logprobs` on chats says how many there are"),
];

/// SGLang's own fields (0.5.23, `srt/entrypoints/openai/protocol.py`) that change what is generated or answered. What SGLang needs
/// for its processes and its GPUs, such as `data_parallel_rank`, asks for nothing here.
pub(super) const SGLANG: [ForeignField; 22] = [
    field("custom_logit_processor", NOTHING_LIKE_IT),
    field("custom_params", NOTHING_LIKE_IT),
    field("ebnf", "send the grammar as `structured_outputs`: {\"grammar\": ...}"),
    field("json_schema", "send the schema as `structured_outputs`: {\"json\": ...}"),
    ForeignField {
        name: "lora_path",
        instead: "name the adapter as `model`",
        // SGLang's own benchmark sends both.
        asks: |value, body| value.is_truthy() && body.get("model").and_then(Node::as_str) != value.as_str(),
    },
    number_or_off("max_thinking_tokens", "send `thinking_token_budget`"),
    field("min_new_tokens", "send `min_tokens`"),
    field("regex", "send the expression as `structured_outputs`: {\"regex\": ...}"),
    field("return_cached_tokens_details", "start the server with --enable-prompt-tokens-details, and read `usage`"),
    field("return_entropy", NOTHING_LIKE_IT),
    field("return_flat_raw_output_top_logprobs", NOTHING_LIKE_IT),
    field("return_flat_raw_top_logprobs", NOTHING_LIKE_IT),
    field("return_flat_raw_top_logprobs_b64", NOTHING_LIKE_IT),
    field("return_hidden_states", NOTHING_LIKE_IT),
    field("return_indexer_topk", NOTHING_LIKE_IT),
    field("return_input_ids_in_sglext", "send `return_token_ids`"),
    field("return_output_ids_in_sglext", "send `return_token_ids`"),
    field("return_spec_tokens_details", NOTHING_LIKE_IT),
    given("sampling_seed", "send `seed`"),
    field("session_params", "send the whole conversation, and name it by `session_id`"),
    field("stop_regex", NOTHING_LIKE_IT),
    field("watermark", NOTHING_LIKE_IT),
];

/// SGLang's own fields that chats and completions read.
pub(super) const SGLANG_ON_CHATS: [ForeignField; 4] = [
    field("extra_key", "send `cache_salt`"),
    field("no_stop_trim", "send `include_stop_str_in_output`"),
    field("return_routed_experts", "chats and completions have it"),
    field("rid", "send `request_id`"),
];

/// SGLang's own fields (0.5.23, `srt/managers/io_struct.py`) of requests with ids that change what is sampled or answered.
pub(super) const SGLANG_ON_IDS: [ForeignField; 12] = [
    number_or_off("max_thinking_tokens", "`thinking_token_budget` of /v1/chat/completions ends thoughts"),
    field("multi_item_delimiter_indices", NOTHING_LIKE_IT),
    field("positional_embed_overrides", "send ids"),
    field("require_reasoning", "send messages to /v1/chat/completions"),
    field("return_entropy", NOTHING_LIKE_IT),
    field("return_flat_raw_output_top_logprobs", "each token has its alternatives beside it here"),
    field("return_flat_raw_top_logprobs", "each token has its alternatives beside it here"),
    field("return_flat_raw_top_logprobs_b64", "each token has its alternatives beside it here"),
    field("return_hidden_states", NOTHING_LIKE_IT),
    field("return_indexer_topk", NOTHING_LIKE_IT),
    field("token_indices_to_pool", NOTHING_LIKE_IT),
    field("watermark", NOTHING_LIKE_IT),
];

/// What only chats show beside an answer.
pub(super) const SHOWN_BY_CHATS: [ForeignField; 3] = [
    field("return_meta_info", "/v1/chat/completions has it"),
    field("return_prompt_text", "/v1/chat/completions has it"),
    field("return_prompt_token_ids", "send `return_token_ids`"),
];
