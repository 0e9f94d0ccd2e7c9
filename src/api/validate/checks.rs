//! What vLLM 0.32 checks in a body before it looks at the types of the fields; the last declared check runs first.

use super::{requests, responses, walk::Walk};
use crate::{
    api::{cache_salt, error::ApiError},
    json::{Items, Kind, Node},
};

/// Most prompts of one request (vLLM: `VLLM_MAX_COMPLETION_PROMPTS`).
const MOST_PROMPTS: usize = 1024;

pub(super) type Checked = Result<(), ApiError>;

pub(super) fn refuse(param: &str, message: impl Into<String>) -> Checked {
    Err(ApiError::refused(param, message, None))
}

/// Of a chat completion.
pub(super) fn chat(body: &mut Node<'_>) -> Checked {
    if let Some(messages) = body.get("messages") {
        iterable(messages)?;
    }
    generation_prompt(body)?;
    tool_usage(body)?;
    structured_outputs(body, None)?;
    chat_logprobs(body)?;
    stream_options(body)?;
    response_format(body)?;
    normalize_messages(body)?;
    cache_salt::check(body.get("cache_salt"))?;
    thinking_token_budget(body)
}

/// Of a text completion.
pub(super) fn completion(body: &mut Node<'_>) -> Checked {
    prompt(body)?;
    stream_options(body)?;
    completion_logprobs(body)?;
    structured_outputs(body, Some("structured_outputs"))?;
    response_format(body)?;
    cache_salt::check(body.get("cache_salt"))?;
    thinking_token_budget(body)
}

/// Of a response.
pub(super) fn responses(body: &mut Node<'_>) -> Checked {
    responses::tool_usage(body)?;
    structured_outputs(body, None)?;
    cache_salt::check(body.get("cache_salt"))
}

/// Of the ids of a conversation.
pub(super) fn tokenize(body: &mut Node<'_>) -> Checked {
    generation_prompt(body)
}

fn is_true(body: &Node<'_>, key: &str) -> bool {
    body.get(key).is_some_and(Node::is_truthy)
}

/// The value, unless it is absent or null.
pub(super) fn given<'n, 'a>(body: &'n Node<'a>, key: &str) -> Option<&'n Node<'a>> {
    body.get(key).filter(|value| !value.is_null())
}

fn iterable(value: &Node<'_>) -> Checked {
    if matches!(value.kind, Kind::List(_) | Kind::Object(_) | Kind::String(_)) {
        return Ok(());
    }
    Err(ApiError::invalid_request(format!("'{}' object is not iterable", value.type_name())))
}

/// Makes `reasoning` of `reasoning_content` where there is none. Of `tool_calls`, vLLM makes lists.
fn normalize_messages(body: &mut Node<'_>) -> Checked {
    let Kind::Object(fields) = &mut body.kind else { return Ok(()) };
    let Some(Kind::List(Items::Nodes(messages))) = fields.get_mut("messages").map(|messages| &mut messages.kind) else {
        return Ok(());
    };
    for message in messages {
        let Kind::Object(fields) = &mut message.kind else { continue };
        if let Some(calls) = fields.get("tool_calls").filter(|calls| !calls.is_null()) {
            iterable(calls)?;
        }
        let reasoning = fields.shift_remove("reasoning_content").filter(|reasoning| !reasoning.is_null());
        if let Some(reasoning) = reasoning
            && fields.get("reasoning").is_none_or(Node::is_null)
        {
            fields.insert("reasoning".to_owned(), reasoning);
        }
    }
    Ok(())
}

fn generation_prompt(body: &Node<'_>) -> Checked {
    if is_true(body, "continue_final_message") && is_true(body, "add_generation_prompt") {
        let message = "Cannot set both `continue_final_message` and `add_generation_prompt` to True.";
        return Err(ApiError::invalid_request(message));
    }
    Ok(())
}

fn tool_usage(body: &Node<'_>) -> Checked {
    let tools = given(body, "tools");
    if tools.is_some_and(|tools| matches!(&tools.kind, Kind::List(items) if items.is_empty())) {
        let message =
            "`tools` must not be an empty array. Either provide at least one tool or omit the field entirely.";
        return refuse("tools", message);
    }
    let Some(choice) = given(body, "tool_choice") else { return Ok(()) };
    if choice.as_str() == Some("none") {
        return Ok(());
    }
    let Some(tools) = tools else {
        return refuse("tool_choice", "When using `tool_choice`, `tools` must be set.");
    };
    match &choice.kind {
        Kind::String(text) if matches!(text.as_ref(), "auto" | "required") => Ok(()),
        Kind::Object(_) => named_tool(choice, tools),
        _ => {
            let shown = choice.python_str();
            refuse(
                "tool_choice",
                format!(
                    "Invalid value for `tool_choice`: {shown}! Only named tools, \"none\", \"auto\" or \"required\" \
                     are supported."
                ),
            )
        }
    }
}

