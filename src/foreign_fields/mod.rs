//! Fields of other endpoints and dialects that an endpoint does not serve. A field that would change what is sampled, or what an
//! answer says, is refused with what to send instead. Whatever else an endpoint does not know is ignored, as vLLM ignores it:
//! clients send `user`, `metadata` or `store` everywhere. `messages`, `prompt` and `input` are ignored too, since each endpoint demands
//! its own one of them.
//!
//! This module knows names of fields, and which values ask for something. It knows no endpoint's own fields, and no HTTP.

pub(crate) mod engine_params;
mod field;
mod of_sglang;

pub(crate) use field::ForeignField;

use crate::json::{Node, NodeKind};
use field::{NOTHING_LIKE_IT, field, given, number_of_answers, position, switch};
use of_sglang::{SGLANG, SGLANG_LOGPROBS, SGLANG_ON_CHATS, SGLANG_ON_IDS, SHOWN_BY_CHATS};

/// What an endpoint does not serve.
#[derive(Debug)]
pub(crate) struct ForeignFields {
    /// What the requests of the endpoint are called.
    pub(crate) of: &'static str,
    /// In groups that endpoints share, each in the order of names.
    pub(crate) groups: &'static [&'static [ForeignField]],
}

impl ForeignFields {
    /// For a body that takes every field, or whose reader knows all of them.
    pub(crate) const NONE: Self = Self { of: "requests", groups: &[] };

    /// Returns the first field of a body that asks for something which the endpoint does not serve.
    pub(crate) fn first_in(&self, body: &Node<'_>) -> Option<&'static ForeignField> {
        let NodeKind::Object(members) = &body.kind else { return None };
        members.iter().find_map(|(name, value)| self.named(name).filter(|field| (field.asks)(value, body)))
    }

    fn named(&self, name: &str) -> Option<&'static ForeignField> {
        self.groups.iter().find_map(|group| {
            let place = group.binary_search_by_key(&name, |field| field.name).ok()?;
            Some(&group[place])
        })
    }
}

const AS_PARTS: &str = "send images as parts of a message's `content`";
const FORM: &str = "the form of an answer is `response_format` on chats and completions, `text.format` on responses";

/// Other forms of a prompt, of SGLang and of requests that are in ids already.
const OTHER_PROMPTS: [ForeignField; 6] = [
    field("audio_data", NOTHING_LIKE_IT),
    field("content_parts", AS_PARTS),
    field("features", AS_PARTS),
    field("image_data", AS_PARTS),
    field("input_embeds", "send text or ids"),
    field("video_data", NOTHING_LIKE_IT),
];

/// What vLLM's `/inference/v1/generate` scores of a prompt.
const SCORING: [ForeignField; 2] = [
    given("prompt_logprob_start", "/inference/v1/generate has it"),
    given("prompt_logprob_token_ids", "/inference/v1/generate has it"),
];

/// What tools were before they were tools: the model would call nothing.
const OLDER_FUNCTIONS: [ForeignField; 2] =
    [field("function_call", "send `tools` and `tool_choice`"), field("functions", "send `tools` and `tool_choice`")];

/// vLLM's earlier names of the form of an answer.
const GUIDED: [ForeignField; 7] = [
    field("guided_choice", "send the answers as `structured_outputs`: {\"choice\": ...}"),
    field("guided_grammar", "send the grammar as `structured_outputs`: {\"grammar\": ...}"),
    field("guided_json", "send the schema as `structured_outputs`: {\"json\": ...}"),
    field("guided_json_object", "send `structured_outputs`: {\"json_object\": true}"),
    field("guided_regex", "send the expression as `structured_outputs`: {\"regex\": ...}"),
    field("guided_whitespace_pattern", "send it in `structured_outputs`, as `whitespace_pattern`"),
    field("structural_tag", "send the tag as `structured_outputs`: {\"structural_tag\": ...}"),
];

/// Anthropic's fields, for the dialects of OpenAI.
const ANTHROPIC: [ForeignField; 4] = [
    field("container", NOTHING_LIKE_IT),
    field("mcp_servers", NOTHING_LIKE_IT),
    ForeignField {
        name: "output_config",
        instead: FORM,
        // LiteLLM lets the effort of Claude Code through, which is no field of chats.
        asks: |value, _| value.get("format").is_some_and(Node::is_truthy),
    },
    field("output_format", FORM),
];

