//! Which responses are continued from their ids: those that this server's tokenizer and template made, for what the template
//! is shown now. And by which names errors call the fields of a response.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use tito::store::{MemoryStore, ResponseStore};

use super::{
    response_chains::{continuing, spelling, text, tool},
    responses::{PATH, create, with},
};
use crate::it::app::TestApp;

const OTHER_TEMPLATE: &str = "{% for message in messages %}<|im_start|>{{ message.role }}: {{ message.content }}<|im_end|>\n\
                              {% endfor %}<|im_start|>assistant\n";

fn verdict(response: &Value) -> (&str, &str) {
    let verdict = &response["token_continuity"];
    (verdict["outcome"].as_str().unwrap(), verdict["reason"].as_str().unwrap_or_default())
}

fn store() -> Arc<dyn ResponseStore> {
    Arc::new(MemoryStore::new(1 << 20, Duration::from_hours(1)))
}

/// Rewrites a record as a version wrote it that kept no fingerprint.
fn forget_fingerprint(store: &dyn ResponseStore, id: &str) {
    let (state, record) = store.get(id).unwrap().unwrap();
    let mut record: Value = serde_json::from_slice(&record).unwrap();
    assert!(record.as_object_mut().unwrap().remove("fingerprint").unwrap().is_string());
    store.put(id, state, record.to_string().as_bytes()).unwrap();
}

#[tokio::test]
async fn ids_of_another_template_are_not_continued() {
    let store = store();
    let on = |app: TestApp| app.response_store(Arc::clone(&store));
    let [one, same] = [(); 2].map(|()| on(spelling("Hello Bob")));
    let other = on(spelling("Hello Bob").chat_template(OTHER_TEMPLATE));
    let first = create(&one, json!({ "input": "I am Bob.", "include": ["token_ids"] })).await;
    let go_on = continuing(&first, &json!({ "input": "Go on" }));
    assert_eq!(verdict(&create(&same, go_on.clone()).await), ("exact", ""));
    let anew = create(&other, go_on.clone()).await;
    assert_eq!(verdict(&anew), ("retokenized", "context_changed"));
    let prompt = text(&other, &anew).await;
    assert!(prompt.starts_with("<|im_start|>user: I am Bob.<|im_end|>"), "{prompt}");
    // Its own ids are those of the other template, and go on there and nowhere else.
    let later = continuing(&anew, &json!({ "input": "And now?" }));
    assert_eq!(verdict(&create(&other, later.clone()).await), ("exact", ""));
    assert_eq!(verdict(&create(&one, later).await), ("retokenized", "context_changed"));
    let items = json!([first["output"][0], { "role": "user", "content": "Go on" }]);
    let refused = other.post(PATH, continuing(&first, &json!({ "input": items }))).await;
    assert_eq!((refused.status, &refused.error()["param"]), (400, &json!("input[0].prompt_token_ids")));
    let strict = on(spelling("Hello Bob").chat_template(OTHER_TEMPLATE)).continuity(|policy| policy.strict = true);
    let refused = strict.post(PATH, go_on).await;
    assert_eq!((refused.status, &refused.error()["param"]), (400, &json!("previous_response_id")), "{}", refused.text);
}

#[tokio::test]
async fn ids_of_an_unknown_origin_are_not_continued() {
    let store = store();
    let app = spelling("Hello Bob").response_store(Arc::clone(&store));
    let first = create(&app, json!({ "input": "I am Bob." })).await;
    forget_fingerprint(&*store, first["id"].as_str().unwrap());
    let next = create(&app, continuing(&first, &json!({ "input": "Go on" }))).await;
    assert_eq!(verdict(&next), ("retokenized", "context_changed"));
    assert!(text(&app, &next).await.contains("Hello Bob"));
}

