//! Real conversations with SmolLM2-135M-Instruct, recorded on a vLLM patched as NeMo-RL patches it. Which tokens are
//! sampled is the recording's; what becomes of them in every later prompt is what these tests compare.

use serde_json::{Value, json};
use tito::{
    TokenId,
    model::EosTokens,
    tokenizer::{AddedToken, ByteLevelBpe, Split, Tokenizer},
};

use super::{Model, Server, ids};

macro_rules! golden {
    ($path:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/", $path))
    };
}

/// How many special tokens SmolLM2 has: its first ones.
const SPECIAL: usize = 17;

/// SmolLM2's tokenizer, of its merges.
pub(crate) fn smollm2_tokenizer() -> Tokenizer {
    let merges: Vec<(String, String)> = golden!("multiturn/smollm2-merges.txt")
        .lines()
        .map(|line| line.split_once(' ').unwrap())
        .map(|(left, right)| (left.to_owned(), right.to_owned()))
        .collect();
    let first = || golden!("multiturn/smollm2-first-tokens.txt").lines();
    let tokens = first().map(str::to_owned).chain(merges.iter().map(|(left, right)| format!("{left}{right}")));
    let added = (0..).zip(first().take(SPECIAL)).map(|(id, token)| AddedToken::verbatim(id, token, true));
    let tokenizer = ByteLevelBpe {
        vocab: tokens.zip(0..).collect(),
        added_tokens: added.collect(),
        splits: vec![Split::Digits, Split::Gpt2],
        merges,
        ..ByteLevelBpe::default()
    };
    let tokenizer = tokenizer.build().unwrap();
    assert_eq!(tokenizer.vocab_size(), 49_152);
    tokenizer
}

fn smollm2(template: &str) -> Model {
    Model::new(smollm2_tokenizer(), template, EosTokens { primary: Some(2), others: Vec::new() })
}

fn template(name: &str) -> &'static str {
    match name {
        "default" => golden!("template/default.jinja"),
        "hermes" => golden!("template/hermes.jinja"),
        "think" => golden!("template/think.jinja"),
        _ => panic!("no template {name}"),
    }
}

/// How many prompts were compared.
#[derive(Default)]
struct Compared {
    with_ids: usize,
    without_ids: usize,
}

#[tokio::test]
async fn recorded_conversations_get_the_recorded_ids() {
    let mut lines = golden!("multiturn/conversations.jsonl").lines();
    let tools = serde_json::from_str::<Value>(lines.next().unwrap()).unwrap()["tools"].take();
    let conversations: Vec<Value> = lines.map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(conversations.len(), 141);
    let mut compared = Compared::default();
    for name in ["default", "hermes", "think"] {
        let server = smollm2(template(name)).serve(Vec::new());
        for conversation in conversations.iter().filter(|conversation| conversation["chat_template"] == name) {
            let tools = if conversation["tools"] == true { &tools } else { &Value::Null };
            compare(&server, conversation, tools, &mut compared).await;
        }
    }
    assert_eq!((compared.with_ids, compared.without_ids), (538, 538));
}

async fn compare(server: &Server, conversation: &Value, tools: &Value, compared: &mut Compared) {
    let mut messages: Vec<Value> = Vec::new();
    let mut known: Vec<TokenId> = Vec::new();
    let mut bundle = Value::Null;
    for (turn, recorded) in conversation["turns"].as_array().unwrap().iter().enumerate() {
        let place = format!("{} {}, turn {turn}", conversation["id"], conversation["category"]);
        for message in recorded["messages"].as_array().unwrap() {
            let mut message = message.clone();
            if message["role"] == "assistant" {
                message.as_object_mut().unwrap().extend(bundle.take().as_object().unwrap().clone());
            }
            messages.push(message);
        }
        let repaired = [known.as_slice(), &ids(&recorded["appended_ids"])].concat();
        let plain = if recorded["plain_ids"].is_null() { repaired.clone() } else { ids(&recorded["plain_ids"]) };
        let body = json!({"messages": messages, "tools": tools});
        assert_eq!(server.tokenize(&body).await, repaired, "{place}, with ids");
        assert_eq!(server.tokenize(&without_ids(body)).await, plain, "{place}, without ids");
        compared.with_ids += 1;
        compared.without_ids += 1;
        if recorded.get("generation_token_ids").is_some() {
            known = [repaired.as_slice(), &ids(&recorded["generation_token_ids"])].concat();
            bundle = json!({"prompt_token_ids": repaired, "generation_token_ids": recorded["generation_token_ids"]});
        }
    }
}