fn named_tool(choice: &Node<'_>, tools: &Node<'_>) -> Checked {
    const USAGE: &str = "Correct usage: `{\"type\": \"function\", \"function\": {\"name\": \"my_function\"}}`";

    let function = choice.get("function");
    let Some(function) = function.filter(|function| matches!(function.kind, Kind::Object(_))) else {
        let shown = function.map_or_else(|| "None".to_owned(), Node::python_str);
        let message = format!("Invalid value for `function`: `{shown}` in `tool_choice`! {USAGE}");
        return refuse("tool_choice.function", message);
    };
    let Some(name) = function.get("name") else {
        let message = format!("Expected field `name` in `function` in `tool_choice`! {USAGE}");
        return refuse("tool_choice.function.name", message);
    };
    let Some(wanted) = name.as_str().filter(|name| !name.is_empty()) else {
        let shown = name.python_str();
        let message = format!("Invalid `name` in `function`: `{shown}` in `tool_choice`! {USAGE}");
        return refuse("tool_choice.function.name", message);
    };
    iterable(tools)?;
    let tools = match &tools.kind {
        Kind::List(Items::Nodes(tools)) => tools.as_slice(),
        Kind::List(Items::Ids(..)) => return Err(not_subscriptable("'int' object is not subscriptable")),
        _ if tools.is_truthy() => return Err(not_subscriptable("string indices must be integers, not 'str'")),
        _ => &[],
    };
    for tool in tools {
        // vLLM itself stumbles over a tool without a function or a name; the schema knows what to say.
        let Some(function) = subscript(tool, "function")? else { return Ok(()) };
        let Some(name) = subscript(function, "name")? else { return Ok(()) };
        if name.as_str() == Some(wanted) {
            return Ok(());
        }
    }
    refuse("tool_choice", "The tool specified in `tool_choice` does not match any of the specified `tools`")
}

fn not_subscriptable(message: &str) -> ApiError {
    ApiError::invalid_request(message)
}

/// Python's `value[key]`; none where an object lacks the key.
fn subscript<'n, 'a>(value: &'n Node<'a>, key: &str) -> Result<Option<&'n Node<'a>>, ApiError> {
    match &value.kind {
        Kind::Object(entries) => Ok(entries.get(key)),
        Kind::List(_) => Err(not_subscriptable("list indices must be integers or slices, not str")),
        Kind::String(_) => Err(not_subscriptable("string indices must be integers, not 'str'")),
        _ => Err(not_subscriptable(&format!("'{}' object is not subscriptable", value.type_name()))),
    }
}

fn structured_outputs(body: &Node<'_>, param: Option<&str>) -> Checked {
    let Some(outputs) = given(body, "structured_outputs") else { return Ok(()) };
    let kinds = ["json", "regex", "choice"].into_iter().filter(|kind| given(outputs, kind).is_some()).count();
    if kinds > 1 {
        let message = "You can only use one kind of constraints for structured outputs ('json', 'regex' or 'choice').";
        return match param {
            Some(param) => refuse(param, message),
            None => Err(ApiError::invalid_request(message)),
        };
    }
    let named =
        body.get("tool_choice").is_some_and(|choice| !matches!(choice.as_str(), Some("none" | "auto" | "required")));
    if kinds > 0 && param.is_none() && named {
        let message = "You can only either use constraints for structured outputs or tools, not both.";
        return Err(ApiError::invalid_request(message));
    }
    Ok(())
}

fn response_format(body: &Node<'_>) -> Checked {
    let is_schema = |format: &Node<'_>| format.get("type").and_then(Node::as_str) == Some("json_schema");
    let is_tag = |format: &Node<'_>| format.get("type").and_then(Node::as_str) == Some("structural_tag");
    match given(body, "response_format") {
        Some(format) if is_tag(format) && !Walk::new(body.text).fits(&requests::RESPONSE_FORMAT, format) => {
            refuse("response_format", "Invalid response_format structural_tag specification.")
        }
        Some(format) if is_schema(format) && given(format, "json_schema").is_none() => refuse(
            "response_format",
            "When response_format type is 'json_schema', the 'json_schema' field must be provided.",
        ),
        _ => Ok(()),
    }
}

fn stream_options(body: &Node<'_>) -> Checked {
    if is_true(body, "stream_options") && !is_true(body, "stream") {
        return refuse("stream_options", "Stream options can only be defined when `stream=True`.");
    }
    Ok(())
}

