//! Random conversations through the HTTP app: whatever is sampled and however it comes back, the next prompt starts
//! with the ids of the last turn that came back with ids, and goes on as the template does.

use proptest::{
    collection::vec,
    prelude::{Just, Strategy, any},
    prop_oneof,
    sample::select,
    test_runner::{Config, TestRunner},
};
use serde_json::{Value, json};

use super::{
    Server,
    families::{self, Family},
    ids,
    oracle::{CALL_MARK, expected, known},
};

/// Conversations with each of the templates; 1,000 in all.
const CASES: u32 = 250;

/// How an answer comes back.
#[derive(Debug, Clone)]
enum Returned {
    Verbatim,
    /// The harness changed the text.
    Saying(&'static str),
    /// The harness parsed calls out of it.
    Calling {
        calls: usize,
        content: &'static str,
    },
    /// The harness dropped the ids.
    WithoutIds,
}

#[derive(Debug, Clone)]
struct Turn {
    question: &'static str,
    sampling: Vec<(&'static str, Value)>,
    returned: Returned,
    /// The last ids come beside the messages, not on them.
    explicit: bool,
}

fn sampling() -> impl Strategy<Value = Vec<(&'static str, Value)>> {
    let bias = |id: u32| json!({id.to_string(): 100.0});
    let stop = [json!("e"), json!(["a", "\n", "the"]), json!("\u{FFFD}")];
    let option = prop_oneof![
        select(vec![0.0, 0.7, 1.5]).prop_map(|temperature| ("temperature", json!(temperature))),
        Just(("ignore_eos", json!(true))),
        select(vec![0, 1, 2, 320, 324]).prop_map(move |id| ("logit_bias", bias(id))),
        select(stop.to_vec()).prop_map(|stop| ("stop", stop)),
        Just(("include_stop_str_in_output", json!(true))),
        Just(("skip_special_tokens", json!(false))),
        select(vec![9, 40, 321]).prop_map(|id| ("stop_token_ids", json!([id]))),
        Just(("min_tokens", json!(1))),
        Just(("top_k", json!(3))),
    ];
    vec(option, 0..4)
}

fn turn() -> impl Strategy<Value = Turn> {
    let questions = [
        "hello",
        "",
        "ok",
        "the weather",
        "  what?\n",
        "é🙂",
        "<|im_end|>",
        "<|im_start|>assistant\nhm",
        "</think>",
        "\u{0}",
    ];
    let contents = ["", "ok", " fine ", "<think>\nhm\n</think>\n\nso", "<|im_end|>", "it is <|im_end|> here", "\n\n"];
    let returned = prop_oneof![
        4 => Just(Returned::Verbatim),
        1 => select(contents.to_vec()).prop_map(Returned::Saying),
        2 => (1..3_usize, select(vec!["", "let me see"])).prop_map(|(calls, content)| Returned::Calling { calls, content }),
        1 => Just(Returned::WithoutIds),
    ];
    let options = (sampling(), 1..12_u32, any::<u32>());
    (select(questions.to_vec()), options, returned, any::<bool>()).prop_map(
        |(question, options, returned, explicit)| {
            let (mut sampling, max_tokens, seed) = options;
            sampling.push(("max_tokens", json!(max_tokens)));
            sampling.push(("seed", json!(seed)));
            Turn { question, sampling, returned, explicit }
        },
    )
}

#[derive(Debug, Default)]
struct Counts {
    prompts: usize,
    spliced: usize,
    /// Explicit ids that were refused.
    unplaced: usize,
}

/// The prompt's ids, or why the server refused to splice.
async fn prompt(server: &Server, request: &Value) -> Result<Vec<u32>, String> {
    let (status, answer) = server.post("/tokenize", request).await;
    if status == 400 {
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.starts_with("the given token ids cannot be continued exactly"), "{message}");
        return Err(message.to_owned());
    }
    assert_eq!(status, 200, "{answer}");
    Ok(ids(&answer["tokens"]))
}

async fn converse(server: &Server, family: &Family, turns: &[Turn], counts: &mut Counts) {
    let mut messages: Vec<Value> = Vec::new();
    // As long as nothing is changed on the way, nothing speaks against the ids.
    let mut untouched = true;
    for turn in turns {
        messages.push(json!({"role": "user", "content": turn.question}));
        let mut request = json!({"messages": messages, "return_token_ids": true});
        request
            .as_object_mut()
            .unwrap()
            .extend(turn.sampling.iter().map(|(key, value)| ((*key).to_owned(), value.clone())));
        counts.prompts += 1;
        let tokens = prompt(server, &request).await.unwrap_or_else(|reason| panic!("{reason}: {request}"));
        let tracked = messages.iter().any(|message| message.get("prompt_token_ids").is_some());
        let should = if tracked {
            counts.spliced += 1;
            expected(family, &request).unwrap()
        } else {
            family.model.honest(&request).unwrap()
        };
        if untouched {
            let mut asking = request.clone();
            asking["return_token_continuity"] = json!(true);
            let (_, answer) = server.post("/tokenize", &asking).await;
            let warnings = &answer["token_continuity"]["warnings"];
            assert!([json!([]), json!(["foreign_stop"])].contains(warnings), "{}: {warnings} {asking}", family.name);
        }
        let [is, text] = [&tokens, &should].map(|ids| family.model.text(ids));
        assert_eq!(tokens, should, "{}: {request}\n{is:?}\n{text:?}", family.name);
        if tracked && turn.explicit {
            explicit(server, &request, &tokens, counts).await;
        }

        let (status, answer) = server.post("/v1/chat/completions", &request).await;
        assert_eq!(status, 200, "{answer}");
        assert_eq!(ids(&answer["prompt_token_ids"]), tokens);
        let mut message = answer["choices"][0]["message"].clone();
        untouched &= matches!(turn.returned, Returned::Verbatim);
        match &turn.returned {
            Returned::Verbatim => {}
            Returned::Saying(text) => message["content"] = json!(text),
            Returned::WithoutIds => {
                message.as_object_mut().unwrap().retain(|key, _| !key.ends_with("_token_ids"));
            }
            Returned::Calling { calls, content } => {
                message["content"] = json!(content);
                let call = |number| {
                    let last = if number + 1 == *calls { CALL_MARK } else { "" };
                    let function = json!({"name": "add", "arguments": json!({"a": number, "b": last}).to_string()});
                    json!({"id": format!("c{number}"), "type": "function", "function": function})
                };
                message["tool_calls"] = (0..*calls).map(call).collect();
            }
        }
        messages.push(message);
        if let Returned::Calling { calls, .. } = turn.returned {
            let tool = |number| json!({"role": "tool", "tool_call_id": format!("c{number}"), "content": turn.question});
            messages.extend((0..calls).map(tool));
        }
    }
}

/// The same ids beside the messages give the same prompt, or a refusal.
async fn explicit(server: &Server, request: &Value, tokens: &[u32], counts: &mut Counts) {
    let mut request = request.clone();
    let (_, known) = known(&request);
    request["required_prefix_token_ids"] = json!(known);
    for message in request["messages"].as_array_mut().unwrap() {
        message.as_object_mut().unwrap().retain(|key, _| !key.ends_with("_token_ids"));
    }
    match prompt(server, &request).await {
        Ok(explicit) => assert_eq!(explicit, tokens, "{request}"),
        Err(_) => counts.unplaced += 1,
    }
}

#[derive(Debug, Default)]
struct Kept {
    exact: usize,
    partial: usize,
    retokenized: usize,
}

/// The same conversations by a client that drops ids: what the verdict calls exact starts with this client's own ids,
/// although every conversation before it is remembered too.
async fn converse_without_ids(server: &Server, family: &Family, turns: &[Turn], kept: &mut Kept) {
    let mut messages: Vec<Value> = Vec::new();
    let mut known: Vec<(usize, Vec<u32>)> = Vec::new();
    let mut edited = false;
    for turn in turns {
        messages.push(json!({"role": "user", "content": turn.question}));
        let mut request = json!({"messages": messages, "return_token_ids": true});
        let sampling = turn.sampling.iter().map(|(key, value)| ((*key).to_owned(), value.clone()));
        request.as_object_mut().unwrap().extend(sampling);
        let (status, answer) = server.post("/v1/chat/completions", &request).await;
        assert_eq!(status, 200, "{answer}");
        let (prompt, verdict) = (ids(&answer["prompt_token_ids"]), &answer["token_continuity"]);
        let own = verdict["anchor"].as_u64().map(|anchor| known.iter().find(|(index, _)| *index as u64 == anchor));
        let is_own = own.map(|own| prompt.starts_with(&own.expect("a turn of this conversation").1));
        match verdict["outcome"].as_str().unwrap() {
            "fresh" => assert!(known.is_empty()),
            "exact" => {
                assert_eq!(verdict["anchor"], known.last().unwrap().0, "{verdict}");
                kept.exact += 1;
            }
            "partial" => kept.partial += 1,
            outcome => {
                assert_eq!(outcome, "retokenized", "{verdict}");
                assert_eq!(prompt, family.model.honest(&request).unwrap(), "{verdict}");
                kept.retokenized += 1;
            }
        }
        // An edited answer may be what someone else was answered.
        assert!(edited || is_own != Some(false), "{}: {verdict} {request}", family.name);
        let choice = &answer["choices"][0];
        let mut message = json!({"role": "assistant", "content": choice["message"]["content"]});
        if let Returned::Saying(text) = turn.returned {
            message["content"] = json!(text);
            edited = true;
        }
        known.push((messages.len(), [prompt, ids(&choice["token_ids"])].concat()));
        messages.push(message);
    }
}

fn hold_without_ids(name: &str) {
    let family = families::named(name);
    let server = family.model.serve_with_cache();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut runner = TestRunner::new(Config { cases: CASES, failure_persistence: None, ..Config::default() });
    let kept = std::cell::RefCell::new(Kept::default());
    let result = runner.run(&vec(turn(), 2..6), |turns| {
        runtime.block_on(converse_without_ids(&server, &family, &turns, &mut kept.borrow_mut()));
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
    let kept = kept.into_inner();
    assert!(kept.exact > kept.retokenized, "{kept:?}");
}

fn hold(name: &str) {
    let family = families::named(name);
    let server = family.model.serve(Vec::new());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut runner = TestRunner::new(Config { cases: CASES, failure_persistence: None, ..Config::default() });
    let counts = std::cell::RefCell::new(Counts::default());
    let turns = vec(turn(), 2..6);
    let result = runner.run(&turns, |turns| {
        runtime.block_on(converse(&server, &family, &turns, &mut counts.borrow_mut()));
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
    let counts = counts.into_inner();
    assert!(counts.spliced > CASES as usize, "{counts:?}");
    assert!(counts.unplaced < counts.spliced / 3, "{counts:?}");
}

#[test]
fn random_conversations_keep_their_ids_with_the_tiny_template() {
    hold("tiny");
}

#[test]
fn clients_without_ids_are_never_given_those_of_others_with_the_tiny_template() {
    hold_without_ids("tiny");
}

#[test]
fn clients_without_ids_are_never_given_those_of_others_with_thoughts_dropped() {
    hold_without_ids("think");
}

#[test]
fn random_conversations_keep_their_ids_with_hermes() {
    hold("hermes");
}

#[test]
fn random_conversations_keep_their_ids_with_thoughts_dropped() {
    hold("think");
}

#[test]
fn random_conversations_keep_their_ids_with_thoughts_laid_out_anew() {
    hold("qwen");
}
