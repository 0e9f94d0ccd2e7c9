//! The names of `sampling_params` that vLLM's engine has (`sampling_params.py`, `SamplingParams`). Any other name is refused:
//! it may be what another dialect calls a limit, a seed or a form of the answer.

use crate::json::{Node, NodeKind};

/// What is read, or refused with its own reason.
pub(crate) const READ: [&str; 42] = [
    "allowed_token_ids",
    "bad_words",
    "cache_salt",
    "detokenize",
    "frequency_penalty",
    "ignore_eos",
    "include_stop_str_in_output",
    "logit_bias",
    "logits_processors",
    "logprob_token_ids",
    "logprobs",
    "max_tokens",
    "min_p",
    "min_tokens",
    "n",
    "presence_penalty",
    "prompt_logprob_start",
    "prompt_logprob_token_ids",
    "prompt_logprobs",
    "repetition_detection",
    "repetition_penalty",
    "response_format",
    "return_sampling_mask",
    "return_token_ids",
    "return_tokens_as_token_ids",
    "return_weight_versions",
    "routed_experts_prompt_start",
    "seed",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "stop",
    "stop_token_ids",
    "stream_interval",
    "structured_outputs",
    "temperature",
    "thinking_token_budget",
    "top_k",
    "top_p",
    "trace_decode_token_ids",
    "truncate_prompt_tokens",
    "truncation_side",
    "use_beam_search",
];

/// Fields that change no answer here. Clients send those of vLLM where they send all that a `SamplingParams` has; verifiers sends
/// `reasoning_effort` beside ids that it has rendered with it.
const IDLE: [&str; 13] = [
    "_all_stop_token_ids",
    "_bad_words_token_ids",
    "_eos_token_id",
    "_watermarking_skipped",
    "extra_args",
    "flat_logprobs",
    "length_penalty",
    "output_kind",
    "output_text_buffer_length",
    "reasoning_effort",
    "skip_clone",
    "skip_reading_prefix_cache",
    "watermarking",
];

/// Names of other dialects, and what they are called here.
const NAMED_ELSEWHERE: [(&str, &str); 20] = [
    ("best_of", "n"),
    ("ebnf", "structured_outputs"),
    ("guided_choice", "structured_outputs"),
    ("guided_decoding", "structured_outputs"),
    ("guided_grammar", "structured_outputs"),
    ("guided_json", "structured_outputs"),
    ("guided_regex", "structured_outputs"),
    ("json_schema", "structured_outputs"),
    ("max_completion_tokens", "max_tokens"),
    ("max_new_tokens", "max_tokens"),
    ("max_output_tokens", "max_tokens"),
    ("min_new_tokens", "min_tokens"),
    ("no_stop_trim", "include_stop_str_in_output"),
    ("regex", "structured_outputs"),
    ("return_logprob", "logprobs"),
    ("sampling_seed", "seed"),
    ("stop_sequences", "stop"),
    ("structural_tag", "structured_outputs"),
    ("top_logprobs", "logprobs"),
    ("top_logprobs_num", "logprobs"),
];

/// The first name in the `sampling_params` of a body that the engine does not have, and what it is called there if it has another
/// name. A name whose value asks for nothing is passed over.
pub(crate) fn unknown<'b>(body: &'b Node<'_>) -> Option<(&'b str, Option<&'static str>)> {
    let Some(NodeKind::Object(params)) = body.get("sampling_params").map(|params| &params.kind) else { return None };
    let is_known = |name: &str| READ.contains(&name) || IDLE.contains(&name);
    let (name, _) = params.iter().find(|(name, value)| asks(value) && !is_known(name))?;
    let meant = NAMED_ELSEWHERE.iter().find(|(elsewhere, _)| elsewhere == name);
    Some((name, meant.map(|(_, here)| *here)))
}

/// Whether a value asks for something. SkyRL sends all of its own parameters, some of which may be empty.
fn asks(value: &Node<'_>) -> bool {
    match &value.kind {
        NodeKind::Null => false,
        NodeKind::List(items) => !items.is_empty(),
        NodeKind::Object(fields) => !fields.is_empty(),
        _ => true,
    }
}
