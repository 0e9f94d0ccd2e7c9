//! `tools`, `tool_choice` and `parallel_tool_calls`: which calls are parsed out of an answer (vLLM
//! `chat_completion/protocol.py`, `renderers/online_renderer.py`).

use crate::{
    chat::FunctionTool,
    json::{Object, Value},
    parser::{AnswerForm, CallInReasoning, ForcedCall, ToolFormat},
    structured::{Constraint, Forceable},
    tokenizer::Tokenizer,
    turn::{Sampling, ToolPolicy, ToolStrictLevel},
    wire::{
        error::{ApiError, wording::Sentence},
        fields::tools as rules,
    },
};

/// The fields of a request that are about tools.
pub(crate) struct ToolFields<'a> {
    pub(crate) tools: Option<&'a [FunctionTool]>,
    pub(crate) tool_choice: Option<&'a Value>,
    pub(crate) parallel_tool_calls: Option<bool>,
}

/// The choice that a request gives the model about calling tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ToolChoice {
    /// The model does not call, or its calls are not parsed.
    None,
    /// The model calls as it likes.
    Auto,
    /// The model calls at least once.
    Required,
    /// The model calls this function, once.
    Named(String),
}

impl ToolChoice {
    /// Whether the model has to call.
    pub(crate) fn is_forced(&self) -> bool {
        matches!(self, Self::Required | Self::Named(_))
    }
}

/// The way in which a request's tools are used.
#[derive(Debug)]
pub(crate) struct ToolUse {
    /// The choice that the sampler enforces.
    pub(crate) choice: ToolChoice,
    /// The format in which calls are parsed; `None` if the whole answer is text.
    pub(crate) format: Option<ToolFormat>,
    /// What arguments of calls are not held to, though the request asks for it: tools, and keywords of their schemas.
    pub(crate) unforced: Vec<String>,
    /// Whether a tool of the request is `strict`, so that not only the server's `--tool-strict-level` holds calls.
    asks_strict: bool,
}

impl ToolUse {
    /// Has the answer keep to what calls demand of it.
    ///
    /// A form that the request demands is one of the text, and a call is no text: an answer that has to call has no text,
    /// and one that may call is either calls or text of this form. That is vLLM's rule, in every dialect. A form beside
    /// which no strict call can be told is refused.
    pub(crate) fn constrain(&mut self, sampling: &mut Sampling, tokenizer: &Tokenizer) -> Result<(), ApiError> {
        let Some(format) = &self.format else { return Ok(()) };
        let has_token = |token: &str| tokenizer.id_of(token).is_some();
        let form = if self.choice.is_forced() { None } else { sampling.constraint() };
        // A mark that is one token ends thoughts for the sampler, so that what follows is held.
        let is_marked = format.begins_call().iter().any(|mark| has_token(mark));
        let call = if is_marked { CallInReasoning::Ends } else { CallInReasoning::EndsUnended };
        let Some(form) = form else {
            if let Some(calls) = format.constraint(&has_token)? {
                // Beside calls that the model makes by itself, it says what it likes.
                sampling.demand_calls(calls, AnswerForm { to_the_letter: self.choice.is_forced(), call });
            } else {
                // What no grammar holds stays as free as it can.
                sampling.count_calls(Some(format), tokenizer);
            }
            return Ok(());
        };
        match format.constraint_or(form, &has_token)? {
            Some(either) if either == *form => self.read_beside(form),
            Some(either) => sampling.demand_calls(either, AnswerForm { to_the_letter: true, call }),
            // The request gets what it asked for before what only the server asks for: no call is free.
            None if !self.asks_strict => self.read_beside(form),
            None => return Err(ApiError::invalid("tools", TWO_FORMS)),
        }
        Ok(())
    }

