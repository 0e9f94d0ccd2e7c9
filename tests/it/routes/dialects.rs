//! One conversation in three dialects, `OpenAI`'s chats and responses and Anthropic's messages: the same ids at every turn,
//! whoever carries them.

use serde_json::{Value, json};
use tito::{
    TokenId,
    parser::{ReasoningParser, ToolParser},
    turn::ToolPolicy,
};

use crate::it::app::{IM_END, MODEL, TestApp};

/// How a conversation is carried on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dialect {
    /// Messages of a chat with ids.
    Chat,
    /// Messages of a chat without: the cache finds them.
    BareChat,
    /// Items of a response with ids.
    Items,
    /// Items without.
    BareItems,
    /// `previous_response_id` and new items.
    StoredItems,
    /// Messages of Anthropic's with ids.
    Messages,
    /// The content of Anthropic's messages, as their clients keep it.
    Contents,
}

const DIALECTS: [Dialect; 7] = [
    Dialect::Chat,
    Dialect::BareChat,
    Dialect::Items,
    Dialect::BareItems,
    Dialect::StoredItems,
    Dialect::Messages,
    Dialect::Contents,
];
const IDS: [&str; 3] = ["prompt_token_ids", "generation_token_ids", "generation_log_probs"];

/// What a client does next.
#[derive(Debug, Clone, Copy)]
enum Turn {
    Says(&'static str),
    /// Answers every call of the model's turn.
    Results(&'static str),
}

struct Conversation {
    name: &'static str,
    system: Option<&'static str>,
    has_tools: bool,
    turns: &'static [Turn],
    answers: &'static [&'static str],
}

const CONVERSATIONS: [Conversation; 4] = [
    Conversation {
        name: "talk",
        system: None,
        has_tools: false,
        turns: &[Turn::Says("I am Bob."), Turn::Says("Who am I?"), Turn::Says("Thanks.")],
        answers: &["</think>Hello Bob.", "</think>You are Bob.", "</think>Bye."],
    },
    Conversation {
        name: "thoughts",
        system: Some("Be brief."),
        has_tools: false,
        turns: &[Turn::Says("1 + 1?"), Turn::Says("And 2 + 2?"), Turn::Says("And 3?")],
        answers: &["One and one.</think>2", "Two and two.\n</think>\n\n4", "</think>3"],
    },
    Conversation {
        name: "tools",
        system: Some("Be brief."),
        has_tools: true,
        turns: &[
            Turn::Says("How warm is it in Køge?"),
            Turn::Results("18 degrees"),
            Turn::Says("And in Oslo, and tomorrow?"),
            Turn::Results("7 degrees"),
            Turn::Says("Thanks."),
        ],
        answers: &[
            "I look.</think>One moment.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\":\"Køge\",\"days\":[1.0,2]}}\n</tool_call>",
            "</think>It is warm.",
            "</think><tool_call>{\"name\":\"weather\",\"arguments\":{ \"city\" : \"Oslo\" }}</tool_call>\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"days\": 2}}\n</tool_call>",
            "Hm.</think>It is cold.",
            "</think>Bye.",
        ],
    },
    Conversation {
        name: "a call that cannot be read",
        system: None,
        has_tools: true,
        turns: &[Turn::Says("How warm is it?"), Turn::Says("Try again.")],
        answers: &["</think><tool_call>{\"name\": weather}</tool_call>", "</think>No."],
    },
];

/// A server whose model says `answers`, letter by letter, which is not how the texts encode.
fn spelling(answers: &[&str]) -> TestApp {
    let parsers = ToolPolicy {
        parser: ToolParser::named("hermes"),
        auto: true,
        reasoning: ReasoningParser::named("deepseek_r1"),
        ..ToolPolicy::default()
    };
    answers.iter().fold(TestApp::new().tools(parsers), |app, answer| {
        let letters = answer.chars().flat_map(|letter| app.ids(&letter.to_string()));
        let ids: Vec<TokenId> = letters.chain([IM_END]).collect();
        app.script(ids)
    })
}

/// A conversation as a client of a dialect has it.
struct Client<'a> {
    app: &'a TestApp,
    dialect: Dialect,
    conversation: &'a Conversation,
    history: Vec<Value>,
    /// The ids of the calls that wait for their results.
    calls: Vec<Value>,
    previous: Value,
}

/// Prompt and sampled ids.
type Ids = (Vec<Value>, Vec<Value>);

