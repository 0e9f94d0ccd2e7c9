//! Templates and messages made to fool the splice, one trick a test.

use serde_json::{Value, json};
use tito::{
    TokenId,
    prompt::{PromptError, Provenance, UnprovableSplice},
};

use super::{Model, families};

/// ChatML, with a template's own ideas in the place of `ANCHOR` (an assistant message), in front and at the end.
fn chatml(front: &str, anchor: &str, end: &str) -> Model {
    let template = format!(
        "{front}{{% for message in messages %}}{{% if message.role == 'assistant' %}}{{{{ '<|im_start|>assistant\\n' }}}}\
         {anchor}{{% else %}}{{{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}}}{{% endif %}}\
         {{% endfor %}}{end}{{% if add_generation_prompt %}}{{{{ '<|im_start|>assistant\\n' }}}}{{% endif %}}"
    );
    Model::tiny(&template)
}

fn plain_anchor(anchor: &str) -> Model {
    chatml("", anchor, "")
}

const PLAIN: &str = "{{ message.content + '<|im_end|>\\n' }}";

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

/// A message with made-up ids: the prompt `[5]`, then `sampled`.
fn tracked(model: &Model, content: impl Into<Value>, sampled: &str) -> Value {
    json!({
        "role": "assistant", "content": content.into(),
        "prompt_token_ids": [5], "generation_token_ids": model.ids(sampled),
    })
}

fn with_calls(mut message: Value, arguments: &[&str]) -> Value {
    let call = |(number, arguments): (usize, &&str)| json!({"id": format!("c{number}"), "type": "function", "function": {"name": "add", "arguments": arguments}});
    message["tool_calls"] = arguments.iter().enumerate().map(call).collect();
    message
}

fn render(model: &Model, messages: &[Value]) -> Result<Vec<TokenId>, UnprovableSplice> {
    render_request(model, &json!({"messages": messages}))
}

fn render_request(model: &Model, request: &Value) -> Result<Vec<TokenId>, UnprovableSplice> {
    match model.render(request) {
        Ok(rendered) => {
            assert!(matches!(rendered.provenance, Provenance::Spliced { .. }));
            Ok(rendered.token_ids.to_vec())
        }
        Err(PromptError::Unprovable(reason)) => Err(reason),
        Err(error) => panic!("{error}"),
    }
}

/// The text after the made-up prompt.
fn text(model: &Model, messages: &[Value]) -> Result<String, UnprovableSplice> {
    render(model, messages).map(|ids| model.text(&ids[1..]))
}

const MORE: &str = "\n<|im_start|>user\nmore<|im_end|>\n<|im_start|>assistant\n";

#[test]
fn an_answer_that_is_shown_twice_is_refused() {
    let model = plain_anchor("{{ message.content + '|' + message.content + '<|im_end|>\\n' }}");
    let messages = [user("q"), tracked(&model, "fine", "fine<|im_end|>"), user("more")];
    assert_eq!(text(&model, &messages), Err(UnprovableSplice::AnchorNotRendered));
}

#[test]
fn an_answer_that_is_quoted_later_is_refused() {
    let model = chatml("", PLAIN, "{{ messages[-2].content }}");
    let messages = [user("q"), tracked(&model, "fine", "fine<|im_end|>"), user("more")];
    assert_eq!(text(&model, &messages), Err(UnprovableSplice::AnchorNotRendered));
}

#[test]
fn an_answer_whose_length_is_shown_later_is_refused() {
    let model = chatml("", PLAIN, "{{ messages[1].content | length }}");
    let messages = [user("q"), tracked(&model, "fine", "fine<|im_end|>"), user("more")];
    assert_eq!(text(&model, &messages), Err(UnprovableSplice::TailDiffers));
}

#[test]
fn a_close_that_depends_on_the_answer_is_refused() {
    let model = plain_anchor(
        "{{ message.content }}{% if 'fine' in message.content %}{{ '<|endoftext|>note' }}{% endif %}{{ '<|im_end|>\\n' }}",
    );
    let messages = [user("q"), tracked(&model, "it is fine now", "it is fine now"), user("more")];
    assert_eq!(text(&model, &messages), Err(UnprovableSplice::TailDiffers));
}