#[tokio::test]
async fn tools_that_are_hidden_or_shown_begin_the_ids_anew() {
    let app = spelling("Hello Bob").reads_tool_calls();
    let app = app.requests(|requests| requests.exclude_tools_when_tool_choice_none = true);
    let chosen = |choice: &str, tools: Value| json!({ "input": "Go on", "tools": tools, "tool_choice": choice });
    let hidden = create(&app, chosen("none", tool("alpha"))).await;
    let shown = create(&app, continuing(&hidden, &json!({ "input": "Go on" }))).await;
    assert_eq!(verdict(&shown), ("retokenized", "context_changed"));
    assert!(text(&app, &shown).await.contains("alpha"));
    let none = json!({ "input": "Go on", "tool_choice": "none" });
    let again = create(&app, continuing(&shown, &none)).await;
    assert_eq!(verdict(&again), ("retokenized", "context_changed"));
    assert!(!text(&app, &again).await.contains("alpha"));
    // Nobody sees of which tools none is shown.
    for more in [none, chosen("none", tool("beta")), chosen("none", json!([]))] {
        assert_eq!(verdict(&create(&app, continuing(&hidden, &more)).await), ("exact", ""), "{more}");
    }
}

#[tokio::test]
async fn tools_that_carry_over_can_be_chosen() {
    let app = TestApp::new().reads_tool_calls();
    let first = create(&app, json!({ "input": "Hi", "tools": tool("alpha"), "max_output_tokens": 2 })).await;
    let bare = create(&app, json!({ "input": "Hi", "max_output_tokens": 2 })).await;
    let named = |name: &str| json!({ "type": "function", "name": name });
    let choosing = |previous: &Value, choice: &Value| json!({ "input": "Go on", "previous_response_id": previous["id"], "tool_choice": choice, "max_output_tokens": 2 });
    for choice in [json!("required"), named("alpha"), json!({ "type": "function", "function": { "name": "alpha" } })] {
        let next = create(&app, choosing(&first, &choice)).await;
        assert_eq!(next["tool_choice"], choice);
    }
    let wrong = [
        (&first, named("beta")),
        (&first, json!({ "type": "function" })),
        (&bare, json!("required")),
        (&bare, named("alpha")),
    ];
    for (previous, choice) in wrong {
        let refused = app.post(PATH, choosing(previous, &choice)).await;
        assert_eq!((refused.status, &refused.error()["param"]), (400, &json!("tool_choice")), "{}", refused.text);
    }
}

#[tokio::test]
async fn ids_of_a_prompt_that_is_cut_are_refused() {
    let app = spelling("Hello Bob").max_model_len(200);
    let body = |words: usize| json!({ "input": "hello ".repeat(words), "truncation": "auto", "max_output_tokens": 1 });
    let wishes = [
        json!({ "include": ["token_ids"] }),
        json!({ "return_token_ids": true }),
        json!({ "return_tokens_as_token_ids": true }),
    ];
    for wish in &wishes {
        create(&app, with(body(1), wish)).await;
        for stream in [false, true] {
            let refused = app.post(PATH, with(with(body(300), wish), &json!({ "stream": stream }))).await;
            assert_eq!((refused.status, &refused.error()["param"]), (400, &json!("truncation")), "{}", refused.text);
        }
    }
    create(&app, body(300)).await;
}

#[tokio::test]
async fn errors_name_fields_of_responses() {
    let app = TestApp::new();
    let logprobs = json!(["message.output_text.logprobs"]);
    let form = json!({ "format": { "type": "json_object" } });
    let cases = [
        (json!({ "include": logprobs, "top_logprobs": 50 }), "top_logprobs", "(parameter=top_logprobs"),
        (json!({ "logprob_token_ids": [1] }), "logprob_token_ids", "`include`"),
        (
            json!({ "text": form, "response_format": { "type": "json_object" } }),
            "text.format",
            "both response_format and",
        ),
        (json!({ "text": form, "structured_outputs": { "regex": "a" } }), "text.format", "both structured_outputs and"),
    ];
    for (more, param, said) in cases {
        let refused = app.post(PATH, with(json!({ "input": "Hi" }), &more)).await;
        assert_eq!((refused.status, &refused.error()["param"]), (400, &json!(param)), "{}", refused.text);
        assert!(refused.error()["message"].as_str().unwrap().contains(said), "{}", refused.text);
    }
}

