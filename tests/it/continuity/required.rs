//! `required_prefix_token_ids`: ids without a message, by NeMo-RL's contract where it is safe, and refused where the
//! conversation does not show which message they end with.

use serde_json::{Value, json};
use tito::{
    TokenId,
    prompt::{OnUnprovable, PromptError, Provenance, UnprovableSplice},
};

use super::{
    families::{self, Family},
    ids,
};

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn assistant(text: &str) -> Value {
    json!({"role": "assistant", "content": text})
}

/// A conversation whose assistant messages all have ids.
struct Tracked {
    messages: Vec<Value>,
    /// For each assistant message, its index and all ids up to its end.
    known: Vec<(usize, Vec<TokenId>)>,
}

/// `said[n]` is what the user says, what the assistant says, and what was sampled for it, as text.
fn track(family: &Family, said: &[(&str, &str, &str)]) -> Tracked {
    track_as(family, said, letter_by_letter)
}

fn track_as(family: &Family, said: &[(&str, &str, &str)], ids: fn(&Family, &str) -> Vec<TokenId>) -> Tracked {
    let mut tracked = Tracked { messages: Vec::new(), known: Vec::new() };
    for (question, answer, sampled) in said {
        tracked.messages.push(user(question));
        let prompt = family.model.render(&json!({"messages": tracked.messages})).unwrap().token_ids;
        let generation = ids(family, sampled);
        let mut message = assistant(answer);
        message["prompt_token_ids"] = json!(prompt.to_vec());
        message["generation_token_ids"] = json!(generation);
        tracked.known.push((tracked.messages.len(), [&*prompt, &generation].concat()));
        tracked.messages.push(message);
    }
    tracked
}

/// Ids that encoding does not give: one a letter, added tokens whole.
fn letter_by_letter(family: &Family, mut text: &str) -> Vec<TokenId> {
    let mut ids = Vec::new();
    while let Some(letter) = text.chars().next() {
        let added = family.model.tokenizer.added_tokens().iter().find(|token| text.starts_with(&token.content));
        let (token, rest) = text.split_at(added.map_or(letter.len_utf8(), |token| token.content.len()));
        ids.extend(family.model.ids(token));
        text = rest;
    }
    ids
}

/// The messages with ids only on message `keep`.
fn stripped(messages: &[Value], keep: Option<usize>) -> Vec<Value> {
    let strip = |(index, message): (usize, &Value)| {
        let mut message = message.clone();
        if Some(index) != keep {
            message.as_object_mut().unwrap().retain(|key, _| !key.ends_with("_token_ids"));
        }
        message
    };
    messages.iter().enumerate().map(strip).collect()
}

fn refusal(result: Result<tito::prompt::RenderedPrompt, PromptError>) -> UnprovableSplice {
    match result {
        Err(PromptError::Unprovable(reason)) => reason,
        other => panic!("{other:?}"),
    }
}

/// Asserts that ids on no message give what the same ids on their message give; returns whether they were placed.
fn placed(family: &Family, messages: &[Value], index: usize, known: &[TokenId]) -> bool {
    let on_message = json!({"messages": stripped(messages, Some(index))});
    let expected = family.model.render(&on_message).unwrap().token_ids;
    let explicit = json!({"messages": stripped(messages, None), "required_prefix_token_ids": known});
    match family.model.render(&explicit) {
        Ok(rendered) => {
            let [is, should] = [&rendered.token_ids, &expected].map(|ids| family.model.text(ids));
            assert_eq!(rendered.token_ids, expected, "{}, message {index}:\n{is:?}\n{should:?}", family.name);
            true
        }
        Err(PromptError::Unprovable(_)) => false,
        Err(error) => panic!("{}: {error}", family.name),
    }
}