#[test]
fn a_close_that_depends_on_the_answers_silence_is_refused() {
    let model = plain_anchor(
        "{{ message.content }}{% if not message.content %}{{ '<|endoftext|>note' }}{% endif %}{{ '<|im_end|>\\n' }}",
    );
    let messages = [user("q"), tracked(&model, "", "<|im_end|>"), user("more")];
    assert_eq!(text(&model, &messages), Err(UnprovableSplice::TailDiffers));
    let model = Model::tiny(
        "{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' }}\
         {% for part in message.content %}{{ part.text }}{% endfor %}\
         {% if message.content | length > 1 %}{{ '<|endoftext|>note' }}{% endif %}{{ '<|im_end|>\n' }}{% endfor %}",
    );
    let parts = json!([{"type": "text", "text": "it is fine"}, {"type": "text", "text": ""}]);
    let messages = [user("q"), tracked(&model, parts, "it is fine"), user("more")];
    assert_eq!(text(&model, &messages), Err(UnprovableSplice::TailDiffers));
}

#[test]
fn a_close_that_depends_on_arguments_is_refused() {
    let calls = "{{ message.content }}{% for call in message.tool_calls or [] %}\
                 {{ '<tool_call>' + call.function.arguments | tojson + '</tool_call>' }}\
                 {% if 'a' in call.function.arguments %}{{ '<|endoftext|>note' }}{% endif %}{% endfor %}{{ '<|im_end|>\\n' }}";
    let model = plain_anchor(calls);
    let tool = json!({"role": "tool", "tool_call_id": "c0", "content": "1"});
    let messages = |arguments: &str| [user("q"), with_calls(tracked(&model, "", "calls"), &[arguments]), tool.clone()];
    assert_eq!(text(&model, &messages("{\"a\": 1}")), Err(UnprovableSplice::NoClose));
    for arguments in ["{\"b\": 1}", "{\"b\": \"x\"}", "{}"] {
        let expected = "calls<|im_end|>\n<|im_start|>tool\n1<|im_end|>\n<|im_start|>assistant\n";
        assert_eq!(text(&model, &messages(arguments)).as_deref(), Ok(expected), "{arguments}");
    }
}

#[test]
fn thoughts_that_end_within_a_word_are_no_part_of_the_close() {
    for name in ["think", "qwen"] {
        let model = &families::named(name).model;
        for content in ["<think>hm</think>fine", "hm</think>", "hm</think>\n\nfine", "<think>", "</think>\nassistant\n"]
        {
            let messages = [user("q"), tracked(model, content, "what was sampled<|im_end|>"), user("more")];
            assert_eq!(text(model, &messages), Ok(format!("what was sampled<|im_end|>{MORE}")), "{name}, {content}");
        }
    }
}

#[test]
fn a_close_that_depends_on_thoughts_is_written_whole() {
    let model = plain_anchor(
        "{{ message.content }}{% if message.reasoning %}{{ '<|endoftext|>' }}{% endif %}{{ '<|im_end|>\\n' }}",
    );
    let mut message = tracked(&model, "fine", "fine");
    message["reasoning"] = json!("hm");
    let text = text(&model, &[user("q"), message, user("more")]);
    assert_eq!(text, Ok(format!("fine<|endoftext|><|im_end|>{MORE}")));
}