/// What the dialects of chats and completions call otherwise than responses do.
const RESPONSES: [ForeignField; 6] = [
    field("conversation", "send all messages"),
    field("enable_response_messages", "send `return_token_ids`"),
    field("instructions", "send a system message"),
    field("previous_input_messages", "send all messages"),
    field("previous_response_id", "send all messages"),
    field("text", "the form of an answer is `response_format`"),
];

/// Of `/v1/chat/completions`.
pub(crate) static OF_CHATS: ForeignFields = ForeignFields {
    of: "chats",
    groups: &[
        &OTHER_PROMPTS,
        &SCORING,
        &SGLANG_LOGPROBS,
        &SGLANG,
        &OLDER_FUNCTIONS,
        &GUIDED,
        &ANTHROPIC,
        &RESPONSES,
        &[
            field("audio", NOTHING_LIKE_IT),
            number_of_answers("best_of", "send `n`, and choose among the answers"),
            field("max_new_tokens", "send `max_completion_tokens`"),
            field("max_output_tokens", "send `max_completion_tokens`"),
            ForeignField {
                name: "modalities",
                instead: "answers are text",
                asks: |value, _| match &value.kind {
                    NodeKind::List(kinds) => kinds.nodes().any(|kind| kind.as_str() != Some("text")),
                    _ => value.is_truthy(),
                },
            },
            field("prompt_embeds", "send messages or ids"),
            field("sampling_params", "its fields are fields of the request here"),
            field("suffix", NOTHING_LIKE_IT),
            field("system", "send a system message"),
            given("token_ids", "send them as `prompt_token_ids`"),
            given("web_search_options", "this server searches nothing: send a tool that your client runs"),
        ],
    ],
};

/// Of `/v1/completions`.
pub(crate) static OF_COMPLETIONS: ForeignFields = ForeignFields {
    of: "text completions",
    groups: &[
        &OTHER_PROMPTS,
        &SCORING,
        &SGLANG_LOGPROBS,
        &SGLANG,
        &SHOWN_BY_CHATS,
        &GUIDED,
        &ANTHROPIC,
        &RESPONSES,
        &[
            number_of_answers("best_of", "send `n`, and choose among the answers"),
            field("functions", "send messages to /v1/chat/completions"),
            given("input_ids", "send the ids as `prompt`"),
            ForeignField {
                name: "kv_transfer_params",
                instead: "its `prompt_token_ids` are `prompt` here",
                asks: |value, _| value.get("prompt_token_ids").is_some_and(|ids| !ids.is_null()),
            },
            field("max_new_tokens", "send `max_tokens`"),
            field("max_output_tokens", "send `max_tokens`"),
            given("prompt_token_ids", "send the ids as `prompt`"),
            given("required_prefix_token_ids", "send the ids as `prompt`"),
            field("sampling_params", "its fields are fields of the request here"),
            field("system", "send messages to /v1/chat/completions"),
            given("token_ids", "send the ids as `prompt`"),
            given("tokens", "send the ids as `prompt`"),
            field("tools", "send messages to /v1/chat/completions"),
            field("top_logprobs", "`logprobs` says how many there are"),
        ],
    ],
};

/// Of `/v1/messages`.
pub(crate) static OF_MESSAGES: ForeignFields = ForeignFields {
    of: "messages",
    groups: &[
        &OTHER_PROMPTS,
        &SCORING,
        &SGLANG_LOGPROBS,
        &SGLANG,
        &SHOWN_BY_CHATS,
        &OLDER_FUNCTIONS,
        &GUIDED,
        &SGLANG_ON_CHATS,
        &[
            field("add_special_tokens", "the template writes them"),
            number_of_answers("best_of", NOTHING_LIKE_IT),
            field("chat_template", "start the server with --chat-template"),
            field("conversation", "send all messages"),
            field("documents", "send them as text of a message"),
            field("echo", "send `return_prompt_text` to /v1/chat/completions"),
            switch(
                "include_reasoning",
                "a conversation goes on from blocks of thoughts; leave them out of what you read",
            ),
            field("input_ids", "send `prompt_token_ids`"),
            field("instructions", "send `system`"),
            field("logprob_token_ids", "chats and completions have it"),
            field("logprobs", "send `return_token_ids`: `generation_log_probs` are beside the ids"),
            field("max_completion_tokens", "send `max_tokens`"),
            field("max_output_tokens", "send `max_tokens`"),
            field("media_io_kwargs", "the server's settings hold for all requests"),
            field("mm_processor_kwargs", "the server's settings hold for all requests"),
            switch("parallel_tool_calls", "send `tool_choice.disable_parallel_tool_use`"),
            field("previous_input_messages", "send all messages"),
            field("previous_response_id", "send all messages"),
            field("prompt_embeds", "send messages or ids"),
            field("reasoning", "send `thinking` and `output_config.effort`"),
            field("reasoning_effort", "send `output_config.effort`"),
            field("routed_experts", "chats and completions have it"),
            field("sampling_params", "its fields are fields of the request here"),
            field("suffix", NOTHING_LIKE_IT),
            field("text", "the form of an answer is `output_config.format`"),
            given("token_ids", "send `prompt_token_ids`"),
            given("tokens", "send `prompt_token_ids`"),
            field("top_logprobs", "chats and completions have it"),
        ],
    ],
};

