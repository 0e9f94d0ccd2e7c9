//! Messages as chat templates see them.
//!
//! Follows vLLM 0.32, `renderers/chat_utils.py` (`_parse_chat_message_content`, `_postprocess_messages`) and
//! `renderers/hf.py` (the developer role), because the shape of these objects decides the prompt's ids.
//! Deliberate deviations: audio and video are refused; images are shown to templates that know parts, and to no others.

use super::{PromptError, template::ContentFormat};
use crate::{
    chat::{Content, ContentPart, FunctionTool, Message, ToolCall},
    json::{Object, Path, Value},
};

/// How the arguments of tool calls are handed to the template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ArgumentsForm {
    /// As an object, which is what vLLM does and most templates want, and as text where an object could not keep them.
    Mapping,
    /// As the client's JSON text, for templates that concatenate it (DeepSeek-V3).
    Text,
    /// As an object, which is empty where it could not keep them, for templates that take nothing else.
    MappingOnly,
}

/// The start of a line that Anthropic clients put before their system prompt; it is not part of it.
const BILLING_HEADER: &str = "x-anthropic-billing-header";

/// Rebuilds the messages for a template that wants `format`.
pub(super) fn template_messages(
    messages: &[Message],
    format: ContentFormat,
    arguments: ArgumentsForm,
) -> Result<Vec<Object>, PromptError> {
    messages.iter().enumerate().map(|(index, message)| rebuild(index, message, format, arguments)).collect()
}

fn rebuild(
    index: usize,
    message: &Message,
    format: ContentFormat,
    arguments: ArgumentsForm,
) -> Result<Object, PromptError> {
    let role = message.role.as_str();
    let parts = parts(index, message, format)?;
    let mut object = Object::default();
    object.insert("role".to_owned(), Value::from(role));
    object.insert("content".to_owned(), content(role, parts, format));
    if role == "assistant" {
        if let Some(calls) = message.tool_calls.as_ref().filter(|calls| !calls.is_empty()) {
            let calls = calls.iter().map(|call| tool_call(call, arguments));
            object.insert("tool_calls".to_owned(), Value::Array(calls.collect()));
        }
        if let Some(reasoning) = &message.reasoning {
            object.insert("reasoning".to_owned(), Value::from(reasoning.as_str()));
            object.insert("reasoning_content".to_owned(), Value::from(reasoning.as_str()));
        }
    }
    if role == "tool"
        && let Some(id) = &message.tool_call_id
    {
        object.insert("tool_call_id".to_owned(), Value::from(id.as_str()));
    }
    for (key, text) in [("name", &message.name), ("task", &message.task)] {
        if let Some(text) = text {
            object.insert(key.to_owned(), Value::from(text.as_str()));
        }
    }
    if role == "developer" {
        object.insert("tools".to_owned(), message.tools.clone().unwrap_or(Value::Null));
    }
    Ok(object)
}

/// A part of a message, as templates see it.
enum Part {
    Text(TextPart),
    /// An image, with the further keys of its part.
    Image(Object),
}

/// One text of a message with the further keys of its part.
struct TextPart {
    text: String,
    extras: Object,
    /// Whether the part is a bare string or of the type `text`, and not a refusal, a thought, or what the Responses API
    /// calls a text.
    is_plain: bool,
}

/// The keys of vLLM's types of parts, none of which stays on a text; templates tell media by some of them.
const PART_KEYS: [&str; 18] = [
    "type",
    "text",
    "refusal",
    "thinking",
    "closed",
    "file",
    "image_url",
    "image_pil",
    "image_embeds",
    "input_audio",
    "audio_url",
    "audio_embeds",
    "video_url",
    "video_embeds",
    "data",
    "name",
    "uuid",
    "prompt_cache_breakpoint",
];