/// The call's own token comes first after the content: it closes nothing.
#[test]
fn calls_behind_the_content_are_not_written_twice() {
    let calls = "{{ message.content }}{% for call in message.tool_calls or [] %}\
                 {{ '<|start_call|>' + call.function.name }}{% if shows_arguments %}{{ call.function.arguments | tojson }}\
                 {{ call.function.arguments | tojson }}{% endif %}{{ '<|end_call|>' }}{% endfor %}{{ '<|im_end|>\\n' }}";
    let special = ["<|start_call|>", "<|end_call|>"];
    let added = [326, 327].into_iter().zip(special);
    let added: Vec<_> = added.map(|(id, token)| tito::tokenizer::AddedToken::verbatim(id, token, true)).collect();
    for front in ["{% set shows_arguments = true %}", "{% set shows_arguments = false %}"] {
        let model = chatml(front, calls, "");
        let tokenizer = super::tiny_tokenizer().with_added_tokens(&added).unwrap();
        let model = Model::new(tokenizer, model.template(), model.eos.clone());
        for end in ["<|im_end|>", ""] {
            let sampled = format!("let me see<|start_call|>add{end}");
            let message = with_calls(tracked(&model, "let me see", &sampled), &["{\"a\": 1}"]);
            let messages = [user("q"), message, json!({"role": "tool", "tool_call_id": "c0", "content": "1"})];
            assert_eq!(text(&model, &messages), Err(UnprovableSplice::NoClose), "{front}");
        }
    }
}

/// A close of two tokens, of which the first ends no generation, after a message whose calls nobody sees.
#[test]
fn calls_that_are_not_shown_do_not_hide_the_close() {
    let model = plain_anchor("{{ message.content + '<|end_response|><|im_end|>\\n' }}");
    let added = [tito::tokenizer::AddedToken::verbatim(326, "<|end_response|>", true)];
    let tokenizer = super::tiny_tokenizer().with_added_tokens(&added).unwrap();
    let model = Model::new(tokenizer, model.template(), model.eos.clone());
    for (content, sampled) in [("", "call"), ("so", "so, call<|end_response|>"), ("", "<|end_response|><|im_end|>")] {
        let message = with_calls(tracked(&model, content, sampled), &["{\"a\": 1}"]);
        let messages = [user("q"), message, json!({"role": "tool", "tool_call_id": "c0", "content": "1"})];
        let said = sampled.split("<|end").next().unwrap();
        let close = "<|end_response|><|im_end|>\n<|im_start|>tool\n1<|im_end|>\n<|im_start|>assistant\n";
        assert_eq!(text(&model, &messages), Ok(format!("{said}{close}")), "{content}, {sampled}");
    }
}

/// The template shows none of the content, or one of its parts, right after something that looks like its end.
#[test]
fn contents_that_are_not_shown_do_not_hide_the_close() {
    let model = plain_anchor("{{ '<answer>' + message.content.split('</think>')[-1] + '<|im_end|>\\n' }}");
    let messages = [user("q"), tracked(&model, "<think>hm</think>", "<think>hm</think>"), user("more")];
    assert_eq!(text(&model, &messages), Ok(format!("<think>hm</think><|im_end|>{MORE}")));

    let model = Model::tiny(
        "{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' + message.content[0].text + '<|im_end|>' }}\
         {% for part in message.content %}{% endfor %}{% endfor %}",
    );
    let parts = json!([{"type": "text", "text": "it is"}, {"type": "text", "text": "fine"}]);
    let messages = [user("q"), tracked(&model, parts, "it is"), user("more")];
    assert_eq!(text(&model, &messages).as_deref(), Ok("it is<|im_end|><|im_start|>user\nmore<|im_end|>"));
}

/// The first stop token after the arguments is one that the model wrote.
#[test]
fn a_stop_token_in_what_follows_the_arguments_closes_nothing() {
    let model = plain_anchor(
        "{% for call in message.tool_calls %}{{ '<tool_call>' + call.function.arguments | tojson + call.function.name + \
         '</tool_call>' }}{% endfor %}{{ message.content + '<|im_end|>\\n' }}",
    );
    let tool = json!({"role": "tool", "tool_call_id": "c0", "content": "1"});
    let content = "It is <|im_end|> in ChatML";
    let message = with_calls(tracked(&model, content, "calls and <|im_end|>"), &["{\"a\": 1}"]);
    let expected = "calls and <|im_end|>\n<|im_start|>tool\n1<|im_end|>\n<|im_start|>assistant\n";
    assert_eq!(text(&model, &[user("q"), message, tool.clone()]).as_deref(), Ok(expected));

    let mut message = with_calls(tracked(&model, "", "calls<|im_end|>"), &["{\"a\": 1}"]);
    message["tool_calls"][0]["function"]["name"] = json!("add<|im_end|>");
    // Neither the arguments nor the empty content show where the call ends.
    assert_eq!(text(&model, &[user("q"), message, tool]), Err(UnprovableSplice::TailDiffers));
}