/// Of `/v1/responses`.
pub(crate) static OF_RESPONSES: ForeignFields = ForeignFields {
    of: "responses",
    groups: &[
        &OTHER_PROMPTS,
        &SCORING,
        &SGLANG_LOGPROBS,
        &SGLANG,
        &SHOWN_BY_CHATS,
        &OLDER_FUNCTIONS,
        &GUIDED,
        &SGLANG_ON_CHATS,
        &ANTHROPIC,
        &[
            switch("add_generation_prompt", "a response is always an answer"),
            field("add_special_tokens", "the template writes them"),
            number_of_answers("best_of", NOTHING_LIKE_IT),
            field("continue_final_message", "an `input` that ends with an answer which was cut off is continued"),
            field("documents", "send them as text of a message"),
            field("echo", "send `enable_response_messages`"),
            field("input_ids", "send `prompt_token_ids`"),
            field("logprobs", "send `include`: [\"message.output_text.logprobs\"]"),
            field("max_completion_tokens", "send `max_output_tokens`"),
            field("prompt_embeds", "send items or ids"),
            field("reasoning_effort", "send `reasoning.effort`"),
            field("routed_experts", "chats and completions have it"),
            field("sampling_params", "its fields are fields of the request here"),
            field("stop_sequences", "send `stop`"),
            field("suffix", NOTHING_LIKE_IT),
            field("system", "send `instructions`"),
            given("token_ids", "send `prompt_token_ids`"),
            given("tokens", "send `prompt_token_ids`"),
        ],
    ],
};

/// Of `/tokenize`: what another endpoint has, and ids would follow.
pub(crate) static OF_TOKENIZE: ForeignFields = ForeignFields {
    of: "`/tokenize`",
    groups: &[
        &OLDER_FUNCTIONS,
        &[
            field("image_data", AS_PARTS),
            field("input_embeds", "send text"),
            field("input_ids", "send `prompt_token_ids`"),
            field("instructions", "send a system message"),
            field("previous_response_id", "send all messages"),
            field("prompt_embeds", "send text"),
            field("system", "send a system message"),
            given("token_ids", "send `prompt_token_ids`"),
            given("tokens", "send `prompt_token_ids`"),
            field("truncate_prompt_tokens", "nothing is cut off here"),
        ],
    ],
};

