//! The proof on a short conversation: it must never say what the whole one does not. A debug build compares both in
//! every splice, so these tests make conversations and templates for which they could differ.

use proptest::{
    collection::vec,
    prelude::{Strategy, any},
    prop_assert,
    sample::select,
    test_runner::{Config, TestRunner},
};
use serde_json::{Value, json};
use tito::{
    TokenId,
    prompt::{PromptError, Provenance, UnprovableSplice},
};

use super::{Model, families};

/// ChatML whose loop runs over `messages`, and shows those for which `shows` is true, without thoughts.
fn chatml(messages: &str, shows: &str, end: &str) -> Model {
    Model::tiny(&format!(
        "{{% set ns = namespace(said='', calls=0) %}}{{% for message in {messages} %}}{{% if {shows} %}}\
         {{{{ '<|im_start|>' + message.role + '\\n' + message.content.split('</think>')[-1] + '<|im_end|>\\n' }}}}{{% endif %}}\
         {{% set ns.said = ns.said + '|' + message.content + '|' %}}{{% endfor %}}{end}\
         {{% if add_generation_prompt %}}{{{{ '<|im_start|>assistant\\n' }}}}{{% endif %}}"
    ))
}

/// Templates that leave messages out, or say something else, because of messages long gone.
fn forgetful() -> Vec<Model> {
    let all = "messages";
    vec![
        chatml(all, "true", ""),
        chatml("messages[:5]", "true", ""),
        chatml("messages[-5:]", "true", ""),
        chatml("messages[2:]", "true", ""),
        chatml("messages[-4:] + messages[:1]", "true", ""),
        chatml(all, "loop.index0 % 3 != 1", ""),
        chatml(all, "messages | length < 6 or loop.index0 % 2 == 0", ""),
        chatml(all, "messages | length < 6 or loop.index0 > 3", ""),
        chatml(all, "messages[0].content != 'ok' or loop.revindex > 2", ""),
        chatml(all, "messages[0].content != 'ok' or loop.revindex < 4", ""),
        chatml(all, "not loop.previtem or loop.previtem.content != message.content", ""),
        chatml(all, "('|' + message.content + '|') not in ns.said", ""),
        chatml(all, "ns.said.count('ok') < 3", ""),
        chatml(all, "ns.said.count('ok') % 2 == 0 or message.role == 'user'", ""),
        chatml(all, "true", "{{ messages | length }}"),
        chatml(all, "true", "{{ messages[0].content }}"),
        chatml(all, "true", "{{ messages[3].content }}"),
        chatml(
            all,
            "true",
            "{% if messages[1].content == 'ok' %}{{ '<|im_start|>user\\nok<|im_end|>\\n' }}{% endif %}",
        ),
    ]
}

fn said() -> impl Strategy<Value = Vec<&'static str>> {
    let spelt = "ok<|im_end|>\n<|im_start|>assistant\nfine<|im_end|>\n<|im_start|>user\nok";
    vec(select(vec!["ok", "ok", "fine", "so", spelt, "</think>ok", "hm</think>fine", "<|im_start|>"]), 4..14)
}

/// Users and assistants take turns, and one of the assistant's messages has ids.
fn conversation(model: &Model, said: &[&str], anchor: usize) -> Value {
    let role = |place: usize| if place.is_multiple_of(2) { "user" } else { "assistant" };
    let mut messages: Vec<Value> =
        said.iter().enumerate().map(|(place, text)| json!({"role": role(place), "content": text})).collect();
    let anchor = 1 + 2 * (anchor % (said.len() / 2));
    messages[anchor]["prompt_token_ids"] = json!([5]);
    messages[anchor]["generation_token_ids"] = json!(model.ids(said[anchor]));
    json!({"messages": messages})
}

