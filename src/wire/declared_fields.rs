//! Fields are named twice: in vLLM's rules for them, and in the types that they are read into. Both must name the same
//! fields, except for those that are named here.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    chat_completions, completions,
    fields::{sampling, stream_options, structured},
    messages, responses, tokenize,
};
use crate::{foreign_fields::engine_params, pydantic::Schema};

/// Returns the field names that rules declare.
fn declared(schema: &'static Schema) -> BTreeSet<&'static str> {
    match schema {
        Schema::Object(_, fields) => fields.iter().map(|field| field.name).collect(),
        Schema::Union(branches) => branches.iter().flat_map(|branch| declared(&branch.schema)).collect(),
        Schema::Checked(schema, _) | Schema::Nullable(schema) => declared(schema),
        _ => BTreeSet::new(),
    }
}

/// Returns the field names that a type reads, as its description in the OpenAPI document lists them.
fn read<'d>(document: &'d Value, name: &str) -> BTreeSet<&'d str> {
    fn collect<'d>(document: &'d Value, schema: &'d Value, names: &mut BTreeSet<&'d str>) {
        if let Some(name) = schema["$ref"].as_str() {
            let name = name.rsplit('/').next().unwrap_or_default();
            collect(document, &document["components"]["schemas"][name], names);
        }
        schema["allOf"].as_array().into_iter().flatten().for_each(|schema| collect(document, schema, names));
        names.extend(schema["properties"].as_object().into_iter().flatten().map(|(name, _)| name.as_str()));
    }
    let schema = &document["components"]["schemas"][name];
    assert!(schema.is_object(), "{name}");
    let mut names = BTreeSet::new();
    collect(document, schema, &mut names);
    names
}