#[test]
fn explicit_ids_win_over_those_on_messages() {
    let family = families::named("think");
    let tracked = track(&family, &[("hello", "fine", "fine<|im_end|>")]);
    let mut messages = tracked.messages;
    messages.push(user("more"));
    let request = json!({"messages": messages, "required_prefix_token_ids": [5, 6, 7]});
    let rendered = family.model.render(&request).unwrap();
    let tail = family.model.ids("<|im_end|>\n<|im_start|>user\nmore<|im_end|>\n<|im_start|>assistant\n");
    assert_eq!(*rendered.token_ids, [vec![5, 6, 7], tail].concat());
}

#[test]
fn null_is_absent_and_an_empty_list_is_no_ids() {
    let family = families::named("think");
    let tracked = track(&family, &[("hello", "fine", "fine<|endoftext|>")]);
    let messages = [tracked.messages.as_slice(), &[user("more")]].concat();
    let rendered = |required: Value| {
        let request = json!({"messages": messages, "required_prefix_token_ids": required});
        family.model.render(&request).unwrap()
    };
    let null = rendered(Value::Null);
    assert!(null.token_ids.starts_with(&tracked.known[0].1));
    let empty = rendered(json!([]));
    assert_eq!(empty.provenance, Provenance::Rendered);
    assert_eq!(*empty.token_ids, family.model.honest(&json!({"messages": messages})).unwrap());
}

/// NeMo-RL's own test: the prompt of a conversation without any answer is continued.
#[test]
fn without_an_assistant_the_ids_stand_for_all_messages() {
    let family = families::named("think");
    let required = family.model.ids("<|im_start|>user\nOther");
    let request = json!({"messages": [user(" Skinny")], "required_prefix_token_ids": required});
    let rendered = family.model.render(&request).unwrap();
    assert_eq!(family.model.text(&rendered.token_ids), "<|im_start|>user\nOther<|im_end|>\n<|im_start|>assistant\n");
}

#[test]
fn ids_that_a_message_carries_too_are_that_messages() {
    let family = families::named("think");
    let tracked = track(&family, &[("ok", "ok", "ok<|im_end|>"), ("ok", "ok", "ok<|im_end|>")]);
    let messages = [tracked.messages.as_slice(), &[user("ok")]].concat();
    for (index, known) in &tracked.known {
        let request = json!({"messages": messages, "required_prefix_token_ids": known});
        let on_message = json!({"messages": stripped(&messages, Some(*index))});
        let [explicit, on_message] = [&request, &on_message].map(|request| family.model.render(request).unwrap());
        assert_eq!(explicit.token_ids, on_message.token_ids, "{index}");
    }
}

/// A router dropped the ids from the messages. Which turn they end with shows in the conversation, however often the
/// same is said; where it does not, the request is refused.
#[test]
fn ids_of_an_earlier_turn_keep_the_turns_behind_it() {
    let said: [[(&str, &str); 3]; 5] = [
        [("ok", "ok"), ("ok", "ok"), ("ok", "ok")],
        [("", "ok"), ("", "ok"), ("", "ok")],
        [("hello", "it says: look"), ("look", "look, it says"), ("it says: look", "hello")],
        [("a", "a"), ("a", "assistant"), ("user", "user\nok")],
        [("  ok  ", "ok"), ("ok\n", "ok"), ("ok", " ok")],
    ];
    for family in families::all() {
        let close = if family.close.is_empty() { family.stop.unwrap() } else { family.close };
        for said in said {
            for end in [close, "", family.foreign] {
                let sampled = said.map(|(_, answer)| format!("{answer}{end}"));
                let turns: Vec<_> = said
                    .iter()
                    .zip(&sampled)
                    .map(|((question, answer), sampled)| (*question, *answer, &**sampled))
                    .collect();
                let tracked = track(&family, &turns);
                let messages = [tracked.messages.as_slice(), &[user("ok")]].concat();
                for (index, known) in &tracked.known {
                    let found = placed(&family, &messages, *index, known);
                    assert!(found, "{}, {index}, {said:?}, {end}", family.name);
                }
            }
        }
    }
}