impl Client<'_> {
    /// The ids of a turn.
    async fn turn(&mut self, turn: Turn) -> Ids {
        match self.dialect {
            Dialect::Chat | Dialect::BareChat => self.chat(turn).await,
            Dialect::Items | Dialect::BareItems | Dialect::StoredItems => self.response(turn).await,
            Dialect::Messages | Dialect::Contents => self.message(turn).await,
        }
    }

    async fn chat(&mut self, turn: Turn) -> Ids {
        match turn {
            Turn::Says(text) => self.history.push(json!({ "role": "user", "content": text })),
            Turn::Results(text) => {
                let result = |id: &Value| json!({ "role": "tool", "tool_call_id": id, "content": text });
                self.history.extend(self.calls.iter().map(result));
            }
        }
        let system = self.conversation.system.map(|text| json!({ "role": "system", "content": text }));
        let messages: Vec<_> = system.iter().chain(&self.history).collect();
        let mut body = json!({ "messages": messages, "return_token_ids": true });
        if self.conversation.has_tools {
            let function = json!({ "name": "weather", "description": "How warm.", "parameters": parameters() });
            body["tools"] = json!([{ "type": "function", "function": function }]);
        }
        let answer = self.app.post("/v1/chat/completions", body).await.ok();
        let mut message = answer["choices"][0]["message"].clone();
        self.calls = message["tool_calls"].as_array().into_iter().flatten().map(|call| call["id"].clone()).collect();
        let ids = ids(&message);
        if self.dialect == Dialect::BareChat {
            forget_ids(&mut message);
        }
        self.history.push(message);
        ids
    }

    async fn response(&mut self, turn: Turn) -> Ids {
        match turn {
            Turn::Says(text) => self.history.push(json!({ "role": "user", "content": text })),
            Turn::Results(text) => {
                let result = |id: &Value| json!({ "type": "function_call_output", "call_id": id, "output": text });
                self.history.extend(self.calls.iter().map(result));
            }
        }
        let mut body = json!({ "input": self.history, "include": ["token_ids"] });
        if let Some(text) = self.conversation.system {
            body["instructions"] = json!(text);
        }
        if self.conversation.has_tools {
            body["tools"] = json!([
                { "type": "function", "name": "weather", "description": "How warm.", "parameters": parameters() },
            ]);
        }
        if self.dialect == Dialect::StoredItems {
            self.history.clear();
            body["previous_response_id"] = self.previous.clone();
        }
        let mut answer = self.app.post("/v1/responses", body).await.ok();
        self.previous = answer["id"].take();
        let mut items = answer["output"].as_array().unwrap().clone();
        self.calls = items.iter().filter_map(|item| item.get("call_id").cloned()).collect();
        let last = items.last_mut().unwrap();
        let ids = ids(last);
        if self.dialect == Dialect::BareItems {
            forget_ids(last);
        }
        if self.dialect != Dialect::StoredItems {
            self.history.extend(items);
        }
        ids
    }

    async fn message(&mut self, turn: Turn) -> Ids {
        let content = match turn {
            Turn::Says(text) => json!(text),
            Turn::Results(text) => {
                let result = |id: &Value| json!({ "type": "tool_result", "tool_use_id": id, "content": text });
                self.calls.iter().map(result).collect()
            }
        };
        self.history.push(json!({ "role": "user", "content": content }));
        let mut body = json!({ "model": MODEL, "max_tokens": 400, "messages": self.history, "return_token_ids": true });
        if let Some(text) = self.conversation.system {
            body["system"] = json!(text);
        }
        if self.conversation.has_tools {
            let tool = json!({ "name": "weather", "description": "How warm.", "input_schema": parameters() });
            body["tools"] = json!([tool]);
        }
        let message = self.app.post("/v1/messages", body).await.ok();
        let blocks = message["content"].as_array().unwrap();
        let calls = blocks.iter().filter(|block| block["type"] == "tool_use");
        self.calls = calls.map(|block| block["id"].clone()).collect();
        let ids = ids(&message);
        let content = json!({ "role": "assistant", "content": blocks });
        self.history.push(if self.dialect == Dialect::Messages { message } else { content });
        ids
    }
}

fn parameters() -> Value {
    json!({ "type": "object", "properties": { "city": { "type": "string" } } })
}

fn ids(carrier: &Value) -> Ids {
    let ids = |field: &str| carrier[field].as_array().unwrap().clone();
    (ids(IDS[0]), ids(IDS[1]))
}