/// A stop token in a later message, or one that the template writes at the very end, is not the call's close.
#[test]
fn a_stop_token_behind_later_messages_closes_nothing() {
    let template = |end: &str| {
        format!(
            "{{% for message in messages %}}{{{{ '<|im_start|>' + message.role + '\\n' + message.content }}}}\
             {{% for call in message.tool_calls or [] %}}{{{{ call.function.arguments | tojson }}}}{{% endfor %}}\
             {{{{ '<|end|>\\n' }}}}{{% endfor %}}{end}"
        )
    };
    let added = [tito::tokenizer::AddedToken::verbatim(326, "<|end|>", true)];
    for (end, result) in [("", "1<|im_end|>"), ("<|im_end|>", "1")] {
        let tokenizer = super::tiny_tokenizer().with_added_tokens(&added).unwrap();
        let eos = tito::model::EosTokens { primary: Some(2), others: Vec::new() };
        let model = Model::new(tokenizer, &template(end), eos);
        for sampled in ["calls", "calls<|end|>"] {
            let message = with_calls(tracked(&model, "", sampled), &["{\"a\": 1}"]);
            let messages = [user("q"), message, json!({"role": "tool", "tool_call_id": "c0", "content": result})];
            let expected = format!("calls<|end|>\n<|im_start|>tool\n{result}<|end|>\n{end}");
            assert_eq!(text(&model, &messages), Ok(expected), "{sampled}");
        }
    }
}

/// A token that ended the generation stands inside the template's own end of a call.
#[test]
fn a_stop_token_of_the_request_inside_the_calls_end_is_continued_from() {
    let family = families::named("deepseek");
    let model = &family.model;
    let stop = model.ids("<|call_end|>");
    let tool = json!({"role": "tool", "tool_call_id": "c0", "content": "1"});
    for (sampled, rest) in [
        ("call<|call_end|>", "<|calls_end|><|end|>"),
        ("call<|call_end|><|calls_end|>", "<|end|>"),
        ("call<|call_end|><|calls_end|><|end|>", ""),
    ] {
        let message = with_calls(tracked(model, "", sampled), &["{\"a\": 1}"]);
        let request = json!({"messages": [user("q"), message, tool], "stop_token_ids": stop});
        let ids = render_request(model, &request).unwrap();
        let after = "<|outputs_begin|><|output_begin|>1<|output_end|><|outputs_end|>";
        assert_eq!(model.text(&ids[1..]), format!("{sampled}{rest}{after}"), "{sampled}");
    }
}

#[test]
fn a_message_that_the_template_moves_to_the_front_is_not_lost() {
    let front =
        "{% for message in messages %}{% if message.role == 'system' %}{{ message.content }}{% endif %}{% endfor %}";
    let anchor = PLAIN;
    let model = chatml(front, anchor, "");
    let system = json!({"role": "system", "content": "be brief"});
    // Shown at both places: nothing is lost, but nothing proves it.
    let messages = [user("q"), tracked(&model, "fine", "fine<|im_end|>"), system.clone(), user("more")];
    assert_eq!(text(&model, &messages), Err(UnprovableSplice::MessagesMoved));
    let messages = [system, user("q"), tracked(&model, "fine", "fine<|im_end|>"), user("more")];
    assert_eq!(text(&model, &messages), Ok(format!("fine<|im_end|>{MORE}")));
}

