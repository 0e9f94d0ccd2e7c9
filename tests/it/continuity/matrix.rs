//! Every family, every shape of conversation, every end of a generation: the ids that are known, then exactly what the
//! template writes behind the message; or a refusal that is listed here.

use serde_json::{Value, json};
use tito::{
    TokenId,
    prompt::{PromptError, Provenance, UnprovableSplice},
};

use super::{
    families::{self, Family},
    oracle::{CALL_MARK, expected},
};

/// How a tracked generation ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Closed,
    Truncated,
    /// By a stop token that closes no message in the template.
    Foreign,
    /// In the middle of a character.
    HalfCharacter,
    /// Nothing was sampled.
    Empty,
    /// With `ignore_eos`, a line break behind the close.
    ClosedAndOn,
    /// The close stands in the text, sampled and spoken.
    CloseInText,
}

const ENDS: [End; 7] =
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
        let arguments = json!({"a": number, "b": if number + 1 == count { CALL_MARK } else { "other" }}).to_string();
        json!({"id": format!("c{number}"), "type": "function", "function": {"name": "add", "arguments": arguments}})
    };
    let calls: Vec<Value> = (0..count).map(call).collect();
    json!({"role": "assistant", "content": content, "tool_calls": calls, "tracked": true})
}

/// Name, conversation, further fields of the request.
fn shapes() -> Vec<(&'static str, Vec<Value>, Value)> {
    let (q, answer) = (|| user("the weather"), || tracked("it is warm Zq7"));
    let eight = (0..8).flat_map(|_| [q(), answer()]).chain([q()]).collect();
    let thought = || tracked("<think>\nhm\n</think>\n\nwarm Zq7");
    let system = json!({"role": "system", "content": "be kind"});
    let developer = json!({"role": "developer", "content": "be brief"});
    let mut reasoned = tracked("warm Zq7");
    reasoned["reasoning"] = json!("hm, <|im_end|>?");
    let parts = json!([{"type": "text", "text": "it is"}, {"type": "text", "text": "warm Zq7"}]);
    let parts = json!({"role": "assistant", "content": parts, "tracked": true});
    let open = json!({"continue_final_message": true, "add_generation_prompt": false});
    let end = json!({"add_generation_prompt": false});
    let none = || json!({});
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
        End::HalfCharacter => ids.push(model.tokenizer.id_of("â").unwrap()),
        End::Empty => ids.clear(),
        End::ClosedAndOn => {
            ids.extend(close);
            ids.extend(model.ids("\n"));
        }
        End::CloseInText => ids.splice(0..0, close).for_each(drop),
    }
    ids
}

fn said(message: &Value) -> String {
    match &message["content"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().map(|part| part["text"].as_str().unwrap()).collect::<Vec<_>>().join("\n"),
        _ => String::new(),
    }
}

/// The request with ids on its tracked messages, or why one of its prompts cannot be made.
fn request(family: &Family, messages: &[Value], fields: &Value, end: End) -> Result<Value, PromptError> {
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
    request.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    Ok(request)
}

#[derive(Debug, Default)]
struct Counts {
    exact: usize,
    exact_after_foreign_stop: usize,
    refused: usize,
    /// The template cannot show the conversation at all.
    not_shown: usize,
}

/// The refusals, each with its reason.
fn refusal(family: &str, shape: &str, end: End) -> Option<UnprovableSplice> {
    match (shape, end) {
        // vLLM folds developer messages into the system prompt, which stands before the known ids.
        ("developer later", _) => Some(UnprovableSplice::MessagesMoved),
        ("continues the anchor", End::Closed | End::Foreign) => Some(UnprovableSplice::ContinuesClosedMessage),
        // The message says more than its ids.
        ("continues the anchor", End::Empty) => Some(UnprovableSplice::ContinuesOtherText),
        // No special token follows the call at all.
        ("call last", _) if family == "glm" => Some(UnprovableSplice::NoClose),
        _ => None,
    }
}

#[test]
fn every_splice_is_exact_or_refused() {
    let mut counts = Counts::default();
    for family in families::all() {
        for (shape, messages, fields) in shapes() {
            for end in ENDS {
                check(&family, (shape, &messages, &fields), end, &mut counts);
            }
        }
    }
    eprintln!("{counts:?}");
    assert!(counts.exact > 2_100 && counts.exact_after_foreign_stop > 340, "{counts:?}");
}

fn check(family: &Family, (shape, messages, fields): (&str, &[Value], &Value), end: End, counts: &mut Counts) {
    let place = format!("{}, {shape}, {end:?}", family.name);
    let rendered = request(family, messages, fields, end).and_then(|request| {
        let rendered = family.model.render(&request)?;
        Ok((rendered, expected(family, &request)?))
    });
    match rendered {
        Ok((rendered, expected)) => {
            let [is, should] = [&*rendered.token_ids, expected.as_slice()].map(|ids| family.model.text(ids));
            assert_eq!(*rendered.token_ids, expected, "{place} is silently wrong:\n{is:?}\n{should:?}");
            assert_eq!(refusal(family.name, shape, end), None, "{place} was refused once");
            match rendered.provenance {
                Provenance::Spliced { foreign_stop: false, .. } => counts.exact += 1,
                Provenance::Spliced { foreign_stop: true, .. } => counts.exact_after_foreign_stop += 1,
                other => panic!("{place}: {other:?}"),
            }
        }
        Err(PromptError::Unprovable(reason)) => {
            assert_eq!(refusal(family.name, shape, end), Some(reason), "{place}");
            counts.refused += 1;
        }
        Err(_) => counts.not_shown += 1,
    }
}
