//! Conversations on which other servers lose turns, double them or fail.

use serde_json::{Value, json};
use tito::{
    TokenId,
    prompt::{PromptError, Provenance, UnprovableSplice},
};

use super::{families, families::Family};

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn assistant(text: &str) -> Value {
    json!({"role": "assistant", "content": text})
}

/// A message with ids: the prompt's own, then those of `generation`.
fn tracked(family: &Family, before: &[Value], text: &str, generation: &str) -> Value {
    let prompt = family.model.render(&json!({"messages": before})).unwrap().token_ids;
    let generation = family.model.ids(generation);
    let mut message = assistant(text);
    message["prompt_token_ids"] = json!(prompt.to_vec());
    message["generation_token_ids"] = json!(generation);
    message
}

/// The text of the prompt that follows the known ids of `[user q, assistant]`.
fn text(family: &Family, messages: &[Value]) -> String {
    let rendered = family.model.render(&json!({"messages": messages})).unwrap();
    assert!(matches!(rendered.provenance, Provenance::Spliced { .. }));
    family.model.text(&rendered.token_ids)
}

fn ids(value: &Value) -> Vec<TokenId> {
    super::ids(value)
}

#[test]
fn ce1_turns_behind_the_message_with_ids_are_kept() {
    let family = families::named("think");
    let first = user("first q");
    let messages = [
        first.clone(),
        tracked(&family, &[first], "the answer", "the answer<|im_end|>"),
        user("second q"),
        assistant("UNTRACKED reply"),
        user("third q"),
    ];
    assert_eq!(
        text(&family, &messages),
        "<|im_start|>user\nfirst q<|im_end|>\n<|im_start|>assistant\nthe answer<|im_end|>\n<|im_start|>user\nsecond \
         q<|im_end|>\n<|im_start|>assistant\nUNTRACKED reply<|im_end|>\n<|im_start|>user\nthird \
         q<|im_end|>\n<|im_start|>assistant\n"
    );
}

#[test]
fn ce2_a_message_to_be_continued_does_not_cost_the_turn_before_it() {
    let family = families::named("think");
    let first = user("first q");
    let known = tracked(&family, std::slice::from_ref(&first), "the answer", "the answer<|im_end|>");
    let request = json!({
        "messages": [first, known, user("second q"), assistant("well,")],
        "continue_final_message": true, "add_generation_prompt": false,
    });
    let rendered = family.model.render(&request).unwrap();
    assert_eq!(
        family.model.text(&rendered.token_ids),
        "<|im_start|>user\nfirst q<|im_end|>\n<|im_start|>assistant\nthe answer<|im_end|>\n<|im_start|>user\nsecond \
         q<|im_end|>\n<|im_start|>assistant\nwell,"
    );
}

#[test]
fn ce3_a_template_that_drops_old_thoughts_does_not_drop_a_turn() {
    let family = families::named("qwen");
    let first = user("first q");
    let thought = "<think>\nhm\n</think>\n\nanswer";
    let messages = [first.clone(), tracked(&family, &[first], thought, &format!("{thought}<|im_end|>")), user("two")];
    assert_eq!(
        text(&family, &messages),
        "<|im_start|>user\nfirst q<|im_end|>\n<|im_start|>assistant\n<think>\nhm\n</think>\n\nanswer<|im_end|>\n\
         <|im_start|>user\ntwo<|im_end|>\n<|im_start|>assistant\n"
    );
    let honest = family.model.text(&family.model.honest(&json!({"messages": messages})).unwrap());
    assert!(!honest.contains("hm"), "the template does drop thoughts: {honest}");
}

#[test]
fn ce4_a_close_that_is_not_the_end_of_sequence_token_is_found() {
    for (name, closed, tail) in [
        ("gemma, eos only", "fine<end_of_turn>", "<end_of_turn>\n<start_of_turn>user\nmore<end_of_turn>\n"),
        ("glm", "fine<|user|>", "<|user|>\nmore<|assistant|>"),
        ("gpt-oss", "fine<|end|>", "<|end|><|start|>user<|message|>more<|end|><|start|>assistant"),
        ("phi", "fine<|end|>", "<|end|><|user|>more<|end|><|assistant|>"),
    ] {
        let family = families::named(name);
        let first = user("hello");
        for generation in [closed, "fine"] {
            let known = tracked(&family, std::slice::from_ref(&first), "fine", generation);
            let text = text(&family, &[first.clone(), known, user("more")]);
            assert!(text.contains(&format!("fine{tail}")), "{name}: {text}");
        }
    }
}