#[test]
fn thoughts_that_the_template_drops_do_not_hide_the_turn() {
    for name in ["think", "qwen"] {
        let family = families::named(name);
        let thought = |answer: &str| format!("<think>\nwhat?\n</think>\n\n{answer}");
        let [first, second] = ["ok", "fine"].map(thought);
        let [first_sampled, second_sampled] = [&first, &second].map(|text| format!("{text}<|im_end|>"));
        let turns = [("ok", first.as_str(), first_sampled.as_str()), ("ok", &second, &second_sampled)];
        let tracked = track(&family, &turns);
        let messages = [tracked.messages.as_slice(), &[user("ok")]].concat();
        for (index, known) in &tracked.known {
            assert!(placed(&family, &messages, *index, known), "{name}, {index}");
        }
    }
}

/// With `ignore_eos` a model writes the user's part too, here just what the user said next.
#[test]
fn a_turn_that_the_model_made_up_is_not_taken_for_a_turn() {
    let family = families::named("think");
    let made_up = "<|im_end|>\n<|im_start|>user\nok<|im_end|>\n<|im_start|>assistant\n";
    for (first, second) in [("yes", "no"), ("ok", "ok"), ("", "")] {
        let said = format!("{first}\nuser\nok\nassistant\n{second}");
        let sampled = format!("{first}{made_up}{second}");
        let tracked = track_as(&family, &[("hello", &said, &sampled)], |family, text| family.model.ids(text));
        let (index, known) = &tracked.known[0];
        for untracked in [second, "untracked", ""] {
            let messages = [tracked.messages.as_slice(), &[user("ok"), assistant(untracked), user("more")]].concat();
            // The message says all of the turn that was made up.
            assert!(placed(&family, &messages, *index, known), "{first}, {second}, {untracked}");
            // One that says less of it may be followed by that turn.
            let mut messages = stripped(&messages, None);
            messages[1]["content"] = json!(format!("{first} and"));
            let explicit = json!({"messages": messages, "required_prefix_token_ids": known});
            assert_eq!(refusal(family.model.render(&explicit)), UnprovableSplice::AnchorNotFound);
        }
    }
}

/// Turns cannot be counted where answers have the start of one in them.
#[test]
fn an_answer_with_the_start_of_a_turn_in_it_is_found_by_what_it_says() {
    for family in families::all() {
        let prompt = family.model.render(&json!({"messages": [user("q")]})).unwrap().token_ids;
        let prompt = family.model.text(&prompt);
        let opening = prompt.rsplit_once('q').unwrap().1;
        let close = if family.close.is_empty() { family.stop.unwrap() } else { family.close };
        for start in [opening, opening.trim_start_matches(close).trim_start(), close] {
            for sampled in [format!("I say {start}so it is"), format!("{start}it is"), format!("I say {start}")] {
                let said = without_special(&family, &sampled);
                let last = ("ok", said.as_str(), format!("{sampled}{close}"));
                let plain = |text: &'static str| ("ok", text, format!("{text}{close}"));
                for turns in [
                    [plain("fine"), last.clone(), plain("fine")],
                    [plain("ok"), plain("ok"), last.clone()],
                    [last.clone(), last.clone(), last.clone()],
                ] {
                    expect_placed(&family, &turns.each_ref().map(|(question, said, ids)| (*question, *said, &**ids)));
                }
            }
        }
    }
}

/// The text without special tokens, which readers leave out.
fn without_special(family: &Family, text: &str) -> String {
    let special = family.model.tokenizer.added_tokens().iter().filter(|token| token.special);
    special.fold(text.to_owned(), |text, token| text.replace(&token.content, ""))
}

/// Expects that ids up to each of the turns are taken for those of its answer.
fn expect_placed(family: &Family, turns: &[(&str, &str, &str)]) {
    let tracked = track(family, turns);
    let messages = [tracked.messages.as_slice(), &[user("ok"), assistant("ok"), user("ok")]].concat();
    for (index, known) in &tracked.known {
        assert!(placed(family, &messages, *index, known), "{}, {index}: {turns:?}", family.name);
    }
}

