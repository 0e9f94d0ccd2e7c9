//! The rules by which vLLM 0.32 declares a text completion (`completion/protocol.py`), field by field in its order, and
//! its checks before those of types. Fields that only tito has are left to serde.

use crate::{
    foreign_fields::OF_COMPLETIONS,
    json::{Node, NodeKind},
    pydantic::{
        Schema::{self, Bool, Bytes, Int, IntIn, List, Nullable, Object, Str, Union},
        Shape::Model,
        branch, joined, optional,
        scalars::{NULLABLE_BOOL, NULLABLE_INT, NULLABLE_STR},
    },
    wire::{
        body::Rules,
        error::{ApiError, wording::Sentence},
        fields::{
            cache_salt,
            sampling::{
                field,
                rules::{EXTENSIONS, REQUEST, SAMPLER, beam_search, prompt_logprobs},
            },
            stream_options,
            structured::rules::{response_format, structured_outputs},
            thinking_budget::check_budget,
            untyped::{Checked, TWO_STOPS, is_true, non_null, not_negative, number, refuse, take_spelling},
        },
    },
};

/// The rules that the body of a text completion must keep.
pub(crate) static RULES: Rules = Rules { before: Some(check), foreign: &OF_COMPLETIONS, ..Rules::new(&COMPLETION) };

/// The fields of `POST /v1/completions`.
pub(crate) static COMPLETION: Schema = Object(
    Model,
    &joined::<56>(&[
        &[
            optional("model", NULLABLE_STR),
            optional(
                "prompt",
                Nullable(&Union(&[
                    branch(List(&IntIn(0, None))),
                    branch(List(&List(&IntIn(0, None)))),
                    branch(Str),
                    branch(List(&Str)),
                ])),
            ),
            optional("echo", NULLABLE_BOOL),
            field::FREQUENCY_PENALTY,
            field::LOGIT_BIAS,
            optional("logprobs", NULLABLE_INT),
            field::MAX_TOKENS,
            optional("n", Int),
            field::PRESENCE_PENALTY,
            field::SEED,
            field::STOP,
            field::STREAM,
            field::STREAM_OPTIONS,
            optional("suffix", NULLABLE_STR),
            field::TEMPERATURE,
            field::TOP_P,
            optional("user", NULLABLE_STR),
        ],
        &SAMPLER,
        &[
            field::ALLOWED_TOKEN_IDS,
            field::PROMPT_LOGPROBS,
            field::LOGPROB_TOKEN_IDS,
            field::BAD_WORDS,
            optional("prompt_embeds", Nullable(&Union(&[branch(Bytes), branch(List(&Bytes))]))),
            optional("add_special_tokens", Bool),
            field::RESPONSE_FORMAT,
            field::STRUCTURED_OUTPUTS,
        ],
        &REQUEST,
        &EXTENSIONS,
        &[field::THINKING_TOKEN_BUDGET, field::STREAM_INTERVAL],
    ]),
);

fn check(body: &mut Node<'_>) -> Checked {
    // Clients of chats pass these on.
    take_spelling(body, "max_tokens", "max_completion_tokens", TWO_LIMITS)?;
    take_spelling(body, "stop", "stop_sequences", TWO_STOPS)?;
    prompt(body)?;
    stream_options::check(body)?;
    logprobs(body)?;
    structured_outputs(body, Some("structured_outputs"))?;
    response_format(body)?;
    cache_salt::check(body.get("cache_salt"))?;
    check_budget(body)
}

/// The refusal of two limits; why it has no name for one of them says `wire::error::wording`.
const TWO_LIMITS: &str = "`max_completion_tokens` and the shorter name of a completion for it differ: send one of them";

fn logprobs(body: &Node<'_>) -> Checked {
    beam_search(body)?;
    let asks = non_null(body, "logprobs").is_some();
    if is_true(body, "use_beam_search") && is_true(body, "echo") && asks {
        let message = "`echo` with `logprobs` is not supported with beam search because beam search does not compute \
                       prompt logprobs.";
        return refuse("echo", message);
    }
    let nothing = number(body, "max_tokens").ok().flatten().is_some_and(|count| count.abs() < f64::EPSILON);
    if is_true(body, "logprob_token_ids") && is_true(body, "echo") && nothing {
        let message = Sentence::from("`logprob_token_ids` is not supported when `echo=True` and `")
            .field("max_tokens")
            .words("=0` because no output tokens are generated.");
        return refuse("logprob_token_ids", message);
    }
    if is_true(body, "logprob_token_ids") && !asks {
        return refuse("logprob_token_ids", "when using `logprob_token_ids`, `logprobs` must be set.");
    }
    let (of_prompt, logprobs) = (number(body, "prompt_logprobs")?, number(body, "logprobs")?);
    prompt_logprobs(body, of_prompt)?;
    not_negative(body, "logprobs", logprobs)
}

fn prompt(body: &Node<'_>) -> Checked {
    let lacks_prompt = non_null(body, "prompt").is_none_or(|prompt| prompt.as_str() == Some(""));
    let no_embeds = non_null(body, "prompt_embeds")
        .is_none_or(|embeds| matches!(&embeds.kind, NodeKind::List(items) if items.is_empty()));
    if lacks_prompt && no_embeds {
        return Err(no_prompt());
    }
    Ok(())
}

/// Makes the refusal of a request without a prompt.
pub(crate) fn no_prompt() -> ApiError {
    ApiError::refused("prompt", "Either prompt or prompt_embeds must be provided and non-empty.", None)
}