#[test]
fn ce5_a_special_token_spelled_in_text_ends_nothing() {
    let family = families::named("think");
    let first = user("how does ChatML end a turn?");
    let text = "It is <|im_end|> in ChatML";
    let mut known = tracked(&family, std::slice::from_ref(&first), text, "");
    // The model spelled it, letter by letter.
    let spelled: Vec<TokenId> = text.chars().flat_map(|letter| family.model.ids(&letter.to_string())).collect();
    let generation = [spelled, vec![2]].concat();
    known["generation_token_ids"] = json!(generation);
    let prompt = ids(&known["prompt_token_ids"]);
    let rendered = family.model.render(&json!({"messages": [first, known, user("ok")]})).unwrap();
    let tail = family.model.ids("\n<|im_start|>user\nok<|im_end|>\n<|im_start|>assistant\n");
    assert_eq!(*rendered.token_ids, [prompt, generation, tail].concat());
}

#[test]
fn ce6_ids_stand_for_the_history_that_they_were_sampled_in() {
    let family = families::named("think");
    let known = tracked(&family, &[user("the original")], "fine", "fine<|im_end|>");
    let text = text(&family, &[user("an edited question"), known, user("more")]);
    assert_eq!(
        text,
        "<|im_start|>user\nthe original<|im_end|>\n<|im_start|>assistant\nfine<|im_end|>\n<|im_start|>user\n\
         more<|im_end|>\n<|im_start|>assistant\n"
    );
}

#[test]
fn ce7_a_truncated_message_is_closed() {
    for family in families::all().into_iter().filter(|family| !family.close.is_empty()) {
        let first = user("hello");
        let known = tracked(&family, std::slice::from_ref(&first), "cut of", "cut of");
        let text = text(&family, &[first, known, user("more")]);
        assert!(text.contains(&format!("cut of{}", family.close)), "{}: {text}", family.name);
    }
}

#[test]
fn ce8_a_close_of_two_tokens_is_written_whole() {
    let family = families::named("cohere");
    let first = user("hello");
    for generation in ["fine", "fine<|END_RESPONSE|>", "fine<|END_RESPONSE|><|END_OF_TURN_TOKEN|>"] {
        let known = tracked(&family, std::slice::from_ref(&first), "fine", generation);
        let text = text(&family, &[first.clone(), known, user("more")]);
        let close = "fine<|END_RESPONSE|><|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|USER_TOKEN|>more";
        assert!(text.contains(close), "{generation}: {text}");
    }
}

#[test]
fn ce9_null_ids_are_no_ids() {
    let family = families::named("think");
    let mut message = assistant("fine");
    message["prompt_token_ids"] = Value::Null;
    message["generation_token_ids"] = Value::Null;
    let request = json!({"messages": [user("hello"), message, user("more")]});
    let rendered = family.model.render(&request).unwrap();
    assert_eq!(rendered.provenance, Provenance::Rendered);
    assert_eq!(*rendered.token_ids, family.model.honest(&request).unwrap());
}

#[test]
fn ce10_another_stop_token_stays_and_the_close_follows_it() {
    let family = families::named("think");
    let first = user("hello");
    let known = tracked(&family, std::slice::from_ref(&first), "fine", "fine<|endoftext|>");
    let request = json!({"messages": [first, known, user("more")]});
    let rendered = family.model.render(&request).unwrap();
    assert!(matches!(rendered.provenance, Provenance::Spliced { foreign_stop: true, .. }));
    assert_eq!(
        family.model.text(&rendered.token_ids),
        "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\nfine<|endoftext|><|im_end|>\n<|im_start|>user\n\
         more<|im_end|>\n<|im_start|>assistant\n"
    );
}

#[test]
fn a_message_that_was_closed_is_not_continued() {
    let family = families::named("think");
    let first = user("hello");
    let known = tracked(&family, std::slice::from_ref(&first), "fine", "fine<|im_end|>");
    let request = json!({
        "messages": [first, known], "continue_final_message": true, "add_generation_prompt": false,
    });
    let refused = family.model.render(&request).unwrap_err();
    assert!(matches!(refused, PromptError::Unprovable(UnprovableSplice::ContinuesClosedMessage)), "{refused}");
}
