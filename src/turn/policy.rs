//! What the server, not the request, decides about turns.

use std::collections::BTreeMap;

use super::TurnError;
use crate::{
    TokenId,
    json::Object,
    model::{EosTokens, GenerationConfig},
    parser::{OutputFormat, ReasoningParser, ToolFormat, ToolParser},
    prompt::{AnswerFormats, ChatPrompt},
    sampling::LogprobsMode,
};

/// All policies of a server.
#[derive(Debug, Clone)]
pub struct Policies {
    /// The policy of sampling.
    pub sampling: SamplingPolicy,
    /// The policy of tool calls and reasoning.
    pub tools: ToolPolicy,
    /// The policy of everything else.
    pub requests: RequestPolicy,
}

impl Policies {
    /// Makes the policies of a server without flags.
    pub fn new(eos: &EosTokens) -> Self {
        Self { sampling: SamplingPolicy::new(eos), tools: ToolPolicy::default(), requests: RequestPolicy::default() }
    }
}

/// Variables of a chat template that the renderer sets itself.
pub const RESERVED_TEMPLATE_VARIABLES: [&str; 4] = ["messages", "tools", "tokenize", "chat_template"];

/// The flags that decide how sampling parameters are read.
#[derive(Debug, Clone)]
pub struct SamplingPolicy {
    /// Defaults of the model (`generation_config.json`), if the server uses them.
    pub defaults: GenerationConfig,
    /// The tokenizer's end-of-sequence token.
    pub eos_token_id: Option<TokenId>,
    /// Further end-of-sequence tokens of the model.
    pub extra_eos_token_ids: Vec<TokenId>,
    /// At most this many log-probs for each position; `None` is no limit.
    pub max_logprobs: Option<usize>,
    /// Which distribution log-probs describe.
    pub logprobs_mode: LogprobsMode,
    /// Whether log-prob `token` strings are `token_id:N` unless the request says otherwise.
    pub return_tokens_as_token_ids: bool,
    /// At most this many tokens for any answer, whatever the request says.
    pub most_tokens: Option<usize>,
    /// A prompt may have at most this many answers (`--max-request-sequences`, `VLLM_MAX_N_SEQUENCES`).
    pub max_n: usize,
    /// When answers list the tokens that each token was drawn from.
    pub sampling_mask: SamplingMaskPolicy,
}

/// The flags about sampling masks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SamplingMaskPolicy {
    /// The most tokens of a row.
    pub most: usize,
    /// Whether `/inference/v1/generate` answers with a mask where the request does not say.
    pub on_generate: bool,
}

impl Default for SamplingMaskPolicy {
    /// SGLang's `--sampling-mask-max-tokens`, and vLLM's `--return-sampling-mask`.
    fn default() -> Self {
        Self { most: 4096, on_generate: false }
    }
}

impl SamplingPolicy {
    /// Makes the policy of a server without flags, for a model without defaults of its own.
    pub fn new(eos: &EosTokens) -> Self {
        Self {
            defaults: GenerationConfig::default(),
            eos_token_id: eos.primary,
            extra_eos_token_ids: eos.others.clone(),
            max_logprobs: Some(20),
            logprobs_mode: LogprobsMode::Raw,
            return_tokens_as_token_ids: false,
            sampling_mask: SamplingMaskPolicy::default(),
            most_tokens: None,
            max_n: RequestPolicy::default().max_sequences,
        }
    }
}

/// The flags that decide how answers are read.
#[derive(Debug, Clone, Copy, Default)]
pub struct ToolPolicy {
    /// The format that the model writes calls in (`--tool-call-parser`).
    pub parser: Option<ToolParser>,
    /// Whether requests may let the model decide whether to call a tool (`--enable-auto-tool-choice`).
    pub auto: bool,
    /// The format that the model writes its reasoning in (`--reasoning-parser`).
    pub reasoning: Option<ReasoningParser>,
    /// How far calls that the model makes by itself are held, whatever a request says (`--tool-strict-level`).
    pub strict_level: ToolStrictLevel,
}

impl ToolPolicy {
    /// The formats in which answers are read, to compare ids with messages.
    #[must_use]
    pub fn answer_formats(&self) -> AnswerFormats {
        AnswerFormats { reasoning: self.reasoning, tools: self.parser }
    }
}

