//! The marks of every family that writes reasoning between marks.

use super::{super::suffix, wrapper::Marks};

/// What marks reasoning, and what becomes of the marks.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "families differ in each of them")]
pub(super) struct Tags {
    /// What begins reasoning; other spellings after the usual one.
    pub(super) starts: &'static [&'static str],
    /// What ends it; other spellings after the usual one.
    pub(super) ends: &'static [&'static str],
    /// The values of `reasoning_effort` for which the model uses one spelling after the other; none where it has but one.
    pub(super) efforts: &'static [&'static str],
    /// A mark that begins a call, which ends reasoning that has no other end, and stays in the text.
    pub(super) call: Option<&'static str>,
    /// What stands between the start and the reasoning, and belongs to the start.
    pub(super) label: Option<&'static str>,
    /// Marks around the answer, which are dropped wherever they stand outside of reasoning.
    pub(super) drops: &'static [&'static str],
    /// Marks around the answer that may be text.
    pub(super) wrapper: Option<&'static Marks>,
    /// The special tokens that marks consist of, where a mark is not one token.
    pub(super) tokens: &'static [&'static str],
    /// Whether white space at the end of reasoning is dropped.
    pub(super) trims: bool,
    /// Whether a start after the end begins reasoning again.
    pub(super) reopens: bool,
    /// Whether only the first start and the first end are marks, and all others text. There is reasoning then even if
    /// it is empty.
    pub(super) first_only: bool,
    /// Whether the model may begin reasoning that nothing says it begins with.
    pub(super) unasked: bool,
}

impl Tags {
    /// The same marks with a suffix.
    pub(super) fn with_suffix(&self, suffix: &str) -> Self {
        Self {
            starts: suffix::kept(self.starts, suffix),
            ends: suffix::kept(self.ends, suffix),
            call: self.call.map(|call| &*suffix::spelled(call, suffix).leak()),
            ..*self
        }
    }
}

/// Between `<think>` and `</think>`.
const THINK: Tags = Tags {
    starts: &["<think>"],
    ends: &["</think>"],
    efforts: &[],
    call: None,
    label: None,
    drops: &[],
    wrapper: None,
    tokens: &[],
    trims: false,
    reopens: false,
    first_only: false,
    unasked: false,
};

pub(super) const DEEPSEEK_R1: Tags = Tags { first_only: true, ..THINK };
pub(super) const HUNYUAN: Tags = Tags { call: Some("<tool_calls>"), ..DEEPSEEK_R1 };
pub(super) const QWEN3: Tags = Tags { call: Some("<tool_call>"), ..THINK };
pub(super) const NEMOTRON: Tags = Tags { trims: true, ..QWEN3 };
pub(super) const GLM: Tags = Tags { reopens: true, ..NEMOTRON };
pub(super) const KIMI_K2: Tags = Tags { call: Some("<|tool_calls_section_begin|>"), ..NEMOTRON };
pub(super) const MINIMAX_M2: Tags = Tags { call: Some("<minimax:tool_call>"), ..NEMOTRON };

/// Reasoning that the model begins by itself, perhaps several times.
const UNASKED: Tags = Tags { trims: true, reopens: true, unasked: true, ..THINK };

pub(super) const DEEPSEEK_V4: Tags = Tags { call: Some("<｜DSML｜tool_calls>"), ..UNASKED };
pub(super) const DEEPSEEK_V41: Tags = Tags { call: Some("<｜DSML｜ calls>"), ..UNASKED };
pub(super) const GEMMA4: Tags = Tags {
    starts: &["<|channel>"],
    ends: &["<channel|>"],
    call: Some("<|tool_call>"),
    label: Some("thought\n"),
    ..UNASKED
};
pub(super) const MISTRAL: Tags =
    Tags { starts: &["[THINK]"], ends: &["[/THINK]"], call: Some("[TOOL_CALLS]"), ..UNASKED };
pub(super) const MINIMAX_M3: Tags = Tags {
    starts: &["<mm:think>"],
    ends: &["</mm:think>"],
    call: Some("]<]minimax[>[<tool_call>"),
    trims: false,
    ..UNASKED
};
pub(super) const COHERE: Tags = Tags {
    starts: &["<|START_THINKING|>"],
    ends: &["<|END_THINKING|>"],
    call: Some("<|START_ACTION|>"),
    drops: &["<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"],
    trims: false,
    ..UNASKED
};
/// The answer has a channel too, which ends reasoning whose own end is missing.
pub(super) const KIMI_K3: Tags = Tags {
    starts: &["<|open|>think<|sep|>"],
    ends: &["<|close|>think<|sep|>", "<|open|>response<|sep|>"],
    call: Some("<|open|>tools<|sep|>"),
    drops: &["<|close|>response<|sep|>", "<|close|>message<|sep|>"],
    tokens: &["<|open|>", "<|close|>", "<|sep|>"],
    trims: false,
    ..UNASKED
};
pub(super) const SEED_OSS: Tags =
    Tags { starts: &["<seed:think>"], ends: &["</seed:think>"], call: Some("<seed:tool_call>"), ..THINK };

/// Each effort has marks of its own.
pub(super) const K2_HORIZON: Tags = Tags {
    starts: &["<ifm|think>", "<ifm|think_fast>", "<ifm|think_faster>"],
    ends: &["</ifm|think>", "</ifm|think_fast>", "</ifm|think_faster>"],
    efforts: &["high", "medium", "low"],
    call: Some("<ifm|tool_calls>"),
    ..DEEPSEEK_R1
};
/// Its marks are three tokens each.
pub(super) const PLAMO3: Tags = Tags {
    starts: &["<|plamo:begin_think:plamo|>"],
    ends: &["<|plamo:end_think:plamo|>"],
    call: Some("<|plamo:begin_tool_requests:plamo|>"),
    drops: &["<|plamo:tag|>"],
    tokens: &["<|plamo:begin_", "<|plamo:end_", ":plamo|>"],
    reopens: true,
    ..THINK
};

pub(super) const ERNIE45: Tags =
    Tags { wrapper: Some(&Marks { open: "<response>", close: &["\n</response>", "</response>"] }), ..DEEPSEEK_R1 };
pub(super) const HUNYUAN_A13B: Tags = Tags {
    label: Some("\n"),
    wrapper: Some(&Marks { open: "<answer>", close: &["\n</answer>", "</answer>"] }),
    trims: true,
    unasked: true,
    ..DEEPSEEK_R1
};
/// Sentences, which some models spell otherwise.
pub(super) const GRANITE: Tags = Tags {
    starts: &["Here is my thought process:", "Here's my thought process:"],
    ends: &["Here is my response:", "Here's my response:"],
    unasked: true,
    ..DEEPSEEK_R1
};