fn parts(index: usize, message: &Message, format: ContentFormat) -> Result<Vec<Part>, PromptError> {
    let plain = |text: &str| Part::Text(TextPart { text: text.to_owned(), extras: Object::default(), is_plain: true });
    let mut parts = match &message.content {
        Content::Empty => Vec::new(),
        Content::Text(text) => vec![plain(text)],
        Content::Parts(parts) => {
            let mut shown = Vec::with_capacity(parts.len());
            for (part_index, part) in parts.iter().enumerate() {
                let place = || Path::from("messages").then(index).then("content").then(part_index);
                match part {
                    ContentPart::Text(text) => shown.push(plain(text)),
                    ContentPart::Object { kind, fields } => {
                        shown.push(Part::Text(object_part(place(), kind, fields)?));
                    }
                    ContentPart::Image(image) if format == ContentFormat::OpenAi => {
                        shown.push(Part::Image(extras(&image.extras)));
                    }
                    ContentPart::Image(_) => {
                        let message = "the chat template knows no content parts, so it cannot show an image".to_owned();
                        return Err(PromptError::Content { field: place(), message });
                    }
                }
            }
            shown
        }
    };
    if message.role.as_str() == "system" {
        parts.retain_mut(|part| match part {
            Part::Text(text) => strip_billing_header(text),
            Part::Image(_) => true,
        });
    }
    Ok(parts)
}