    /// Reads no calls out of an answer that is JSON of a form and nothing else: it may look like a call.
    ///
    /// Other forms are another thing: with choices, expressions, grammars and structural tags, clients write calls
    /// themselves, which vLLM reads.
    pub(crate) fn read_beside(&mut self, form: &Constraint) {
        if matches!(form, Constraint::Json(..) | Constraint::JsonObject(..)) {
            self.format = None;
        }
    }
}

/// Why a strict call cannot stand beside a form of the answer.
const TWO_FORMS: &str = "a tool in `tools` is `strict`, and the answer has a form (`response_format`, \
                         `structured_outputs`, `text.format` or `output_config.format`) that no grammar can tell from its \
                         calls: leave out one of them, or demand the form by a JSON schema";

fn invalid<T>(message: impl Into<Sentence>) -> Result<T, ApiError> {
    Err(ApiError::refused("tool_choice", message, None))
}

/// Refuses what the server was not started for; vLLM names no field for it.
fn unserved<T>(message: impl Into<Sentence>) -> Result<T, ApiError> {
    Err(ApiError::invalid_request(message))
}

impl ToolFields<'_> {
    /// Checks the fields.
    pub(crate) fn resolve(&self, policy: ToolPolicy) -> Result<ToolUse, ApiError> {
        let choice = self.choice()?;
        let may = policy.auto || choice.is_forced();
        let parser = match (&choice, policy.parser.filter(|_| may)) {
            (ToolChoice::None, _) => {
                return Ok(ToolUse { choice, format: None, unforced: Vec::new(), asks_strict: false });
            }
            (_, Some(parser)) => parser,
            (ToolChoice::Auto, None) => {
                return unserved(
                    "\"auto\" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set",
                );
            }
            (ToolChoice::Required, None) => {
                return unserved("tool_choice=\"required\" requires --tool-call-parser to be set");
            }
            (ToolChoice::Named(name), None) => {
                return unserved(format!("tool_choice=function \"{name}\" requires --tool-call-parser to be set"));
            }
        };
        let forced = match &choice {
            ToolChoice::Required => Some(ForcedCall::Required),
            ToolChoice::Named(name) => Some(ForcedCall::Named(name.clone())),
            ToolChoice::None | ToolChoice::Auto => None,
        };
        let mut unforced = Vec::new();
        let level = policy.strict_level;
        let tools = self.tools.unwrap_or_default();
        let asks_strict = tools.iter().any(|tool| tool.strict == Some(true));
        let tools = tools.iter().map(|tool| constrained_tool(tool, is_held(tool, &choice, level), &mut unforced));
        let format = ToolFormat {
            parser,
            tools: tools.collect(),
            forced,
            first_only: self.parallel_tool_calls == Some(false),
            held: level > ToolStrictLevel::Auto,
        };
        unforced.extend(format.unheld());
        if !unforced.is_empty() {
            tracing::debug!(?unforced, "the arguments of calls are not held to all of their schemas");
        }
        Ok(ToolUse { choice, format: Some(format), unforced, asks_strict })
    }

    fn choice(&self) -> Result<ToolChoice, ApiError> {
        if self.tools.is_some_and(<[_]>::is_empty) {
            return rules::no_tool();
        }
        let choice = self.tool_choice.filter(|choice| !choice.is_null());
        match (choice, self.tools) {
            (None, None) => Ok(ToolChoice::None),
            (Some(Value::String(choice)), _) if choice == "none" => Ok(ToolChoice::None),
            (Some(_), None) => rules::no_tools(),
            (None, Some(_)) => Ok(ToolChoice::Auto),
            (Some(Value::String(choice)), _) if choice == "auto" => Ok(ToolChoice::Auto),
            (Some(Value::String(choice)), _) if choice == "required" => Ok(ToolChoice::Required),
            (Some(choice @ Value::Object(_)), Some(tools)) => {
                named_tool(choice, tools).map(|name| ToolChoice::Named(name.to_owned()))
            }
            (Some(choice), _) => {
                rules::unknown_choice(&choice.as_str().map_or_else(|| choice.to_json_string(), str::to_owned))
            }
        }
    }
}

