//! The rules by which vLLM 0.32 declares the bodies of `/tokenize` and `/detokenize` (`tokenize/protocol.py`).

use crate::{
    foreign_fields::OF_TOKENIZE,
    pydantic::{
        Field,
        Schema::{self, Any, Bool, Dict, IntIn, List, Nullable, Object, Str, Union},
        Shape::Model,
        branch, optional, required,
        scalars::{NULLABLE_BOOL, NULLABLE_DICT, NULLABLE_STR},
    },
    wire::{
        body::{Alternative, Rules},
        fields::{
            chat_messages::{MESSAGE, generation_prompt},
            tools::TOOLS,
        },
    },
};

/// The rules that the body of `/tokenize` must keep.
pub(crate) static TOKENIZE_RULES: Rules = Rules {
    before: Some(|body| generation_prompt(body)),
    checks_calls: true,
    alternatives: &[
        Alternative { key: "messages", schema: &TOKENIZE_CHAT_ONLY, foreign: &["prompt"] },
        Alternative {
            key: "prompt",
            schema: &TOKENIZE_TEXT_ONLY,
            foreign: &[
                "messages",
                "add_generation_prompt",
                "continue_final_message",
                "chat_template",
                "chat_template_kwargs",
                "tools",
            ],
        },
    ],
    foreign: &OF_TOKENIZE,
    ..Rules::new(&TOKENIZE)
};

/// The rules that the body of `/detokenize` must keep.
pub(crate) static DETOKENIZE_RULES: Rules = Rules::new(&DETOKENIZE);

/// The fields of `POST /tokenize` with a text.
static TOKENIZE_TEXT: [Field; 4] = [
    optional("model", NULLABLE_STR),
    required("prompt", Str),
    optional("add_special_tokens", Bool),
    optional("return_token_strs", NULLABLE_BOOL),
];

/// The fields of `POST /tokenize` with a conversation.
static TOKENIZE_CHAT: [Field; 11] = [
    optional("model", NULLABLE_STR),
    required("messages", List(&MESSAGE)),
    optional("add_generation_prompt", Bool),
    optional("return_token_strs", NULLABLE_BOOL),
    optional("continue_final_message", Bool),
    optional("add_special_tokens", Bool),
    optional("chat_template", NULLABLE_STR),
    optional("chat_template_kwargs", NULLABLE_DICT),
    optional("media_io_kwargs", Nullable(&Dict(&Dict(&Any)))),
    optional("mm_processor_kwargs", NULLABLE_DICT),
    optional("tools", TOOLS),
];

static TOKENIZE_TEXT_ONLY: Schema = Object(Model, &TOKENIZE_TEXT);
static TOKENIZE_CHAT_ONLY: Schema = Object(Model, &TOKENIZE_CHAT);

static TOKENIZE: Schema = Union(&[branch(Object(Model, &TOKENIZE_TEXT)), branch(Object(Model, &TOKENIZE_CHAT))]);

static DETOKENIZE: Schema =
    Object(Model, &[optional("model", NULLABLE_STR), required("tokens", List(&IntIn(0, Some(i64::MAX))))]);