fn forget_ids(carrier: &mut Value) {
    carrier.as_object_mut().unwrap().retain(|field, _| !IDS.contains(&field.as_str()));
}

#[tokio::test]
async fn every_dialect_gives_the_same_ids_at_every_turn() {
    for conversation in &CONVERSATIONS {
        let mut wanted: Option<Vec<Ids>> = None;
        for dialect in DIALECTS {
            // Of a server to itself, so that none remembers another's turns.
            let app = spelling(conversation.answers);
            let (history, calls) = Default::default();
            let mut client = Client { app: &app, dialect, conversation, history, calls, previous: Value::Null };
            let mut known: Vec<Value> = Vec::new();
            let mut given = Vec::new();
            for turn in conversation.turns {
                let (prompt, sampled) = client.turn(*turn).await;
                assert_eq!(prompt[..known.len()], known[..], "{} {dialect:?} {turn:?}", conversation.name);
                known = [prompt.clone(), sampled.clone()].concat();
                given.push((prompt, sampled));
            }
            assert_eq!(wanted.get_or_insert_with(|| given.clone()), &given, "{} {dialect:?}", conversation.name);
        }
    }
}

#[tokio::test]
async fn texts_around_a_call_of_a_message_are_recognised_as_one_text() {
    let text = "hello <tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}</tool_call> world";
    let schema = json!({ "type": "object", "properties": { "a": { "type": "integer" } } });
    let asked = json!({ "role": "user", "content": "hi" });
    let tools = json!([{ "name": "f", "input_schema": schema }]);
    let function = json!({ "name": "f", "parameters": schema });
    for is_strict in [false, true] {
        let app = TestApp::new().reads_tool_calls().continuity(|policy| policy.strict = is_strict);
        // Letter by letter, which is not how the tokenizer writes it.
        let letters: Vec<TokenId> = app.spelled(text).into_iter().chain([IM_END]).collect();
        let app = app.script(letters).says("ok");
        let body =
            json!({ "model": MODEL, "max_tokens": 200, "messages": [asked], "tools": tools, "return_token_ids": true });
        let answer = app.post("/v1/messages", body).await.ok();
        let known =
            [&answer["prompt_token_ids"], &answer["generation_token_ids"]].map(|ids| ids.as_array().unwrap().clone());
        let [before, call, after] = &answer["content"].as_array().unwrap()[..] else { panic!("{answer}") };
        let joined = format!("{}{}", before["text"].as_str().unwrap(), after["text"].as_str().unwrap());
        let result = json!({ "type": "tool_result", "tool_use_id": call["id"], "content": "2" });
        let messages = |content: &Value| json!([asked, { "role": "assistant", "content": content }, { "role": "user", "content": [result] }]);
        let as_message = |content: Value| {
            let messages = messages(&content);
            (
                "/v1/messages",
                json!({ "model": MODEL, "max_tokens": 9, "messages": messages, "tools": tools, "return_token_ids": true }),
            )
        };
        let called =
            json!({ "id": call["id"], "type": "function", "function": { "name": "f", "arguments": "{\"a\": 1}" } });
        let said = |more: &Value| {
            let mut said = json!({ "role": "assistant", "content": joined, "tool_calls": [called] });
            said.as_object_mut().unwrap().append(&mut more.as_object().unwrap().clone());
            json!([asked, said, { "role": "tool", "tool_call_id": call["id"], "content": "2" }])
        };
        let chat = |more: &Value| {
            let tools = json!([{ "type": "function", "function": function }]);
            ("/v1/chat/completions", json!({ "messages": said(more), "tools": tools, "return_token_ids": true }))
        };
        let ids = json!({ "prompt_token_ids": known[0], "generation_token_ids": known[1] });
        let known = known.concat();
        for (path, body) in [
            as_message(answer["content"].clone()),
            as_message(json!([{ "type": "text", "text": joined }, call])),
            chat(&json!({})),
            chat(&ids),
        ] {
            let next = app.post(path, body.clone()).await;
            assert_eq!(next.status, 200, "{path} {body} {}", next.text);
            let (next, header) = (next.ok(), next.headers["x-token-continuity"].to_str().unwrap().to_owned());
            assert!(next["prompt_token_ids"].as_array().unwrap().starts_with(&known), "{path} {body} {header}");
            assert!(header.contains("outcome=exact") && !header.contains("edited"), "{path} {body} {header}");
        }
    }
}