#[test]
fn a_developer_message_that_joins_the_system_prompt_is_not_lost() {
    let model = plain_anchor(PLAIN);
    let developer = json!({"role": "developer", "content": "be brief"});
    let messages = [user("q"), tracked(&model, "fine", "fine<|im_end|>"), developer.clone(), user("more")];
    assert_eq!(text(&model, &messages), Err(UnprovableSplice::MessagesMoved));
    // Without an assistant, the ids stand for all messages up to the last, which is shown first.
    let request = json!({"messages": [user("q"), developer], "required_prefix_token_ids": [5, 6]});
    assert_eq!(render_request(&model, &request), Err(UnprovableSplice::MessagesMoved));
}

/// What the client appended to the message would be lost.
#[test]
fn a_continued_message_that_says_more_than_its_ids_is_refused() {
    let model = plain_anchor(PLAIN);
    let continued = |content: &str, sampled: &str| {
        let messages = [user("q"), tracked(&model, content, sampled)];
        let request = json!({"messages": messages, "continue_final_message": true, "add_generation_prompt": false});
        render_request(&model, &request)
    };
    let ids = |sampled: &str| Ok([vec![5], model.ids(sampled)].concat());
    assert_eq!(continued("hello wor", "hello wor"), ids("hello wor"));
    assert_eq!(continued("hello", "hello \n"), ids("hello \n"));
    assert_eq!(continued("is it?", "<think>hm</think>is it?"), ids("<think>hm</think>is it?"));
    assert_eq!(continued("", "<think>hm"), ids("<think>hm"));
    assert_eq!(continued("hello world", "hello wor"), Err(UnprovableSplice::ContinuesOtherText));
    assert_eq!(continued("hello", "hello wor"), Err(UnprovableSplice::ContinuesOtherText));
    assert_eq!(continued("hello", "hello<|im_start|>"), Err(UnprovableSplice::ContinuesClosedMessage));
    assert_eq!(continued("hello", "hello<|im_end|>"), Err(UnprovableSplice::ContinuesClosedMessage));
}