/// Compares the rules with the type. The only allowed differences are `idle`, vLLM's fields that change nothing here,
/// and `own`, fields that vLLM does not have.
fn compare(schema: &'static Schema, name: &str, idle: &[&str], own: &[&str]) {
    let document: Value = serde_json::from_str(include_str!("../../openapi/openapi.json")).unwrap();
    let (declared, read) = (declared(schema), read(&document, name));
    let only = |these: &BTreeSet<&str>, those: &BTreeSet<&str>| {
        these.difference(those).map(|name| (*name).to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(only(&declared, &read), idle, "{name}: declared and not read");
    assert_eq!(only(&read, &declared), own, "{name}: read and not declared");
}

#[test]
fn the_rules_of_a_chat_name_its_fields() {
    compare(
        chat_completions::rules::RULES.schema,
        "ChatCompletionRequest",
        &[
            "ec_transfer_params",
            "length_penalty",
            "mm_payload",
            "priority",
            "return_mm_kwargs",
            "return_token_offsets",
            "user",
            "watermarking",
        ],
        &[
            "extra_key",
            "input_ids",
            "logits_processors",
            "no_stop_trim",
            "prompt_cache_key",
            "prompt_token_ids",
            "required_prefix_token_ids",
            "return_meta_info",
            "return_prompt_token_ids",
            "return_routed_experts",
            "return_sampling_mask",
            "return_token_continuity",
            "rid",
            "routed_experts",
            "routed_experts_start_len",
            "sampling_logprobs_mode",
            "separate_reasoning",
            "tokens",
        ],
    );
}

#[test]
fn the_rules_of_a_text_completion_name_its_fields() {
    compare(
        completions::rules::RULES.schema,
        "CompletionRequest",
        &[
            "ec_transfer_params",
            "kv_transfer_params",
            "length_penalty",
            "mm_payload",
            "priority",
            "return_mm_kwargs",
            "return_token_offsets",
            "user",
            "watermarking",
        ],
        &[
            "extra_key",
            "logits_processors",
            "no_stop_trim",
            "prompt_cache_key",
            "return_routed_experts",
            "return_sampling_mask",
            "rid",
            "routed_experts",
            "routed_experts_start_len",
            "sampling_logprobs_mode",
            "separate_reasoning",
        ],
    );
}

#[test]
fn the_rules_of_a_response_name_its_fields() {
    compare(
        responses::rules::RULES.schema,
        "ResponsesRequest",
        &["mm_payload", "priority", "return_mm_kwargs"],
        &[
            "context_management",
            "conversation",
            "logits_processors",
            "logprob_token_ids",
            "mm_processor_kwargs",
            "n",
            "previous_input_messages",
            "prompt",
            "prompt_logprobs",
            "prompt_token_ids",
            "required_prefix_token_ids",
            "response_format",
            "return_sampling_mask",
            "return_token_continuity",
            "return_weight_versions",
            "routed_experts_prompt_start",
            "spaces_between_special_tokens",
            "thinking_token_budget",
            "tool_choice",
            "truncate_prompt_tokens",
            "truncation_side",
            "use_beam_search",
        ],
    );
}

#[test]
fn the_rules_of_a_message_name_its_fields() {
    for rules in [&messages::rules::MESSAGES_RULES, &messages::rules::COUNT_TOKENS_RULES] {
        compare(
            rules.schema,
            "MessagesRequest",
            &["ec_transfer_params", "mm_payload", "return_mm_kwargs", "watermarking"],
            &[
                "add_generation_prompt",
                "allowed_token_ids",
                "bad_words",
                "container",
                "context_management",
                "continue_final_message",
                "frequency_penalty",
                "ignore_eos",
                "include_stop_str_in_output",
                "logit_bias",
                "logits_processors",
                "logprob_token_ids",
                "mcp_servers",
                "min_p",
                "min_tokens",
                "n",
                "presence_penalty",
                "prompt_logprobs",
                "prompt_token_ids",
                "repetition_detection",
                "repetition_penalty",
                "request_id",
                "required_prefix_token_ids",
                "response_format",
                "return_sampling_mask",
                "return_token_continuity",
                "return_token_ids",
                "return_tokens_as_token_ids",
                "return_weight_versions",
                "routed_experts_prompt_start",
                "seed",
                "session_id",
                "skip_special_tokens",
                "spaces_between_special_tokens",
                "stop",
                "stop_token_ids",
                "stream_interval",
                "structured_outputs",
                "thinking_token_budget",
                "truncate_prompt_tokens",
                "truncation_side",
                "use_beam_search",
            ],
        );
    }
}

#[test]
fn the_rules_of_tokens_name_their_fields() {
    compare(
        tokenize::rules::TOKENIZE_RULES.schema,
        "TokenizeRequest",
        &[],
        &[
            "cache_salt",
            "documents",
            "kv_transfer_params",
            "prompt_cache_key",
            "prompt_token_ids",
            "reasoning_effort",
            "required_prefix_token_ids",
            "return_token_continuity",
            "session_id",
            "stop_token_ids",
        ],
    );
    compare(tokenize::rules::DETOKENIZE_RULES.schema, "DetokenizeRequest", &[], &[]);
}

#[test]
fn the_rules_of_fields_with_fields_of_their_own_name_these() {
    compare(&sampling::field::DETECTION, "RepetitionFields", &[], &[]);
    compare(&stream_options::STREAM_OPTIONS, "StreamOptions", &[], &[]);
    compare(&structured::rules::STRUCTURED_OUTPUTS, "StructuredOutputs", &[], &["disable_fallback"]);
    // It is refused, where vLLM ignores it.
    compare(&structured::rules::RESPONSE_FORMAT, "ResponseFormat", &[], &["schema"]);
}

#[test]
fn the_parameters_of_the_engine_are_those_that_are_read() {
    let document: Value = serde_json::from_str(include_str!("../../openapi/openapi.json")).unwrap();
    assert_eq!(read(&document, "SamplingParamsFields"), BTreeSet::from(engine_params::READ));
}