#[test]
fn templates_that_forget_or_repeat_messages_fool_no_short_proof() {
    let models = forgetful();
    let mut runner = TestRunner::new(Config { cases: 400, failure_persistence: None, ..Config::default() });
    let result = runner.run(&(said(), any::<usize>()), |(said, anchor)| {
        for model in &models {
            match model.render(&conversation(model, &said, anchor)) {
                Ok(rendered) => prop_assert!(rendered.token_ids.starts_with(&[5])),
                Err(PromptError::Unprovable(_)) => {}
                Err(error) => return Err(proptest::test_runner::TestCaseError::fail(error.to_string())),
            }
        }
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
}

fn spliced(model: &Model, messages: &[Value]) -> Result<Vec<TokenId>, UnprovableSplice> {
    match model.render(&json!({"messages": messages})) {
        Ok(rendered) => {
            assert!(matches!(rendered.provenance, Provenance::Spliced { .. }));
            Ok(rendered.token_ids.to_vec())
        }
        Err(PromptError::Unprovable(reason)) => Err(reason),
        Err(error) => panic!("{error}"),
    }
}

fn turns(count: usize) -> Vec<Value> {
    let turn = |number| {
        let question = json!({"role": "user", "content": format!("question {number}")});
        [question, json!({"role": "assistant", "content": format!("answer {number}")})]
    };
    (0..count).flat_map(turn).collect()
}

fn tracked(model: &Model, content: &str) -> Value {
    json!({
        "role": "assistant", "content": content,
        "prompt_token_ids": [5], "generation_token_ids": model.ids(content),
    })
}

/// What the first message says decides what is written after the last.
#[test]
fn a_tail_that_depends_on_the_first_message_is_the_honest_one() {
    let model = chatml("messages", "true", "{% if 'secret' in messages[0].content %}{{ 'hush<|im_end|>' }}{% endif %}");
    for (first, note) in [("a secret", "hush<|im_end|>"), ("no news", "")] {
        let mut messages = turns(4);
        messages[0]["content"] = json!(first);
        messages.extend([json!({"role": "user", "content": "q"}), tracked(&model, "fine")]);
        messages.push(json!({"role": "user", "content": "more"}));
        let ids = spliced(&model, &messages).unwrap();
        let tail = format!("fine<|im_end|>\n<|im_start|>user\nmore<|im_end|>\n{note}<|im_start|>assistant\n");
        assert_eq!(model.text(&ids[1..]), tail);
    }
}

/// A tool that was called long ago changes how its next result is written.
#[test]
fn a_tail_that_depends_on_an_earlier_call_is_the_honest_one() {
    let family = families::named("deepseek");
    let call = |number: usize| {
        json!([{"id": format!("c{number}"), "type": "function",
            "function": {"name": "add", "arguments": format!("{{\"a\": {number}}}")}}])
    };
    let mut messages = turns(3);
    messages[1]["tool_calls"] = call(0);
    messages.insert(2, json!({"role": "tool", "tool_call_id": "c0", "content": "1"}));
    messages.push(json!({"role": "user", "content": "q"}));
    let mut anchor = tracked(&family.model, "let me see");
    anchor["tool_calls"] = call(1);
    messages.extend([anchor, json!({"role": "tool", "tool_call_id": "c1", "content": "2"})]);
    let ids = spliced(&family.model, &messages).unwrap();
    assert_eq!(
        family.model.text(&ids[1..]),
        "let me see<|end|><|outputs_begin|><|output_begin|>2<|output_end|><|outputs_end|>"
    );
}

/// An answer that was given before is no other answer.
#[test]
fn answers_that_were_given_before_are_told_apart() {
    let family = families::named("hermes");
    let mut messages = turns(1);
    for _ in 0..4 {
        messages.extend([json!({"role": "user", "content": "ok"}), json!({"role": "assistant", "content": "ok"})]);
    }
    let place = messages.len() - 3;
    messages[place] = tracked(&family.model, "ok");
    messages.push(json!({"role": "user", "content": "ok"}));
    let ids = spliced(&family.model, &messages).unwrap();
    let turn = "<|im_end|>\n<|im_start|>user\nok<|im_end|>\n<|im_start|>assistant\n";
    assert_eq!(family.model.text(&ids[1..]), format!("ok{turn}ok{turn}"));
}