#[test]
fn a_tokenizer_that_ends_texts_is_refused_where_it_is_asked_to() {
    let mut json: Value = serde_json::from_str(&super::tiny_tokenizer().to_json().unwrap()).unwrap();
    let special = json!({"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}});
    let sequence = json!({"Sequence": {"id": "A", "type_id": 0}});
    json["post_processor"] = json!({
        "type": "TemplateProcessing", "single": [sequence, special], "pair": [sequence, sequence],
        "special_tokens": {"<|endoftext|>": {"id": "<|endoftext|>", "ids": [0], "tokens": ["<|endoftext|>"]}},
    });
    let tokenizer = tito::tokenizer::Tokenizer::from_bytes(json.to_string().as_bytes()).unwrap();
    let plain = plain_anchor(PLAIN);
    let model = Model::new(tokenizer, plain.template(), plain.eos.clone());
    let messages = [user("q"), tracked(&model, "fine", "fine<|im_end|>"), user("more")];
    assert_eq!(text(&model, &messages), Ok(format!("fine<|im_end|>{MORE}")));
    let request = json!({"messages": messages, "add_special_tokens": true});
    assert_eq!(render_request(&model, &request), Err(UnprovableSplice::TokenizerEndsText));
}

#[test]
fn a_template_without_special_tokens_is_refused() {
    let template = "{% for message in messages %}{{ message.role + ': ' + message.content + '\\n' }}{% endfor %}";
    let model = Model::tiny(template);
    let messages = [user("q"), tracked(&model, "fine", "fine"), user("more")];
    assert_eq!(text(&model, &messages), Err(UnprovableSplice::NoClose));
}

#[test]
fn a_template_that_keeps_only_the_last_messages_is_refused() {
    let template =
        "{% for message in messages[-1:] %}{{ '<|im_start|>' + message.content + '<|im_end|>' }}{% endfor %}";
    let model = Model::tiny(template);
    let messages = [user("q"), tracked(&model, "fine", "fine<|im_end|>"), user("more")];
    assert_eq!(text(&model, &messages), Err(UnprovableSplice::AnchorNotRendered));
}

/// All renders of a request see the same clock.
#[test]
fn a_date_in_the_tail_is_the_honest_renders() {
    let model = chatml("", PLAIN, "{{ strftime_now('%Y-%m-%d %H:%M:%S') }}");
    let messages = [user("q"), tracked(&model, "fine", "fine<|im_end|>"), user("more")];
    let text = text(&model, &messages).unwrap();
    assert!(text.ends_with("more<|im_end|>\n1970-01-01 00:00:00<|im_start|>assistant\n"), "{text}");
}

#[test]
fn template_variables_decide_the_tail() {
    let model = chatml("", PLAIN, "{% if style %}{{ style }}{% endif %}");
    let messages = [user("q"), tracked(&model, "fine", "fine<|im_end|>"), user("more")];
    let request = json!({"messages": messages, "chat_template_kwargs": {"style": "<think>"}});
    let ids = render_request(&model, &request).unwrap();
    assert!(model.text(&ids).ends_with("more<|im_end|>\n<think><|im_start|>assistant\n"));
}

#[test]
fn odd_contents_are_spliced_like_any_other() {
    let family = families::named("hermes");
    let model = &family.model;
    let word = "tito0123456789abcdef0123456789abcdef CONTINUE_FINAL_MESSAGE_TAG zz";
    let contents = [
        json!("nul \u{0} nul"),
        json!(word),
        json!("{{ messages }}{% raw %}"),
        json!("\u{FFFD}\u{FEFF}\u{200B}"),
        json!([{"type": "text", "text": "a"}, "b"]),
        json!([]),
        Value::Null,
    ];
    for content in contents {
        let messages = [user("q"), tracked(model, content.clone(), "fine<|im_end|>"), user("more")];
        assert_eq!(text(model, &messages), Ok(format!("fine<|im_end|>{MORE}")), "{content}");
    }
    for arguments in [&["{}"][..], &[""], &["not json"], &["{\"zz\": \"<|im_end|>\"}"], &["{}", "{}"]] {
        let message = with_calls(tracked(model, "", "call<|im_end|>"), arguments);
        let tool = json!({"role": "tool", "tool_call_id": "c0", "content": word});
        let expected = format!(
            "call<|im_end|>\n<|im_start|>user\n<tool_response>\n{word}\n</tool_response><|im_end|>\n\
             <|im_start|>assistant\n"
        );
        assert_eq!(text(model, &[user("q"), message, tool]), Ok(expected), "{arguments:?}");
    }
}

#[tokio::test]
async fn a_lone_surrogate_is_refused_as_no_text() {
    let model = plain_anchor(PLAIN);
    let server = model.serve(Vec::new());
    for place in ["messages", "required"] {
        let body = r#"{"messages":[{"role":"user","content":"\ud800"},{"role":"assistant","content":"\udc00","PLACE":1,
            "prompt_token_ids":[5],"generation_token_ids":[6]},{"role":"user","content":"q"}]}"#;
        let (status, answer) = server.post("/tokenize", body.replace("PLACE", place)).await;
        assert_eq!(status, 400, "{answer}");
    }
}

#[test]
fn sixty_four_thousand_known_ids_are_not_encoded_again() {
    let model = plain_anchor(PLAIN);
    let mut messages = Vec::new();
    for turn in 0..640 {
        messages.push(user(&format!("question {turn} {}", "the weather is ".repeat(16))));
        messages.push(json!({"role": "assistant", "content": format!("answer {turn} {}", "hello world ".repeat(16))}));
    }
    let last = messages.len() - 1;
    let sampled = model.ids("answer<|im_end|>");
    messages[last]["prompt_token_ids"] = json!(vec![5; 64_000]);
    messages[last]["generation_token_ids"] = json!(sampled);
    messages.push(user("more"));
    let ids = render(&model, &messages).unwrap();
    assert_eq!(ids.len(), 64_000 + sampled.len() + model.ids(MORE).len());
}