/// What samples, of which SGLang's and vLLM's requests with ids have an object of their own.
const SAMPLING: [ForeignField; 45] = [
    field("allowed_token_ids", IN_SAMPLING_PARAMS),
    field("bad_words", IN_SAMPLING_PARAMS),
    field("custom_logit_processor", NOTHING_LIKE_IT),
    field("custom_params", NOTHING_LIKE_IT),
    field("ebnf", IN_SAMPLING_PARAMS),
    field("frequency_penalty", IN_SAMPLING_PARAMS),
    field("guided_choice", IN_SAMPLING_PARAMS),
    field("guided_grammar", IN_SAMPLING_PARAMS),
    field("guided_json", IN_SAMPLING_PARAMS),
    field("guided_regex", IN_SAMPLING_PARAMS),
    field("ignore_eos", IN_SAMPLING_PARAMS),
    field("include_stop_str_in_output", IN_SAMPLING_PARAMS),
    field("json_schema", IN_SAMPLING_PARAMS),
    field("logit_bias", IN_SAMPLING_PARAMS),
    field("logits_processors", NOTHING_LIKE_IT),
    field("max_completion_tokens", IN_SAMPLING_PARAMS),
    field("max_new_tokens", IN_SAMPLING_PARAMS),
    field("max_output_tokens", IN_SAMPLING_PARAMS),
    field("max_tokens", IN_SAMPLING_PARAMS),
    field("min_new_tokens", IN_SAMPLING_PARAMS),
    field("min_p", IN_SAMPLING_PARAMS),
    field("min_tokens", IN_SAMPLING_PARAMS),
    number_of_answers("n", IN_SAMPLING_PARAMS),
    field("no_stop_trim", IN_SAMPLING_PARAMS),
    field("presence_penalty", IN_SAMPLING_PARAMS),
    field("regex", IN_SAMPLING_PARAMS),
    field("repetition_detection", IN_SAMPLING_PARAMS),
    field("repetition_penalty", IN_SAMPLING_PARAMS),
    field("response_format", IN_SAMPLING_PARAMS),
    given("sampling_seed", IN_SAMPLING_PARAMS),
    given("seed", IN_SAMPLING_PARAMS),
    switch("skip_special_tokens", IN_SAMPLING_PARAMS),
    switch("spaces_between_special_tokens", IN_SAMPLING_PARAMS),
    field("stop", IN_SAMPLING_PARAMS),
    field("stop_regex", NOTHING_LIKE_IT),
    field("stop_sequences", IN_SAMPLING_PARAMS),
    field("stop_token_ids", IN_SAMPLING_PARAMS),
    field("structural_tag", IN_SAMPLING_PARAMS),
    field("structured_outputs", IN_SAMPLING_PARAMS),
    given("temperature", IN_SAMPLING_PARAMS),
    field("thinking_token_budget", IN_SAMPLING_PARAMS),
    field("top_k", IN_SAMPLING_PARAMS),
    field("top_p", IN_SAMPLING_PARAMS),
    field("truncate_prompt_tokens", "nothing is cut off here"),
    field("use_beam_search", NOTHING_LIKE_IT),
];

const IN_SAMPLING_PARAMS: &str = "how to sample is said in `sampling_params`";

/// Of SGLang's `/generate`.
pub(crate) static OF_SGLANG_GENERATE: ForeignFields = ForeignFields {
    of: "`/generate`",
    groups: &[
        &SAMPLING,
        &OTHER_PROMPTS,
        &SGLANG_ON_IDS,
        &[
            number_of_answers("best_of", "send `n` in `sampling_params`, and choose among the answers"),
            field("echo", "send `logprob_start_len`: 0"),
            field("logprob_token_ids", "send `token_ids_logprob`"),
            field("logprobs", "send `return_logprob`"),
            field("lora_id", "name the adapter as `lora_path`"),
            field("lora_name", "name the adapter as `lora_path`"),
            field("prompt_embeds", "send text or ids"),
            field("prompt_logprobs", "send `logprob_start_len`: 0"),
            field("prompt_token_ids", "send `input_ids`"),
            field("required_prefix_token_ids", "send all ids as `input_ids`"),
            field("return_prompt_text", "/v1/chat/completions has it"),
            field("routed_experts", "chats and completions have it"),
            field("session_params", "send the whole conversation, and name it by `session_id`"),
            given("token_ids", "send `input_ids`"),
            given("tokens", "send `input_ids`"),
            field("top_logprobs", "send `top_logprobs_num`"),
        ],
    ],
};

