//! The rules by which vLLM 0.32 declares a chat completion (`chat_completion/protocol.py`), field by field in its
//! order, and its checks before those of types. Fields that only tito has are left to serde.

use crate::{
    json::Node,
    pydantic::{
        Schema::{self, Any, Bool, Dict, Float, List, Literal, Nullable, Object, Str},
        Shape::Model,
        joined, optional, required,
        scalars::{INT64, NULLABLE_BOOL, NULLABLE_DICT, NULLABLE_FLOAT, NULLABLE_IDS, NULLABLE_INT, NULLABLE_STR},
    },
    wire::{
        body::Rules,
        fields::{
            before::{Checked, is_minus_one, is_true, iterable, not_negative, number, refuse},
            cache_salt,
            chat_messages::{MESSAGE, generation_prompt, normalize},
            sampling::rules::{
                EXTENSIONS, NO_LOGPROBS, REQUEST, SAMPLER, STOP, STREAM_INTERVAL, beam_search, prompt_logprobs,
            },
            stream_options::{self, STREAM_OPTIONS},
            structured::rules::{RESPONSE_FORMAT, STRUCTURED_OUTPUTS, response_format, structured_outputs},
            thinking_budget::check_budget,
            tools::{TOOL_CHOICE, TOOLS, tool_usage},
        },
    },
};

/// The rules that the body of a chat completion must keep.
pub(crate) static RULES: Rules = Rules { before: Some(check), checks_calls: true, ..Rules::new(&CHAT) };

const REASONING_EFFORT: Schema = Nullable(&Literal(&["none", "minimal", "low", "medium", "high", "xhigh", "max"]));

/// The fields of `POST /v1/chat/completions`.
static CHAT: Schema = Object(
    Model,
    &joined::<69>(&[
        &[
            required("messages", List(&MESSAGE)),
            optional("model", NULLABLE_STR),
            optional("frequency_penalty", NULLABLE_FLOAT),
            optional("logit_bias", Nullable(&Dict(&Float))),
            optional("logprobs", NULLABLE_BOOL),
            optional("top_logprobs", NULLABLE_INT),
            optional("max_tokens", NULLABLE_INT),
            optional("max_completion_tokens", NULLABLE_INT),
            optional("n", NULLABLE_INT),
            optional("presence_penalty", NULLABLE_FLOAT),
            optional("response_format", Nullable(&RESPONSE_FORMAT)),
            optional("seed", Nullable(&INT64)),
            optional("stop", STOP),
            optional("stream", NULLABLE_BOOL),
            optional("stream_options", STREAM_OPTIONS),
            optional("temperature", NULLABLE_FLOAT),
            optional("top_p", NULLABLE_FLOAT),
            optional("tools", TOOLS),
            optional("tool_choice", TOOL_CHOICE),
            optional("reasoning_effort", REASONING_EFFORT),
            optional("thinking_token_budget", NULLABLE_INT),
            optional("include_reasoning", Bool),
            optional("parallel_tool_calls", NULLABLE_BOOL),
            optional("user", NULLABLE_STR),
        ],
        &SAMPLER,
        &[
            optional("prompt_logprobs", NULLABLE_INT),
            optional("logprob_token_ids", NULLABLE_IDS),
            optional("allowed_token_ids", NULLABLE_IDS),
            optional("bad_words", List(&Str)),
            optional("echo", Bool),
            optional("add_generation_prompt", Bool),
            optional("continue_final_message", Bool),
            optional("add_special_tokens", Bool),
            optional("documents", Nullable(&List(&Dict(&Str)))),
            optional("chat_template", NULLABLE_STR),
            optional("chat_template_kwargs", NULLABLE_DICT),
            optional("media_io_kwargs", Nullable(&Dict(&Dict(&Any)))),
            optional("mm_processor_kwargs", NULLABLE_DICT),
            optional("structured_outputs", STRUCTURED_OUTPUTS),
        ],
        &REQUEST,
        &[optional("return_prompt_text", NULLABLE_BOOL)],
        &EXTENSIONS,
        &[optional("stream_interval", STREAM_INTERVAL)],
    ]),
);

fn check(body: &mut Node<'_>) -> Checked {
    if let Some(messages) = body.get("messages") {
        iterable(messages)?;
    }
    generation_prompt(body)?;
    tool_usage(body)?;
    structured_outputs(body, None)?;
    logprobs(body)?;
    stream_options::check(body)?;
    response_format(body)?;
    normalize(body)?;
    cache_salt::check(body.get("cache_salt"))?;
    check_budget(body)
}

fn logprobs(body: &Node<'_>) -> Checked {
    beam_search(body)?;
    if is_true(body, "logprob_token_ids") && !is_true(body, "logprobs") {
        return refuse("logprob_token_ids", NO_LOGPROBS);
    }
    let (of_prompt, top) = (number(body, "prompt_logprobs")?, number(body, "top_logprobs")?);
    prompt_logprobs(body, of_prompt)?;
    not_negative(body, "top_logprobs", top)?;
    if top.is_some_and(|top| top > 0.0 || is_minus_one(top)) && !is_true(body, "logprobs") {
        return refuse("top_logprobs", NO_TOP_LOGPROBS);
    }
    Ok(())
}

/// The refusal of alternatives without log-probs.
pub(crate) const NO_TOP_LOGPROBS: &str = "when using `top_logprobs`, `logprobs` must be set to true.";