/// Readers leave such marks out, or keep them.
#[test]
fn a_second_end_of_thoughts_does_not_hide_the_turn() {
    for name in ["think", "qwen"] {
        let family = families::named(name);
        let sampled = "<think>\nwhat?\n</think>\n\none</think>two<|im_end|>";
        for said in ["onetwo", "one</think>two", "two", "<think>\nwhat?\n</think>\n\none</think>two"] {
            expect_placed(
                &family,
                &[("ok", "ok", "ok<|im_end|>"), ("ok", said, sampled), ("ok", "ok", "ok<|im_end|>")],
            );
        }
    }
}

/// The answer shows a turn that no message says, or the messages another one.
#[test]
fn an_answer_with_a_turn_in_it_that_its_message_does_not_tell_is_refused() {
    let family = families::named("think");
    let made_up = "<|im_end|>\n<|im_start|>user\nok<|im_end|>\n<|im_start|>assistant\n";
    let sampled = format!("<think>\nhm {made_up}\n</think>\n\nfine and well<|im_end|>");
    let turns = [("ok", "ok", "ok<|im_end|>"), ("so", "fine and well", sampled.as_str())];
    let tracked = track_as(&family, &turns, |family, text| family.model.ids(text));
    let messages = [tracked.messages.as_slice(), &[user("ok"), assistant("no"), user("ok")]].concat();
    let explicit = json!({"messages": stripped(&messages, None), "required_prefix_token_ids": tracked.known[1].1});
    assert_eq!(refusal(family.model.render(&explicit)), UnprovableSplice::AnchorNotFound);
    // All of the thoughts are told.
    let mut messages = stripped(&messages, None);
    messages[3]["reasoning"] = json!("hm \nuser\nok\nassistant\n");
    let told = json!({"messages": messages, "required_prefix_token_ids": tracked.known[1].1});
    assert!(family.model.render(&told).unwrap().token_ids.starts_with(&tracked.known[1].1));
    for content in ["fine", "fine and well, but", "and well", ""] {
        messages[3]["content"] = json!(content);
        let edited = json!({"messages": messages, "required_prefix_token_ids": tracked.known[1].1});
        assert_eq!(refusal(family.model.render(&edited)), UnprovableSplice::AnchorNotFound, "{content}");
    }
}

/// Each pair of places would be compared with each message.
#[test]
fn a_prefix_of_very_many_turns_is_refused_after_bounded_work() {
    const TURNS: usize = 10_000;
    let family = families::named("think");
    let turn = "<|im_start|>user\nok<|im_end|>\n<|im_start|>assistant\nok<|im_end|>\n";
    let known = family.model.ids(turn).repeat(TURNS);
    let messages: Vec<Value> = (0..20).flat_map(|_| [user("ok"), assistant("ok")]).chain([user("ok")]).collect();
    let explicit = json!({"messages": messages, "required_prefix_token_ids": known});
    // Otherwise it takes hours.
    assert_eq!(refusal(family.model.render(&explicit)), UnprovableSplice::AnchorNotFound);
}

#[test]
fn ids_of_a_conversation_that_was_edited_are_refused() {
    let family = families::named("think");
    let tracked = track(&family, &[("hello", "fine", "fine<|im_end|>"), ("more", "well", "well<|im_end|>")]);
    let messages = [tracked.messages.as_slice(), &[user("ok")]].concat();
    let known = &tracked.known[1].1;
    for (index, content) in [(2, "less"), (1, "changed"), (3, "changed")] {
        let mut messages = stripped(&messages, None);
        messages[index]["content"] = json!(content);
        let explicit = json!({"messages": messages, "required_prefix_token_ids": known});
        assert_eq!(refusal(family.model.render(&explicit)), UnprovableSplice::AnchorNotFound, "{index}");
    }
    // What stands before both turns does not tell them apart; for the first turn, nothing else does.
    let mut messages = stripped(&messages, None);
    messages[0]["content"] = json!("edited");
    let explicit = |known| json!({"messages": messages, "required_prefix_token_ids": known});
    assert!(family.model.render(&explicit(known)).unwrap().token_ids.starts_with(known));
    assert_eq!(refusal(family.model.render(&explicit(&tracked.known[0].1))), UnprovableSplice::AnchorNotFound);
}

