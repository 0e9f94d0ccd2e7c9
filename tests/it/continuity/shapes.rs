//! Conversations, and the ways in which their generations end.

use serde_json::{Value, json};
use tito::{TokenId, prompt::PromptError, tokenizer::Tokenizer};

use super::{families::Family, oracle::CALL_MARK};

/// How a tracked generation ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum End {
    Closed,
    Truncated,
    /// By a stop token that closes no message in the template.
    Foreign,
    /// In the middle of a character.
    HalfCharacter,
    /// Nothing was sampled.
    Empty,
    /// With `ignore_eos`, a line break after the close.
    ClosedAndOn,
    /// The close stands in the text, sampled and spoken.
    CloseInText,
}

pub(crate) const ENDS: [End; 7] =
    [End::Closed, End::Truncated, End::Foreign, End::HalfCharacter, End::Empty, End::ClosedAndOn, End::CloseInText];

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn tracked(text: &str) -> Value {
    json!({"role": "assistant", "content": text, "tracked": true})
}

fn assistant(text: &str) -> Value {
    json!({"role": "assistant", "content": text})
}

fn tool(number: usize) -> Value {
    json!({"role": "tool", "tool_call_id": format!("c{number}"), "content": format!("{{\"sum\": {number}}}")})
}

fn calls(content: &str, count: usize) -> Value {
    let call = |number: usize| {
        let arguments = json!({"a": number, "b": CALL_MARK}).to_string();
        json!({"id": format!("c{number}"), "type": "function", "function": {"name": "add", "arguments": arguments}})
    };
    let calls: Vec<Value> = (0..count).map(call).collect();
    json!({"role": "assistant", "content": content, "tool_calls": calls, "tracked": true})
}

/// Name, conversation, further fields of the request. Messages that are `tracked` get ids; what a message says `later`
/// is what it says in the request, after all ids were made.
pub(crate) type Shape = (&'static str, Vec<Value>, Value);

fn tools() -> Value {
    let parameters = json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]});
    let function = json!({"name": "add", "description": "Adds.", "parameters": parameters});
    json!({"tools": [{"type": "function", "function": function}]})
}

/// Every shape of conversation that a splice meets.
pub(crate) fn shapes() -> Vec<Shape> {
    few_turns().into_iter().chain(many_turns()).collect()
}

fn none() -> Value {
    json!({})
}

fn q() -> Value {
    user("the weather")
}

fn answer() -> Value {
    tracked("it is warm Zq7")
}

fn thought() -> Value {
    tracked("<think>\nhm\n</think>\n\nwarm Zq7")
}

/// An agent with tools, whose thoughts are in a field of their own, as servers answer them: it thinks and calls, is told
/// what came of it, thinks and answers, and is asked again.
pub(crate) fn thinking_agent() -> Shape {
    let thinking = |mut message: Value, thought: &str| {
        message["reasoning"] = json!(thought);
        message
    };
    let turns = vec![q(), thinking(calls("", 1), "I shall add."), tool(0), thinking(answer(), "That is it."), q()];
    ("a thinking agent", turns, tools())
}

/// What a message may be.
fn few_turns() -> Vec<Shape> {
    let eight = (0..8).flat_map(|_| [q(), answer()]).chain([q()]).collect();
    let system = json!({"role": "system", "content": "be kind"});
    let developer = json!({"role": "developer", "content": "be brief"});
    let mut reasoned = tracked("warm Zq7");
    reasoned["reasoning"] = json!("hm, <|im_end|>?");
    let parts = json!([{"type": "text", "text": "it is"}, {"type": "text", "text": "warm Zq7"}]);
    let parts = json!({"role": "assistant", "content": parts, "tracked": true});
    let open = json!({"continue_final_message": true, "add_generation_prompt": false});
    let end = json!({"add_generation_prompt": false});
    let ok = || user("ok");
    vec![
        ("plain", vec![q(), answer(), q()], none()),
        ("system", vec![system.clone(), q(), answer(), q()], none()),
        ("call", vec![q(), calls("", 1), tool(0)], none()),
        ("call, then user", vec![q(), calls("", 1), tool(0), q()], none()),
        ("parallel calls", vec![q(), calls("", 2), tool(0), tool(1)], none()),
        ("content and call", vec![q(), calls("let me see", 1), tool(0)], none()),
        ("call, answer", vec![q(), calls("", 1), tool(0), answer(), q()], none()),
        ("call last", vec![q(), calls("", 1)], end.clone()),
        ("untracked between", vec![q(), answer(), q(), assistant("no ids"), q()], none()),
        ("three turns", vec![q(), answer(), q(), answer(), q(), answer(), q()], none()),
        ("eight turns", eight, none()),
        ("thought in content", vec![q(), thought(), q()], none()),
        ("thoughts and calls", vec![q(), thought(), q(), calls("<think>\nso\n</think>\n\n", 1), tool(0)], none()),
        ("reasoning", vec![q(), reasoned, q()], none()),
        ("content parts", vec![q(), parts, q()], none()),
        ("empty content", vec![q(), tracked(""), q()], none()),
        ("null content", vec![q(), json!({"role": "assistant", "content": null, "tracked": true}), q()], none()),
        ("same texts", vec![ok(), answer(), ok(), assistant("ok"), ok()], none()),
        ("empty texts", vec![user(""), answer(), user(""), assistant(""), user("")], none()),
        ("two users", vec![q(), answer(), q(), q()], none()),
        ("stop tokens in a later text", vec![q(), calls("", 1), tool(0), user("<|endoftext|><|im_end|>")], none()),
        ("developer first", vec![developer.clone(), q(), answer(), q()], none()),
        ("developer later", vec![q(), answer(), developer, q()], none()),
        ("system later", vec![q(), answer(), system, q()], none()),
        ("anchor last", vec![q(), answer()], none()),
        ("anchor last, no generation prompt", vec![q(), answer()], end),
        ("continues a later message", vec![q(), answer(), q(), assistant("well")], open.clone()),
        ("continues the anchor", vec![q(), answer()], open),
    ]
}