/// How far calls that the model makes by itself are held; forced calls are held to their schemas in any case.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ToolStrictLevel {
    /// As the tools of the request say by `strict`.
    #[default]
    Auto,
    /// At least to the format of calls, and to the tools' names.
    Function,
    /// To the schema of every tool, as if all were `strict`.
    Parameter,
}

impl ToolPolicy {
    /// Whether any reasoning or tool calls are parsed out of answers.
    pub fn reads(self) -> bool {
        self.parser.is_some() || self.reasoning.is_some()
    }

    /// Returns the format that the answer to `prompt` is parsed in.
    pub fn output_format(self, tools: Option<ToolFormat>, prompt: &ChatPrompt) -> OutputFormat {
        let format = self.format_with(tools, &prompt.template_variables());
        let continued = prompt.messages.last().filter(|_| prompt.continue_final_message);
        let Some(said) = continued.map(|message| message.content.texts().collect::<String>()) else { return format };
        OutputFormat { reasoning: format.reasoning.map(|reasoning| reasoning.continuing(&said)), ..format }
    }

    /// Returns the format that the answer to a prompt with these variables of its template is parsed in.
    pub fn format_with(self, tools: Option<ToolFormat>, variables: &Object) -> OutputFormat {
        let reasoning = self.reasoning.map(|parser| parser.format(variables));
        OutputFormat::new(reasoning, tools, self.parser)
    }
}

/// The flags that decide how requests are read, apart from sampling and tool calls.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the server")]
pub struct RequestPolicy {
    /// The role of an answer whose start is part of the prompt (`--response-role`).
    pub response_role: String,
    /// Whether requests may bring a chat template of their own (`--trust-request-chat-template`).
    pub trust_request_chat_template: bool,
    /// Variables of the template that apply where a request does not set them (`--default-chat-template-kwargs`).
    pub default_chat_template_kwargs: Object,
    /// What the template is told instead of the efforts that requests ask for (`--reasoning-effort-map`).
    pub reasoning_effort_map: BTreeMap<String, String>,
    /// The smallest number of tokens in a chunk in the middle of a stream (`--stream-interval`).
    pub stream_interval: usize,
    /// Whether every stream, and every chunk of it, has its usage (`--enable-force-include-usage`).
    pub force_include_usage: bool,
    /// Whether the template is not shown tools that may not be called (`--exclude-tools-when-tool-choice-none`).
    pub exclude_tools_when_tool_choice_none: bool,
    /// Whether answers show the experts that tokens went through (`--enable-return-routed-experts`).
    pub return_routed_experts: bool,
    /// A request may have at most this many prompts (`--max-request-prompts`).
    pub max_prompts: usize,
    /// A request may have at most this many sequences, over all of its prompts (`--max-request-sequences`).
    pub max_sequences: usize,
}

impl Default for RequestPolicy {
    /// Makes vLLM's policy without flags.
    fn default() -> Self {
        Self {
            response_role: "assistant".to_owned(),
            trust_request_chat_template: false,
            default_chat_template_kwargs: Object::default(),
            reasoning_effort_map: BTreeMap::new(),
            stream_interval: 1,
            force_include_usage: false,
            exclude_tools_when_tool_choice_none: false,
            return_routed_experts: false,
            max_prompts: 1024,
            max_sequences: 16_384,
        }
    }
}

impl RequestPolicy {
    /// Returns the effort that the template is told for the one that a request asks for.
    pub fn effort(&self, asked: String) -> String {
        self.reasoning_effort_map.get(&asked).cloned().unwrap_or(asked)
    }

    /// Refuses more prompts, or more sequences for them, than a request may have.
    pub fn check_sequences(&self, prompts: usize, n: usize) -> Result<(), TurnError> {
        if prompts > self.max_prompts {
            return Err(TurnError::TooManyPrompts { prompts, most: self.max_prompts });
        }
        if prompts.saturating_mul(n) > self.max_sequences {
            return Err(TurnError::TooManySequences { prompts, n, most: self.max_sequences });
        }
        Ok(())
    }
}
