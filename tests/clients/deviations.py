"""Where tito's answers differ from the recorded ones on purpose, by the words of docs/vllm-compatibility.md that say why.

Of each exchange the places that differ, as patterns. One that no longer differs fails its test.
"""

STATUS = ["status"]
NAMED_BY_NEMO_GYM = [r"\.error\.(message|param)"]
MODELS_OWN = [r"\.choices\[0\]\.logprobs\.content\[\d+\]\.logprob"]
IN_WHOLE_CALLS = ["events"]
CUT_OFF = [r"\.output\[0\]\.status"]

DEVIATIONS = {
    "NeMo-RL's own web application": {
        "nemo_real/chat_err_empty_messages": [r"\.error\.(param|type)"],
        "nemo_real/chat_err_missing_messages": STATUS,
        "nemo_real/chat_err_no_top_p": STATUS,
        "nemo_real/chat_err_too_long": [r"\.error\.(param|type)"],
        "nemo_real/chat_err_top_k": STATUS,
        "nemo_real/chat_err_wrong_temperature": STATUS,
        "nemo_real/chat_model_is_path": STATUS,
        "nemo_real/completions": STATUS,
        "nemo_real/err_wrong_content_type": STATUS,
        "nemo_real/get_models": STATUS,
        "nemo_real/get_version": STATUS,
    },
    "A continued prompt that is longer than the context": {
        "patched/chat_prefix_too_long_no_max": NAMED_BY_NEMO_GYM,
    },
    "| continues from the latest assistant message that has both lists |": {
        "patched/tokenize_ids_on_earlier_assistant_only": [r"\.(count|tokens)"],
    },
    "| refuses one list without the other (400) |": {
        "nemo_real/tokenize_only_prompt_ids": STATUS,
        "patched/tokenize_only_generation_ids": STATUS,
        "patched/tokenize_only_prompt_ids": STATUS,
    },
    "| takes two nulls or two empty lists for a message without ids |": {
        "nemo_real/tokenize_null_ids": STATUS,
        "patched/tokenize_null_ids": STATUS,
    },
    "| refuses what is no id of the vocabulary (400) |": {
        "patched/tokenize_prefix_out_of_vocab": STATUS,
        "patched/tokenize_string_ids": STATUS,
    },
    "vLLM itself ignores `prompt_token_ids` and `generation_token_ids` on messages": {
        "plain/chat_extra_message_fields": [
            r"\.prompt_token_ids",
            r"\.choices\[0\]\.(finish_reason|token_ids|message\.content)",
            r"\.usage\.(completion|prompt|total)_tokens",
        ],
        "plain/tokenize_messages_extra_fields": [r"\.(count|tokens)"],
    },
    "**`guided_json`, `guided_regex`, `guided_choice`, `guided_grammar`, `structural_tag`, which `structured_outputs` replaced.**": {
        "plain/chat_guided_regex_legacy": STATUS,
    },
    "**`parallel_tool_calls: false` (`disable_parallel_tool_use`).**": {
        "tools/chat_tools_parallel_false": [r"\.choices\[0\]\.dropped_tool_calls"],
    },
    "**`logprobs` over `--max-logprobs`.**": {
        "plain/chat_err_top_logprobs_21": [r"\.error\.message"],
        "plain/completions_logprobs_over": [r"\.error\.message"],
    },
    "**Other errors.**": {
        "plain/chat_err_max_tokens_0": NAMED_BY_NEMO_GYM,
        "plain/chat_err_max_tokens_float": NAMED_BY_NEMO_GYM,
        "plain/chat_err_max_tokens_huge": NAMED_BY_NEMO_GYM,
        "plain/chat_err_max_tokens_neg": NAMED_BY_NEMO_GYM,
        "plain/chat_err_max_tokens_str": NAMED_BY_NEMO_GYM,
        "plain/chat_err_min_gt_max": [r"\.error\.message"],
        "plain/completions_max_tokens_0": NAMED_BY_NEMO_GYM,
    },
    "**`/inference/v1/generate`, `/inference/v1/abort_requests`, `/render`, `/derender`.** tito: there.": {
        "plain/chat_render": STATUS,
        "plain/generate_inference_v1": STATUS,
    },
    "**`system_fingerprint`, `/version`.**": {
        "plain/get_version": [r"\.version"],
    },
    "**`raw_logprobs` of an answer with structured outputs or forced calls.**": {
        "tools/chat_hermes_malformed": MODELS_OWN,
        "tools/chat_hermes_one": MODELS_OWN,
        "tools/chat_hermes_text_after": MODELS_OWN,
        "tools/chat_hermes_text_then_call": MODELS_OWN,
        "tools/chat_hermes_two": MODELS_OWN,
        "tools/chat_hermes_unclosed": MODELS_OWN,
        "tools/chat_hermes_unknown_name": MODELS_OWN,
    },
    "**Arguments of forced calls (`required`, a named function).**": {
        "patched/chat_tool_parse_turn2": [
            r"\.choices\[0\]\.message\.(tool_calls\[0\]\.function\.arguments|generation_token_ids|generation_log_probs)",
            r"\.choices\[0\]\.logprobs\.content",
            r"\.usage\.(total|completion)_tokens",
        ],
        # What the schema asks for is longer than the tokens that the request leaves.
        "tools/chat_tools_named_stream": [
            r"\.choices\[0\]\.(finish_reason|delta\.tool_calls\[0\]\.function\.arguments)",
        ],
        "tools/chat_tools_required": [
            r"\.choices\[0\]\.(message\.tool_calls\[0\]\.function\.arguments|token_ids)",
            r"\.usage\.(total|completion)_tokens",
        ],
        "tools/responses_tools_required": [r"\.output\[0\]\.arguments", r"\.usage\.(total|output)_tokens"],
    },
    "**Text between calls, after them, and beside the name and the arguments of one.**": {
        "tools/chat_hermes_text_after": [r"\.choices\[0\]\.message\.content"],
    },
    "**Tool calls of a stream.**": {
        # One call that cannot be read makes all of it text, in the stream as in the JSON answer.
        "tools/chat_hermes_malformed_stream": [*IN_WHOLE_CALLS, r"\.choices\[0\]\.(finish_reason|delta\.(content|tool_calls))"],
        "tools/chat_hermes_one_stream": IN_WHOLE_CALLS,
        "tools/chat_hermes_two_stream": IN_WHOLE_CALLS,
        "tools/chat_hermes_unknown_name_stream": IN_WHOLE_CALLS,
        "tools/chat_tools_named_stream": IN_WHOLE_CALLS,
    },
    "the last item of a response that is cut off has the status `incomplete`": {
        "extras/responses_store_background_get": CUT_OFF,
        "extras/responses_store_first": CUT_OFF,
        "extras/responses_store_second_previous_response_id": CUT_OFF,
        "patched/responses_simple": CUT_OFF,
        "plain/responses_enable_response_messages": CUT_OFF,
        "plain/responses_incomplete": CUT_OFF,
        "plain/responses_metadata": CUT_OFF,
        "plain/responses_tools": CUT_OFF,
    },
    "Responses are stored without a setting": {"plain/responses_background": STATUS},
}

# Where an answer ends for another reason than vLLM recorded, and why.
FINISH_REASONS = {
    "plain/chat_extra_message_fields": "length, not stop: the ids on its messages count here, so that it is another prompt",
    "plain/chat_guided_regex_legacy": "none, not stop: the request is refused here",
    "tools/chat_hermes_malformed_stream": "stop, not tool_calls: there is no call, nor is there one in the JSON answer of vLLM",
    "tools/chat_tools_named_stream": "length, not stop: the tokens end within the arguments, which follow the schema here",
}