fn without_ids(mut body: Value) -> Value {
    for message in body["messages"].as_array_mut().unwrap() {
        let message = message.as_object_mut().unwrap();
        message.retain(|key, _| !key.ends_with("_token_ids"));
    }
    body
}

/// What tito answers instead of the recorded ids, and why.
enum Deviation {
    /// These ids.
    Tokens(Vec<TokenId>),
    /// A 400 that names this field.
    Refused(&'static str),
}

/// Deliberate: the recorded server loses turns, takes what is no id, or fails with a 500.
fn deviation(name: &str, body: &Value) -> Option<Deviation> {
    const BETWEEN: [TokenId; 13] = [198, 1, 4093, 198, 5507, 2, 198, 1, 520, 9531, 198, 2231, 2];
    let bundle = |index: usize| {
        let message = &body["messages"][index];
        [ids(&message["prompt_token_ids"]), ids(&message["generation_token_ids"])].concat()
    };
    Some(match name {
        // The anchor is the message that the ids came with: the turns after it are kept.
        "tokenize_ids_on_earlier_assistant_only" => {
            let again = [198, 1, 4093, 198, 24_775, 2, 198, 1, 520, 9531, 198];
            Deviation::Tokens([bundle(1).as_slice(), &BETWEEN, &again].concat())
        }
        // Null is what typed clients send for absent: there it is an error about `NoneType`.
        "tokenize_null_ids" => Deviation::Tokens(vec![
            1, 9690, 198, 2683, 359, 253, 5356, 5646, 11_173, 3365, 3511, 308, 34_519, 28, 7018, 411, 407, 19_712,
            8182, 2, 198, 1, 4093, 198, 26_843, 2, 198, 1, 520, 9531, 198, 104, 2, 198, 1, 4093, 198, 5507, 2, 198, 1,
            520, 9531, 198,
        ]),
        // Half a bundle is a client's mistake: there it is ignored, or a 500.
        "tokenize_only_prompt_ids" => Deviation::Refused("messages[1].generation_token_ids"),
        // Likewise; and ids that the model does not have, or that are strings, cannot have come from it.
        "tokenize_only_generation_ids" | "tokenize_prefix_out_of_vocab" | "tokenize_string_ids" => {
            Deviation::Refused("messages[1].prompt_token_ids")
        }
        _ => return None,
    })
}

#[tokio::test]
async fn recorded_repairs_get_the_recorded_ids() {
    let server = smollm2(template("default")).serve(Vec::new());
    let mut deviations = 0;
    for line in golden!("multiturn/tokenize.jsonl").lines() {
        let recorded: Value = serde_json::from_str(line).unwrap();
        let name = recorded["name"].as_str().unwrap();
        let (status, answer) = server.post("/tokenize", &recorded["body"]).await;
        let deviation = deviation(name, &recorded["body"]);
        deviations += usize::from(deviation.is_some());
        let expected = match deviation {
            Some(Deviation::Refused(param)) => {
                assert_eq!((status, answer["error"]["param"].as_str()), (400, Some(param)), "{name}: {answer}");
                continue;
            }
            Some(Deviation::Tokens(tokens)) => tokens,
            None => {
                assert_eq!(recorded["status"], 200, "{name}");
                ids(&recorded["tokens"])
            }
        };
        assert_eq!((status, ids(&answer["tokens"])), (200, expected), "{name}");
    }
    assert_eq!(deviations, 6);
}