/// A number, booleans included, before it is known to be an integer.
fn number(body: &Node<'_>, field: &str) -> Result<Option<f64>, ApiError> {
    let Some(value) = given(body, field) else { return Ok(None) };
    match &value.kind {
        Kind::Bool(value) => Ok(Some(f64::from(u8::from(*value)))),
        Kind::Float(value) => Ok(Some(*value)),
        Kind::Int(value) => Ok(value.to_string().parse().ok()),
        _ => {
            let message = format!("`{field}` must be an integer.");
            Err(ApiError::refused(field, message, Some(value.python_str())))
        }
    }
}

fn is_minus_one(value: f64) -> bool {
    value.to_bits() == (-1.0_f64).to_bits()
}

fn not_negative(body: &Node<'_>, field: &str, value: Option<f64>) -> Checked {
    if value.is_some_and(|value| value < 0.0 && !is_minus_one(value)) {
        let message = format!("`{field}` must be a positive value or -1.");
        return Err(ApiError::refused(field, message, body.get(field).map(Node::python_str)));
    }
    Ok(())
}

fn prompt_logprobs(body: &Node<'_>, value: Option<f64>) -> Checked {
    if is_true(body, "stream") && value.is_some_and(|value| value > 0.0 || is_minus_one(value)) {
        return refuse("prompt_logprobs", "`prompt_logprobs` are not available when `stream=True`.");
    }
    not_negative(body, "prompt_logprobs", value)
}

fn beam_search(body: &Node<'_>) -> Checked {
    if is_true(body, "logprob_token_ids") && is_true(body, "use_beam_search") {
        return refuse("logprob_token_ids", "`logprob_token_ids` is not supported with beam search.");
    }
    Ok(())
}

fn chat_logprobs(body: &Node<'_>) -> Checked {
    beam_search(body)?;
    if is_true(body, "logprob_token_ids") && !is_true(body, "logprobs") {
        return refuse("logprob_token_ids", "when using `logprob_token_ids`, `logprobs` must be set to true.");
    }
    let (of_prompt, top) = (number(body, "prompt_logprobs")?, number(body, "top_logprobs")?);
    prompt_logprobs(body, of_prompt)?;
    not_negative(body, "top_logprobs", top)?;
    if top.is_some_and(|top| top > 0.0 || is_minus_one(top)) && !is_true(body, "logprobs") {
        return refuse("top_logprobs", "when using `top_logprobs`, `logprobs` must be set to true.");
    }
    Ok(())
}

fn completion_logprobs(body: &Node<'_>) -> Checked {
    beam_search(body)?;
    let asks = given(body, "logprobs").is_some();
    if is_true(body, "use_beam_search") && is_true(body, "echo") && asks {
        let message = "`echo` with `logprobs` is not supported with beam search because beam search does not compute \
                       prompt logprobs.";
        return refuse("echo", message);
    }
    let nothing = number(body, "max_tokens").ok().flatten().is_some_and(|count| count.abs() < f64::EPSILON);
    if is_true(body, "logprob_token_ids") && is_true(body, "echo") && nothing {
        let message = "`logprob_token_ids` is not supported when `echo=True` and `max_tokens=0` because no output \
                       tokens are generated.";
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
    for field in ["prompt", "prompt_embeds"] {
        // A list of integers is one prompt, whatever its length.
        let items = match body.get(field).map(|value| &value.kind) {
            Some(Kind::List(Items::Nodes(items))) if items.len() > MOST_PROMPTS => items,
            Some(Kind::List(items)) if field == "prompt_embeds" && items.len() > MOST_PROMPTS => {
                return too_many(field, items.len());
            }
            _ => continue,
        };
        let is_int = |item: &Node<'_>| matches!(item.kind, Kind::Int(_) | Kind::Bool(_));
        if field == "prompt_embeds" || !items.iter().all(is_int) {
            return too_many(field, items.len());
        }
    }
    let no_prompt = given(body, "prompt").is_none_or(|prompt| prompt.as_str() == Some(""));
    let no_embeds =
        given(body, "prompt_embeds").is_none_or(|embeds| matches!(&embeds.kind, Kind::List(items) if items.is_empty()));
    if no_prompt && no_embeds {
        return refuse("prompt", "Either prompt or prompt_embeds must be provided and non-empty.");
    }
    Ok(())
}

fn too_many(field: &str, count: usize) -> Checked {
    refuse(
        field,
        format!(
            "{field} list length {count} exceeds the maximum allowed count of {MOST_PROMPTS}. To increase this limit, \
             set the VLLM_MAX_COMPLETION_PROMPTS environment variable."
        ),
    )
}

fn thinking_token_budget(body: &Node<'_>) -> Checked {
    let Some(budget) = given(body, "thinking_token_budget") else { return Ok(()) };
    match &budget.kind {
        Kind::Int(value) if value.to_i128().is_none_or(|value| value >= -1) => Ok(()),
        _ => {
            let message = "`thinking_token_budget` must be a non-negative integer or -1 for unlimited.";
            Err(ApiError::refused("thinking_token_budget", message, Some(budget.python_str())))
        }
    }
}