/// A harness put an example in front of the conversation: the first message is not the first that was sampled.
#[test]
fn turns_that_were_put_in_front_are_not_taken_for_those_that_were_sampled() {
    let family = families::named("think");
    let tracked = track(&family, &[("q", "fine", "fine<|im_end|>"), ("more", "well", "well<|im_end|>")]);
    let example = [user("q"), assistant("ok")];
    let messages = [&example, stripped(&tracked.messages, None).as_slice(), &[user("ok")]].concat();
    for (_, known) in &tracked.known {
        let explicit = json!({"messages": messages, "required_prefix_token_ids": known});
        assert_eq!(refusal(family.model.render(&explicit)), UnprovableSplice::AnchorNotFound);
    }
}

/// Ids in which no turn is to be seen are the client's word: they stand for all up to the last assistant message.
#[test]
fn ids_of_no_conversation_follow_nemo_rl() {
    let family = families::named("think");
    let messages = [user("a"), assistant("b"), user("c"), assistant("d"), user("e")];
    let request = json!({"messages": messages, "required_prefix_token_ids": [5, 6, 7]});
    let rendered = family.model.render(&request).unwrap();
    let tail = family.model.ids("<|im_end|>\n<|im_start|>user\ne<|im_end|>\n<|im_start|>assistant\n");
    assert_eq!(*rendered.token_ids, [vec![5, 6, 7], tail].concat());
}

/// Counting end tokens is what NeMo-RL does; asked for, it takes the last message as NeMo-RL does.
#[test]
fn the_policy_decides_about_ids_that_cannot_be_placed() {
    let family = families::named("think");
    let tracked = track(&family, &[("hello", "fine", "fine<|im_end|>"), ("more", "well", "well<|im_end|>")]);
    let mut messages = stripped(&[tracked.messages.as_slice(), &[user("ok")]].concat(), None);
    messages[2]["content"] = json!("less");
    let known = &tracked.known[1].1;
    let request = json!({"messages": messages, "required_prefix_token_ids": known});
    let render = |policy| family.model.renderer(policy).render(&family.model.prompt(&request)).unwrap();
    let counted = render(OnUnprovable::EosCount);
    assert_eq!(counted.provenance, Provenance::SplicedByEosCount { reused: known.len() });
    assert!(counted.token_ids.starts_with(known));
    let retokenized = render(OnUnprovable::Retokenize);
    assert_eq!(retokenized.provenance, Provenance::Retokenized(UnprovableSplice::AnchorNotFound));
    assert_eq!(*retokenized.token_ids, family.model.honest(&request).unwrap());
}

#[tokio::test]
async fn a_refusal_is_a_400_that_says_what_to_do() {
    let family = families::named("think");
    let tracked = track(&family, &[("hello", "fine", "fine<|im_end|>"), ("more", "well", "well<|im_end|>")]);
    let mut messages = stripped(&[tracked.messages.as_slice(), &[user("ok")]].concat(), None);
    messages[2]["content"] = json!("less");
    let request = json!({"messages": messages, "required_prefix_token_ids": ids(&json!(tracked.known[1].1))});
    let (status, body) = family.model.serve(Vec::new()).post("/v1/chat/completions", &request).await;
    assert_eq!(status, 400);
    let message = body["error"]["message"].as_str().unwrap();
    assert!(message.contains("send them on that message"), "{message}");
}