#[tokio::test]
async fn a_strict_server_names_the_items_that_it_does_not_trust() {
    let app = TestApp::new().says("Hello").continuity(|policy| policy.strict = true);
    let first = create(&app, json!({ "input": "Hi", "include": ["token_ids"] })).await;
    let mut edited = first["output"][0].clone();
    edited["content"][0]["text"] = json!("Goodbye");
    let [hi, more] = ["Hi", "And?"].map(|text| json!({ "role": "user", "content": text }));
    let said = json!({ "role": "assistant", "content": "Hello" });
    let refused = app.post(PATH, json!({ "input": [hi, edited, more] })).await;
    assert_eq!((refused.status, &refused.error()["param"]), (400, &json!("input")), "{}", refused.text);
    assert!(refused.error()["message"].as_str().unwrap().starts_with("`input` has token ids"), "{}", refused.text);
    // Two answers with one text, and nothing says which is meant.
    let app = TestApp::new().continuity(|policy| policy.strict = true);
    let letters =
        |app: &TestApp| -> Vec<_> { "Hello".chars().flat_map(|letter| app.ids(&letter.to_string())).collect() };
    let (whole, letters) = (app.ids("Hello"), letters(&app));
    assert_ne!(whole, letters);
    let app = app.scripts([whole, letters].map(|ids| ids.into_iter().chain([crate::it::app::IM_END]).collect()));
    for _ in 0..2 {
        create(&app, json!({ "input": "Hi", "store": false })).await;
    }
    let refused = app.post(PATH, json!({ "input": [hi, said, more] })).await;
    assert_eq!((refused.status, &refused.error()["param"]), (400, &json!("input")), "{}", refused.text);
}

#[tokio::test]
async fn a_prompt_in_ids_is_shown_as_its_text() {
    let app = TestApp::new().says("Hello");
    let ids = app.ids("<|im_start|>user\nHi<|im_end|>\n");
    let wishes = [json!({ "prompt_token_ids": ids }), json!({ "kv_transfer_params": { "prompt_token_ids": ids } })];
    for wish in wishes {
        let body = with(json!({ "input": "Hi", "enable_response_messages": true }), &wish);
        let shown = &create(&app, body).await["input_messages"][0];
        assert_eq!((&shown["message"], &shown["tokens"]), (&json!("<|im_start|>user\nHi<|im_end|>\n"), &json!(ids)));
    }
}

#[tokio::test]
async fn queries_are_read_as_pydantic_reads_them() {
    let app = TestApp::new().says("Hello");
    let response = create(&app, json!({ "input": "Hi" })).await;
    let path = format!("{PATH}/{}", response["id"].as_str().unwrap());
    for said in ["False", "0", "no", "off", "F", "n"] {
        assert_eq!(app.get(&format!("{path}?stream={said}&include[]=token_ids")).await.ok(), response, "{said}");
    }
    for said in ["True", "1", "yes", "ON", "t", "y"] {
        let refused = app.get(&format!("{path}?stream={said}")).await;
        // It was not generated in the background.
        assert_eq!((refused.status, &refused.error()["param"]), (400, &json!("stream")), "{said}: {}", refused.text);
    }
    let wrong = [
        ("?stream=maybe", "query.stream"),
        ("?stream=", "query.stream"),
        ("?stream=1&stream=0", "query.stream"),
        ("?starting_after=-1", "query.starting_after"),
        ("?starting_after=x", "query.starting_after"),
        ("?include=unknown", "query.include"),
        ("?include[]=token_ids&include[]=unknown", "query.include"),
        ("/input_items?include=unknown", "query.include"),
        ("/input_items?limit=abc", "query.limit"),
    ];
    for (query, param) in wrong {
        let refused = app.get(&format!("{path}{query}")).await;
        assert_eq!((refused.status, &refused.error()["param"]), (400, &json!(param)), "{query}: {}", refused.text);
    }
    app.get(&format!("{path}/input_items?include=message.input_image.image_url&limit=1")).await.ok();
}
