//! The rules by which vLLM 0.32 declares a chat completion (`chat_completion/protocol.py`), field by field in its
//! order, and its checks before those of types. Fields that only tito has are left to serde.

use crate::{
    foreign_fields::OF_CHATS,
    json::Node,
    pydantic::{
        Schema::{self, Any, Bool, Dict, List, Literal, Nullable, Object, Str},
        Shape::Model,
        joined, optional, required,
        scalars::{NULLABLE_BOOL, NULLABLE_DICT, NULLABLE_INT, NULLABLE_STR},
    },
    wire::{
        body::Rules,
        fields::{
            cache_salt,
            chat_messages::{MESSAGE, generation_prompt, normalize},
            sampling::{
                field,
                rules::{EXTENSIONS, NO_LOGPROBS, REQUEST, SAMPLER, beam_search, prompt_logprobs},
            },
            stream_options,
            structured::rules::{response_format, structured_outputs},
            thinking_budget::check_budget,
            tools::{TOOL_CHOICE, TOOLS, tool_usage},
            untyped::{
                Checked, TWO_STOPS, is_minus_one, is_true, iterable, not_negative, number, refuse, take_spelling,
            },
        },
    },
};

/// The rules that the body of a chat completion must keep.
pub(crate) static RULES: Rules =
    Rules { before: Some(check), foreign: &OF_CHATS, checks_calls: true, ..Rules::new(&CHAT) };

const REASONING_EFFORT: Schema = Nullable(&Literal(&["none", "minimal", "low", "medium", "high", "xhigh", "max"]));

/// The fields of `POST /v1/chat/completions`.
pub(crate) static CHAT: Schema = Object(
    Model,
    &joined::<69>(&[
        &[
            required("messages", List(&MESSAGE)),
            optional("model", NULLABLE_STR),
            field::FREQUENCY_PENALTY,
            field::LOGIT_BIAS,
            optional("logprobs", NULLABLE_BOOL),
            optional("top_logprobs", NULLABLE_INT),
            field::MAX_TOKENS,
            optional("max_completion_tokens", NULLABLE_INT),
            optional("n", NULLABLE_INT),
            field::PRESENCE_PENALTY,
            field::RESPONSE_FORMAT,
            field::SEED,
            field::STOP,
            field::STREAM,
            field::STREAM_OPTIONS,
            field::TEMPERATURE,
            field::TOP_P,
            optional("tools", TOOLS),
            optional("tool_choice", TOOL_CHOICE),
            optional("reasoning_effort", REASONING_EFFORT),
            field::THINKING_TOKEN_BUDGET,
            optional("include_reasoning", Bool),
            optional("parallel_tool_calls", NULLABLE_BOOL),
            optional("user", NULLABLE_STR),
        ],
        &SAMPLER,
        &[
            field::PROMPT_LOGPROBS,
            field::LOGPROB_TOKEN_IDS,
            field::ALLOWED_TOKEN_IDS,
            field::BAD_WORDS,
            optional("echo", Bool),
            optional("add_generation_prompt", Bool),
            optional("continue_final_message", Bool),
            optional("add_special_tokens", Bool),
            optional("documents", Nullable(&List(&Dict(&Str)))),
            optional("chat_template", NULLABLE_STR),
            optional("chat_template_kwargs", NULLABLE_DICT),
            optional("media_io_kwargs", Nullable(&Dict(&Dict(&Any)))),
            optional("mm_processor_kwargs", NULLABLE_DICT),
            field::STRUCTURED_OUTPUTS,
        ],
        &REQUEST,
        &[optional("return_prompt_text", NULLABLE_BOOL)],
        &EXTENSIONS,
        &[field::STREAM_INTERVAL],
    ]),
);

fn check(body: &mut Node<'_>) -> Checked {
    if let Some(messages) = body.get("messages") {
        iterable(messages)?;
    }
    // LiteLLM passes Anthropic's name on.
    take_spelling(body, "stop", "stop_sequences", TWO_STOPS)?;
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