/// Of vLLM's `/inference/v1/generate`.
pub(crate) static OF_GENERATE: ForeignFields = ForeignFields {
    of: "`/inference/v1/generate`",
    groups: &[
        &SAMPLING,
        &SGLANG_ON_IDS,
        &[
            number_of_answers("best_of", "send `n` in `sampling_params`, and choose among the answers"),
            field("echo", "send `prompt_logprobs` in `sampling_params`"),
            field("extra_key", "send `cache_salt`"),
            field("input_ids", "send `token_ids`"),
            position("logprob_start_len", "send `prompt_logprobs` in `sampling_params`"),
            field("logprob_token_ids", IN_SAMPLING_PARAMS),
            field("logprobs", IN_SAMPLING_PARAMS),
            field("lora_path", "name the adapter as `model`"),
            field("prompt_embeds", "send `token_ids`"),
            given("prompt_logprob_start", IN_SAMPLING_PARAMS),
            given("prompt_logprob_token_ids", IN_SAMPLING_PARAMS),
            given("prompt_logprobs", IN_SAMPLING_PARAMS),
            field("prompt_token_ids", "send `token_ids`"),
            field("required_prefix_token_ids", "send all ids as `token_ids`"),
            field("return_logprob", "send `logprobs` in `sampling_params`"),
            field("return_meta_info", "/v1/chat/completions has it"),
            field("return_prompt_text", "/v1/chat/completions has it"),
            field("return_prompt_token_ids", "they are the `token_ids` that you send"),
            field(
                "return_routed_experts",
                "answers have them on a server with --enable-return-routed-experts; leave it out",
            ),
            field("return_sampling_mask", IN_SAMPLING_PARAMS),
            field("rid", "send `request_id`"),
            field("routed_experts_prompt_start", IN_SAMPLING_PARAMS),
            field("routed_experts_start_len", "send `routed_experts_prompt_start` in `sampling_params`"),
            field("session_params", "send all ids, and name the conversation by `session_id`"),
            field("token_ids_logprob", "send `logprob_token_ids` in `sampling_params`"),
            given("tokens", "send `token_ids`"),
            field("top_logprobs", "send `logprobs` in `sampling_params`"),
            field("top_logprobs_num", "send `logprobs` in `sampling_params`"),
            field("trace_decode_token_ids", NOTHING_LIKE_IT),
        ],
    ],
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Document;

    const ALL: [&ForeignFields; 7] =
        [&OF_CHATS, &OF_COMPLETIONS, &OF_MESSAGES, &OF_RESPONSES, &OF_TOKENIZE, &OF_SGLANG_GENERATE, &OF_GENERATE];

    #[test]
    fn every_group_is_in_the_order_of_names_and_none_repeats_another() {
        for fields in ALL {
            let names = |group: &&[ForeignField]| group.iter().map(|field| field.name).collect::<Vec<_>>();
            let groups: Vec<Vec<&str>> = fields.groups.iter().map(names).collect();
            assert!(groups.iter().all(|names| names.is_sorted()), "{}: {groups:?}", fields.of);
            let mut names = groups.concat();
            let all = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), all, "{}", fields.of);
        }
    }

    #[test]
    fn a_field_is_found_by_what_its_value_asks_for() {
        let found = |fields: &ForeignFields, body: &str| {
            fields.first_in(&Document::parse(body).unwrap().root).map(|field| field.name)
        };
        assert_eq!(found(&OF_RESPONSES, r#"{"input":"a","user":"b","rid":"c"}"#), Some("rid"));
        assert_eq!(found(&OF_RESPONSES, r#"{"best_of":null,"stop_regex":"","echo":false,"rid":[]}"#), None);
        assert_eq!(found(&OF_RESPONSES, r#"{"add_generation_prompt":true}"#), None);
        assert_eq!(found(&OF_RESPONSES, r#"{"add_generation_prompt":false}"#), Some("add_generation_prompt"));
        assert_eq!(found(&OF_CHATS, r#"{"best_of":1}"#), None);
        assert_eq!(found(&OF_CHATS, r#"{"best_of":2}"#), Some("best_of"));
        assert_eq!(found(&OF_CHATS, r#"{"output_config":{"effort":"low"},"model":"a","lora_path":"a"}"#), None);
        assert_eq!(found(&OF_CHATS, r#"{"output_config":{"format":{"a":1}}}"#), Some("output_config"));
        assert_eq!(found(&OF_CHATS, r#"{"model":"a","lora_path":"b"}"#), Some("lora_path"));
        // A seed of 0 is one, and a temperature of 0 is greedy.
        assert_eq!(found(&OF_GENERATE, r#"{"seed":0}"#), Some("seed"));
        assert_eq!(found(&OF_SGLANG_GENERATE, r#"{"temperature":0}"#), Some("temperature"));
        assert_eq!(found(&OF_SGLANG_GENERATE, r#"{"lora_name":null,"lora_id":["a"]}"#), Some("lora_id"));
        assert_eq!(
            found(&OF_GENERATE, r#"{"return_logprob":false,"best_of":1,"top_logprobs_num":0,"rid":null}"#),
            None
        );
        assert_eq!(found(&OF_GENERATE, r#"{"spaces_between_special_tokens":true}"#), None);
        assert_eq!(found(&OF_CHATS, "[]"), None);
    }
}