/// The keys of a part that templates see as they are.
fn extras(fields: &Object) -> Object {
    let extras = fields.iter().filter(|(name, _)| !PART_KEYS.contains(&name.as_str()));
    extras.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// What a message says, its parts on a line each, as templates that know no parts see it.
pub fn message_text(message: &Message) -> Result<String, PromptError> {
    let parts = parts(0, message, ContentFormat::String)?;
    Ok(texts(parts).map(|part| part.text).collect::<Vec<_>>().join("\n"))
}

/// The text of a part. As in vLLM, a part without one is refused: whatever it was to say would be lost.
fn object_part(place: Path, kind: &str, fields: &Object) -> Result<TextPart, PromptError> {
    let invalid = |field: Path, message: String| Err(PromptError::Content { field, message });
    let key = match kind {
        "text" | "input_text" | "output_text" => "text",
        "refusal" => "refusal",
        "thinking" => "thinking",
        _ => {
            let message = format!(
                "Unsupported chat content part type: '{kind}'. Supported types: text, input_text, output_text, \
                 refusal, thinking."
            );
            return invalid(place, message);
        }
    };
    if fields.get("uuid").is_some_and(|uuid| !uuid.is_null()) {
        return invalid(place.then("uuid"), "`uuid` is for media, and this part is a text".to_owned());
    }
    match fields.get(key) {
        Some(Value::String(text)) => {
            Ok(TextPart { text: text.clone(), extras: extras(fields), is_plain: kind == "text" })
        }
        _ => invalid(place.then(key), format!("`{key}` of a content part must be a string")),
    }
}

fn strip_billing_header(part: &mut TextPart) -> bool {
    if !part.is_plain {
        return true;
    }
    let text = without_billing_header(&part.text).unwrap_or_default();
    if text.len() < part.text.len() {
        part.text = text.to_owned();
        return !part.text.is_empty();
    }
    true
}

/// What a text of a system message says; `None` if it says nothing: clients put another header there in every request.
pub fn without_billing_header(text: &str) -> Option<&str> {
    if text.starts_with(BILLING_HEADER) { text.split_once('\n').map(|(_, rest)| rest) } else { Some(text) }
}

fn texts(parts: Vec<Part>) -> impl Iterator<Item = TextPart> {
    parts.into_iter().filter_map(|part| match part {
        Part::Text(text) => Some(text),
        Part::Image(_) => None,
    })
}

fn content(role: &str, parts: Vec<Part>, format: ContentFormat) -> Value {
    let has_images = parts.iter().any(|part| matches!(part, Part::Image(_)));
    if format == ContentFormat::String || (role == "tool" && !has_images) {
        // vLLM leaves empty texts out, newline and all, unless they were parts.
        let is_kept = |text: &String| format == ContentFormat::OpenAi || !text.is_empty();
        let mut texts: Vec<String> = texts(parts).map(|part| part.text).filter(is_kept).collect();
        let only = if texts.len() == 1 { texts.pop() } else { None };
        return Value::String(only.unwrap_or_else(|| texts.join("\n")));
    }
    let parts = parts.into_iter().map(|part| {
        let mut object = Object::default();
        let extras = match part {
            Part::Text(TextPart { text, extras, .. }) => {
                object.insert("type".to_owned(), Value::from("text"));
                object.insert("text".to_owned(), Value::String(text));
                extras
            }
            Part::Image(extras) => {
                object.insert("type".to_owned(), Value::from("image"));
                extras
            }
        };
        object.extend(extras);
        Value::Object(object)
    });
    Value::Array(parts.collect())
}

/// A call in the key order of vLLM's schema: templates print calls as they come.
fn tool_call(call: &ToolCall, form: ArgumentsForm) -> Value {
    let text = call.arguments.as_deref().unwrap_or_default();
    let arguments = match (form, Value::parse(text)) {
        (ArgumentsForm::Text, _) => Value::from(if text.is_empty() { "{}" } else { text }),
        (_, Ok(object @ Value::Object(_))) => object,
        // Python reads these, so the text says what an object does not.
        (ArgumentsForm::Mapping, Err(error)) if error.is_limit() => Value::from(text),
        // As in vLLM: models do write broken calls, and their ids, not this text, are what the prompt keeps.
        _ => Value::Object(Object::default()),
    };
    let mut function = Object::default();
    function.insert("arguments".to_owned(), arguments);
    function.insert("name".to_owned(), Value::from(call.name.as_str()));
    function.extend(call.function_extras.clone());
    let mut object = Object::default();
    object.insert("id".to_owned(), Value::from(call.id.as_str()));
    object.insert("function".to_owned(), Value::Object(function));
    object.insert("type".to_owned(), Value::from("function"));
    object.extend(call.extras.clone());
    Value::Object(object)
}

/// A tool as pydantic dumps it for the template: missing description and parameters are null.
pub(super) fn template_tool(tool: &FunctionTool) -> Value {
    let mut function = Object::default();
    function.insert("name".to_owned(), Value::from(tool.name.as_str()));
    let description = tool.description.as_deref().map_or(Value::Null, Value::from);
    function.insert("description".to_owned(), description);
    function.insert("parameters".to_owned(), tool.parameters.clone().unwrap_or(Value::Null));
    // As vLLM does, the field beside the function is taken for the function's own.
    let flags = [("strict", tool.strict), ("defer_loading", tool.defer_loading.or(tool.outer_defer_loading))];
    function.extend(flags.into_iter().filter_map(|(key, flag)| Some((key.to_owned(), Value::Bool(flag?)))));
    let mut object = Object::default();
    object.insert("type".to_owned(), Value::from("function"));
    object.insert("function".to_owned(), Value::Object(function));
    if let Some(flag) = tool.outer_defer_loading {
        object.insert("defer_loading".to_owned(), Value::Bool(flag));
    }
    Value::Object(object)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prompt::gathered_system::Instructions;

    /// Gathers the instructions for a template that looks like `source`.
    fn gathered(objects: Vec<Object>, source: &str, system_first: bool) -> (Vec<Object>, Vec<usize>) {
        Instructions { source, format: ContentFormat::String, system_first }.gather(objects)
    }

    fn messages(text: &str) -> Vec<Message> {
        serde_json::from_str(text).unwrap()
    }

    fn rendered(text: &str, format: ContentFormat) -> Vec<String> {
        let objects = template_messages(&messages(text), format, ArgumentsForm::Mapping).unwrap();
        objects.into_iter().map(|object| Value::Object(object).to_json_string()).collect()
    }

    #[test]
    fn absent_and_multi_part_content_become_one_string() {
        let text = r#"[{"role":"assistant","content":null},{"role":"user"},
            {"role":"user","content":["a",{"type":"text","text":"b"}]}]"#;
        assert_eq!(
            rendered(text, ContentFormat::String),
            [
                r#"{"role": "assistant", "content": ""}"#,
                r#"{"role": "user", "content": ""}"#,
                r#"{"role": "user", "content": "a\nb"}"#
            ]
        );
    }

    #[test]
    fn a_template_that_loops_over_content_gets_parts() {
        let text = r#"[{"role":"user","content":"a"},{"role":"assistant","content":null},
            {"role":"user","content":[{"type":"text","text":"b","cache_control":{"x":1}}]},
            {"role":"tool","content":[{"type":"text","text":"r"}],"tool_call_id":"c"}]"#;
        assert_eq!(
            rendered(text, ContentFormat::OpenAi),
            [
                r#"{"role": "user", "content": [{"type": "text", "text": "a"}]}"#,
                r#"{"role": "assistant", "content": []}"#,
                r#"{"role": "user", "content": [{"type": "text", "text": "b", "cache_control": {"x": 1}}]}"#,
                r#"{"role": "tool", "content": "r", "tool_call_id": "c"}"#
            ]
        );
    }

    #[test]
    fn calls_are_reordered_and_their_arguments_parsed() {
        let text = r#"[{"role":"assistant","tool_calls":[
            {"type":"function","index":0,"id":"c","function":{"name":"f","arguments":"{\"b\": 1e5, \"a\": 2}"}},
            {"type":"function","id":"d","function":{"name":"g","arguments":"not json"}}]}]"#;
        assert_eq!(
            rendered(text, ContentFormat::String),
            [concat!(
                r#"{"role": "assistant", "content": "", "tool_calls": ["#,
                r#"{"id": "c", "function": {"arguments": {"b": 100000.0, "a": 2}, "name": "f"}, "type": "function", "index": 0}, "#,
                r#"{"id": "d", "function": {"arguments": {}, "name": "g"}, "type": "function"}]}"#
            )]
        );
    }

    #[test]
    fn images_are_refused_by_name() {
        let text = r#"[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}]"#;
        let error = template_messages(&messages(text), ContentFormat::String, ArgumentsForm::Mapping).unwrap_err();
        assert!(error.to_string().contains("image_url"), "{error}");
    }

    #[test]
    fn developer_messages_join_the_system_prompt_where_the_role_is_unknown() {
        let text =
            r#"[{"role":"user","content":"q"},{"role":"developer","content":"d"},{"role":"system","content":"s"}]"#;
        let objects = template_messages(&messages(text), ContentFormat::String, ArgumentsForm::Mapping).unwrap();
        let (folded, places) = gathered(objects.clone(), "{{ messages }}", false);
        assert_eq!(places, [1, 0, 0]);
        assert_eq!(Value::Object(folded[0].clone()).to_json_string(), r#"{"role": "system", "content": "d\n\ns"}"#);
        assert_eq!(gathered(objects, "'developer'", false).0.len(), 3);
    }

    #[test]
    fn system_messages_are_gathered_where_the_template_wants_the_first_only() {
        let text = r#"[{"role":"user","content":"q"},{"role":"system","content":[{"type":"text","text":"s"}]},
            {"role":"assistant","content":"a"},{"role":"system","content":"t"}]"#;
        let objects = |format| template_messages(&messages(text), format, ArgumentsForm::Mapping).unwrap();
        assert_eq!(gathered(objects(ContentFormat::String), "", false).1, [0, 1, 2, 3]);
        for (format, first) in [
            (ContentFormat::String, r#"{"role": "system", "content": "s\n\nt"}"#),
            (ContentFormat::OpenAi, r#"{"role": "system", "content": [{"type": "text", "text": "s\n\nt"}]}"#),
        ] {
            let instructions = Instructions { source: "'developer'", format, system_first: true };
            let (gathered, places) = instructions.gather(objects(format));
            assert_eq!(places, [1, 0, 2, 0]);
            assert_eq!(Value::Object(gathered[0].clone()).to_json_string(), first);
        }
    }

    #[test]
    fn empty_parts_are_left_out_of_a_string_and_kept_in_a_list() {
        let text = r#"[{"role":"user","content":[{"type":"text","text":""},{"type":"text","text":"a"},""]},
            {"role":"tool","content":[{"type":"text","text":"r"},""]}]"#;
        assert_eq!(
            rendered(text, ContentFormat::String),
            [r#"{"role": "user", "content": "a"}"#, r#"{"role": "tool", "content": "r"}"#]
        );
        assert_eq!(
            rendered(text, ContentFormat::OpenAi),
            [
                concat!(
                    r#"{"role": "user", "content": [{"type": "text", "text": ""}, {"type": "text", "text": "a"}, "#,
                    r#"{"type": "text", "text": ""}]}"#
                ),
                r#"{"role": "tool", "content": "r\n"}"#
            ]
        );
    }

    #[test]
    fn keys_of_other_parts_do_not_stay_on_a_text() {
        let text = r#"[{"role":"user","content":[{"type":"text","text":"a","image_url":"u","uuid":null,"own":1}]}]"#;
        assert_eq!(
            rendered(text, ContentFormat::OpenAi),
            [r#"{"role": "user", "content": [{"type": "text", "text": "a", "own": 1}]}"#]
        );
    }

    #[test]
    fn a_part_with_the_uuid_of_a_medium_is_refused() {
        let text = r#"[{"role":"user","content":[{"type":"text","text":"a","uuid":"x"}]}]"#;
        let error = template_messages(&messages(text), ContentFormat::String, ArgumentsForm::Mapping).unwrap_err();
        assert!(error.to_string().contains("uuid"), "{error}");
    }

    #[test]
    fn a_part_without_its_text_is_refused() {
        for part in [
            r#"{"type":"text"}"#,
            r#"{"type":"text","text":null}"#,
            r#"{"type":"text","content":"a"}"#,
            r#"{"type":"input_text","input_text":"a"}"#,
            r#"{"type":"refusal","text":"a"}"#,
            r#"{"type":"thinking","thinking":null}"#,
        ] {
            let messages = messages(&format!(r#"[{{"role":"user","content":["a",{part}]}}]"#));
            for format in [ContentFormat::String, ContentFormat::OpenAi] {
                let shown = template_messages(&messages, format, ArgumentsForm::Mapping);
                assert!(matches!(shown, Err(PromptError::Content { .. })), "{part}");
            }
        }
    }

    #[test]
    fn only_the_billing_header_of_a_text_goes_and_a_part_that_is_nothing_else() {
        let header = "x-anthropic-billing-header: 1";
        let text = format!(
            r#"[{{"role":"system","content":["{header}\nkept",{{"type":"text","text":"{header}\n"}}]}},
                {{"role":"system","content":[{{"type":"input_text","text":"{header}"}}]}}]"#
        );
        assert_eq!(
            rendered(&text, ContentFormat::OpenAi),
            [
                r#"{"role": "system", "content": [{"type": "text", "text": "kept"}]}"#.to_owned(),
                format!(r#"{{"role": "system", "content": [{{"type": "text", "text": "{header}"}}]}}"#),
            ]
        );
    }

    #[test]
    fn arguments_that_no_object_could_keep_are_the_text_that_they_are() {
        let deep = format!(r#"{{"a": {}{}}}"#, "[".repeat(300), "]".repeat(300));
        let long = format!(r#"{{"a": {}}}"#, "1".repeat(4301));
        for arguments in [r#"{"a": "\ud83d"}"#, &deep, &long] {
            let call = serde_json::json!({ "id": "c", "type": "function",
                "function": { "name": "f", "arguments": arguments } });
            let call = serde_json::from_value(call).unwrap();
            for (form, shown) in [
                (ArgumentsForm::Mapping, Value::from(arguments)),
                (ArgumentsForm::Text, Value::from(arguments)),
                (ArgumentsForm::MappingOnly, Value::Object(Object::default())),
            ] {
                assert_eq!(tool_call(&call, form).get("function").unwrap().get("arguments"), Some(&shown), "{form:?}");
            }
        }
    }

    #[test]
    fn a_tool_is_deferred_by_the_field_beside_its_function() {
        let tool = |text: &str| template_tool(&serde_json::from_str(text).unwrap()).to_json_string();
        let shown = r#"{"type": "function", "function": {"name": "f", "description": null, "parameters": null, "#;
        assert_eq!(
            tool(r#"{"type":"function","function":{"name":"f"},"defer_loading":true}"#),
            format!(r#"{shown}"defer_loading": true}}, "defer_loading": true}}"#)
        );
        assert_eq!(
            tool(r#"{"type":"function","function":{"name":"f","defer_loading":false},"defer_loading":true}"#),
            format!(r#"{shown}"defer_loading": false}}, "defer_loading": true}}"#)
        );
    }

    #[test]
    fn empty_messages_add_nothing_to_the_system_prompt() {
        let text =
            r#"[{"role":"developer","content":""},{"role":"user","content":"q"},{"role":"system","content":"s"}]"#;
        let objects = template_messages(&messages(text), ContentFormat::String, ArgumentsForm::Mapping).unwrap();
        let (folded, _) = gathered(objects, "", false);
        assert_eq!(Value::Object(folded[0].clone()).to_json_string(), r#"{"role": "system", "content": "s"}"#);
    }
}