/// Whether calls of a tool are held to its schema, whether or not it is `strict`: where they are forced, or the server
/// holds all.
fn is_held(tool: &FunctionTool, choice: &ToolChoice, level: ToolStrictLevel) -> bool {
    match choice {
        ToolChoice::Required => true,
        ToolChoice::Named(name) => tool.name == *name,
        ToolChoice::Auto => level == ToolStrictLevel::Parameter,
        ToolChoice::None => false,
    }
}

/// Returns a tool with the schema that its calls are held to. What of it cannot be forced is left out and named.
fn constrained_tool(tool: &FunctionTool, is_held: bool, unforced: &mut Vec<String>) -> FunctionTool {
    let is_strict = tool.strict == Some(true);
    if !is_strict && !is_held {
        return tool.clone();
    }
    let parameters = tool.parameters.clone().filter(|parameters| !parameters.is_null());
    let parameters = parameters.unwrap_or_else(|| Value::Object(Object::default()));
    // JSON that is none is refused where the calls are demanded.
    let Ok(schema) = serde_json::from_str(&parameters.to_json_string()) else { return tool.clone() };
    if let Ok(forceable) = Forceable::of(&of_object(&schema)) {
        unforced.extend(forceable.unforced.iter().map(|keyword| format!("{}: {keyword}", tool.name)));
        let changed = Some(&forceable.schema).filter(|relaxed| **relaxed != schema);
        let relaxed = changed.and_then(|relaxed| Value::parse(&relaxed.to_string()).ok());
        let parameters = Some(relaxed.unwrap_or(parameters));
        FunctionTool { strict: Some(true), parameters, ..tool.clone() }
    } else {
        // A strict tool is refused for the same reason where its calls are demanded.
        unforced.extend((!is_strict).then(|| format!("{}: its schema", tool.name)));
        tool.clone()
    }
}

/// The schema of arguments that are an object, whether it says so or not: nobody can take others.
fn of_object(schema: &serde_json::Value) -> serde_json::Value {
    let mut schema = if *schema == true { serde_json::json!({}) } else { schema.clone() };
    if let Some(entries) = schema.as_object_mut() {
        let says_another = match entries.get("type") {
            Some(serde_json::Value::Array(types)) => !types.iter().any(|kind| kind == "object"),
            kind => kind.is_some(),
        };
        if !says_another {
            entries.insert("type".to_owned(), serde_json::json!("object"));
        }
    }
    schema
}

/// Returns the tool that `choice` names.
fn named_tool<'a>(choice: &'a Value, tools: &[FunctionTool]) -> Result<&'a str, ApiError> {
    let Some(function) = choice.get("function").filter(|function| function.as_object().is_some()) else {
        return invalid(format!("Invalid value for `function` in `tool_choice`! {}", rules::USAGE));
    };
    match function.get("name").map(Value::as_str) {
        None => invalid(format!("Expected field `name` in `function` in `tool_choice`! {}", rules::USAGE)),
        Some(None | Some("")) => invalid(format!("Invalid `name` in `function` in `tool_choice`! {}", rules::USAGE)),
        Some(Some(name)) if tools.iter().any(|tool| tool.name == name) => Ok(name),
        Some(Some(_)) => rules::no_such_tool(),
    }
}

/// Counts what parsers of tool calls find, under vLLM's name (`parser/metrics.py`): once for a JSON answer, and once
/// for each delta of a stream.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ParserCounter {
    /// Counts for `/v1/chat/completions`.
    Chat,
}

impl ParserCounter {
    /// Counts one result of the parser.
    pub(crate) fn count(self, mode: &'static str, called: bool) {
        let request_type = match self {
            Self::Chat => "chat_completions",
        };
        let outcome = if called { "tool_call" } else { "no_tool_call" };
        metrics::counter!(
            "vllm:tool_call_parser_invocations_total",
            "mode" => mode, "outcome" => outcome, "request_type" => request_type
        )
        .increment(1);
    }
}