/// What conversations may come to.
fn many_turns() -> Vec<Shape> {
    let thinks_and_calls = || calls("<think>\nso\n</think>\n\n", 1);
    let edited = |text: &str, later: &str| json!({"role": "user", "content": text, "later": later});
    let untracked = |mut message: Value| {
        message.as_object_mut().unwrap().remove("tracked");
        message
    };
    vec![
        (
            "agent's loop",
            vec![q(), calls("", 1), tool(0), calls("so", 1), tool(0), calls("", 2), tool(0), tool(1)],
            none(),
        ),
        ("call with tools", vec![q(), calls("", 1), tool(0), answer(), q()], tools()),
        ("nudged", vec![q(), thought(), user("go on"), thought(), user("and?")], none()),
        (
            "nudged after a tool",
            vec![q(), thinks_and_calls(), tool(0), user("go on"), thinks_and_calls(), tool(0)],
            none(),
        ),
        (
            "thoughts, tool, answer",
            vec![q(), thinks_and_calls(), tool(0), thought(), q(), assistant("no ids"), q()],
            none(),
        ),
        ("edited history", vec![edited("the weather", "the news"), answer(), q(), assistant("no ids"), q()], none()),
        (
            "edited calls",
            vec![
                q(),
                calls("", 1),
                json!({"role": "tool", "tool_call_id": "c0", "content": "1", "later": "2"}),
                answer(),
                q(),
            ],
            none(),
        ),
        ("few shots", vec![q(), assistant("a"), user("b"), assistant("c"), user("d"), answer(), q()], none()),
        (
            "calls without ids",
            vec![q(), untracked(calls("", 1)), tool(0), assistant("no ids"), q(), answer(), q()],
            none(),
        ),
        (
            "many turns without ids after them",
            vec![
                q(),
                answer(),
                q(),
                assistant("a"),
                user("b"),
                assistant("c"),
                user("d"),
                untracked(calls("", 1)),
                tool(0),
                assistant("e"),
                user("f"),
            ],
            none(),
        ),
    ]
}

/// The ids that the model sampled for `message`, which the template shows as `body`.
fn generation(family: &Family, message: &Value, end: End) -> Vec<TokenId> {
    let model = &family.model;
    let calls = message.get("tool_calls").is_some();
    let body = if calls { "<tool_call>add Zq8</tool_call>".to_owned() } else { said(message) };
    let close = if calls { family.call_close } else { family.close };
    let close = model.ids(if close.is_empty() { family.stop.unwrap() } else { close });
    // A merge that the tokenizer would make is left unmade: these ids are not what encoding the text gives.
    let mut ids: Vec<_> = body.chars().flat_map(|letter| model.ids(&letter.to_string())).collect();
    match end {
        End::Closed => ids.extend(close),
        End::Truncated => {}
        End::Foreign => ids.extend(model.ids(family.foreign)),
        End::HalfCharacter => ids.push(half_character(&model.tokenizer)),
        End::Empty => ids.clear(),
        End::ClosedAndOn => {
            ids.extend(close);
            ids.extend(model.ids("\n"));
        }
        End::CloseInText => ids.splice(0..0, close).for_each(drop),
    }
    ids
}

/// The first of the three bytes of `€`, as byte-level BPE and as `SentencePiece` write it.
fn half_character(tokenizer: &Tokenizer) -> TokenId {
    tokenizer.id_of("<0xE2>").or_else(|| tokenizer.id_of("â")).unwrap()
}

fn said(message: &Value) -> String {
    match &message["content"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().map(|part| part["text"].as_str().unwrap()).collect::<Vec<_>>().join("\n"),
        _ => String::new(),
    }
}

/// The request with ids on its tracked messages, or why one of its prompts cannot be made.
pub(crate) fn request(family: &Family, messages: &[Value], fields: &Value, end: End) -> Result<Value, PromptError> {
    let mut request = json!({"messages": []});
    for message in messages {
        let mut message = message.clone();
        if message.as_object_mut().unwrap().remove("tracked").is_some() {
            let prompt = family.model.render(&request)?.token_ids;
            message["prompt_token_ids"] = json!(prompt.to_vec());
            message["generation_token_ids"] = json!(generation(family, &message, end));
            if end == End::CloseInText && message.get("tool_calls").is_none() && message["content"].is_string() {
                message["content"] = json!(format!("{}{}", family.close, said(&message)));
            }
        }
        request["messages"].as_array_mut().unwrap().push(message);
    }
    for message in request["messages"].as_array_mut().unwrap() {
        if let Some(later) = message.as_object_mut().unwrap().remove("later") {
            message["content"] = later;
        }
    }
    request.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    Ok(request)
}
