//! Any text as the answer of a model, in any format: each word is in the reasoning, in the content or in a call, once, and
//! pieces of the text give what the whole gives.
//!
//! The first line names the format of calls, and the second that of reasoning; `-` is none, and other words than their names
//! choose one too. The third line chooses the schema of the tools (from the fifth on, one type of argument), where the prompt leaves the reasoning, and where the text is cut. What
//! follows is the text; each `W` in it is a word. Shared by the fuzz target and by the test that replays its seeds.

use std::sync::Arc;

use tito::internals::{
    chat::FunctionTool,
    json::{Object, Value},
    parser::{
        OutputFormat, PromptReasoning, ReasoningParser, ToolFormat, ToolParser,
        told::{ARGUMENT_SCHEMAS, WORDS, parameters_of_a, shown, told, words},
    },
};

/// What the arguments of `f` and `g` may be.
const SCHEMAS: [Option<&str>; 5] = [
    Some(r#"{"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}}"#),
    Some(r#"{"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": ["number", "null"]}}}"#),
    Some(
        r##"{"properties": {"a": {"$ref": "#/$defs/x"}, "b": {"type": "array", "items": {"type": "boolean"}}},
        "$defs": {"x": {"anyOf": [{"type": "object", "properties": {"a": {"$ref": "#/$defs/x"}}}, {"type": "null"}]}}}"##,
    ),
    Some("{}"),
    None,
];
/// How many schemas the third line chooses from.
pub(crate) const SCHEMA_COUNT: usize = SCHEMAS.len() + ARGUMENT_SCHEMAS.len();
/// Formats that leave it to the schema what a value is.
const BY_SCHEMA: [&str; 14] = [
    "dots",
    "glm45",
    "glm47",
    "hy_v3",
    "hy_v4",
    "k2_horizon",
    "ling3",
    "mimo",
    "minicpm5",
    "minimax_m2",
    "qwen3_coder",
    "seed_oss",
    "step3",
    "step3p5",
];
const PROMPTS: [PromptReasoning; 3] = [PromptReasoning::Unmarked, PromptReasoning::Begun(0), PromptReasoning::Ended];
/// The suffix of marks that the vocabulary of a checkpoint of Hunyuan may have.
const SUFFIX: &str = ":6e";
const SUFFIXED: [&str; 4] = ["<tool_calls:6e>", "</tool_calls:6e>", "<think:6e>", "</think:6e>"];
/// What may spell a character without showing it.
const ESCAPES: [&str; 4] = ["\\u", "\\U", "\\N", "&#"];
/// A longer text is cut off: a fuzzer is to try many.
const MOST_BYTES: usize = 4096;

/// Reads the text, and returns the format of its calls if there are any.
pub(crate) fn check(data: &[u8]) -> Option<String> {
    let mut lines = data.splitn(4, |&byte| byte == b'\n');
    let [calls, reasoning, choices, text] = [(); 4].map(|()| lines.next().unwrap_or_default());
    let (schema, prompt) = (at(choices, 0), PROMPTS[at(choices, 1) % PROMPTS.len()]);
    let cuts = choices.get(2..).unwrap_or_default();
    let schema = schema % SCHEMA_COUNT;
    let typed = schema.checked_sub(SCHEMAS.len()).map(|number| ARGUMENT_SCHEMAS[number]);
    let of_a = typed.map(|(of_a, _)| parameters_of_a(of_a));
    let schema = of_a.as_deref().or_else(|| SCHEMAS[schema]);
    let (name, format) = format(calls, reasoning, schema);
    let text = with_words(&String::from_utf8_lossy(&text[..text.len().min(MOST_BYTES)]));

    let whole = told(&format, prompt, [text.as_str()]);
    assert_eq!(told(&format, prompt, pieces(&text, cuts)), whole, "{format:?} {prompt:?} {text:?} in pieces");
    assert_eq!(told(&format, prompt, pieces(&text, &[0xff])), whole, "{format:?} {prompt:?} {text:?} by character");
    let called = !whole.2.is_empty();
    if let Some((of_a, types)) = typed
        && name.as_deref().is_some_and(|name| BY_SCHEMA.contains(&name))
    {
        for (_, arguments) in &whole.2 {
            assert!(is_typed(arguments, types, &text), "{format:?} {of_a} {text:?}: {arguments}");
        }
    }
    if !loses_words(&text) {
        let (sampled, said) = (words(&text), words(&shown(whole.clone())));
        let once = |word: &char| said.iter().filter(|other| *other == word).count() == 1;
        let wrong: String = sampled.iter().filter(|word| !once(word)).collect();
        assert!(wrong.is_empty(), "{format:?} {prompt:?} {text:?}: {wrong:?} in {whole:?}");
    }
    name.filter(|_| called)
}

/// Whether `a` is a text where only texts are allowed, and is no text that says a value of an allowed type where no text is,
/// unless the answer has it in quotes.
fn is_typed(arguments: &str, types: &[&str], answer: &str) -> bool {
    // Arguments that were cut off are none.
    let Ok(Value::Object(arguments)) = Value::parse(arguments) else { return true };
    match arguments.get("a") {
        None => true,
        Some(Value::String(text)) => {
            let says_one = Value::parse(text.trim()).is_ok_and(|value| types.contains(&type_of(&value)));
            types.contains(&"string") || !says_one || answer.contains(&format!("\"{text}\""))
        }
        Some(_) => types != ["string"],
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Int(_) => "integer",
        Value::Float(_) | Value::Literal(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn at(bytes: &[u8], index: usize) -> usize {
    bytes.get(index).copied().unwrap_or_default().into()
}

/// What a line names, or what it chooses.
fn chosen<P>(line: &[u8], names: &[&'static str], parser: impl Fn(&str) -> Option<P>) -> Option<P> {
    if line == b"-" {
        return None;
    }
    let exact = std::str::from_utf8(line).ok().filter(|line| names.contains(line));
    parser(exact.unwrap_or_else(|| names[at(line, 0) % names.len()]))
}

/// How the answer is read, and the name of what reads its calls.
fn format(calls: &[u8], reasoning: &[u8], schema: Option<&str>) -> (Option<String>, OutputFormat) {
    let vocabulary = |line: &[u8]| {
        let suffixed = line.ends_with(SUFFIX.as_bytes());
        SUFFIXED.into_iter().filter(move |_| suffixed).map(str::to_owned)
    };
    let bare = |line: &[u8]| line.strip_suffix(SUFFIX.as_bytes()).unwrap_or(line).to_vec();
    let parser = chosen(&bare(calls), &ToolParser::names().collect::<Vec<_>>(), ToolParser::named);
    let parser = parser.map(|parser| parser.of_vocabulary(&mut vocabulary(calls), None).expect("one suffix"));
    let thinking = chosen(&bare(reasoning), &ReasoningParser::names().collect::<Vec<_>>(), ReasoningParser::named);
    let thinking = thinking.map(|parser| parser.of_vocabulary(&mut vocabulary(reasoning), None).expect("one suffix"));
    let variables: Object =
        Object::from_iter([("thinking".to_owned(), true.into()), ("reasoning_effort".to_owned(), "high".into())]);
    let tools: Vec<_> = ["f", "g"].map(|name| tool(name, schema)).into();
    let tools = parser.map(|parser| ToolFormat {
        parser,
        tools: Arc::from(tools),
        forced: None,
        first_only: false,
        held: false,
    });
    let format = OutputFormat::new(thinking.map(|parser| parser.format(&variables)), tools, parser);
    (parser.map(|parser| parser.name().to_owned()), format)
}

fn tool(name: &str, schema: Option<&str>) -> FunctionTool {
    FunctionTool {
        name: name.to_owned(),
        description: None,
        parameters: schema.map(|schema| Value::parse(schema).expect("a schema")),
        strict: None,
        defer_loading: None,
        outer_defer_loading: None,
    }
}

/// Each `W` is a word of its own, as long as there are any.
fn with_words(text: &str) -> String {
    let text: String = text.chars().filter(|c| !WORDS.contains(c)).collect();
    let mut fresh = WORDS;
    text.chars().map(|c| if c == 'W' { fresh.next().unwrap_or(c) } else { c }).collect()
}

/// The text cut after the characters whose bits are set.
fn pieces<'t>(text: &'t str, cuts: &[u8]) -> Vec<&'t str> {
    let mut pieces = Vec::new();
    let mut start = 0;
    for (number, (place, _)) in text.char_indices().enumerate() {
        let bits = cuts.get(number / 8 % cuts.len().max(1)).copied().unwrap_or_default();
        if bits >> (number % 8) & 1 == 1 {
            pieces.push(&text[start..place]);
            start = place;
        }
    }
    pieces.push(&text[start..]);
    pieces
}

/// Whether a reader of JSON loses words of the text, because a key stands in it twice, or the text spells words otherwise.
fn loses_words(text: &str) -> bool {
    let repeats = text.match_indices('{').any(|(start, _)| {
        let json = &text[start..];
        Value::parse_start(json).is_ok_and(|(value, end)| words(&value.to_json_string()) != words(&json[..end]))
    });
    repeats || ESCAPES.iter().any(|escape| text.contains(escape))
}
