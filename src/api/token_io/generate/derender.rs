//! `output_mode: "derender"`: an answer in ids is also the message of the chat whose render its prompt was, as in vLLM 0.33.
//!
//! What is known of the chat is in `parse_context`, which the render gives.

use crate::{
    api::chat_completions::shown::ShownInChat,
    chat::FunctionTool,
    json::{Path, Value},
    parser::OutputFormat,
    request_fields::tools::{ToolChoice, ToolFields},
    state::Api,
    wire::{
        error::ApiError,
        fields::tools as rules,
        token_io::generate::{GenerateRequest, OutputMode, ParseContext},
    },
};

/// How the text of an answer is read.
pub(super) struct MessageReading {
    pub(super) format: OutputFormat,
    pub(super) shown: ShownInMessage,
}

/// What is shown of a message.
#[derive(Debug, Clone)]
pub(super) struct ShownInMessage {
    pub(super) chat: ShownInChat,
    /// Whether the prompt is the whole conversation.
    pub(super) prompt_is_whole: bool,
}

impl MessageReading {
    /// Checks what a request says of its chat.
    pub(super) fn new(request: &GenerateRequest, api: &Api) -> Result<Self, ApiError> {
        if request.stream == Some(true) {
            return Err(ApiError::invalid_request("output_mode='derender' does not support stream=true."));
        }
        let policy = api.turns.policies.tools;
        let top_logprobs = alternatives(request);
        let mut context = context(request.parse_context.as_ref())?;
        let repeated = context.as_mut().map(|context| (context.echo.take(), context.role.take()));
        let (echo, role) = repeated.unwrap_or_default();
        let prompt_is_whole = context.as_ref().is_none_or(|context| !context.prompt_is_cut);
        let message = |chat: ShownInChat| ShownInMessage { chat: chat.repeating(echo, role), prompt_is_whole };
        let Some(context) = context.filter(|_| policy.reads()) else {
            if policy.reads() {
                let message = "output_mode='derender' requires parse_context on a server with a tool or reasoning \
                               parser. Use the one returned by /render.";
                return Err(ApiError::invalid_request(message));
            }
            let shown = message(ShownInChat::of_context(ToolChoice::None, true, top_logprobs, api));
            return Ok(Self { format: OutputFormat::default(), shown });
        };
        let tools = tools(&context)?;
        let is_named = context.tool_choice.as_object().is_some();
        if is_named && tools.is_none() {
            return rules::no_such_tool();
        }
        let fields = ToolFields {
            tools: tools.as_deref(),
            // Without tools, there is nothing to choose from.
            tool_choice: tools.is_some().then_some(&context.tool_choice),
            parallel_tool_calls: context.parallel_tool_calls,
        };
        let mut used = fields.resolve(policy)?;
        let tokenizer = api.turns.tokenizer();
        let holds = match &used.format {
            Some(format) => format.constraint(&|token| tokenizer.id_of(token).is_some())?.is_some(),
            None => false,
        };
        if used.choice.is_forced() || holds {
            let message = "a `tool_choice` that forces a call, and tools that are `strict` or held by \
                           --tool-strict-level, cannot be derendered: ask for the chat completion itself";
            return Err(ApiError::invalid(place("tool_choice"), message));
        }
        if let Some(form) = request.sampling_params.sampling.structured.resolve()? {
            used.read_beside(&form);
        }
        let format = ended(policy.format_with(used.format, &context.chat_template_kwargs), request);
        let shown = message(ShownInChat::of_context(used.choice, context.include_reasoning, top_logprobs, api));
        Ok(Self { format, shown })
    }
}

/// Returns how the chat reads an answer of which ids or text alone are wanted, so that it ends where the chat's does;
/// `None` where the request does not say. What cannot be read is ignored where no stop string depends on it.
pub(super) fn unread_message(request: &GenerateRequest, api: &Api) -> Result<Option<OutputFormat>, ApiError> {
    if request.output_mode == OutputMode::Derender || !api.turns.policies.tools.reads() {
        return Ok(None);
    }
    match format_of_chat(request, api) {
        Err(_) if request.sampling_params.sampling.stop.is_none() => Ok(None),
        read => read,
    }
}

/// Returns how the chat of a request reads its answer.
fn format_of_chat(request: &GenerateRequest, api: &Api) -> Result<Option<OutputFormat>, ApiError> {
    let policy = api.turns.policies.tools;
    let Some(context) = context(request.parse_context.as_ref())? else { return Ok(None) };
    // A server that reads no calls knows no marks of them.
    let reads_calls = policy.parser.is_some() && policy.auto;
    let tools = tools(&context)?.filter(|_| reads_calls);
    let fields = ToolFields {
        tools: tools.as_deref(),
        tool_choice: tools.is_some().then_some(&context.tool_choice),
        parallel_tool_calls: context.parallel_tool_calls,
    };
    let mut used = fields.resolve(policy)?;
    if let Some(form) = request.sampling_params.sampling.structured.resolve()? {
        used.read_beside(&form);
    }
    Ok(Some(ended(policy.format_with(used.format, &context.chat_template_kwargs), request)))
}

/// The format of an answer whose prompt the render knows to have ended thoughts; a conversation may continue an answer.
fn ended(format: OutputFormat, request: &GenerateRequest) -> OutputFormat {
    let has_ended = request.reasoning_ended == Some(true);
    let reasoning = format.reasoning.map(|reasoning| if has_ended { reasoning.after_reasoning() } else { reasoning });
    OutputFormat { reasoning, ..format }
}

fn place(field: &'static str) -> Path {
    Path::from("parse_context").then(field)
}

/// Returns how many alternatives a chat would show; `None` shows all that there are.
fn alternatives(request: &GenerateRequest) -> Option<usize> {
    let params = &request.sampling_params;
    let chosen = params.sampling.logprob_token_ids.as_ref().is_some_and(|ids| !ids.is_empty());
    match params.logprobs {
        Some(-1) => None,
        _ if chosen => None,
        asked => Some(asked.and_then(|asked| usize::try_from(asked).ok()).unwrap_or(0)),
    }
}

/// Reads the field; what a later version's render may say that is not known here is refused.
fn context(given: Option<&Value>) -> Result<Option<ParseContext>, ApiError> {
    let malformed = |rule: String| ApiError::malformed(Some("body".into()), format!("1 validation error:\n  {rule}"));
    let Some(given) = given.filter(|given| !given.is_null()) else { return Ok(None) };
    let mut unknown: Vec<String> = given.as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect();
    unknown.retain(|name| !ParseContext::FIELDS.contains(&name.as_str()));
    if !unknown.is_empty() {
        unknown.sort();
        return Err(malformed(format!(
            "Unknown parse_context fields {unknown:?}; the render server is newer than this generate server"
        )));
    }
    let read = serde_json::from_str(&given.to_json_string());
    read.map(Some).map_err(|error| malformed(format!("body.parse_context: {error}")))
}

/// Reads the tools; an empty list is none.
fn tools(context: &ParseContext) -> Result<Option<Vec<FunctionTool>>, ApiError> {
    let given = context.tools.iter().flatten().cloned();
    let tools = given.map(FunctionTool::try_from).collect::<Result<Vec<_>, _>>();
    let tools = tools.map_err(|error| ApiError::invalid(place("tools"), error.to_string()))?;
    Ok(Some(tools).filter(|tools| !tools.is_empty()))
}
